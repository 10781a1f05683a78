"""One dispatch to LLVM IR: what the schedule says is what the code does, or it is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tilewright.compiler.codegen.lower_cpu import cpu_code, kernel_key, lower
from tilewright.compiler.codegen.machine_code import UNROLLED, assembly, emit_object
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve

AVX512 = resolve("x86-64-v4")
AVX2 = resolve("x86-64-v3")

SUM_IN_MEMORY = re.compile(r"vmov\w+\s+%ymm\d+, -?\d*\(%rsp\)")
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


@pytest.mark.parametrize("rows", [8, 10, 11])
def test_sums_of_one_vector_stay_in_registers(rows):
    """LLVM is kept from unrolling their loop, where a sum would be in memory between two steps."""
    said = f"{{reductions = [{{products = [{rows}, 8]}}], tile = [0, 0]}}"
    text, _ = lowered(matmul(said), AVX2)
    optimised = emit_object(text, cpu_code(AVX2))[1]
    assert UNROLLED in text and not SUM_IN_MEMORY.search(assembly(optimised, cpu_code(AVX2)))


def test_other_products_are_unrolled():
    for target, sizes in ((AVX2, "[4, 16]"), (AVX2, "[7, 8]"), (AVX512, "[8, 16]")):
        text, _ = lowered(matmul(f"{{reductions = [{{products = {sizes}}}], tile = [0, 0]}}"), target)
        assert UNROLLED not in text


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


LEFT = {
    "a check": """
        linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x48xi32>) {
        ^bb0(%in: i32):
          %zero = arith.constant 0 : i32
          %right = arith.cmpi ne, %in, %zero : i32
          cf.assert %right, "integer division by zero"
          linalg.yield
        }""",
    "a whole tensor that is read by element": """
        %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%x : tensor<64x48xi32>) outs(%e : tensor<64x48xi32>) {
        ^bb0(%in: i32, %o: i32):
          %p = arith.muli %in, %in : i32
          linalg.yield %p : i32
        } -> tensor<64x48xi32>""",
}


def left_over(kind: str, attributes: str) -> ir.Operation:
    """A dispatch that is cut along with an operation that cannot be."""
    read = (
        "tensor.extract %t[%i, %j] : tensor<64x48xi32>" if "%t" in LEFT[kind] else "arith.addi %in, %in : i32"
    )
    module = parse(
        f"""
      #id = affine_map<(d0, d1) -> (d0, d1)>
      func.func private @left(%x: tensor<64x48xi32>) -> tensor<64x48xi32> attributes {{{attributes}}} {{
        %e = tensor.empty() : tensor<64x48xi32>{LEFT[kind]}
        %r = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}}
            ins(%x : tensor<64x48xi32>) outs(%e : tensor<64x48xi32>) {{
        ^bb0(%in: i32, %o: i32):
          %i = linalg.index 0 : index
          %j = linalg.index 1 : index
          %v = {read}
          linalg.yield %v : i32
        }} -> tensor<64x48xi32>
        return %r : tensor<64x48xi32>
      }}"""
    )
    _ALIVE.append(module)
    return next(functions(module))


@pytest.mark.parametrize("kind", LEFT)
def test_what_would_stand_outside_of_the_grid_is_refused_and_never_constructed(kind):
    whole = lowered(left_over(kind, "tilewright.schedule = {tile = []}"))
    with pytest.raises(ScheduleError, match=r"tile is \[8, 0\], but `linalg.generic` would stand outside"):
        lowered(left_over(kind, "tilewright.schedule = {tile = [8, 0]}"))
    function = left_over(kind, 'tilewright.operator = "elementwise"')
    finely = replace(ConstructSchedules.for_target(AVX512), cores=7, start_us=0.0, task_us=0.0)
    run_pipeline(function.parent, f"builtin.module({finely.spec()})")
    schedule = schedule_attribute.read(function)
    assert schedule is not None and not any(schedule.tile)
    assert lowered(function) == whole


def test_a_reshaped_start_is_cut_along():
    """The sink's result starts in a tensor of its own shape, so that nothing is copied behind the grid."""
    module = parse("""
      func.func private @sums(%x: tensor<64x32xf32>) -> tensor<64xf32> attributes {tilewright.schedule = {tile = [16]}} {
        %zero = arith.constant 0.0 : f32
        %e = tensor.empty() : tensor<64x1xf32>
        %flat = tensor.collapse_shape %e [[0, 1]] : tensor<64x1xf32> into tensor<64xf32>
        %start = linalg.fill ins(%zero : f32) outs(%flat : tensor<64xf32>) -> tensor<64xf32>
        %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
                             iterator_types = ["parallel", "reduction"]}
            ins(%x : tensor<64x32xf32>) outs(%start : tensor<64xf32>) {
        ^bb0(%a: f32, %o: f32):
          %s = arith.addf %o, %a : f32
          linalg.yield %s : f32
        } -> tensor<64xf32>
        return %r : tensor<64xf32>
      }""")
    _ALIVE.append(module)
    assert lowered(next(functions(module)))[1].tasks == 4
