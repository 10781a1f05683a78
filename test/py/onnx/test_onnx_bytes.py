"""Quantised products on bytes: exact for every sign, zero point and shape, and made of byte products where they can be."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.compiler import phases
from tilewright.compiler.driver import import_model
from tilewright.compiler.targets.target import resolve

LENIENT = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
TYPES = {"u8": (np.uint8, TensorProto.UINT8), "s8": (np.int8, TensorProto.INT8)}
signs = st.sampled_from(sorted(TYPES))
seeds = st.integers(0, 5)


def array(seed: int, sign: str, *shape: int) -> np.ndarray:
    """Bytes of the whole range, the least and the largest among them."""
    dtype = TYPES[sign][0]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)
    values.flat[0], values.flat[-1] = low, high
    return values


def model(
    operator: str, x: np.ndarray, w: np.ndarray, x_zero: int, w_zero: int, **attributes
) -> onnx.ModelProto:
    """One `operator` on an input x and a weight w."""
    weights = [
        numpy_helper.from_array(w, "w"),
        numpy_helper.from_array(x.dtype.type(x_zero), "x_zero"),
        numpy_helper.from_array(w.dtype.type(w_zero), "w_zero"),
    ]
    node = helper.make_node(operator, ["x", "w", "x_zero", "w_zero"], ["y"], **attributes)
    kind = next(proto for dtype, proto in TYPES.values() if dtype == x.dtype)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(onnx_model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    result = tilewright.compile(onnx_model, (x,))(x)
    return np.asarray(result[0] if isinstance(result, (list, tuple)) else result)


def zero_point(sign: str, part: int) -> int:
    """None, in the middle, or anywhere."""
    middle = 128 if sign == "u8" else 0
    return (0, middle, middle - 37)[part]


@LENIENT
@given(
    st.integers(1, 40), st.integers(1, 70), st.integers(1, 50), signs, signs, *[st.integers(0, 2)] * 2, seeds
)
def test_matmul_integer(m, n, k, x_sign, w_sign, x_part, w_part, seed) -> None:
    x, w = array(seed, x_sign, m, k), array(seed + 1, w_sign, k, n)
    x_zero, w_zero = zero_point(x_sign, x_part), zero_point(w_sign, w_part)
    expected = (x.astype(np.int64) - x_zero) @ (w.astype(np.int64) - w_zero)
    result = run(model("MatMulInteger", x, w, x_zero, w_zero), x)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)


@LENIENT
@given(
    st.integers(1, 9), st.integers(1, 40), st.sampled_from([1, 3]), st.integers(1, 2), st.integers(0, 1),
    signs, signs, *[st.integers(0, 2)] * 2, seeds,
)  # fmt: skip
def test_conv_integer(inputs, outputs, kernel, stride, pad, x_sign, w_sign, x_part, w_part, seed) -> None:
    x, w = array(seed, x_sign, 2, inputs, 7, 6), array(seed + 1, w_sign, outputs, inputs, kernel, kernel)
    x_zero, w_zero = zero_point(x_sign, x_part), zero_point(w_sign, w_part)
    wide = [torch.from_numpy(v.astype(np.float64) - zero) for v, zero in ((x, x_zero), (w, w_zero))]
    expected = torch.nn.functional.conv2d(*wide, stride=stride, padding=pad).numpy()
    how = {"strides": [stride] * 2, "pads": [pad] * 4}
    np.testing.assert_array_equal(run(model("ConvInteger", x, w, x_zero, w_zero, **how), x), expected)


@pytest.mark.parametrize("largest", ["u8", "s8"])
def test_the_largest_sums_are_exact(largest: str) -> None:
    """Products of 255 by -128, 4,096 of them: any saturation of pairs to 16 bits would show."""
    x = np.full((3, 4096), 255 if largest == "u8" else -128, TYPES[largest][0])
    w = np.full((4096, 32), -128, np.int8)
    expected = x.astype(np.int64) @ w.astype(np.int64)
    np.testing.assert_array_equal(run(model("MatMulInteger", x, w, 0, 0), x), expected)


@pytest.mark.parametrize(
    ("x_sign", "w_sign", "w_zero", "columns"),
    [
        ("u8", "s8", 0, 32),
        ("s8", "u8", 128, 32),
        ("s8", "s8", 0, 32),
        ("u8", "s8", 3, 32),
        ("u8", "u8", 119, 521),
    ],
)
def test_products_with_weights_are_of_bytes(x_sign: str, w_sign: str, w_zero: int, columns: int) -> None:
    target = resolve("cpu")
    if not {"avx512vnni", "avxvnni"} & set(target.cpu_features):
        pytest.skip("this CPU does not multiply bytes in groups")
    x, w = array(1, x_sign, 8, 24), array(2, w_sign, 24, columns)
    imported = import_model(model("MatMulInteger", x, w, 5, w_zero), (x,))
    phases.run_phases(imported.module, target, "graph", "layout")
    assert "d2 floordiv 4" in str(imported.module)
    expected = (x.astype(np.int64) - 5) @ (w.astype(np.int64) - w_zero)
    np.testing.assert_array_equal(run(model("MatMulInteger", x, w, 5, w_zero), x), expected)
