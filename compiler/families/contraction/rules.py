"""The rules of contractions' kernels: what a complete schedule of each keeps to, as emitters and spaces read it.

Rules of sizes come first: how operands are copied is asked only of sizes that divide each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.compiler.families.contract import require
from tilewright.compiler.families.contraction import mma_gemm, volta_gemm
from tilewright.compiler.families.contraction.fragment_results import ROWS
from tilewright.compiler.families.contraction.mma_gemm import MmaTile
from tilewright.compiler.families.contraction.operand_copies import k_contiguous, widest
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes
from tilewright.compiler.families.contraction.simt_gemm import SimtTile
from tilewright.compiler.families.contraction.skinny_gemm import MOST_SUMS
from tilewright.compiler.families.contraction.tiles import (
    BlockTile,
    KernelTile,
    described,
    least_padding,
    padding_unit,
    refuse,
    shared_bytes,
    skinny_tile,
    who,
)
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile
from tilewright.compiler.families.tile_space import refuse_broken, sizes_of, tile_from, whole_warps
from tilewright.compiler.nouns.schedule import WARP, GpuTile
from tilewright.compiler.nouns.space import Columns, Constraint, Value, by_values, rule
from tilewright.compiler.targets.target import Target

Rules = tuple[Constraint, ...]
Counts = Callable[[Columns], np.ndarray]


def tile_of(contraction: Contraction, said: GpuTile, target: Target) -> KernelTile:
    """The tile that a schedule describes; raises ScheduleError for a field that is open, and for a broken rule."""
    require(said, "kernel", "block", "split_k")
    require(said, *(("threads",) if said.kernel == "skinny" else ("stages", "raster", "resident")))
    check_sizes(contraction, said, target)
    require(said, "threads")
    refuse_broken(other_rules(contraction, said, target), said, who(contraction, target))
    made = skinny_tile(contraction, said) if said.kernel == "skinny" else described(contraction, said, target)
    if made.threads != said.threads:
        refuse(
            contraction,
            said,
            target,
            f"its sizes give {made.threads} threads, it says {said.threads}; leave threads out",
        )
    return made


def check_sizes(contraction: Contraction, said: GpuTile, target: Target) -> None:
    """Raises ScheduleError for a block of other than three sizes, and where sizes do not go together."""
    require(said, "warp" if said.kernel == "mma" else "thread")
    rows = contraction.extent("m")
    if len(said.block) != 3:
        rule = (
            f"a contraction's block has 3 sizes, found {list(said.block)}; give (block_m, block_n, block_k)"
        )
        refuse(contraction, said, target, rule)
    if said.kernel == "skinny" and rows > MOST_SUMS:
        refuse(contraction, said, target, too_many_rows(rows))
    if said.kernel == "skinny" and not said.thread[0] == said.block[0] == rows:
        rule = f"a thread has all {rows} rows, and so has a block, found gpu.thread {list(said.thread)}"
        refuse(contraction, said, target, f"{rule} and gpu.block {list(said.block)}")
    refuse_broken(size_rules(contraction, said, target), said, who(contraction, target))


def too_many_rows(rows: int) -> str:
    """Why a contraction is none for the skinny kernel."""
    return (
        "gpu.kernel is skinny, which keeps the sums of all rows in registers: at most "
        f"{MOST_SUMS} rows, found {rows}; use simt or mma"
    )


def rules(contraction: Contraction, said: GpuTile, target: Target) -> Rules:
    """All rules of a kernel; `said` tells which kernel, by what instruction."""
    return (*size_rules(contraction, said, target), *other_rules(contraction, said, target))


def other_rules(contraction: Contraction, said: GpuTile, target: Target) -> Rules:
    """The rules of a kernel whose sizes go together."""
    if said.kernel == "skinny":
        return _divided(contraction, lambda c: c["block[2]"])
    return _block_rules(contraction, said, target)


def size_rules(contraction: Contraction, said: GpuTile, target: Target) -> Rules:
    """The rules that sizes go together by: of a block and of what its threads or warps have."""
    if said.kernel == "skinny":
        return _skinny_sizes(contraction, target)
    part = "warp" if said.kernel == "mma" else "thread"
    found: list[Constraint] = []
    if said.kernel == "mma":
        made = described(contraction, said, target)
        rows, columns, depth = instruction_tile(made)
        found += [
            rule("warp[0]", f"warps take multiples of {rows} rows", lambda c: c["warp[0]"] % rows != 0),
            rule("warp[1]", f"warps take multiples of {columns} columns", lambda c: c["warp[1]"] % columns != 0),
            rule("block[2]", f"the instruction takes multiples of {depth} steps of K", lambda c: c["block[2]"] % depth != 0),
        ]  # fmt: skip
    own = {"warp": "a warp's", "thread": "a thread's"}[part]
    found += [
        rule(f"{part}[{i}]", f"{own} tile divides the block's", lambda c, i=i: c[f"block[{i}]"] % c[f"{part}[{i}]"] != 0)
        for i in (0, 1)
    ]  # fmt: skip
    return (*found, *whole_warps("block[0]", threads_of(said.kernel)))


def instruction_tile(made: BlockTile) -> tuple[int, int, int]:
    """Rows, columns and steps of K that one matrix instruction of a warp takes."""
    if isinstance(made, MmaTile):
        return ROWS, mma_gemm.COLUMNS, made.instruction.depth
    return ROWS, volta_gemm.COLUMNS, volta_gemm.DEPTH


def threads_of(kernel: str) -> Counts:
    """Threads of a block, by what a thread or a warp has of it."""
    part, unit = ("warp", WARP) if kernel == "mma" else ("thread", 1)
    return lambda c: c["block[0]"] // c[f"{part}[0]"] * (c["block[1]"] // c[f"{part}[1]"]) * unit


def _block_rules(contraction: Contraction, said: GpuTile, target: Target) -> Rules:
    """What kernels of blocks keep to beside: pipelines, registers, parts of K, the order of blocks, padding, memory."""
    threads, held = threads_of(said.kernel), held_registers(contraction, said)
    registers = target.level("registers").capacity_bytes // 4
    limit, most = target.level("shared").capacity_bytes, target.core_threads or 2048
    part = "warp" if said.kernel == "mma" else "thread"
    rows = contraction.extent("m")
    found = [
        rule("stages", "tiles are fetched ahead, which takes 2 stages or more", lambda c: c["stages"] < 2),
        rule(
            f"{part}[0]",
            f"its sums take more than the {target.registers_per_thread} registers of a thread",
            lambda c: held(c) > target.registers_per_thread,
        ),
        rule(
            "resident",
            f"more blocks than a multiprocessor has threads for, {most}",
            lambda c: c["resident"] * threads(c) > most,
        ),
        rule(
            "resident",
            f"sums of so many blocks take more than the {registers:,} registers of a multiprocessor",
            lambda c: c["resident"] * threads(c) * held(c) > registers,
        ),
        *_divided(contraction, lambda c: c["block[2]"]),
        rule("raster", "there are fewer rows of blocks", lambda c: c["raster"] > -(-rows // c["block[0]"])),
        *_padding(contraction, said, target),
    ]
    needed = _of_tiles(contraction, said, target, shared_bytes)
    text = f"with the other sizes, it takes more than the {limit:,} B of shared memory of a block; use fewer stages"
    return (*found, rule("stages", text, lambda c: needed(c) > limit))


def held_registers(contraction: Contraction, said: GpuTile) -> Counts:
    """32-bit registers of a thread that hold sums and one step's operands: what no assembler does without."""
    if said.kernel == "mma":
        return lambda c: c["warp[0]"] * c["warp[1]"] // WARP + (c["warp[0]"] + c["warp[1]"]) // 8
    words = max(1, element_bytes(contraction.compute_dtype) // 4)
    return lambda c: (c["thread[0]"] * c["thread[1]"] + c["thread[0]"] + c["thread[1]"]) * words


def _divided(contraction: Contraction, depth: Counts) -> Rules:
    """K has as many parts as are said: none of them is empty."""
    extent = contraction.extent("k")

    def has_fewer(c: Columns) -> np.ndarray:
        steps = -(-extent // depth(c))
        each = -(-steps // c["split_k"])
        return -(-steps // each) != c["split_k"]

    return (rule("split_k", "the steps of K come to fewer parts", has_fewer),)


def _padding(contraction: Contraction, said: GpuTile, target: Target) -> Rules:
    """Rows of shared memory end in whole accesses of 16 bytes; where no swizzle spreads them over banks, in one at least."""
    made = described(contraction, said, target)
    if isinstance(made, VoltaTile):
        return ()
    piece = padding_unit(contraction, made)
    if isinstance(made, SimtTile):
        if not any(k_contiguous(contraction, factor) for factor in (0, 1)):
            text = "no rows along K lie in shared memory; leave it out"
            return (rule("padding", text, lambda c: c["padding"] > 0),)
        text = f"it is a multiple of {piece} of at least that, as rows are not swizzled"
        return (rule("padding", text, lambda c: (c["padding"] % piece != 0) | (c["padding"] < piece)),)
    least = _of_tiles(contraction, said, target, least_padding)
    return (
        rule("padding", f"it is a multiple of {piece}", lambda c: c["padding"] % piece != 0),
        rule(
            "padding",
            f"no rows can be swizzled, which makes it the same kernel as {piece}",
            lambda c: (c["padding"] == 0) & (least(c) > 0),
        ),
    )


def _of_tiles(
    contraction: Contraction,
    said: GpuTile,
    target: Target,
    function: Callable[[Contraction, Any], int],
) -> Counts:
    """A number that follows from the tiles of many schedules, worked out once for each."""
    part = "warp" if said.kernel == "mma" else "thread"
    names = ("block[0]", "block[1]", "block[2]", f"{part}[0]", f"{part}[1]", "stages", "padding")

    def of_sizes(sizes: dict[str, Value]) -> int:
        own = tile_from(sizes_of(said) | sizes)
        return function(contraction, described(contraction, own, target))

    def of_points(columns: Columns) -> np.ndarray:
        known = [name for name in names if name in columns]
        return by_values(lambda *sizes: of_sizes(dict(zip(known, sizes))), *(columns[name] for name in known))

    return of_points


def _skinny_sizes(contraction: Contraction, target: Target) -> Rules:
    """All rows in every thread; threads and what an access takes are powers of two."""
    rows, k_first, most = contraction.extent("m"), k_contiguous(contraction, 1), widest(contraction, 1)
    lanes, limit = "block[2]" if k_first else "thread[1]", target.level("shared").capacity_bytes
    item = element_bytes(contraction.compute_dtype)

    def power(n: np.ndarray) -> np.ndarray:
        return (n >= 1) & (n & (n - 1) == 0)

    def wide(c: Columns) -> np.ndarray:
        return c["block[1]"] // c["thread[1]"]

    def deep(c: Columns) -> np.ndarray:
        return c["threads"] // np.maximum(wide(c), 1)

    def steps(c: Columns) -> np.ndarray:
        return c["block[2]"] // np.maximum(deep(c), 1)

    def warp_lanes(c: Columns) -> np.ndarray:
        return np.minimum(WARP, deep(c)) if k_first else np.maximum(1, WARP // wide(c))

    def access(c: Columns) -> np.ndarray:
        return steps(c) if k_first else c["thread[1]"]

    return (
        rule(
            "thread[1]",
            f"a thread has at most {MOST_SUMS} sums, those of {rows} rows for each column",
            lambda c: rows * c["thread[1]"] > MOST_SUMS,
        ),
        rule(
            "block[1]",
            "it is a power of two of threads by the columns of each",
            lambda c: (c["block[1]"] % c["thread[1]"] != 0) | ~power(wide(c)),
        ),
        *whole_warps("threads", lambda c: c["threads"]),
        rule(
            "threads",
            "those along n leave no power of two along k"
            + (f" up to {WARP}, as b lies along k" if k_first else ""),
            lambda c: (
                (c["threads"] % wide(c) != 0) | ~power(deep(c)) | (deep(c) > (WARP if k_first else 1024))
            ),
        ),
        rule(
            "block[2]",
            "it is whole steps of K for all threads along k",
            lambda c: (c["block[2]"] % deep(c) != 0) | (steps(c) < 1),
        ),
        rule(
            lanes,
            f"an access takes a power of two of elements up to {most}",
            lambda c: ~power(access(c)) | (access(c) > most),
        ),
        rule(
            "block[1]",
            f"sums of so many columns take more than the {limit:,} B of shared memory of a block",
            lambda c: rows * c["block[1]"] * deep(c) * item > limit * warp_lanes(c),
        ),
    )
