"""Contractions on Hopper's tensor cores: persistent, warp-specialised kernels of wgmma, TMA and mbarriers.

Matrix products, batched ones, and convolutions as such, in f16, bf16, tf32 (when the schedule asks) and i8. What TMA
cannot address, or wgmma cannot multiply, is left to the next family.
"""

from __future__ import annotations

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.contraction.problem import Contraction, read_contraction
from tilewright.compiler.families.tile_space import refuse_broken
from tilewright.compiler.families.wgmma.kernel import build
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.families.wgmma.plan import Plan, majors, make_plan
from tilewright.compiler.families.wgmma.rules import hopper_tile, plan_rules, tile_rules
from tilewright.compiler.families.wgmma.tile import ITEM_BYTES, ROW_BYTES, WARPGROUP_ROWS
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import Constraint
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

    Raises ScheduleError for sizes that no kernel has.
    """
    type_ = operand_type(contraction)
    check_depth(contraction, said)
    refuse_broken(rules(contraction, cores), said, who(contraction))
    return make_plan(contraction, hopper_tile(said), type_)


def sized(contraction: Contraction, said: GpuTile, cores: int) -> Plan:
    """The plan of a kernel's sizes, whose parts of K and rows of blocks may be more than there are.

    Raises ScheduleError for sizes that no kernel has, NotHopper where TMA does not take the contraction in them.
    """
    type_ = operand_type(contraction)
    check_depth(contraction, said)
    refuse_broken(tile_rules(type_, majors(contraction, type_)[1]), said, who(contraction))
    found = make_plan(contraction, hopper_tile(said), type_)
    refuse_broken(plan_rules(contraction, type_, cores)[:2], said, who(contraction))
    return found


def check_depth(contraction: Contraction, said: GpuTile) -> None:
    """Raises ScheduleError for a block of other than three sizes, and for stages that are no 128 bytes along k."""
    type_ = operand_type(contraction)
    depth = ROW_BYTES // ITEM_BYTES[type_]
    if len(said.block) != 3 or said.block[2] != depth:
        raise ScheduleError(
            f"{who(contraction)}: gpu.block is {list(said.block)}: it is [a multiple of {WARPGROUP_ROWS}, n, {depth}] "
            f"for {type_}"
        )


def rules(contraction: Contraction, cores: int) -> tuple[Constraint, ...]:
    """All rules of the kernels of a contraction."""
    type_ = operand_type(contraction)
    own = tile_rules(type_, majors(contraction, type_)[1])
    return (*own, *plan_rules(contraction, type_, cores))


def who(contraction: Contraction) -> str:
    """Whose schedule a refusal is about."""
    return f"dispatch @{contraction.name} as wgmma kernel on {ARCH}"


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
