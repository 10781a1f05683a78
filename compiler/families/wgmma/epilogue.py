"""Writes the results of a consumer's 64 rows: computed on the sums in registers, then out through TMA or by threads.

    16-bit results:  registers -> stmatrix -> up to 64 columns in shared memory, swizzled -> TMA store, which clips
    any other:       pairs of neighbouring columns straight from the registers, predicated at ragged edges

Thread t of a warpgroup holds, of row t / 4 (+ 8) of its warp's 16 rows, the columns 2 (t % 4) and next of every 8.
What the epilogue reads at rows and columns outside of the product is read at the last ones inside; it is not stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.families.contraction.addresses import Addresses
from tilewright.compiler.families.contraction.epilogue import Epilogue, Line, Piece
from tilewright.compiler.families.contraction.problem import element_bytes
from tilewright.compiler.families.wgmma.pipeline import zeros
from tilewright.compiler.families.wgmma.plan import (
    STORED_COLUMNS,
    Grid,
    Plan,
    panel_swizzle,
    panel_widths,
)
from tilewright.compiler.families.wgmma.schedule import Unit
from tilewright.compiler.families.wgmma.split import Sums
from tilewright.compiler.families.wgmma.tile import PANEL, ROW_BYTES, WARPGROUP_ROWS, WARPGROUP_THREADS
from tilewright.compiler.gpu import primitives
from tilewright.compiler.gpu.builder import Operand, Value, both, from_elements, if_, minimum
from tilewright.compiler.gpu.primitives import Shared
from tilewright.compiler.ir import arith, ir, vector

PANEL_BYTES = WARPGROUP_ROWS * ROW_BYTES
MOST_REGISTERS = 255
"""Of one thread. Source: CUDA C++ Programming Guide, "Compute Capabilities"."""
OTHER_REGISTERS = 96
"""Registers left for all but sums and what is read ahead; with 72, a tile of 128x256 spills."""

EarlyReads = dict[tuple[int, int], list[dict[int, Value]]]
"""(which 8 columns, which of two rows) -> for each piece, access -> a vector of its elements."""


@dataclass(frozen=True)
class ResultWriter:
    """What one warpgroup needs to write results; `maps` has, for every store that leaves through TMA, a map per width."""

    plan: Plan
    addresses: Addresses
    staging: ir.Value | None
    maps: tuple[dict[int, ir.Value] | None, ...]
    number: Value
    thread: Value
    barrier: Value

    def read_ahead(self, unit: Unit) -> EarlyReads:
        """Starts to read what the epilogue adds row by row (a residual), as far as registers allow."""
        none = zeros(4, ir.Type.parse(self.plan.contraction.compute_dtype))
        tile = _Tile(self, unit, lambda eighth: none, {})
        return {
            (eighth, half): [tile.early(piece) for piece in tile.pieces(eighth, half)]
            for eighth in range(min(self.plan.tile.columns // 8, self._eighths_ahead()))
            for half in (0, 1)
        }

    def _eighths_ahead(self) -> int:
        """Groups of 8 columns whose operands fit registers beside sums and all else."""
        tile = self.plan.tile
        held = tile.registers[1] if tile.registers else MOST_REGISTERS
        buffers, accesses = self.plan.contraction.buffers, self.plan.contraction.accesses
        words = sum(
            max(1, element_bytes(buffers[accesses[i].buffer].dtype) // 2) for i in self.plan.row_reads
        )
        free = held - OTHER_REGISTERS - tile.accumulators
        return max(0, free // (2 * words)) if words else 0

    def write(self, unit: Unit, sums: Sums, early: EarlyReads) -> None:
        """All results of this warpgroup's rows of a unit's tile; `sums` gives a thread's four of 8 columns."""
        _Tile(self, unit, sums, early).write()

    def finish(self) -> None:
        """Waits until everything that left through TMA has been written."""
        if any(m is not None for m in self.maps):
            with if_(self.thread.equals(0)):
                primitives.bulk_wait(0)


@dataclass
class _Tile:
    """One warpgroup's results of one tile."""

    writer: ResultWriter
    unit: Unit
    sums: Sums
    read: EarlyReads

    def __post_init__(self) -> None:
        writer, plan = self.writer, self.writer.plan
        self.batch = plan.batch.starts(self.unit.batch)
        self.row_start = plan.rows.starts(self.unit.row_box + writer.number)
        self.column_start = plan.columns.starts(self.unit.column_box)
        self.epilogue = Epilogue(writer.addresses, 0)
        for access in self.epilogue.numbers:
            self.epilogue.base[access] = writer.addresses.offset(access, self.batch) + writer.addresses.start(
                access
            )
        self.lane = writer.thread % 32
        self.warp_row = writer.thread // 32 * 16
        self.rows = [self._row(half) for half in (0, 1)]
        self.latest: tuple[int, list[Value]] | None = None

    def write(self) -> None:
        plan = self.writer.plan
        sends = [
            (number, maps, panel)
            for panel in range(len(panel_widths(plan.tile.columns)))
            for number, maps in enumerate(self.writer.maps)
            if maps is not None
        ]
        for turn, (number, maps, panel) in enumerate(sends):
            # There are as many sends as make whole turns, so buffers alternate over tiles too.
            self._send(number, maps, panel, turn % plan.panels)
        direct = [i for i, map_ in enumerate(self.writer.maps) if map_ is None]
        if direct:
            for eighth in range(plan.tile.columns // 8):
                self._store(direct, eighth)

    def _row(self, half: int) -> Line:
        """Row 8 * `half` + lane / 4 of this warp's 16."""
        plan = self.writer.plan
        inside = plan.rows.inside(self.warp_row + self.lane // 4 + 8 * half)
        left_over = plan.rows.total % (plan.tile.warpgroups * plan.tile.cluster) != 0
        return self._line(plan.rows, self.row_start, inside, 1, left_over)

    def _column(self, column: int, lanes: int, second: bool = False) -> Line:
        """`lanes` columns of this thread from column `column` of the tile on, or from the one after."""
        plan = self.writer.plan
        own = self.lane % 4 * 2 + (1 if second else 0)
        if plan.columns.sizes[-1] % 8:
            inside = plan.columns.inside(own + column)
        else:
            inside = plan.columns.inside(column)
            inside[plan.columns.numbers[-1]] = own + inside[plan.columns.numbers[-1]]
        return self._line(plan.columns, self.column_start, inside, lanes, False)

    def _line(
        self, grid: Grid, start: dict[int, Operand], inside: dict[int, Operand], lanes: int, left_over: bool
    ) -> Line:
        valid: Value | bool = True
        steps: dict[int, Operand] = {}
        position: Operand = 0
        for i, (loop, extent, size) in enumerate(zip(grid.numbers, grid.extents, grid.sizes)):
            step = inside[loop] + start[loop]
            if extent % size or (left_over and i == 0):
                valid = both(valid, step < extent)
                step = minimum(step, extent - (lanes if i == len(grid.numbers) - 1 else 1))
            steps[loop] = step
            position = step
        offsets = {i: self.writer.addresses.offset(i, steps) for i in self.epilogue.numbers}
        return Line(position, offsets, valid)

    def early(self, piece: Piece) -> dict[int, Value]:
        """Reads of a piece that only depend on where it is."""
        return {
            access: from_elements(own)
            for access in self.writer.plan.row_reads
            for own in (piece.load(access),)
        }

    def pieces(self, eighth: int, half: int) -> list[Piece]:
        """The two columns that this thread has of 8: one piece, or two where pairs are not neighbours in memory."""
        found = self._pieces(eighth, half)
        for piece, read in zip(found, self.read.get((eighth, half), [])):
            for access, elements in read.items():
                piece.loads[access] = [elements[lane] for lane in range(len(piece.sums))]
        return found

    def _pieces(self, eighth: int, half: int) -> list[Piece]:
        pair = self._sums(eighth)[half * 2 : half * 2 + 2]
        if self.epilogue.lanes >= 2 and self.writer.plan.columns.sizes[-1] % 2 == 0:
            return [self.epilogue.piece(pair, self.rows[half], self._column(eighth * 8, 2))]
        return [
            self.epilogue.piece([own], self.rows[half], self._column(eighth * 8, 1, second=bool(i)))
            for i, own in enumerate(pair)
        ]

    def _sums(self, eighth: int) -> list[Value]:
        """This thread's sums of 8 columns, asked for once while both rows are worked on."""
        if self.latest is None or self.latest[0] != eighth:
            self.latest = (eighth, self.sums(eighth))
        return self.latest[1]

    def _values(self, number: int, eighth: int, half: int) -> list[Value]:
        element = self.writer.plan.contraction.stores[number].element
        return [
            piece.value(element, lane)
            for piece in self.pieces(eighth, half)
            for lane in range(len(piece.sums))
        ]

    def _store(self, numbers: list[int], eighth: int) -> None:
        """Stores the two columns of 8 of both rows."""
        stores = self.writer.plan.contraction.stores
        for half in (0, 1):
            for piece in self.pieces(eighth, half):
                lanes = range(len(piece.sums))
                values = [[piece.value(stores[n].element, lane) for lane in lanes] for n in numbers]
                with if_(both(piece.row.valid, piece.column.valid)):
                    for n, own in zip(numbers, values):
                        piece.store(stores[n].access, own)

    def _send(self, number: int, maps: dict[int, ir.Value], panel: int, buffer: int) -> None:
        """A panel of one result: into a buffer once what it held is read, and off."""
        writer, leader = self.writer, self.writer.thread.equals(0)
        width = panel_widths(writer.plan.tile.columns)[panel]
        with if_(leader):
            primitives.bulk_wait(writer.plan.panels - 1, read=True)
        primitives.named_barrier(writer.barrier, WARPGROUP_THREADS)
        for quarter in range(width // STORED_COLUMNS):
            eighth = (panel * PANEL + quarter * STORED_COLUMNS) // 8
            registers = [
                _packed(self._values(number, eighth + side, half)) for side in (0, 1) for half in (0, 1)
            ]
            primitives.stmatrix(self._place(buffer, quarter, width), registers)
        primitives.fence_async_shared()
        primitives.named_barrier(writer.barrier, WARPGROUP_THREADS)
        plan = writer.plan.c[number]
        assert plan is not None
        with if_(leader):
            inside = writer.plan.columns.inside(panel * PANEL)
            columns = {i: self.column_start[i] + inside[i] for i in inside}
            starts = {**self.row_start, **self.batch, **columns}
            primitives.tma_store(maps[width], self._panel(buffer), plan.coordinates(starts))
            primitives.bulk_commit()

    def _panel(self, buffer: int) -> Shared:
        plan = self.writer.plan
        assert self.writer.staging is not None
        return Shared(
            self.writer.staging, self.writer.number * (plan.panels * PANEL_BYTES) + buffer * PANEL_BYTES
        )

    def _place(self, buffer: int, quarter: int, width: int) -> Shared:
        """Where this thread's address of an stmatrix of 16 columns is: 16 bytes of a row, swizzled as TMA reads them."""
        return stored_place(self._panel(buffer), self.warp_row, self.lane, quarter, width)


def stored_place(panel: Shared, warp_row: Value, lane: Value, quarter: int, width: int) -> Shared:
    """Where lane `lane` stores with stmatrix, of 16 columns of a panel `width` wide: 16 bytes of a row from `warp_row` on,
    swizzled as TMA reads them."""
    row = lane % 16 + warp_row
    unit = lane // 16 + quarter * 2
    if swizzle := panel_swizzle(width):
        # Bits 4 and up of an address are changed by bits 7 and up: by the number of its 128 bytes.
        unit = unit ^ row // (ROW_BYTES // swizzle) % (swizzle // 16)
    return panel.at(row * (2 * width) + unit * 16)


def _packed(pair: list[Value]) -> Value:
    """Two 16-bit elements in an i32, rounded by one instruction where both come from f32."""
    made = [_rounded(value) for value in pair]
    if all(source is not None for source in made):
        return rounded_pair([source for source in made if source is not None], pair[0].type)
    return _word(from_elements(pair).value)


def rounded_pair(pair: list[Value], element: ir.Type) -> Value:
    """Two f32 rounded to a 16-bit type, the first in the lower half of an i32."""
    return _word(arith.truncf(ir.VectorType.get([2], element), from_elements(pair).value))


def _word(pair: ir.Value) -> Value:
    word = vector.bitcast(ir.VectorType.get([1], ir.IntegerType.get_signless(32)), pair)
    return Value(vector.extract(word, [], [0]))


def _rounded(value: Value) -> Value | None:
    """The f32 that a value is rounded from."""
    op = value.value.owner
    if isinstance(op, ir.Block) or op.name != "arith.truncf":
        return None
    source = op.operation.operands[0]
    return Value(source) if isinstance(source.type, ir.F32Type) else None
