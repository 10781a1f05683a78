"""Epilogues beyond one operation: starts that are not zero, positions, several results, transposed results, computed operands."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.families.contraction.mma_gemm import INSTRUCTIONS, MmaTile, emit_mma
from tilewright.compiler.families.contraction.problem import read_contraction
from tilewright.compiler.families.contraction.simt_gemm import SimtTile, emit_simt
from tilewright.compiler.ir import context, functions, ir, parse

M, N, K = 37, 44, 30
SIMT = SimtTile(32, 32, 8, 4, 4, 2)
TF32 = MmaTile(INSTRUCTIONS["mma.m16n8k8.tf32"], 32, 32, 16, 16, 16, 2)
_SUM = f"""
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{M}x{N}xf32>
  %start = {{start}}
  %sum = linalg.generic {{{{indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
      affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}}}}
      ins(%a, %b : tensor<{M}x{K}xf32>, tensor<{K}x{N}xf32>) outs(%start : tensor<{M}x{N}xf32>) {{{{
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %q = arith.addf %z, %p : f32
    linalg.yield %q : f32
  }}}} -> tensor<{M}x{N}xf32>"""
_ZERO = f"linalg.fill ins(%zero : f32) outs(%empty : tensor<{M}x{N}xf32>) -> tensor<{M}x{N}xf32>"
_FULL = "affine_map<(m, n) -> (m, n)>"
_KINDS = 'iterator_types = ["parallel", "parallel"]'


def dispatch(arguments: str, results: str, epilogue: str, start: str = _ZERO) -> str:
    more = f", {arguments}" if arguments else ""
    return (
        f"func.func @dispatch(%a: tensor<{M}x{K}xf32>, %b: tensor<{K}x{N}xf32>{more}) -> {results} {{\n"
        f"{_SUM.format(start=start)}\n{epilogue}\n}}"
    )


def run(
    text: str, results: list[np.ndarray], *more: np.ndarray, tile: SimtTile | MmaTile = SIMT
) -> np.ndarray:
    """a b in float64; `results` are filled by the kernel."""
    (function,) = functions(module := parse(text))
    assert module
    with context(), ir.Location.unknown():
        contraction = read_contraction(function)
        kernel = emit_simt(contraction, tile) if isinstance(tile, SimtTile) else emit_mma(contraction, tile)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((M, K), (K, N)))
    run_kernel(kernel, [a, b, *more, *results])
    return a.astype(np.float64) @ b.astype(np.float64)


def close(found: np.ndarray, expected: np.ndarray, tile: SimtTile | MmaTile) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-4 if isinstance(tile, SimtTile) else 2e-2)


@pytest.mark.parametrize("tile", [SIMT, TF32], ids=["simt", "mma"])
def test_a_start_that_is_no_zero_is_added(tile: SimtTile | MmaTile) -> None:
    start = np.random.default_rng(2).standard_normal((M, N)).astype(np.float32)
    result = np.zeros((M, N), np.float32)
    text = dispatch(
        f"%c: tensor<{M}x{N}xf32>", f"tensor<{M}x{N}xf32>", f"  return %sum : tensor<{M}x{N}xf32>",
        start=f"tensor.cast %c : tensor<{M}x{N}xf32> to tensor<{M}x{N}xf32>",
    ).replace("outs(%start", "outs(%c").replace(f"%start = tensor.cast %c : tensor<{M}x{N}xf32> to tensor<{M}x{N}xf32>", "")  # fmt: skip
    total = run(text, [result], start, tile=tile)
    close(result, total + start, tile)


@pytest.mark.parametrize("tile", [SIMT, TF32], ids=["simt", "mma"])
def test_positions_are_those_of_the_result(tile: SimtTile | MmaTile) -> None:
    epilogue = f"""
  %r = linalg.generic {{indexing_maps = [{_FULL}, {_FULL}], {_KINDS}}} ins(%sum : tensor<{M}x{N}xf32>)
      outs(%empty : tensor<{M}x{N}xf32>) {{
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %above = arith.cmpi ugt, %j, %i : index
    %v = arith.select %above, %zero, %x : f32
    linalg.yield %v : f32
  }} -> tensor<{M}x{N}xf32>
  return %r : tensor<{M}x{N}xf32>"""
    result = np.ones((M, N), np.float32)
    total = run(dispatch("", f"tensor<{M}x{N}xf32>", epilogue), [result], tile=tile)
    close(result, np.tril(total), tile)


@pytest.mark.parametrize("tile", [SIMT, TF32], ids=["simt", "mma"])
def test_two_results_of_one_operation(tile: SimtTile | MmaTile) -> None:
    out, half = f"tensor<{M}x{N}xf32>", f"tensor<{M}x{N}xf16>"
    epilogue = f"""
  %place = tensor.empty() : {half}
  %r:2 = linalg.generic {{indexing_maps = [{_FULL}, {_FULL}, {_FULL}], {_KINDS}}} ins(%sum : {out})
      outs(%empty, %place : {out}, {half}) {{
  ^bb0(%x: f32, %o: f32, %h: f16):
    %v = arith.maximumf %x, %zero : f32
    %n = arith.truncf %x : f32 to f16
    linalg.yield %v, %n : f32, f16
  }} -> ({out}, {half})
  return %r#0, %r#1 : {out}, {half}"""
    results = [np.zeros((M, N), np.float32), np.zeros((M, N), np.float16)]
    total = run(dispatch("", f"({out}, {half})", epilogue), results, tile=tile)
    close(results[0], np.maximum(total, 0), tile)
    np.testing.assert_allclose(results[1], total, atol=3e-2)


@pytest.mark.parametrize("tile", [SIMT, TF32], ids=["simt", "mma"])
def test_several_operations_a_transposed_result_and_an_operand_that_is_computed(
    tile: SimtTile | MmaTile,
) -> None:
    out, row, turned = f"tensor<{M}x{N}xf32>", f"tensor<{M}xf32>", f"tensor<{N}x{M}xf32>"
    epilogue = f"""
  %short = tensor.empty() : {row}
  %scale = linalg.generic {{indexing_maps = [affine_map<(m) -> (m)>, affine_map<(m) -> (m)>],
      iterator_types = ["parallel"]}} ins(%s : {row}) outs(%short : {row}) {{
  ^bb0(%x: f32, %o: f32):
    %v = math.exp %x : f32
    linalg.yield %v : f32
  }} -> {row}
  %scaled = linalg.generic {{indexing_maps = [{_FULL}, affine_map<(m, n) -> (m)>, {_FULL}], {_KINDS}}}
      ins(%sum, %scale : {out}, {row}) outs(%empty : {out}) {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    %v = arith.mulf %x, %y : f32
    linalg.yield %v : f32
  }} -> {out}
  %place = tensor.empty() : {turned}
  %r = linalg.generic {{indexing_maps = [{_FULL}, affine_map<(m, n) -> (n, m)>], {_KINDS}}}
      ins(%scaled : {out}) outs(%place : {turned}) {{
  ^bb0(%x: f32, %o: f32):
    %v = arith.negf %x : f32
    linalg.yield %v : f32
  }} -> {turned}
  return %r : {turned}"""
    scale = np.random.default_rng(3).standard_normal(M).astype(np.float32)
    result = np.zeros((N, M), np.float32)
    total = run(dispatch(f"%s: {row}", turned, epilogue), [result], scale, tile=tile)
    expected = -(total * np.exp(scale.astype(np.float64))[:, None]).T
    np.testing.assert_allclose(
        result, expected, atol=(1e-4 if tile is SIMT else 3e-2) * np.abs(expected).max()
    )
