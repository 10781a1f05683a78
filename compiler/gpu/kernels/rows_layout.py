"""How the threads of a block share rows and columns, and what of a row each thread keeps in registers.

Where a row lies side by side in memory, `across` neighbouring threads take its columns by turns; where neighbouring
rows do, as when leading dimensions are reduced, neighbouring threads take rows and `across` groups of threads the
columns. A thread reads `vector` neighbours at once, columns in the first case, rows in the second.

    contiguous, 8 threads across, vector 4:   thread t of a row has columns 4t .. 4t+3, 32+4t .. 32+4t+3, ...
    strided, 2 across, vector 4:              thread t has rows 4t .. 4t+3, columns 0, 2, 4, ... or 1, 3, 5, ...
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.schedule import WARP, Schedule
from tilewright.compiler.target import Target

KEPT_BYTES = 128
"""What a thread keeps of its rows: 32 registers, so that three values per element still leave 1,024 threads enough."""
_ROUND = 4
"""Groups of `vector` elements per round of a loop over a row that is too long to be kept."""
_BLOCK = 256
_LONG = 8192
"""Columns from which a row is worth the second step that dividing it takes: writing, counting and reading again."""
_LARGEST = 1024


@dataclass(frozen=True)
class RowLayout:
    """`threads` = `across` times the threads next to each other in the other direction.

    A thread has `slots` groups of columns, each `vector` columns wide where rows are `contiguous`, else one column
    of `vector` rows; with `looped` so many per round of a loop over the row. `split` blocks share one row's columns.
    """

    contiguous: bool
    across: int
    beside: int
    vector: int
    slots: int
    looped: bool = False
    split: int = 1

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
    be combined at the end.
    """

    rows: int
    columns: int
    contiguous: bool
    vector: int
    bytes: int
    splittable: bool


def choose_layout(shape: RowShape, schedule: Schedule, target: Target) -> RowLayout:
    """The layout for a device; `schedule.gpu` may say `threads`, and the most elements per access as `vector`.

    Raises ScheduleError for a number of threads that cannot be divided among rows.
    """
    asked = schedule.gpu
    vector = shape.vector
    while asked is not None and asked.vector and vector > asked.vector:
        vector //= 2
    threads = asked.threads if asked is not None else 0
    if threads & (threads - 1):
        raise ScheduleError(f"rows: a block of {threads} threads asked for; use a power of two")
    found = _contiguous if shape.contiguous else _strided
    return found(shape, vector, threads, target)


def _contiguous(shape: RowShape, vector: int, threads: int, target: Target) -> RowLayout:
    kept = KEPT_BYTES // shape.bytes
    groups = -(-shape.columns // vector)
    most = threads or _LARGEST
    wanted = target.num_cores * _BLOCK
    across = min(most, power_at_least(groups))
    # Fewer threads per row as long as each still keeps its part and enough rows keep the device busy.
    while across > 1:
        half = across // 2
        slots = -(-groups // half)
        if slots * vector > (kept if half < WARP else kept // 2) or (
            half < WARP and slots * vector > max(4, vector)
        ):
            break
        if half >= WARP and shape.rows * half < wanted:
            break
        across = half
    looped = -(-groups // across) * vector > kept or _is_worth_splitting(shape, across, target)
    if looped:
        across = min(most, power_at_least(-(-groups // _ROUND)), most if threads else _BLOCK)
    slots = min(_ROUND, -(-groups // across)) if looped else -(-groups // across)
    beside = _beside(shape.rows, across, threads)
    split = 1
    if shape.splittable and looped:
        blocks = -(-shape.rows // beside)
        rounds = -(-groups // (across * slots))
        split = max(1, min(rounds, 4 * target.num_cores // blocks))
    return RowLayout(True, across, beside, vector, slots, looped, split)


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
    beside = min(WARP, power_at_least(-(-shape.rows // vector)))
    while vector > 1 and shape.rows < target.num_cores * beside * vector:
        vector //= 2
        beside = min(WARP, power_at_least(-(-shape.rows // vector)))
    blocks = -(-shape.rows // (beside * vector))
    most = threads or (_LARGEST if blocks < target.num_cores else _BLOCK)
    across = (
        threads // beside
        if threads
        else max(WARP // beside, min(power_at_least(shape.columns), most // beside))
    )
    slots = -(-shape.columns // across)
    looped = slots * vector > kept
    if looped:
        slots = max(1, min(_ROUND * 2 // vector, slots))
    split = 1
    if shape.splittable and looped:
        rounds = -(-shape.columns // (across * slots))
        split = max(1, min(rounds, 4 * target.num_cores // blocks))
    return RowLayout(False, across, beside, vector, slots, looped, split)
