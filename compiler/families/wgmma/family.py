"""Contractions on Hopper's tensor cores: persistent, warp-specialised kernels of wgmma, TMA and mbarriers.

Matrix products, batched ones, and convolutions as such, in f16, bf16, tf32 (when the schedule asks) and i8. What TMA
cannot address, or wgmma cannot multiply, is left to the next family.
"""

from __future__ import annotations

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contraction.problem import Contraction, read_contraction
from tilewright.compiler.families.decision import Decision
from tilewright.compiler.families.wgmma.choice import choose, share_of_use, tile_of
from tilewright.compiler.families.wgmma.kernel import build
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.families.wgmma.plan import Plan, column_step, majors, make_plan
from tilewright.compiler.families.wgmma.tile import MOST_COLUMNS, WARPGROUP_ROWS, HopperTile
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target

ARCH = "sm_90a"
FEWEST_ROWS = 16
"""Products of fewer rows read the second factor once and hardly use tensor cores: left to others by default."""
LEAST_USE = 0.25
"""By default, at least so much of what the tensor cores do must be wanted."""


def emit(function: ir.Operation, schedule: Schedule, target: Target) -> ir.Module:
    """The dispatch's kernel; raises as `decide` does."""
    return decide(function, schedule, target).write()


def decide(function: ir.Operation, schedule: Schedule, target: Target) -> Decision:
    """The plan of the dispatch's kernel; raises NotContraction or NotHopper where it is none of this family.

    Raises ScheduleError for a schedule that asks for a tile which cannot be.
    """
    found = plan(function, schedule, target)

    def write() -> ir.Module:
        with function.context, function.location:
            return build(found, target.num_cores)

    return Decision(Schedule(gpu=found.gpu), write)


def plan(function: ir.Operation, schedule: Schedule, target: Target) -> Plan:
    """Everything decided about the kernel; raises NotContraction or NotHopper where it is none of this family."""
    gpu = schedule.gpu or GpuTile()
    if target.arch != ARCH:
        raise NotHopper(f"{target.arch} is not {ARCH}")
    if gpu.kernel not in ("", "wgmma"):
        raise NotHopper(f"the schedule wants the kernel `{gpu.kernel}`")
    contraction = read_contraction(function)
    type_ = operand_type(contraction, gpu)
    _, b_major, _ = majors(contraction, type_)
    tile = choose(contraction, type_, b_major, target.num_cores)
    asked = gpu.kernel == "wgmma"
    if not asked and contraction.extent("m") < FEWEST_ROWS:
        raise NotHopper(f"{contraction.extent('m')} rows")
    if not asked and (use := share_of_use(contraction, tile, type_)) < LEAST_USE:
        raise NotHopper(f"{use:.0%} of what the tensor cores would do is wanted")
    if schedule.gpu is not None:
        tile = tile_of(gpu, tile)
    rule = _column_rule(tile, type_)
    found = None if rule else make_plan(contraction, tile, type_)
    if found is not None:
        rule = tile.broken_rule(b_major, found.panels)
        if gpu.block and (gpu.block[0] % WARPGROUP_ROWS or gpu.block[2:] not in ((), (found.depth,))):
            rule = f"block is [a multiple of 64, n, {found.depth}] for {type_}, found {list(gpu.block)}"
    if rule or found is None:
        raise ScheduleError(
            f"dispatch @{contraction.name} as wgmma kernel on {ARCH}: {rule}", function.location
        )
    return found


def _column_rule(tile: HopperTile, type_: str) -> str | None:
    """What is wrong with the number of columns, if anything."""
    step = column_step(type_, tile.columns)
    if tile.columns % step or tile.columns > MOST_COLUMNS:
        return f"block_n of {type_} is 8 to {MOST_COLUMNS} in steps of {step}, found {tile.columns}"
    return None


def operand_type(contraction: Contraction, gpu: GpuTile) -> str:
    """wgmma's name for the factors' type; raises NotHopper where it has none."""
    a, b = contraction.a_dtype, contraction.b_dtype
    if contraction.convert_a is not None or contraction.convert_b is not None:
        raise NotHopper("a factor is converted before it is multiplied")
    if a != b:
        raise NotHopper(f"factors of {a} and {b}")
    if a in ("f16", "bf16") and contraction.compute_dtype == "f32":
        return a
    if a == "i8" and contraction.compute_dtype == "i32":
        return a
    if a == "f32" and contraction.compute_dtype == "f32":
        if "tf32" in gpu.instruction:
            return "tf32"
        raise NotHopper("f32 is rounded to tf32 only when the schedule asks for it")
    raise NotHopper(f"factors of {a}, summed up in {contraction.compute_dtype}")
