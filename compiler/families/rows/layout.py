"""How the threads of a block share rows and columns, and what of a row each thread keeps in registers.

Where a row lies side by side in memory, `across` neighbouring threads take its columns by turns; where neighbouring
rows do, as when leading dimensions are reduced, neighbouring threads take rows and `across` groups of threads the
columns. A thread reads `vector` neighbours at once, columns in the first case, rows in the second.

    contiguous, 8 threads across, vector 4:   thread t of a row has columns 4t .. 4t+3, 32+4t .. 32+4t+3, ...
    strided, 2 across, vector 4:              thread t has rows 4t .. 4t+3, columns 0, 2, 4, ... or 1, 3, 5, ...
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.tile_space import refuse_broken, whole_warps
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.nouns.space import Columns, Constraint, rule

KEPT_BYTES = 128
"""What a thread keeps of its rows: 32 registers, so that three values per element still leave 1,024 threads enough."""


@dataclass(frozen=True)
class RowLayout:
    """`threads` = `across` times the threads next to each other in the other direction.

    A thread has `slots` groups of columns, each `vector` columns wide where rows are `contiguous`, else one column
    of `vector` rows; with `looped` so many per round of a loop over the row. `split` blocks share one row's columns; those
    of a grid that `waits` have a grid barrier after every round of reductions.
    """

    contiguous: bool
    across: int
    beside: int
    vector: int
    slots: int
    looped: bool = False
    split: int = 1
    waits: bool = False

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


def layout_of(shape: RowShape, asked: GpuTile, cores: int) -> RowLayout:
    """The layout that a schedule describes; raises ScheduleError for one that no threads can have."""
    require(asked, "kernel", "threads", "block", "vector", "split_k")
    if len(asked.block) != 2:
        raise ScheduleError(f"rows: gpu.block is (rows, columns), found {list(asked.block)}")
    refuse_broken(layout_rules(shape, cores), asked, "rows")
    vector, split, (rows, columns) = asked.vector, asked.split_k, asked.block
    lanes, group = (1, vector) if shape.contiguous else (vector, 1)
    beside = rows // lanes
    across = asked.threads // beside
    waits = split > 1 and not shape.splittable
    looped = columns * split < shape.columns or (split > 1 and not waits)
    slots = columns // (across * group)
    return RowLayout(shape.contiguous, across, beside, vector, slots, looped, split, waits)


def layout_rules(shape: RowShape, cores: int) -> tuple[Constraint, ...]:
    """What schedules of rows keep to, on a device of `cores` multiprocessors."""
    kept = KEPT_BYTES // shape.bytes

    def beside(c: Columns) -> np.ndarray:
        return c["block[0]"] // (1 if shape.contiguous else c["vector"])

    def across(c: Columns) -> np.ndarray:
        return c["threads"] // beside(c)

    def step(c: Columns) -> np.ndarray:
        return across(c) * (c["vector"] if shape.contiguous else 1)

    def blocks(c: Columns) -> np.ndarray:
        return -(-shape.rows // c["block[0]"]) * c["split_k"]

    return (
        rule(
            "vector",
            f"elements per access are powers of two up to {shape.vector}",
            lambda c: ~is_power(c["vector"]) | (c["vector"] > shape.vector),
        ),
        rule(
            "block[0]",
            "rows are powers of two" + ("" if shape.contiguous else ", and whole vectors"),
            lambda c: ~is_power(c["block[0]"]) | ~is_power(beside(c)),
        ),
        *whole_warps("threads", lambda c: c["threads"]),
        rule(
            "threads",
            "those of each row are powers of two",
            lambda c: (c["threads"] % beside(c) != 0) | ~is_power(across(c)),
        ),
        rule(
            "block[1]",
            "columns are whole vectors of all threads of a row",
            lambda c: (c["block[1]"] % step(c) != 0) | (c["block[1]"] < 1),
        ),
        rule(
            "block[1]",
            f"a thread keeps more than {kept} elements of {shape.bytes} B; use more threads or fewer columns",
            lambda c: c["block[1]"] // across(c) * (1 if shape.contiguous else c["vector"]) > kept,
        ),
        rule("split_k", "there are fewer columns", lambda c: c["split_k"] > shape.columns),
        rule(
            "split_k",
            f"blocks that wait for each other have to run at once, and there are {cores} multiprocessors",
            lambda c: (c["split_k"] > 1) & (blocks(c) > cores) & (not shape.splittable),
        ),
    )


def is_power(number: np.ndarray) -> np.ndarray:
    """Which numbers are powers of two."""
    return (number >= 1) & (number & (number - 1) == 0)
