"""One dispatch to LLVM IR: what the schedule says is what the code does, and what fails is lowered whole."""

from __future__ import annotations

import re

import pytest

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.lower import kernel_key, lower
from tilewright.compiler.target import resolve

AVX512 = resolve("x86-64-v4")
AVX2 = resolve("x86-64-v3")

_ALIVE: list[ir.Module] = []


def matmul(
    schedule: str = "", name: str = "matmul", right: str = "d2, d1", weight: str = "32x64"
) -> ir.Operation:
    """A dispatch C[48, 64] = A[48, 32] B[32, 64] in f32."""
    attribute = f"tilewright.schedule = {schedule}, " if schedule else ""
    module = parse(f"""
      func.func private @{name}(%a: tensor<48x32xf32>, %b: tensor<{weight}xf32>) -> tensor<48x64xf32>
          attributes {{{attribute}tilewright.operator = "matmul"}} {{
        %zero = arith.constant 0.0 : f32
        %empty = tensor.empty() : tensor<48x64xf32>
        %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<48x64xf32>) -> tensor<48x64xf32>
        %c = linalg.generic {{indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> ({right})>,
                                             affine_map<(d0, d1, d2) -> (d0, d1)>],
                             iterator_types = ["parallel", "parallel", "reduction"]}}
            ins(%a, %b : tensor<48x32xf32>, tensor<{weight}xf32>) outs(%start : tensor<48x64xf32>) {{
        ^bb0(%x: f32, %y: f32, %o: f32):
          %p = arith.mulf %x, %y : f32
          %s = arith.addf %o, %p : f32
          linalg.yield %s : f32
        }} -> tensor<48x64xf32>
        return %c : tensor<48x64xf32>
      }}""")
    _ALIVE.append(module)
    return next(functions(module))


def lowered(function: ir.Operation, target=AVX512):
    with function.context, ir.Location.unknown(function.context):
        return lower(function, target)


def accumulators(text: str) -> list[int]:
    """Lanes of the vector phis of the innermost loop, which are the accumulators."""
    return [int(lanes) for lanes in re.findall(r"phi <(\d+) x float>", text)]


@pytest.mark.parametrize(
    "tile, tasks", [("[0, 0]", 1), ("[16, 0]", 3), ("[16, 32]", 6), ("[12, 0]", 4), ("[]", 1)]
)
def test_the_tile_makes_the_tasks(tile, tasks):
    _, kernel = lowered(matmul(f"{{tile = {tile}}}"))
    assert kernel.tasks == tasks


def test_the_register_tile_is_the_schedules():
    text, _ = lowered(matmul("{tile = [16, 32], unroll = 3, vector = 16}"))
    assert accumulators(text) == [16] * 3 + [16]  # sixteen rows in threes, and one alone


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=lambda target: target.name)
def test_without_one_the_registers_are_filled(target):
    text, _ = lowered(matmul("{tile = [0, 0]}"), target)
    found = accumulators(text)
    assert max(found) * 32 == target.vector_bits
    assert len(found) >= 8


def test_register_tiles_across_packed_blocks_are_refused():
    packed = {"right": "d1 floordiv 32, d2, d1 mod 32", "weight": "2x32x32"}
    lowered(matmul("{tile = [16, 32], unroll = 4, vector = 16}", **packed))
    with pytest.raises(ScheduleError, match="vector 24 crosses the blocks of 32 of a packed operand"):
        lowered(matmul("{tile = [16, 32], unroll = 4, vector = 24}", **packed))


def test_an_illegal_tile_is_an_error_and_never_ignored():
    with pytest.raises(ScheduleError, match="tile 49 of loop 0 exceeds its extent 48"):
        lowered(matmul("{tile = [49, 0]}"))


def test_ragged_accumulations_overlap_in_memory_of_their_own():
    _, kernel = lowered(matmul("{tile = [20, 0]}"))
    assert kernel.tasks == 3


def test_keys_tell_code_apart_and_names_not():
    key = kernel_key(matmul("{tile = [16, 0]}"), AVX512)
    assert key == kernel_key(matmul("{tile = [16, 0]}", name="other"), AVX512)
    assert key != kernel_key(matmul("{tile = [8, 0]}"), AVX512)
    assert key != kernel_key(matmul("{tile = [16, 0], unroll = 2}"), AVX512)
    assert key != kernel_key(matmul("{tile = [16, 0]}"), AVX2)


def test_lowering_leaves_the_dispatch_as_it_is():
    function = matmul("{tile = [16, 0]}")
    before = str(function)
    lowered(function)
    assert str(function) == before
