"""Contractions on Hopper's tensor cores: persistent, warp-specialised kernels of wgmma, TMA and mbarriers.

Matrix products, batched ones, and convolutions as such, in f16, bf16, tf32 (when the schedule asks) and i8. What TMA
cannot address, or wgmma cannot multiply, is left to the next family.
"""

from __future__ import annotations

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.contraction.problem import Contraction, read_contraction
from tilewright.compiler.families.wgmma.kernel import build
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.families.wgmma.plan import Plan, column_step, majors, make_plan
from tilewright.compiler.families.wgmma.schedule import TileSchedule
from tilewright.compiler.families.wgmma.tile import MOST_COLUMNS, WARPGROUP_ROWS, HopperTile
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target

ARCH = "sm_90a"


def match(function: ir.Operation, target: Target) -> Contraction:
    """The product that a dispatch is; raises NotContraction or NotHopper where TMA or wgmma do not take it."""
    if target.arch != ARCH:
        raise NotHopper(f"{target.arch} is not {ARCH}")
    contraction = read_contraction(function)
    majors(contraction, operand_type(contraction))
    return contraction


def emit(contraction: Contraction, schedule: Schedule, target: Target) -> ir.Module:
    """The kernel that a complete schedule describes; raises ScheduleError for one that no kernel has."""
    said = schedule.gpu or GpuTile()
    require(said, "kernel", "block", "instruction", "stages", "split_k", "cluster", "raster")
    return build(plan(contraction, said, target.num_cores), target.num_cores)


def plan(contraction: Contraction, said: GpuTile, cores: int) -> Plan:
    """Everything that the sizes of a schedule make of the kernel, for a device of `cores` multiprocessors.

    Raises ScheduleError for sizes that no kernel has, NotHopper where TMA does not take the contraction in any.
    """
    found = sized(contraction, said)
    tile, parts, rows = found.tile, effective_split(found, cores), most_raster(found)
    if tile.split != parts:
        _refuse(
            contraction,
            f"gpu.split_k is {tile.split}: tiles of the last wave come in {parts} parts; say {parts}",
        )
    if tile.raster > rows:
        _refuse(
            contraction,
            f"gpu.raster is {tile.raster}, but there are {rows} rows of blocks to walk; say {rows}",
        )
    return found


def sized(contraction: Contraction, said: GpuTile) -> Plan:
    """The plan of a kernel's sizes, whose parts of K and rows of blocks may be more than there are; raises as `plan`."""
    type_ = operand_type(contraction)
    if said.block[0] % WARPGROUP_ROWS or len(said.block) != 3:
        _refuse(contraction, f"block is [a multiple of {WARPGROUP_ROWS}, n, k], found {list(said.block)}")
    tile = HopperTile(
        said.block[0] // WARPGROUP_ROWS, said.block[1], said.stages, said.cluster, said.split_k, said.raster
    )
    step = column_step(type_, tile.columns)
    if tile.columns % step or tile.columns > MOST_COLUMNS:
        _refuse(
            contraction,
            f"block_n of {type_} is 8 to {MOST_COLUMNS} in steps of {step}, found {tile.columns}",
        )
    found = make_plan(contraction, tile, type_)
    rule = tile.broken_rule(found.b_major, found.panels)
    if not rule and said.block[2] != found.depth:
        rule = f"block is [a multiple of 64, n, {found.depth}] for {type_}, found {list(said.block)}"
    if rule:
        _refuse(contraction, rule)
    return found


def effective_split(plan: Plan, cores: int) -> int:
    """Parts of K that a kernel has: no more than steps of K, and 1 where whole tiles fill all waves."""
    schedule = TileSchedule(plan, cores)
    return schedule.split if schedule.divided else 1


def most_raster(plan: Plan) -> int:
    """Rows of blocks that can be walked column by column: 1 where there is one column."""
    return plan.row_blocks if plan.columns.total > 1 else 1


def _refuse(contraction: Contraction, rule: str) -> None:
    raise ScheduleError(f"dispatch @{contraction.name} as wgmma kernel on {ARCH}: {rule}")


def operand_type(contraction: Contraction) -> str:
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
        return "tf32"
    raise NotHopper(f"factors of {a}, summed up in {contraction.compute_dtype}")
