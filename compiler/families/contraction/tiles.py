"""The tiles of contractions' kernels: what the sizes of a schedule make of each, and what follows from them."""

from __future__ import annotations

from typing import NoReturn, TypeAlias

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.contraction import mma_gemm, simt_gemm, volta_gemm
from tilewright.compiler.families.contraction.addresses import Grid
from tilewright.compiler.families.contraction.mma_gemm import INSTRUCTIONS, Instruction, MmaTile
from tilewright.compiler.families.contraction.operand_copies import k_contiguous
from tilewright.compiler.families.contraction.problem import Contraction, vector_limit
from tilewright.compiler.families.contraction.simt_gemm import SimtTile
from tilewright.compiler.families.contraction.skinny_gemm import SkinnyTile
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.targets.target import Target

BlockTile: TypeAlias = SimtTile | MmaTile | VoltaTile
KernelTile: TypeAlias = BlockTile | SkinnyTile

VOLTA = "mma.m8n8k4"
"""The matrix instruction before sm_80; later ones have it in software only."""


def described(contraction: Contraction, said: GpuTile, target: Target) -> BlockTile:
    """The sizes of a simt or mma kernel as a schedule says them, whether they keep its rules or not.

    Raises ScheduleError for sizes that it leaves open, and for an instruction that multiplies other types.
    """
    require(said, "block", "thread" if said.kernel == "simt" else "warp")
    (m, n, k), (down, across) = said.block, said.thread or said.warp
    sizes = (m, n, k, down, across, said.stages, said.split_k, said.raster)
    if said.kernel == "simt":
        return SimtTile(*sizes, target.compute_capability >= 80, said.padding, said.resident)
    require(said, "instruction")
    instruction = matching(contraction, said.instruction, target)
    if instruction is not None:
        return MmaTile(instruction, *sizes, said.padding, said.resident)
    if has_volta(contraction, target) and said.instruction == VOLTA:
        return VoltaTile(*sizes, said.resident)
    types = f"{contraction.a_dtype} and {contraction.b_dtype} into {contraction.sum_dtype}"
    rule = f"there is no instruction `{said.instruction}` that multiplies {types}; use kernel simt"
    return refuse(contraction, said, target, rule)


def skinny_tile(contraction: Contraction, said: GpuTile) -> SkinnyTile:
    """The tile of a kernel that streams b past all rows; its sizes divide each other."""
    rows, columns = said.thread
    wide = said.block[1] // columns
    deep = said.threads // wide
    return SkinnyTile(
        rows, columns, said.block[2] // deep, wide, deep, k_contiguous(contraction, 1), said.split_k
    )


def who(contraction: Contraction, target: Target) -> str:
    """Whose schedule a refusal is about."""
    return f"dispatch @{contraction.name} on {target.name}"


def refuse(contraction: Contraction, said: GpuTile, target: Target, rule: str) -> NoReturn:
    """Raises ScheduleError for a rule that a schedule of a contraction breaks."""
    raise ScheduleError(f"{who(contraction, target)}: [{said.text()}]: {rule}")


def matching(contraction: Contraction, name: str, target: Target) -> Instruction | None:
    """The matrix instruction for the contraction's types, None where there is none.

    f32 is rounded to tf32 only where the instruction's `name` asks for it.
    """
    if target.compute_capability < 80:
        return None
    for own, instruction in INSTRUCTIONS.items():
        if instruction.sum_dtype != contraction.compute_dtype:
            continue
        if instruction.dtype == "f32" and name != own:
            continue
        if name and not own.startswith(name):
            continue
        if _fits(contraction, instruction.dtype):
            return instruction
    return None


def has_volta(contraction: Contraction, target: Target) -> bool:
    """Whether Volta's matrix instruction computes the contraction: of f16, summed in f32."""
    arch = target.compute_capability
    return 70 <= arch < 80 and contraction.compute_dtype == "f32" and _fits(contraction, "f16")


def _fits(contraction: Contraction, dtype: str) -> bool:
    """Whether both factors are `dtype` once loaded, unconverted."""
    if contraction.convert_a is not None or contraction.convert_b is not None:
        return False
    return contraction.a_dtype == contraction.b_dtype == dtype


def shared_bytes(contraction: Contraction, tile: BlockTile) -> int:
    """Bytes of shared memory of one block."""
    if isinstance(tile, MmaTile):
        return mma_gemm.shared_bytes(contraction, tile)
    if isinstance(tile, VoltaTile):
        return volta_gemm.shared_bytes(contraction, tile)
    return simt_gemm.shared_bytes(contraction, tile)


def grid_of(contraction: Contraction, tile: KernelTile) -> Grid:
    """The blocks that a tile makes of a contraction."""
    raster = 1 if isinstance(tile, SkinnyTile) else tile.raster
    return Grid(contraction, tile.block_m, tile.block_n, tile.block_k, tile.split_k, raster)


def padding_unit(contraction: Contraction, tile: SimtTile | MmaTile) -> int:
    """Elements of 16 bytes in shared memory."""
    return tile.instruction.piece if isinstance(tile, MmaTile) else vector_limit(contraction.compute_dtype)


def least_padding(contraction: Contraction, tile: SimtTile | MmaTile) -> int:
    """The padding that a kernel has at least: that of rows along K, or of fragments whose rows no swizzle fits."""
    if isinstance(tile, SimtTile):
        needs = any(k_contiguous(contraction, factor) for factor in (0, 1))
    else:
        needs = not any(mma_gemm.copies(contraction, tile, factor).layout.swizzled for factor in (0, 1))
    return padding_unit(contraction, tile) if needs else 0
