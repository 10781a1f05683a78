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
from tilewright.compiler.families.contract import require
from tilewright.compiler.nouns.schedule import GpuTile

KEPT_BYTES = 128
"""What a thread keeps of its rows: 32 registers, so that three values per element still leave 1,024 threads enough."""


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
    be combined at the end.
    """

    rows: int
    columns: int
    contiguous: bool
    vector: int
    bytes: int
    splittable: bool


def layout_of(shape: RowShape, asked: GpuTile) -> RowLayout:
    """The layout that a schedule describes; raises ScheduleError for one that no threads can have."""
    require(asked, "kernel", "threads", "block", "vector", "split_k")
    vector, split = asked.vector, asked.split_k
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
