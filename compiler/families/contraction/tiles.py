"""The tile that a complete schedule of a contraction describes: every size as it is said, checked against the kernel's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.contraction import mma_gemm, simt_gemm, volta_gemm
from tilewright.compiler.families.contraction.addresses import Grid
from tilewright.compiler.families.contraction.mma_gemm import INSTRUCTIONS, Instruction, MmaTile
from tilewright.compiler.families.contraction.operand_copies import k_contiguous, widest
from tilewright.compiler.families.contraction.problem import Contraction, vector_limit
from tilewright.compiler.families.contraction.simt_gemm import SimtTile
from tilewright.compiler.families.contraction.skinny_gemm import MOST_SUMS, SkinnyTile
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile
from tilewright.compiler.nouns.schedule import BLOCK_THREADS, WARP, GpuTile
from tilewright.compiler.targets.target import Target

BlockTile: TypeAlias = SimtTile | MmaTile | VoltaTile
KernelTile: TypeAlias = BlockTile | SkinnyTile
Refuse: TypeAlias = Callable[[str], NoReturn]

VOLTA = "mma.m8n8k4"
"""The matrix instruction before sm_80; later ones have it in software only."""


def tile_of(contraction: Contraction, said: GpuTile, target: Target) -> KernelTile:
    """The tile that a schedule describes; raises ScheduleError for a field that is open, and for a broken rule."""
    refuse = refusal(contraction, said, target)
    require(said, "kernel", "threads", "block", "split_k")
    _check_block(said, refuse)
    if said.kernel == "skinny":
        return _skinny(contraction, said, target, refuse)
    require(said, "stages", "raster", "resident")
    made = described(contraction, said, target, refuse)
    _check_threads(said, made.threads, refuse)
    if made.stages < 2:
        refuse("tiles are fetched ahead, which takes 2 stages or more")
    if made.blocks_per_core * made.threads > (target.core_threads or 2048):
        refuse(
            f"gpu.resident is {made.blocks_per_core}, more blocks of {made.threads} threads than a multiprocessor runs"
        )
    _check_grid(contraction, made, refuse)
    _check_padding(contraction, made, refuse)
    needed, limit = shared_bytes(contraction, made), target.level("shared").capacity_bytes
    if needed > limit:
        refuse(f"it needs {needed:,} B of shared memory, the limit is {limit:,} B; use fewer stages")
    return made


def described(contraction: Contraction, said: GpuTile, target: Target, refuse: Refuse) -> BlockTile:
    """The sizes of a simt or mma kernel as a schedule says them: they divide each other, no more is checked."""
    _check_block(said, refuse)
    return _matrix(contraction, said, target, refuse) if said.kernel == "mma" else _simt(said, target, refuse)


def refusal(contraction: Contraction, said: GpuTile, target: Target) -> Refuse:
    """Raises ScheduleError for a rule that a schedule of a contraction breaks."""

    def refuse(rule: str) -> NoReturn:
        raise ScheduleError(f"dispatch @{contraction.name} on {target.name}: [{said.text()}]: {rule}")

    return refuse


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


def _simt(said: GpuTile, target: Target, refuse: Refuse) -> SimtTile:
    require(said, "thread")
    (m, n, k), (thread_m, thread_n) = said.block, said.thread
    if m % thread_m or n % thread_n:
        refuse(f"a thread's tile divides the block's, found {thread_m}x{thread_n} of {m}x{n}")
    deferred = target.compute_capability >= 80
    return SimtTile(
        m, n, k, thread_m, thread_n, said.stages, said.split_k, said.raster, deferred, said.padding, said.resident
    )  # fmt: skip


def _matrix(contraction: Contraction, said: GpuTile, target: Target, refuse: Refuse) -> MmaTile | VoltaTile:
    """The tile of a kernel on the matrix instruction that a schedule names."""
    require(said, "warp", "instruction")
    instruction = matching(contraction, said.instruction, target)
    if instruction is None and not (has_volta(contraction, target) and said.instruction == VOLTA):
        types = f"{contraction.a_dtype} and {contraction.b_dtype} into {contraction.sum_dtype}"
        refuse(f"there is no instruction `{said.instruction}` that multiplies {types}; use kernel simt")
    name, depth, columns = (instruction.name, instruction.depth, 8) if instruction else (VOLTA, 4, 16)
    (m, n, k), (warp_m, warp_n) = said.block, said.warp
    if warp_m % 16 or warp_n % columns or m % warp_m or n % warp_n:
        refuse(
            f"warps take multiples of 16x{columns} that divide the block, found {warp_m}x{warp_n} of {m}x{n}"
        )
    if k % depth:
        refuse(f"block_k is a multiple of {depth} for {name}, found {k}")
    sizes = (m, n, k, warp_m, warp_n, said.stages, said.split_k, said.raster)
    if instruction is None:
        return VoltaTile(*sizes, said.resident)
    return MmaTile(instruction, *sizes, said.padding, said.resident)


def _skinny(contraction: Contraction, said: GpuTile, target: Target, refuse: Refuse) -> SkinnyTile:
    """The tile of a kernel that streams b past all rows."""
    require(said, "thread")
    rows, columns = said.thread
    if contraction.extent("m") > MOST_SUMS:
        refuse(
            f"gpu.kernel is skinny, which keeps the sums of all rows in registers: at most {MOST_SUMS} rows, found "
            f"{contraction.extent('m')}; use simt or mma"
        )
    if rows != contraction.extent("m") or said.block[0] != rows or rows * columns > MOST_SUMS:
        refuse(
            f"a thread has all {contraction.extent('m')} rows, and so has a block, with at most {MOST_SUMS} sums; "
            f"found gpu.thread {list(said.thread)} and gpu.block {list(said.block)}"
        )
    wide = said.block[1] // columns
    deep = said.threads // wide if wide else 0
    steps = said.block[2] // deep if deep else 0
    made = SkinnyTile(rows, columns, steps, wide, deep, k_contiguous(contraction, 1), said.split_k)
    if min(wide, deep, steps) < 1 or made.block != said.block:
        refuse(f"gpu.block and gpu.thread make {wide} threads along n and {deep} along k, no whole block")
    _check_threads(said, made.threads, refuse)
    lanes, most = made.lanes, widest(contraction, 1)
    if any(n & (n - 1) for n in (wide, deep, lanes)) or lanes > most or (made.k_first and deep > WARP):
        refuse(
            f"gpu.block is {list(said.block)}: {wide} threads along n, {deep} along k and {lanes} elements per access "
            f"are powers of two, up to {most} elements here, and up to {WARP} threads where b lies along k"
        )
    _check_grid(contraction, made, refuse)
    return made


def _check_threads(said: GpuTile, threads: int, refuse: Refuse) -> None:
    if threads % WARP or not 0 < threads <= BLOCK_THREADS:
        refuse(
            f"a block has a multiple of {WARP} threads up to {BLOCK_THREADS}, its sizes give {threads}; "
            "change block, warp or thread"
        )
    if said.threads != threads:
        refuse(f"its sizes give {threads} threads, it says {said.threads}; leave threads out")


def _check_grid(contraction: Contraction, made: KernelTile, refuse: Refuse) -> None:
    grid = grid_of(contraction, made)
    if made.split_k != grid.parts:
        refuse(
            f"gpu.split_k is {made.split_k}: {grid.total_steps} steps of K come to {grid.parts} parts of "
            f"{grid.steps_k}; say {grid.parts}"
        )
    if not isinstance(made, SkinnyTile) and made.raster > grid.tiles_m:
        refuse(f"gpu.raster is {made.raster}, but there are {grid.tiles_m} rows of blocks; say at most that")


def _check_padding(contraction: Contraction, made: BlockTile, refuse: Refuse) -> None:
    if isinstance(made, VoltaTile):
        return
    simt = isinstance(made, SimtTile)
    piece, least = padding_unit(contraction, made), least_padding(contraction, made)
    if simt and not least and made.padding:
        refuse(f"gpu.padding is {made.padding}, but no rows along K lie in shared memory; leave it out")
    if made.padding % piece or (made.padding < least and (simt or not made.padding)):
        refuse(f"gpu.padding is a multiple of {piece} where rows are not swizzled, found {made.padding}")


def _check_block(said: GpuTile, refuse: Refuse) -> None:
    if len(said.block) != 3:
        refuse(
            f"a contraction's block has 3 sizes, found {list(said.block)}; give (block_m, block_n, block_k)"
        )
