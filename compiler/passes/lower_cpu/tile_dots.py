"""Turns contractions of bf16 pairs and byte quads into loops over AMX tiles, two rows of tiles by two columns of them.

    linalg.generic (m, n, k) {tilewright.loops = {tiles = []}}
        C[m, n] += extf(A[m, k]) * extf(B[n floordiv 32, k floordiv 2, n mod 32, k mod 2])
      =>
    ldtilecfg tmm0..3: sums [16, 16], tmm4, 5: A [16, 32], tmm6, 7: B [16, 16 x 2]
    scf.for n0 step 32 { scf.for m0 step 32 {
      tilezero tmm0..3
      scf.for q step 16 in k / 2 {
        tileloadd tmm4, A[m0 .. m0 + 16, 2 q .. 2 q + 32];  tmm5, A[m0 + 16 .. ]
        tileloadd tmm6, B[n0 floordiv 32, q .. q + 16, 0 .. 16, ..];  tmm7, B[.., 16 .. 32, ..]
        tdpbf16ps tmm0 += tmm4 * tmm6;  tmm1 += tmm4 * tmm7;  tmm2 += tmm5 * tmm6;  tmm3 += tmm5 * tmm7
      }
      tilestored C[m0 .. m0 + 16, n0 .. n0 + 16], tmm0;  ..
    } }
    tilerelease

Operands are packed as for `vectorize-dots` (a tile of B is 16 groups of 16 columns), and read where they lie: rows
of a tile may be any distance apart, so convolutions of any stride need no copy. Rows and columns that are left over, and
a last chunk of the depth, are smaller tiles. Blocks of steps, all of one size, are a loop around everything but the
configuration's release, and sums wait in memory for the next one. What does not fit, an odd depth or a handful of rows
or columns, is left for `vectorize-dots`.

Registers are numbered here (`Registers`), not by LLVM: a register's shape is part of the tile configuration, so LLVM
gives a register to tiles of one shape only in all of a function. The full and the last chunks of a block need ten
registers that way and there are eight; LLVM ends the process where it finds none. All tiles of a block of rows have
one height, a last chunk has registers of its own, and every other height is a pass with a configuration of its own.
`llvm_text.with_fixed_tiles` makes assembly of the intrinsics, so that no later stage of LLVM renames a register.

Source: Intel, Architecture Instruction Set Extensions and Future Features, 319433, ch. 3 (tiles of 16 rows of
64 bytes, eight of them; LDTILECFG); Intel 64 and IA-32 Optimization Reference Manual, "Intel AMX", for 2 x 2 blocking;
LLVM, X86RegisterInfo::getRegAllocationHints (one shape per register).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import dims, evaluate, map_dims
from tilewright.compiler.dialects import reduction_attribute
from tilewright.compiler.families.cpu.dot_product import flattened, tile_types
from tilewright.compiler.families.cpu.dots import TILE_ROWS, Dots, DotTiles, tiled_rows
from tilewright.compiler.families.cpu.loop_nest import LoopNest, index
from tilewright.compiler.families.cpu.reduction import take_fill
from tilewright.compiler.families.cpu.step_blocks import Block, around_tiles, in_blocks
from tilewright.compiler.ir import affine, arith, ir, linalg, llvm, memref, vector, walk
from tilewright.compiler.nouns.reduction_blocks import split
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.target import Target

_ROWS, _ROW_BYTES = TILE_ROWS, 64
_GROUPS = _ROW_BYTES // 4


@dataclass(frozen=True)
class TileDots(Pass):
    """Takes contractions of `bf16` and `int8` operands that are marked `tiles`.

    Raises ScheduleError for others, and where the target has no tiles for them.
    """

    anchor: ClassVar[str] = "func.func"
    bf16: bool = False
    int8: bool = False

    @classmethod
    def for_target(cls, target: Target) -> TileDots:
        """The pass with what the target's features allow."""
        return cls(*tile_types(target))

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            if reduction_attribute.is_for(generic, "tiles"):
                dots = Dots.read(generic)
                rows = self.rows(dots)
                if dots is None or rows is None:
                    raise reduction_attribute.refusal(
                        generic, "it does not fit the tiles of this target; use dots"
                    )
                said = reduction_attribute.check(generic, DotTiles.of(dots), 0)
                with ir.InsertionPoint(generic), generic.location:
                    _Emitter(dots, rows, said.depth).emit()
                generic.erase()

    def rows(self, dots: Dots | None) -> int | None:
        """The loop that makes the rows of tiles; None where a contraction does not fit those of the target."""
        return tiled_rows(dots) if dots is not None and dots.is_of((self.bf16, self.int8)) else None


@dataclass(frozen=True)
class Registers:
    """Which of the eight tile registers a block of `rows` by `columns` tiles uses, at most two by two.

    Tiles of rows are `height` rows of `chunk` groups, and `tail` groups in a last chunk; tiles of columns have `width`. Sums come first, then rows,
    columns, and a row and a column of the last chunk. Four sums and a last chunk leave one register for rows and one for
    columns, which is then loaded once more: 4 + 1 + 1 + 2 = 8, and 4 + 2 + 2 without a last chunk.
    """

    rows: int
    columns: int
    height: int
    chunk: int
    tail: int = 0
    width: int = _ROWS

    @property
    def row_count(self) -> int:
        """Registers that hold tiles of rows."""
        return 1 if self.tail else self.rows

    @property
    def column_count(self) -> int:
        """Registers that hold tiles of columns."""
        return 1 if self.tail else self.columns

    def sum(self, row: int, column: int) -> int:
        """The register of one sum."""
        return row * self.columns + column

    def row(self, row: int, last: bool) -> int:
        """The register that a tile of rows is loaded to, in a full or the last chunk."""
        first = self.rows * self.columns
        return first + self.row_count + self.column_count if last else first + row % self.row_count

    def column(self, column: int, last: bool) -> int:
        """The register that a tile of columns is loaded to."""
        first = self.rows * self.columns + self.row_count
        return first + self.column_count + 1 if last else first + column % self.column_count

    def shapes(self) -> list[tuple[int, int]]:
        """Rows and bytes per row of each register in use, by number."""
        sums = [(self.height, 4 * self.width)] * (self.rows * self.columns)
        rows = [(self.height, 4 * self.chunk)] * self.row_count
        columns = [(self.chunk, 4 * self.width)] * self.column_count
        last = [(self.height, 4 * self.tail), (self.tail, 4 * self.width)] if self.tail else []
        return [*sums, *rows, *columns, *last]

    def configuration(self) -> bytes:
        """What LDTILECFG loads: palette 1, bytes per row as 16-bit words from byte 16 on, rows from byte 48 on."""
        shapes = self.shapes()
        words = b"".join(row_bytes.to_bytes(2, "little") for _, row_bytes in shapes)
        return (
            bytes([1]).ljust(16, b"\0")
            + words.ljust(32, b"\0")
            + bytes(rows for rows, _ in shapes).ljust(16, b"\0")
        )


def chunks(groups: int) -> tuple[int, int]:
    """Groups of a chunk of the depth, at most sixteen, and of a smaller last one; 0 where as few chunks are even."""
    count = -(-groups // _GROUPS)
    return (groups // count, 0) if groups % count == 0 else (_GROUPS, groups % _GROUPS)


@dataclass(frozen=True)
class RowPass:
    """Blocks of `count` tiles of `height` rows each, at `starts` in the block, along the rows from `first` to `end`."""

    first: int
    end: int
    step: int
    height: int
    starts: tuple[int, ...]


def row_passes(extent: int) -> list[RowPass]:
    """The blocks that cover `extent` rows: of two tiles of 16 rows, then what remains in one tile or two of one height.

    Of an odd number the two overlap in one row, whose sum both compute from the same start and store.
    """
    full = extent - extent % (2 * _ROWS)
    passes = [RowPass(0, full, 2 * _ROWS, _ROWS, (0, _ROWS))] if full else []
    rest = extent - full
    if rest:
        height = rest if rest <= _ROWS else -(-rest // 2)
        starts = (0,) if rest <= _ROWS else (0, rest - height)
        passes.append(RowPass(full, extent, rest, height, starts))
    return passes


@dataclass(frozen=True)
class ColumnPass:
    """One or two tiles of `width` columns each, at `starts` in every `step` of them."""

    step: int
    width: int
    starts: tuple[int, ...]


def column_passes(unit: int) -> list[ColumnPass]:
    """What covers every `unit` of columns: pairs of tiles of 16, then what remains in one tile or two of one width.

    Of an odd number the two overlap, as those of rows do.
    """
    pair = (0, _ROWS)
    if unit % (2 * _ROWS) == 0:
        return [ColumnPass(2 * _ROWS, _ROWS, pair)]
    full = unit - unit % (2 * _ROWS)
    passes = [ColumnPass(unit, _ROWS, (at, at + _ROWS)) for at in range(0, full, 2 * _ROWS)]
    rest = unit - full
    width = rest if rest <= _ROWS else -(-rest // 2)
    return [*passes, ColumnPass(unit, width, (full,) if rest <= _ROWS else (full, unit - width))]


@dataclass(frozen=True)
class _Tiles:
    """The tiles of one configuration: of which rows and columns, and in which registers."""

    rows: RowPass
    columns: ColumnPass
    registers: Registers


class _Emitter(LoopNest):
    """Writes the loops of one contraction at the current insertion point."""

    def __init__(self, dots: Dots, rows: int, depth: int):
        super().__init__(dots.maps, dots.extents)
        self.d, self.rows, self.depth = dots, rows, depth
        self.block: Block | None = None
        self.group = dots.product.group
        operands = list(dots.op.operands)
        self.a, self.b, self.c = (
            _Buffer(operands[dots.loops.row]),
            _Buffer(flattened(operands[dots.loops.column], self.group)),
            _Buffer(operands[2]),
        )
        self.zeroed = self._starts_from_zero()

    def _starts_from_zero(self) -> bool:
        """Takes the fill with zeros off memory; another start stays there, to be loaded."""
        scalar = take_fill(self.d.op)
        if scalar is None:
            return False
        owner = scalar.owner
        if not isinstance(owner, ir.Block) and owner.name == "arith.constant":
            value = owner.attributes["value"]
            if value.value == 0:
                return True
        linalg.fill(scalar, outs=[self.d.op.operands[2]])
        return False

    def emit(self) -> None:
        words = ir.MemRefType.get([16], ir.IntegerType.get_signless(32))
        self.configuration = memref.alloca(words, [], [])
        if self.depth:
            cut = split(self.d.steps, self.depth)
            assert cut is not None, "blocks of no whole steps are refused"
            outer = around_tiles(self.d.parallel, self._tiled, None)
            in_blocks(self, outer, self.d.reduction, *self.d.in_groups(cut), self._tiles)
        else:
            self._tiles()
        self._call("tilerelease", [])

    @property
    def _tiled(self) -> tuple[int, int]:
        """The loops that tiles step along."""
        return self.d.loops.vector, self.rows

    def _tiles(self, block: Block | None = None) -> None:
        """The tiles of all rows and columns, of every configuration that there is."""
        self.block = block
        loops, panel = self.d.loops, map_dims(self.d.maps[self.d.loops.column])
        outer = around_tiles(self.d.parallel, self._tiled, block)
        before, inside = [d for d in outer if d in panel], [d for d in outer if d not in panel]
        chunk, tail = chunks(self._groups())
        extent = self.extents[loops.vector]
        all_columns = column_passes(min(self.d.block or extent, extent))
        for rows, columns in itertools.product(row_passes(self.extents[self.rows]), all_columns):
            registers = Registers(
                len(rows.starts), len(columns.starts), rows.height, chunk, tail, columns.width
            )
            self._configure(registers)
            nest = _Tiles(rows, columns, registers)

            def of_columns(nest: _Tiles = nest) -> None:
                block, rows = partial(self._block, nest), nest.rows
                self.nest(inside, lambda: self.loop(self.rows, rows.first, rows.end, rows.step, block))

            def of_all(nest: _Tiles = nest, of_columns: Callable[[], None] = of_columns) -> None:
                self.loop(loops.vector, 0, extent, nest.columns.step, of_columns)

            self.nest(before, of_all)

    def _groups(self) -> int:
        """Groups of the innermost loop that a tile is summed over at once."""
        depth = self.d.loops.depth
        if self.block is not None and self.block.loop == depth:
            return self.block.size
        return self.extents[depth] // self.group

    def _configure(self, registers: Registers) -> None:
        words = ir.VectorType.get([16], ir.IntegerType.get_signless(32))
        value = ir.DenseElementsAttr.get(memoryview(registers.configuration()), type=words)
        vector.store(arith.constant(words, value), self.configuration, [self.zero])
        self._call("ldtilecfg", [_Buffer(self.configuration).pointer([self.zero])])

    def _block(self, tiles: _Tiles) -> None:
        self.ivs[self.d.loops.depth] = self.zero
        stride = _i64(self.c.stride(self.d.maps[2], self.rows))
        sums = {
            tiles.registers.sum(i, j): self.c.pointer(self._place(2, row, column))
            for i, row in enumerate(tiles.rows.starts)
            for j, column in enumerate(tiles.columns.starts)
        }

        def zeroed() -> None:
            for register in sums:
                self._call("tilezero", [_i8(register)])

        def loaded() -> None:
            for register, place in sums.items():
                self._call("tileloadd64", [_i8(register), place, stride])

        if not self.zeroed:
            loaded()
        elif self.block is None:
            zeroed()
        else:
            self.block.begin(zeroed, loaded)
        self._sum(tiles)
        for register, place in sums.items():
            self._call("tilestored64", [_i8(register), place, stride])

    def _sum(self, tiles: _Tiles) -> None:
        """All steps, or those of the block that is open."""
        *loops, depth = self.d.innermost_last
        block = self.block
        if block is None:
            self.nest(loops, lambda: self._chunks(tiles))
        elif block.loop == depth:
            self._chunks(tiles, block.start)
        else:
            inside = loops[len(block.around) + 1 :]
            self._from(
                block.loop, block.start, block.size, 1, lambda: self.nest(inside, lambda: self._chunks(tiles))
            )

    def _chunks(self, tiles: _Tiles, start: ir.Value | None = None) -> None:
        """The chunks of the groups of one step of all other loops, from the first one or from `start`."""
        depth, registers = self.d.loops.depth, tiles.registers
        full = self._groups() - registers.tail
        self._from(depth, start, full, registers.chunk, lambda: self._chunk(tiles, last=False))
        if registers.tail:
            self.ivs[depth] = index(full) if start is None else arith.addi(start, index(full))
            self._chunk(tiles, last=True)

    def _from(
        self, dim: int, start: ir.Value | None, steps: int, step: int, body: Callable[[], None]
    ) -> None:
        """A loop around `body`, from 0 or from where a block starts."""

        def moved() -> None:
            if start is not None:
                self.ivs[dim] = arith.addi(start, self.ivs[dim])
            body()

        self.loop(dim, 0, steps, step, moved)

    def _chunk(self, tiles: _Tiles, last: bool) -> None:
        """One chunk of the depth: a tile is loaded where its register holds another; every other row turns back."""
        product = "tdpbf16ps" if self.group == 2 else "tdpbusd"
        registers, starts = tiles.registers, tiles.columns.starts
        held: dict[int, tuple[int, int]] = {}
        for i, start in enumerate(tiles.rows.starts):
            for j in range(len(starts))[:: -1 if i % 2 else 1]:
                row, column = registers.row(i, last), registers.column(j, last)
                if held.get(row) != (0, i):
                    held[row] = (0, i)
                    self._load_row(row, start)
                if held.get(column) != (1, j):
                    held[column] = (1, j)
                    self._load_column(column, starts[j])
                self._call(product, [_i8(registers.sum(i, j)), _i8(row), _i8(column)])

    def _load_row(self, register: int, start: int) -> None:
        place = self.a.pointer(self._place(self.d.loops.row, start, 0))
        stride = self.a.stride(self.d.maps[self.d.loops.row], self.rows)
        self._call("tileloadd64", [_i8(register), place, _i64(stride)])

    def _load_column(self, register: int, column: int) -> None:
        *outer, inside, _ = self._place(self.d.loops.column, 0, column)
        flat = affine.apply(ir.AffineMap.get(1, 0, [ir.AffineExpr.get_dim(0) * self.group]), [inside])
        stride = self.b.strides[self._group_dim()] * self.b.bytes
        self._call("tileloadd64", [_i8(register), self.b.pointer([*outer, flat]), _i64(stride)])

    def _group_dim(self) -> int:
        """The dimension of the packed operand that counts groups along the depth."""
        map_ = self.d.maps[self.d.loops.column]
        return next(i for i, expr in enumerate(map_.results) if self.d.loops.depth in dims(expr))

    def _place(self, operand: int, row: int, column: int) -> list[ir.Value]:
        """Indices of an operand, the open depth loop counting groups."""
        map_ = self.d.maps[operand]
        replaced = [ir.AffineExpr.get_dim(i) for i in range(map_.n_dims)]
        replaced[self.rows] += row
        replaced[self.d.loops.vector] += column
        replaced[self.d.loops.depth] *= self.group
        shift = ir.AffineMap.get(map_.n_dims, 0, replaced)
        return [
            affine.apply(
                ir.AffineMap.get(map_.n_dims, 0, [expr.compose(shift)]),
                [self.ivs[d] if d in dims(expr) else self.zero for d in range(map_.n_dims)],
            )
            for expr in map_.results
        ]

    def _call(self, name: str, operands: Sequence[ir.Value]) -> None:
        llvm.call_intrinsic(None, f"llvm.x86.{name}", operands, [], [])


class _Buffer:
    """A memref as bytes in memory: its static strides in elements, and pointers into it."""

    def __init__(self, value: ir.Value):
        type_ = ir.MemRefType(value.type)
        self.value, self.rank = value, type_.rank
        self.strides, self.offset = type_.get_strides_and_offset()
        element = type_.element_type
        self.bytes = element.width // 8

    def stride(self, map_: ir.AffineMap, loop: int) -> int:
        """Bytes from one step of `loop` to the next."""
        zero, one = [0] * map_.n_dims, [int(d == loop) for d in range(map_.n_dims)]
        steps = [evaluate(expr, one) - evaluate(expr, zero) for expr in map_.results]
        return self.bytes * sum(step * stride for step, stride in zip(steps, self.strides))

    def pointer(self, place: Sequence[ir.Value]) -> ir.Value:
        """The address of the element at `place`."""
        start = index(self.offset)
        if self.offset == ir.ShapedType.get_dynamic_stride_or_offset():
            start = memref.extract_strided_metadata(self.value)[1]
        d = ir.AffineExpr.get_dim
        linear = d(self.rank) * self.bytes + d(self.rank + 1)
        for i, stride in enumerate(self.strides):
            linear = linear + d(i) * (stride * self.bytes)
        base = memref.extract_aligned_pointer_as_index(self.value)
        address = affine.apply(ir.AffineMap.get(self.rank + 2, 0, [linear]), [*place, start, base])
        word = arith.index_cast(ir.IntegerType.get_signless(64), address)
        return llvm.inttoptr(ir.Type.parse("!llvm.ptr"), word)


def _i8(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(8), value)


def _i64(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(64), value)
