"""Contractions on ordinary arithmetic and those of few rows, run under the checking emulator on odd shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_dispatches import Case, assert_close, convolution, matmul
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.families.contraction.choice import choose_skinny
from tilewright.compiler.families.contraction.problem import read_contraction
from tilewright.compiler.families.contraction.simt_gemm import SimtTile, emit_simt
from tilewright.compiler.families.contraction.skinny_gemm import SkinnyTile, emit_skinny
from tilewright.compiler.ir import context, functions, ir, parse
from tilewright.compiler.targets.target import resolve

SMALL = SimtTile(32, 32, 8, 4, 4, stages=3, deferred=True)


def check(case: Case, tile: SimtTile | SkinnyTile, order: int = 0) -> None:
    emit = emit_simt if isinstance(tile, SimtTile) else emit_skinny
    found, expected = case.run(lambda contraction: emit(contraction, tile), order=order)
    assert_close(found, expected, case.result_dtype, case.dtype if case.dtype == "f32" else "")


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(("a", "b"), [("mk", "kn"), ("km", "kn"), ("mk", "nk"), ("km", "nk")])
def test_every_layout_on_ragged_and_even_shapes(a: str, b: str, deferred: bool) -> None:
    tile = replace(SMALL, deferred=deferred)
    check(matmul(45, 37, 43, a, b, epilogue="bias_relu"), tile)
    check(matmul(64, 36, 24, a, b, epilogue="gelu"), tile)


@pytest.mark.parametrize(
    "tile",
    [
        SimtTile(128, 128, 8, 8, 8, stages=2, blocks_per_core=2),
        SimtTile(64, 32, 16, 8, 4, stages=4, deferred=True, raster=2),
        SimtTile(16, 64, 4, 1, 4, stages=2),
        SimtTile(32, 32, 12, 2, 8, stages=2, deferred=True, padding=8),
        SimtTile(48, 24, 8, 3, 3, stages=3, deferred=True),
    ],
    ids=lambda tile: f"{tile.block_m}x{tile.block_n}x{tile.block_k}",
)
def test_every_shape_of_tiles(tile: SimtTile) -> None:
    check(matmul(70, 84, 20, epilogue="residual"), tile)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i8", "i32"])
def test_every_type_sums_in_its_own(dtype: str) -> None:
    result = dtype if dtype in ("f16", "bf16") else ""
    check(matmul(37, 29, 41, dtype=dtype, result=result), SMALL)
    check(matmul(32, 40, 48, "km", "nk", dtype=dtype), SMALL)


def test_booleans_are_stored_one_by_one() -> None:
    check(matmul(33, 20, 17, epilogue="positive", result="i1"), SMALL)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_parts_of_k_are_added_in_the_same_order_whoever_comes_last(order: int) -> None:
    case = matmul(45, 40, 100, epilogue="bias_relu")
    tile = replace(SMALL, split_k=4)
    check(case, tile, order)
    first, _ = case.run(lambda c: emit_simt(c, tile), order=0)
    again, _ = case.run(lambda c: emit_simt(c, tile), order=order + 7)
    assert (first == again).all()


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        convolution(2, (5, 6), 3, 20, epilogue="bias_relu"),
        convolution(1, (7, 6), 3, 12, window=7, stride=2),
        convolution(2, (5, 5), 8, 12, window=1),
        convolution(1, (5, 6), 4, 8, stride=2, dilation=2),
        convolution(2, (4, 5), 4, 8, groups=3),
    ],
    ids=["3x3", "7x7 stride 2", "1x1", "dilated", "groups"],
)
def test_convolutions(case: Case, deferred: bool) -> None:
    check(case, replace(SMALL, deferred=deferred))


def test_packed_batched_and_strided_factors() -> None:
    packed = Case(
        {"m": 38, "n": 40, "k": 12},
        ("m floordiv 2", "k", "m mod 2"),
        ("n floordiv 8", "k", "n mod 8"),
        ("m", "n"),
    )
    check(packed, SMALL)
    batched = Case({"b": 3, "m": 35, "n": 20, "k": 18}, ("b", "m", "k"), ("b", "k", "n"), ("b", "m", "n"))
    check(batched, SMALL)
    heads = Case({"h": 2, "m": 20, "n": 24, "k": 8}, ("m", "h", "k"), ("n", "h", "k"), ("h", "m", "n"))
    check(heads, SMALL)
    strided = matmul(20, 24, 16, epilogue="bias_relu", strides={0: (20, 1), 1: (27, 1), 3: (40, 1)})
    check(strided, SMALL)


def test_buffers_between_16_byte_boundaries_take_narrower_copies() -> None:
    check(matmul(40, 32, 24, alignments={0: 4, 1: 8, 2: 4}), SMALL)


@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 1), (5, 1, 40), (2, 1, 1), (1, 6, 9)])
def test_loops_of_one_step(m: int, n: int, k: int) -> None:
    check(matmul(m, n, k, epilogue="bias_relu"), SMALL)


def test_both_factors_may_be_one_buffer() -> None:
    text = matmul(20, 20, 24, "mk", "nk").text()
    shared = text.replace(", %b: tensor<20x24xf32>", "").replace("ins(%a, %b :", "ins(%a, %a :")
    (function,) = functions(module := parse(shared))
    assert module
    with context(), ir.Location.unknown():
        kernel = emit_simt(read_contraction(function), SMALL)
    a = np.random.default_rng(0).standard_normal((20, 24)).astype(np.float32)
    result = np.zeros((20, 20), np.float32)
    run_kernel(kernel, [a, result])
    np.testing.assert_allclose(result, a @ a.T, atol=1e-4)


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
@given(
    m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(1, 50), a=st.sampled_from(["mk", "km"]),
    b=st.sampled_from(["kn", "nk"]), deferred=st.booleans(), split=st.integers(1, 3), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape(m: int, n: int, k: int, a: str, b: str, deferred: bool, split: int, seed: int) -> None:
    if m == 1 and n == 1:
        n = 2
    tile = replace(SMALL, deferred=deferred, split_k=split)
    check(matmul(m, n, k, a, b, epilogue="bias_relu"), tile, order=seed)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize("b", ["kn", "nk"])
@pytest.mark.parametrize("rows", [1, 5])
def test_few_rows(rows: int, b: str, dtype: str) -> None:
    for n, k, parts in ((33, 77, 1), (64, 128, 3)):
        case = matmul(rows, n, k, "mk" if n == 33 else "km", b, dtype=dtype)

        def emit(contraction, parts=parts):
            tile = choose_skinny(contraction, resolve("a100"))
            return emit_skinny(contraction, replace(tile, split_k=parts))

        found, expected = case.run(emit)
        assert_close(found, expected, case.result_dtype, "f32" if dtype == "f32" else "")


def test_a_vector_by_a_matrix_and_a_matrix_by_a_vector() -> None:
    for case in (
        Case({"n": 90, "k": 100}, ("k",), ("k", "n"), ("n",), epilogue="bias_relu"),
        Case({"m": 90, "k": 100}, ("m", "k"), ("k",), ("m",), epilogue="gelu"),
        Case({"b": 3, "n": 40, "k": 64}, ("b", "k"), ("b", "n", "k"), ("b", "n")),
    ):
        found, expected = case.run(lambda c: emit_skinny(c, choose_skinny(c, resolve("v100"))))
        assert_close(found, expected, "f32")
