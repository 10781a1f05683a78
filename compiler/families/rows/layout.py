"""How the threads of a block share rows and columns, and what of a row each thread keeps in registers.

Where a row lies side by side in memory, `across` neighbouring threads take its columns by turns; where neighbouring
rows do, as when leading dimensions are reduced, neighbouring threads take rows and `across` groups of threads the
columns. A thread reads `vector` neighbours at once, columns in the first case, rows in the second.

    contiguous, 8 threads across, vector 4:   thread t of a row has columns 4t .. 4t+3, 32+4t .. 32+4t+3, ...
    strided, 2 across, vector 4:              thread t has rows 4t .. 4t+3, columns 0, 2, 4, ... or 1, 3, 5, ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.schedule import WARP, GpuTile, Schedule
from tilewright.compiler.targets.target import Target

KEPT_BYTES = 128
"""What a thread keeps of its rows: 32 registers, so that three values per element still leave 1,024 threads enough."""
_PIECE = 2048
"""Columns of a piece of a divided row, at least."""
_ROUND = 4
"""Groups of `vector` elements per round of a loop over a row that is too long to be kept."""
_WAVES = 4
"""Blocks per multiprocessor that a divided row is worth."""
_BLOCK = 256
_LONG = 8192
"""Columns from which a row is worth the second step that dividing it takes: writing, counting and reading again."""
_LARGEST = 1024


@dataclass(frozen=True)
class RowLayout:
    """`threads` = `across` times the threads next to each other in the other direction.

    A thread has `slots` groups of columns, each `vector` columns wide where rows are `contiguous`, else one column
    of `vector` rows; with `looped` so many per round of a loop over the row. `split` blocks share one row's columns; those
    of a grid that `meets` wait for each other after every round of reductions.
    """

    contiguous: bool
    across: int
    beside: int
    vector: int
    slots: int
    looped: bool = False
    split: int = 1
    meets: bool = False

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        block = self.block_rows, self.across * self.slots * self.group
        return GpuTile("rows", self.threads, block, vector=self.vector, split_k=self.split)

    @property
    def threads(self) -> int:
        return self.across * self.beside

    @property
    def lanes(self) -> int:
        """Rows that one thread has."""
        return 1 if self.contiguous else self.vector

    @property
    def group(self) -> int:
        """Columns of one slot."""
        return self.vector if self.contiguous else 1

    @property
    def block_rows(self) -> int:
        return self.beside * self.lanes


def power_at_least(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()


@dataclass(frozen=True)
class RowShape:
    """What a layout follows from: rows and columns, the most neighbours that one access can take, and element bytes.

    `bytes` are those of the widest elements that are kept; `splittable` where partial results of pieces of a row can
    be combined at the end. `block_rows` is what a schedule asks for, 0 where it does not.
    """

    rows: int
    columns: int
    contiguous: bool
    vector: int
    bytes: int
    splittable: bool
    block_rows: int = 0


def choose_layout(shape: RowShape, schedule: Schedule, target: Target) -> RowLayout:
    """The layout for a device. `schedule.gpu` may say `threads`, and the most elements per access as `vector`; with
    threads given, the schedule's tile says how many rows a block has. With a `block` it says everything.

    Raises ScheduleError for a number of threads that cannot be divided among rows.
    """
    asked = schedule.gpu
    if asked is not None and asked.block:
        return _given(shape, asked)
    vector = shape.vector
    while asked is not None and asked.vector and vector > asked.vector:
        vector //= 2
    threads = asked.threads if asked is not None else 0
    if threads & (threads - 1):
        raise ScheduleError(f"rows: a block of {threads} threads asked for; use a power of two")
    found = (_contiguous if shape.contiguous else _strided)(shape, vector, threads, target)
    return _meeting(shape, found, target)


def _given(shape: RowShape, asked: GpuTile) -> RowLayout:
    """The layout that a schedule describes; raises ScheduleError for one that no threads can have."""
    vector, split = asked.vector or 1, asked.split_k or 1
    lanes, group = (1, vector) if shape.contiguous else (vector, 1)
    rows, columns = asked.block if len(asked.block) == 2 else (0, 0)
    beside = rows // lanes
    across = asked.threads // beside if beside else 0
    slots = columns // (across * group) if across else 0
    powers = (vector, beside, across)
    if any(n < 1 or n & (n - 1) for n in powers) or vector > shape.vector:
        raise ScheduleError(
            f"rows: {asked.threads} threads of {vector} elements per access for blocks of {list(asked.block)}: threads, "
            f"rows and elements are powers of two, up to {shape.vector} elements here"
        )
    if slots < 1 or (rows, columns) != (beside * lanes, across * slots * group):
        raise ScheduleError(
            f"rows: gpu.block is {list(asked.block)}, expected whole vectors of all threads: multiples of "
            f"[{beside * lanes}, {across * group}]"
        )
    whole = columns * split >= shape.columns
    meets = split > 1 and not shape.splittable
    looped = not whole or (split > 1 and not meets)
    if split > shape.columns:
        raise ScheduleError(
            f"rows: gpu.split_k is {split}, expected at most the {shape.columns} columns of a row"
        )
    if lanes * slots * group > KEPT_BYTES // shape.bytes:
        raise ScheduleError(
            f"rows: a thread keeps {lanes * slots * group} elements of {shape.bytes} B, the most are "
            f"{KEPT_BYTES // shape.bytes}; use more threads or fewer columns"
        )
    return RowLayout(shape.contiguous, across, beside, vector, slots, looped, split, meets)


def _meeting(shape: RowShape, layout: RowLayout, target: Target) -> RowLayout:
    """The layout with long rows divided among blocks that wait for each other, where most of the device would idle.

    Half of what the device takes: all blocks run at once even where it has half as many multiprocessors as its kind.
    """
    blocks = -(-shape.rows // layout.block_rows)
    room = target.num_cores if layout.threads <= _LARGEST // 2 else target.num_cores // 2
    pieces = min(room // blocks, shape.columns // _PIECE)
    if shape.splittable or shape.columns < _LONG or pieces < 2:
        return layout
    groups = -(-shape.columns // layout.group)
    slots = -(-groups // (pieces * layout.across))
    looped = slots * layout.vector > KEPT_BYTES // shape.bytes
    if looped:
        slots = max(1, min(layout.slots, slots))
    return replace(layout, slots=slots, looped=looped, split=pieces, meets=True)


def _contiguous(shape: RowShape, vector: int, threads: int, target: Target) -> RowLayout:
    kept = KEPT_BYTES // shape.bytes
    groups = -(-shape.columns // vector)
    most = threads or _LARGEST
    if threads and shape.block_rows:
        across = min(max(1, threads // power_at_least(shape.block_rows)), power_at_least(groups))
    else:
        across = _across(shape, groups, vector, most, target)
    looped = -(-groups // across) * vector > kept or _is_worth_splitting(shape, across, target)
    if looped:
        largest = most if threads or not shape.splittable else _BLOCK
        across = min(largest, power_at_least(-(-groups // _ROUND)))
    beside = _beside(shape.rows, across, threads)
    slots = -(-groups // across)
    split = 1
    if looped:
        blocks = -(-shape.rows // beside)
        pieces = max(1, _WAVES * target.num_cores // blocks) if shape.splittable else 1
        slots = max(1, min(_ROUND, slots // pieces))
        split = min(pieces, -(-groups // (across * slots)))
    return RowLayout(True, across, beside, vector, slots, looped, split)


def _across(shape: RowShape, groups: int, vector: int, most: int, target: Target) -> int:
    """Threads per row: few, as long as each still keeps its part and the rows keep the device busy."""
    kept = KEPT_BYTES // shape.bytes
    across = min(most, power_at_least(groups))
    while across > 1:
        half = across // 2
        held = -(-groups // half) * vector
        if held > (kept // 2 if half >= WARP else max(_ROUND, vector)):
            break
        if half >= WARP and shape.rows * half < target.num_cores * _BLOCK:
            break
        across = half
    return across


def _is_worth_splitting(shape: RowShape, across: int, target: Target) -> bool:
    """Whether few long rows leave most of the device idle unless each is divided among blocks."""
    blocks = shape.rows * across // min(across, _BLOCK)
    return shape.splittable and shape.columns >= _LONG and 2 * blocks <= target.num_cores


def _beside(rows: int, across: int, threads: int) -> int:
    """Rows next to each other in a block of a few warps."""
    if threads:
        return max(1, threads // across)
    return max(1, WARP // across, min(_BLOCK // 2 // across, power_at_least(rows)))


def _strided(shape: RowShape, vector: int, threads: int, target: Target) -> RowLayout:
    kept = KEPT_BYTES // shape.bytes
    if threads and shape.block_rows:
        beside = min(threads, power_at_least(-(-shape.block_rows // vector)))
    else:
        beside = min(WARP, power_at_least(-(-shape.rows // vector)))
        while vector > 1 and shape.rows < target.num_cores * beside * vector:
            vector //= 2
            beside = min(WARP, power_at_least(-(-shape.rows // vector)))
    blocks = -(-shape.rows // (beside * vector))
    if threads:
        across = max(1, threads // beside)
    else:
        most = _LARGEST if blocks < target.num_cores else _BLOCK
        across = max(WARP // beside, min(power_at_least(shape.columns), most // beside))
    slots = -(-shape.columns // across)
    looped = slots * vector > kept
    split = 1
    if looped:
        pieces = max(1, _WAVES * target.num_cores // blocks) if shape.splittable else 1
        slots = max(1, min(2 * _ROUND // vector, slots // pieces))
        split = min(pieces, -(-shape.columns // (across * slots)))
    return RowLayout(False, across, beside, vector, slots, looped, split)
