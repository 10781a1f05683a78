"""Contractions on matrix instructions, run under the checking emulator: types, layouts, ragged shapes, parts of K."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gemm_dispatches import Case, assert_close, convolution, matmul
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler.families.contraction.mma_gemm import INSTRUCTIONS, MmaTile, emit_mma
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile, emit_volta

F16, BF16, TF32, I8 = (
    INSTRUCTIONS[f"mma.m16n8{name}"] for name in ("k16.f16", "k16.bf16", "k8.tf32", "k32.i8")
)
SMALL = MmaTile(F16, 32, 32, 32, 16, 16, 3)
LAYOUTS = [("mk", "kn"), ("km", "kn"), ("mk", "nk"), ("km", "nk")]


def check(case: Case, tile: MmaTile | VoltaTile, order: int = 0) -> None:
    emit = emit_mma if isinstance(tile, MmaTile) else emit_volta
    found, expected = case.run(lambda contraction: emit(contraction, tile), order=order)
    tf32 = isinstance(tile, MmaTile) and tile.instruction is TF32
    assert_close(found, expected, case.result_dtype, "tf32" if tf32 else "")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("a", "b"), LAYOUTS)
def test_sixteen_bits_in_every_layout(a: str, b: str, dtype: str) -> None:
    tile = replace(SMALL, instruction=F16 if dtype == "f16" else BF16)
    check(matmul(45, 37, 43, a, b, dtype=dtype, result=dtype, epilogue="bias_relu"), tile)
    check(matmul(48, 40, 64, a, b, dtype=dtype, result=dtype, epilogue="residual"), replace(tile, split_k=2))


@pytest.mark.parametrize(("a", "b"), LAYOUTS)
def test_tf32_rounds_f32(a: str, b: str) -> None:
    tile = MmaTile(TF32, 32, 32, 16, 16, 16, 3)
    check(matmul(45, 37, 43, a, b), tile)
    check(matmul(32, 32, 24, a, b, epilogue="gelu"), tile)


@pytest.mark.parametrize(("a", "b"), LAYOUTS)
def test_bytes_sum_to_integers_exactly(a: str, b: str) -> None:
    tile = MmaTile(I8, 32, 32, 64, 16, 16, 3)
    check(matmul(45, 37, 70, a, b, dtype="i8"), tile)
    check(matmul(32, 48, 64, a, b, dtype="i8", result="f32", epilogue="scale"), tile)


@pytest.mark.parametrize(("a", "b"), LAYOUTS)
def test_volta_in_every_layout(a: str, b: str) -> None:
    check(
        matmul(45, 37, 43, a, b, dtype="f16", result="f16", epilogue="bias_relu"),
        VoltaTile(32, 32, 16, 16, 16),
    )
    check(matmul(64, 48, 96, a, b, dtype="f16"), VoltaTile(32, 48, 12, 32, 16, split_k=2))


@pytest.mark.parametrize(
    "tile",
    [
        MmaTile(F16, 128, 128, 32, 64, 64, 3),
        MmaTile(F16, 64, 128, 64, 32, 64, 2, raster=1),
        MmaTile(F16, 32, 24, 16, 16, 8, 4),
        MmaTile(F16, 16, 96, 48, 16, 48, 2),
        MmaTile(F16, 64, 64, 32, 32, 32, 3, padding=8),
    ],
    ids=lambda tile: f"{tile.block_m}x{tile.block_n}x{tile.block_k}",
)
@pytest.mark.parametrize(("a", "b"), [("mk", "kn"), ("km", "nk")])
def test_every_shape_of_tiles(tile: MmaTile, a: str, b: str) -> None:
    check(matmul(72, 104, 56, a, b, dtype="f16", result="f16"), tile)


@pytest.mark.parametrize(
    "case",
    [
        convolution(2, (5, 6), 3, 20),
        convolution(1, (7, 6), 8, 16, window=7, stride=2),
        convolution(2, (5, 5), 16, 12, window=1, epilogue="bias_relu"),
        convolution(1, (5, 6), 4, 8, stride=2, dilation=2),
        convolution(2, (4, 5), 8, 8, groups=3),
    ],
    ids=["3x3", "7x7 stride 2", "1x1", "dilated", "groups"],
)
@pytest.mark.parametrize("volta", [False, True])
def test_convolutions(case: Case, volta: bool) -> None:
    tile = VoltaTile(32, 32, 16, 16, 16) if volta else SMALL
    check(replace(case, dtype="f16", result="f16"), tile)


def test_results_that_lie_apart_are_written_from_registers() -> None:
    strided = Case(
        {"m": 40, "n": 36, "k": 40}, ("m", "k"), ("k", "n"), ("m", "n"), dtype="f16", strides={2: (80, 2)}
    )
    check(strided, SMALL)
    check(matmul(40, 36, 40, dtype="f16", result="f16", alignments={0: 2, 1: 4, 2: 2}), SMALL)


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
@given(
    m=st.integers(2, 70), n=st.integers(1, 70), k=st.integers(1, 90), layout=st.sampled_from(LAYOUTS),
    split=st.integers(1, 3), volta=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape(
    m: int, n: int, k: int, layout: tuple[str, str], split: int, volta: bool, seed: int
) -> None:
    tile = VoltaTile(32, 32, 16, 16, 16, split_k=split) if volta else replace(SMALL, split_k=split)
    check(matmul(m, n, k, *layout, dtype="f16", result="f16", epilogue="bias_relu"), tile, order=seed)
