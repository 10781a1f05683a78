"""Schedules of what is no contraction on a GPU: rTask tiles over the sink's loops, and the threads that share one.

    elementwise  a block takes a run of neighbouring results, each thread 16 bytes of them
    windows      the same, a thread fewer results: pooling, depthwise convolutions
    rows         a block takes whole rows, one thread or more to a row: reductions, softmax, norms

Blocks grow from the innermost loop outwards, so that accesses are whole transactions (Roller, OSDI'22, §3.1, and the
paper's own rule for operators without reuse), and shrink until every multiprocessor has some (§3.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.cut_space import CutSpace
from tilewright.compiler.nouns.register_tiles import divisors
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.model.block_work import BlockWork, touched_bytes
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES
from tilewright.compiler.tuning.roller.options import DEFAULT, ConstructOptions

THREADS = (256, 128, 512, 64, 1024)
"""Threads of a block, the usual number first: eight warps, eight blocks of which fill a multiprocessor."""
_REGISTERS = 40
"""What a thread of such kernels takes: addresses, and a few values at a time."""
_PER_THREAD = (1, 2, 4)
"""Vectors of results that one thread computes one after the other."""
_WAVES = 4
"""Blocks that there should be for every one that runs at once, before threads take more than one vector each."""


@dataclass(frozen=True)
class BlockSpace:
    """What decides about blocks: the cuts that are possible, which axis of the workload each loop is, the family.

    `item_bytes` are those of the widest operand of the result's shape; `row` is how many points are reduced, scanned or
    kept together for one point of the loops that can be cut; `inner` the loop that neighbouring results lie along, in
    runs of `run` results that every operand walks without a gap.
    """

    family: str
    space: CutSpace
    item_bytes: int
    row: int
    inner: int | None
    run: int = 1

    @property
    def points(self) -> int:
        """Points of the loops that can be cut."""
        return math.prod(self.space.extents[loop] for loop in self.space.loops)


def block_candidates(
    workload: Workload, space: BlockSpace, target: Target, options: ConstructOptions = DEFAULT
) -> list[Candidate]:
    """At most `options.top_k` schedules, the one to use without a measurement first."""
    choices = list(dict.fromkeys(_choices(space, target, options)))
    tiles = np.asarray([_whole(space, tile) for tile, _ in choices], dtype=np.int64)
    us, bounds = predict(workload, space, tiles, [gpu.threads for _, gpu in choices], target)
    # Predictions that agree to a percent leave the order to the rules above.
    order = sorted(range(len(choices)), key=lambda i: (round(math.log(us[i]) * 50), i))
    found: list[Candidate] = []
    seen: set[GpuTile] = set()
    for position in order:
        tile, gpu = choices[position]
        # Kernels of these families follow `threads` and `vector`; one tile of each is worth a measurement.
        if gpu in seen or len(found) == options.top_k:
            continue
        seen.add(gpu)
        schedule = Schedule(tile, levels=_levels(space, workload, tiles[position], gpu), gpu=gpu)
        found.append(Candidate(schedule, round(float(us[position]), 3), bounds[position]))
    return found


def _choices(space: BlockSpace, target: Target, options: ConstructOptions):
    vector = _vector(space)
    # Shorter accesses than 16 bytes are the emitter's to choose: it sees which operands are broadcast or turned.
    full = vector * space.item_bytes == ACCESS_BYTES
    shared = [t for t in THREADS if t <= (target.block_threads or 1024)]
    if space.family == "rows" and space.row > 1:
        for threads in _row_threads(space, shared):
            for rows in _rows_per_block(space, threads, target, options):
                yield _box(space, rows), GpuTile("rows", threads)
        return
    for threads in shared:
        for each in _PER_THREAD:
            points = threads * vector * each
            if options.shrink:
                points = _shrunk(space.points, points, vector, target)
            tile = _box(space, points)
            own = min(threads, _warps(-(-math.prod(_whole(space, tile)) // vector)))
            yield tile, GpuTile(space.family, own, vector=vector if full else 0)


def _shrunk(points: int, wanted: int, vector: int, target: Target) -> int:
    """Points of a block, halved until every multiprocessor has a block, or a warp has one vector each."""
    least = target.warp_size * vector
    while wanted > least and -(-points // wanted) < target.num_cores:
        wanted //= 2
    return max(wanted, 1)


def _row_threads(space: BlockSpace, shared: list[int]) -> list[int]:
    """Blocks for rows of this length: the fewest threads that hold a long row in four vectors each, then others."""
    wanted = _warps(-(-space.row // (4 * max(1, _vector(space)))))
    return sorted(shared, key=lambda threads: (abs(math.log2(threads / max(wanted, 128))), threads))


def _rows_per_block(space: BlockSpace, threads: int, target: Target, options: ConstructOptions) -> list[int]:
    """Rows of a block: as many as have a warp each, one where rows are long; fewer where blocks would be."""
    at_once = max(1, threads // target.warp_size if space.row <= threads * 2 else 1)
    if space.inner is not None and space.inner in space.space.loops:
        # Rows lie across memory: neighbouring ones are read together, a transaction's worth at least.
        at_once = max(at_once, target.memory[0].transaction_bytes // space.item_bytes, target.warp_size)
    rows = at_once
    while options.shrink and rows > 1 and -(-space.points // rows) < target.num_cores:
        rows //= 2
    return list(dict.fromkeys((rows, max(1, rows // 2), rows * 2)))


def _vector(space: BlockSpace) -> int:
    """Elements of one access: 16 bytes where runs are whole numbers of them."""
    limit = 1 if space.family == "windows" else ACCESS_BYTES // space.item_bytes
    return max(1, min(limit, space.run & -space.run))


def _warps(lanes: int) -> int:
    """Threads, in whole warps and a power of two of them, for so many lanes of work."""
    return 32 << max(0, -(-lanes // 32) - 1).bit_length()


def _box(space: BlockSpace, points: int) -> tuple[int, ...]:
    """The box of about `points` results over the loops that can be cut, from the innermost outwards; 0 leaves whole.

    Of sizes that fit, a divisor where there is one of half at least; only divisors where cuts must be exact.
    """
    cut = space.space
    tile, left = [0] * len(cut.extents), max(1, points)
    order = sorted(cut.loops, key=lambda loop: (loop != space.inner, -loop))
    if cut.transposed and len(order) > 1:
        # A turned copy takes as much of what is contiguous in the source as in the result.
        source = cut.transposed[-1]
        side = max(1, math.isqrt(left))
        order = [loop for loop in (order[0], source) if loop in cut.loops] + [
            loop for loop in order[1:] if loop != source
        ]
        first = order[0]
        tile[first] = _size(cut.extents[first], max(side, 32), cut.exact)
        left = max(1, left // tile[first])
        order = order[1:]
    for loop in order:
        tile[loop] = _size(cut.extents[loop], left, cut.exact)
        left = max(1, left // tile[loop])
    return tuple(0 if size == extent else size for size, extent in zip(tile, cut.extents))


def _size(extent: int, most: int, exact: bool) -> int:
    if extent <= most:
        return extent
    dividing = max(d for d in divisors(extent) if d <= most)
    return dividing if exact or 2 * dividing >= most else most


def _whole(space: BlockSpace, tile: tuple[int, ...]) -> tuple[int, ...]:
    """The tile with sizes for 0; loops that cannot be cut count as 1 here, they are the row."""
    cut = space.space
    return tuple(
        (size or extent) if loop in cut.loops else 1
        for loop, (size, extent) in enumerate(zip(tile, cut.extents))
    )


def predict(
    workload: Workload, space: BlockSpace, tiles: np.ndarray, threads: list[int], target: Target
) -> tuple[np.ndarray, list[str]]:
    """(microseconds, what bounds it) of blocks that take `tiles` [n, loops]: whole waves of what they load and compute."""
    cut = space.space
    extents = np.asarray(cut.extents)
    sizes = np.tile(np.asarray(workload.extents, dtype=np.int64), (len(tiles), 1))
    counts = np.ones(len(tiles))
    for loop in cut.loops:
        sizes[:, cut.axes[loop]] = np.minimum(tiles[:, loop], extents[loop])
        counts *= -(-extents[loop] // tiles[:, loop])
    moved = np.zeros(len(tiles))
    for operand in workload.operands:
        shape = operand.tile_shape(sizes)
        if shape.shape[1] == 0:
            continue
        # Rows start and end within a transaction.
        row = shape[:, -1] * operand.element_bytes
        whole = -(-row // target.memory[0].transaction_bytes) * target.memory[0].transaction_bytes
        moved += shape.prod(axis=1) * operand.element_bytes * (whole / row)
    lanes = np.asarray(threads)
    points = sizes.prod(axis=1) * counts
    vector = _vector(space)
    # A load and its arithmetic per operand and point, on as many lanes as a block has at work.
    issued = points * (workload.flops_per_point / 2 + len(workload.operands)) / vector
    each = np.clip(points / counts / np.maximum(lanes * vector, 1), 1, max(_PER_THREAD))
    work = BlockWork(
        counts,
        lanes,
        np.full(len(lanes), _REGISTERS),
        np.zeros(len(lanes), int),
        counts * moved,
        np.full(len(tiles), touched_bytes(workload)),
        issued,
        lanes * each * vector * space.item_bytes,
    )
    parts = work.parts_us(target)
    us = work.us(target)
    stacked = np.stack(list(parts.values()))
    names = list(parts)
    return us, [names[i] for i in stacked.argmax(axis=0)]


def _levels(
    space: BlockSpace, workload: Workload, tile: np.ndarray, gpu: GpuTile
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What a thread and a block hold, over the workload's axes."""
    cut = space.space
    block, thread = list(workload.extents), [1] * len(workload.axes)
    for loop in cut.loops:
        block[cut.axes[loop]] = int(tile[loop])
    if space.inner is not None:
        thread[cut.axes[space.inner]] = min(max(1, gpu.vector), block[cut.axes[space.inner]])
    return (("registers", tuple(thread)), ("shared", tuple(block)))
