"""The rTasks of a wgmma kernel: units of work, which clusters take in turn, walked in groups of rows.

    for unit in the cluster's share:
        unit -> (batch, row block, column block, part of the k loop)

Tiles that fill whole waves are one unit each. Where a tile is divided (`split` > 1), the tiles of the last, incomplete
wave become `split` units each, whose sums are added up through memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.families.wgmma.plan import Plan
from tilewright.compiler.gpu.builder import Operand, Share, Value, minimum, select


@dataclass(frozen=True)
class Unit:
    """One unit of work, in index values: where its tile starts, its stretch of the k loop, whether it is a part.

    `row_box` is the number of the block's first box of 64 rows. `part` and `slot` number a part and its tile's place
    in the workspace; `divided` is whether this unit is one of several.
    """

    row_box: Operand
    column_box: Operand
    batch: Operand
    first: Operand
    end: Operand
    part: Operand
    slot: Operand
    divided: Value | bool


@dataclass(frozen=True)
class TileSchedule:
    """Units of a plan, its kernel's rTasks, for `clusters` clusters that run at once."""

    plan: Plan
    cores: int

    @property
    def room(self) -> int:
        """Clusters that the device runs at once."""
        return max(1, self.cores // self.plan.tile.cluster)

    @property
    def clusters(self) -> int:
        """Clusters of the grid: as many as run at once, or as there is work for."""
        return min(self.room, self.units)

    @property
    def split(self) -> int:
        """Parts of a divided tile: no more than there are steps of k."""
        return min(self.plan.tile.split, self.plan.depths.total)

    @property
    def whole(self) -> int:
        """Tiles that are one unit."""
        if self.split == 1:
            return self.plan.tiles
        return self.plan.tiles // self.room * self.room

    @property
    def divided(self) -> int:
        """Tiles of one cluster that are `split` units."""
        return self.plan.tiles - self.whole

    @property
    def units(self) -> int:
        """All units."""
        return self.whole + self.divided * self.split

    def each(self, share: Share, rank: Operand, carried: list[Value], body) -> list[Value]:
        """A loop over the units of a cluster: `body(unit, *carried)` gives what the next one carries."""
        return share.each(carried, lambda u, *values: body(self.decode(u, rank), *values))

    def decode(self, unit: Value, rank: Operand) -> Unit:
        plan, steps = self.plan, self.plan.depths.total
        if not self.divided:
            tile, part, slot, divided = unit, 0, 0, False
            first, end = 0, steps
        elif not self.whole:
            tile, part, divided = unit // self.split, unit % self.split, True
            slot = tile
            first, end = self._stretch(part)
        else:
            over = unit - self.whole
            divided = unit >= self.whole
            slot, part = over // self.split, over % self.split
            tile = select(divided, slot + self.whole, unit)
            first, end = self._stretch(part)
            first, end = select(divided, first, 0), select(divided, end, steps)
        per_batch = plan.row_blocks * plan.columns.total
        batch = tile // per_batch if plan.batch.total > 1 else 0
        rest = tile % per_batch if plan.batch.total > 1 else tile
        row, column = self._raster(rest)
        boxes = plan.tile.warpgroups
        row_box = (row * plan.tile.cluster + rank) * boxes if plan.tile.cluster > 1 else row * boxes
        return Unit(row_box, column, batch, first, end, part, slot, divided)

    def _stretch(self, part: Value) -> tuple[Operand, Operand]:
        """First and last step of a part: the first parts take one step more where they do not come out even."""
        each, more = divmod(self.plan.depths.total, self.split)
        first = part * each + minimum(part, more) if more else part * each
        length = select(part < more, each + 1, each) if more else each
        return first, first + length

    def _raster(self, tile: Value) -> tuple[Operand, Operand]:
        """(row block, column block): `raster` rows are walked column by column, so that what is read stays in L2."""
        rows, columns = self.plan.row_blocks, self.plan.columns.total
        height = min(self.plan.tile.raster, rows)
        if columns == 1:
            return tile, 0
        if height == 1:
            return tile // columns, tile % columns
        group, inside = tile // (height * columns), tile % (height * columns)
        if height == rows:
            return tile % height, tile // height
        own = height if rows % height == 0 else minimum(rows - group * height, height)
        return group * height + inside % own, inside // own
