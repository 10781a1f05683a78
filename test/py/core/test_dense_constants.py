"""Constants of every dtype come out of the IR bit by bit, however MLIR prints them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.analysis.dense_constants import dense_bytes, is_splat
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.package.plan import tensor_spec

_ALIVE: list[ir.Module] = []


def constant(value: str) -> ir.Operation:
    type_ = value.rpartition(" : ")[2]
    module = parse(f"func.func @f() -> {type_} {{ %c = arith.constant {value} return %c : {type_} }}")
    _ALIVE.append(module)
    return next(functions(module)).regions[0].blocks[0].operations[0].operation


def read(value: str) -> bytes:
    op = constant(value)
    return dense_bytes(op, tensor_spec(op.results[0].type, "c"))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("dense<[1.5, -0.0]> : tensor<2xf32>", np.array([1.5, -0.0], np.float32)),
        ("dense<1.0> : tensor<3xf64>", np.ones(3, np.float64)),
        ("dense<[true, false, true]> : tensor<3xi1>", np.array([1, 0, 1], np.uint8)),
        ("dense<true> : tensor<9xi1>", np.ones(9, np.uint8)),
        ("dense<[[1, -2]]> : tensor<1x2xi64>", np.array([1, -2], np.int64)),
        ("dense<-3> : tensor<2xi8>", np.array([-3, -3], np.int8)),
        ("dense<0x3C00> : tensor<2xf16>", np.array([1.0, 1.0], np.float16)),
        ("dense<0x3F80> : tensor<2xbf16>", np.array([0x3F80, 0x3F80], np.uint16)),
        ("dense<[(1.0, 2.0)]> : tensor<1xcomplex<f32>>", np.array([1 + 2j], np.complex64)),
        ("dense<(0.1, -2.0)> : tensor<2xcomplex<f64>>", np.array([0.1 - 2j] * 2, np.complex128)),
        ("dense<7> : tensor<2xindex>", np.array([7, 7], np.int64)),
        ("dense<> : tensor<0xf32>", np.array([], np.float32)),
    ],
)
def test_bytes_of_constants(text, expected):
    assert read(text) == expected.tobytes()


def test_bytes_of_large_constants():
    """More elements than MLIR prints one by one, infinities and not-a-numbers of all payloads among them."""
    bits = np.arange(0, 65536, 7, dtype=np.uint16)
    for element, expected in (
        ("bf16", bits),
        ("f16", bits),
        ("complex<f32>", np.linspace(-1, 1, 500).astype(np.complex64)),
    ):
        data = expected.tobytes()
        assert read(f'dense<"0x{data.hex().upper()}"> : tensor<{len(expected)}x{element}>') == data


@given(st.lists(st.integers(0, 65535), min_size=2, max_size=20))
def test_bytes_of_printed_bfloats(bits):
    numbers = ", ".join(f"0x{b:04X}" for b in bits)
    assert read(f"dense<[{numbers}]> : tensor<{len(bits)}xbf16>") == np.array(bits, np.uint16).tobytes()


@given(st.lists(st.complex_numbers(allow_nan=False), min_size=1, max_size=20))
def test_bytes_of_printed_complex_numbers(numbers):
    array = np.array(numbers, np.complex128)
    parts = ", ".join(f"(0x{p.real.view(np.uint64):016X}, 0x{p.imag.view(np.uint64):016X})" for p in array)
    assert read(f"dense<[{parts}]> : tensor<{len(array)}xcomplex<f64>>") == array.tobytes()


@pytest.mark.parametrize(
    "value, expected",
    [
        ("dense<1.0> : tensor<4xf32>", True),
        ("dense<[1.0, 1.0]> : tensor<2xf32>", True),
        ("dense<[1.0, 2.0]> : tensor<2xf32>", False),
        ("dense<true> : tensor<4xi1>", True),
        ("dense<(1.0, -2.0)> : tensor<4xcomplex<f32>>", True),
        ("dense<[(1.0, 2.0), (2.0, 1.0)]> : tensor<2xcomplex<f32>>", False),
    ],
)
def test_splats(value, expected):
    assert is_splat(constant(value)) == expected
