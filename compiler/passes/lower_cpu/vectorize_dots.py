"""Turns contractions of bf16 pairs and byte quads into register-tiled loops of dot-product instructions.

    linalg.generic (m, n, k) {tilewright.loops = {dots = [14, 32]}}
        C[m, n] += extf(A[m, k]) * extf(B[n floordiv 32, k floordiv 2, n mod 32, k mod 2])
      =>
    scf.for n0 step 32 { scf.for m0 step 14 {
      %acc:28 = scf.for q in k / 2 iter_args(28 x vector<16xf32>) {
        %b0, %b1 = vector.load B[n0 floordiv 32, q, .., 0]           // vector<32xbf16>: 16 columns, 2 of k each
        %a = broadcast of the 32 bits at A[m0 + t, 2 q]              // t = 0 .. 13
        %acc_t += x86.avx512.dot %a, %b
      }
      vector.store %acc_t, C[m0 + t, n0]
    } }

One instruction does the work of two f32 multiply-adds (four on bytes). Where `k` is odd the last group is filled
up with zeros, so weights are stored padded and activations are not. Blocks of steps are a loop around all of this, and results
wait in memory for the next one. A column operand that is not packed, `B[k, n]`,
is interleaved in registers, which the unrolled rows share. Loops that the column operand does not follow run inside
of the loop over its panels: a panel stays in the cache while the rows pass by. Bytes of both signs are multiplied as
unsigned row operands by signed column operands, the one combination that VNNI has.

Upstream's `transform.apply_patterns.x86.vector_contract_to_packed_type_dot_product` wants a `vector.contract` of
one row by one register, with both operands already shuffled; packed weights of other blocks, convolutions and odd
depths are beyond it.

Source: Intel, Architecture Instruction Set Extensions and Future Features, 319433, VDPBF16PS and VPDPBUSD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import dims, is_dim, map_dims
from tilewright.compiler.dialects import reduction_attribute
from tilewright.compiler.families.cpu.broadcast_loops import LINE, SECOND_LEVEL
from tilewright.compiler.families.cpu.dot_product import (
    dot_types,
    flattened,
    interleaved,
)
from tilewright.compiler.families.cpu.dots import Dots
from tilewright.compiler.families.cpu.loop_nest import LoopNest, index
from tilewright.compiler.families.cpu.reduction import take_fill
from tilewright.compiler.families.cpu.step_blocks import Block, around_tiles, in_blocks
from tilewright.compiler.ir import affine, arith, ir, llvm, memref, scf, vector, walk, x86
from tilewright.compiler.nouns.reduction_blocks import split
from tilewright.compiler.nouns.register_tiles import register_pieces
from tilewright.compiler.nouns.schedule import Reduction
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.target import Target

GROUP_BYTES = 4
"""Two bf16 or four bytes."""
_LEAST_LANES = 4
"""The narrowest dot product is of 128 bits."""


@dataclass(frozen=True)
class VectorizeDots(Pass):
    """Takes contractions of `bf16` and `int8` operands that are marked `dots`.

    `vector_bits` and `registers` describe the target. Raises ScheduleError for others, and where there is no such tile.
    """

    anchor: ClassVar[str] = "func.func"
    bf16: bool = False
    int8: bool = False
    vector_bits: int = 512
    registers: int = 32

    @classmethod
    def for_target(cls, target: Target) -> VectorizeDots:
        """The pass with what the target's features allow."""
        bf16, int8 = dot_types(target)
        return cls(bf16, int8, target.vector_bits, target.registers_per_thread)

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            if reduction_attribute.is_for(generic, "dots"):
                dots = self.taken(Dots.read(generic))
                said = reduction_attribute.check(generic, dots, self.registers)
                assert dots is not None
                with ir.InsertionPoint(generic), generic.location:
                    _Emitter(dots, said, self.vector_bits // 32, take_fill(generic)).emit()
                generic.erase()

    def taken(self, dots: Dots | None) -> Dots | None:
        """The contraction, where the target multiplies such groups."""
        return dots if dots is not None and dots.is_of((self.bf16, self.int8)) else None


@dataclass(frozen=True)
class _Point:
    """One accumulator: step of the unrolled loop, offset in the vector loop, columns in use, lanes of the register."""

    row: int
    offset: int
    columns: int
    lanes: int


class _Emitter(LoopNest):
    """Writes the loops of one contraction at the current insertion point."""

    def __init__(
        self,
        dots: Dots,
        said: Reduction,
        lanes: int,
        fill: ir.Value | None,
    ):
        super().__init__(dots.maps, dots.extents)
        self.d, self.unrolled, self.depth = dots, dots.unrolled, said.depth
        self.unroll, self.width = said.sizes
        self.block: Block | None = None
        self.lanes, self.fill = lanes, fill
        self.operands = list(dots.op.operands)
        self.group = dots.product.group
        self.row, self.column = self.operands[dots.loops.row], self.operands[dots.loops.column]
        self.element = ir.ShapedType(self.column.type).element_type
        self.sum = ir.ShapedType(self.operands[2].type).element_type
        self.flat = None if dots.block is None else flattened(self.column, self.group)
        self.prefetch = reduction_attribute.read_prefetch(dots.op)

    def emit(self) -> None:
        if not self.depth:
            self._tiles()
            return
        cut = split(self.d.steps, self.depth)
        assert cut is not None, "blocks of no whole steps are refused"
        outer = around_tiles(self.d.parallel, self._tiled, None)
        in_blocks(self, outer, self.d.reduction, *self.d.in_groups(cut), self._tiles)

    @property
    def _tiled(self) -> tuple[int, int | None]:
        """The loops that a register tile steps along."""
        return self.d.loops.vector, self.unrolled

    def _tiles(self, block: Block | None = None) -> None:
        """The register tiles, rows first."""
        loops, self.block = self.d.loops, block
        outer = around_tiles(self.d.parallel, self._tiled, block)
        panel = map_dims(self.d.maps[loops.column])
        before, inside = [d for d in outer if d in panel], [d for d in outer if d not in panel]
        self.nest(
            before, lambda: self.segments(loops.vector, self.width, lambda width: self._rows(inside, width))
        )

    def _rows(self, loops: list[int], width: int) -> None:
        def tiles() -> None:
            self.segments(self.unrolled, self.unroll, lambda count: self._tile(count, width))

        self.nest(loops, tiles)

    def _tile(self, count: int, width: int) -> None:
        points = [
            _Point(t, offset, columns, max(columns, _LEAST_LANES))
            for t in range(count)
            for offset, columns in register_pieces(width, self.lanes)
        ]
        self.ivs[self.d.loops.depth] = self.zero
        places = [self._address(2, point.row, point.offset) for point in points]
        starts = self._starts(points, places)
        if self.block is None:
            results = self._reduce(self.d.innermost_last, starts, points)
        else:
            results = self._reduce_block(self.block, starts, points)
        for point, place, value in zip(points, places, results):
            vector.store(_first(value, point.columns), self.operands[2], place)

    def _starts(self, points: list[_Point], places: list[list[ir.Value]]) -> list[ir.Value]:
        """What a register tile adds to: what is in memory, or the fill, of the first block only."""
        types = [ir.VectorType.get([point.lanes], self.sum) for point in points]

        def loaded() -> list[ir.Value]:
            return [
                self._load(self.operands[2], place, p.columns, p.lanes) for p, place in zip(points, places)
            ]

        def filled() -> list[ir.Value]:
            return [vector.broadcast(type_, self.fill) for type_ in types]

        if self.fill is None:
            return loaded()
        return filled() if self.block is None else self.block.starts(types, filled, loaded)

    def _reduce_block(self, block: Block, sums: list[ir.Value], points: list[_Point]) -> list[ir.Value]:
        """The steps of one block."""
        inside = self.d.reduction[len(block.around) + 1 :]

        def steps(carried: list[ir.Value]) -> list[ir.Value]:
            if inside:
                return self._reduce(inside, carried, points)
            return self._step(self.ivs[block.loop], self.group, carried, points)

        return self.counted(block.loop, block.start, block.steps(), sums, steps)

    def _reduce(self, loops: Sequence[int], sums: list[ir.Value], points: list[_Point]) -> list[ir.Value]:
        """All steps of the loops, of which the last one is that of groups."""
        first, *others = loops
        if others:
            return self._carried(
                self.d.extents[first],
                sums,
                lambda iv, carried: self._at(first, iv, lambda: self._reduce(others, carried, points)),
            )
        depth = self.d.extents[first]
        full, rest = divmod(depth, self.group)
        if full:
            sums = self._carried(full, sums, lambda iv, carried: self._step(iv, self.group, carried, points))
        return self._step(index(full), rest, sums, points) if rest else sums

    def _at(self, dim: int, iv: ir.Value, body: Callable[[], list[ir.Value]]) -> list[ir.Value]:
        self.ivs[dim] = iv
        return body()

    def _carried(
        self,
        extent: int,
        sums: list[ir.Value],
        body: Callable[[ir.Value, list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        if extent == 1:
            return body(self.zero, sums)
        loop = scf.ForOp(self.zero, index(extent), index(1), sums)
        with ir.InsertionPoint(loop.body):
            scf.YieldOp(body(loop.induction_variable, list(loop.inner_iter_args)))
        return list(loop.results)

    def _step(
        self, group: ir.Value, count: int, sums: list[ir.Value], points: list[_Point]
    ) -> list[ir.Value]:
        """Adds one group of `count` products to every accumulator; every operand is read once."""
        self.ivs[self.d.loops.depth] = group
        if self.prefetch and self.flat is not None:
            self._fetch_ahead(sum(point.columns for point in points if point.row == 0))
        columns: dict[tuple[int, int], ir.Value] = {}
        rows: dict[int, ir.Value] = {}
        results = []
        moves = self.unrolled in map_dims(self.d.maps[self.d.loops.row])
        for point, sum_ in zip(points, sums):
            key = (point.offset, point.lanes)
            if key not in columns:
                columns[key] = self._column(point, count)
            at = point.row if moves else 0
            if at not in rows:
                rows[at] = self._row_group(at, count)
            spread = vector.broadcast(ir.VectorType.get([point.lanes], rows[at].type), rows[at])
            results.append(self._dot(sum_, spread, columns[key], point.lanes))
        return results

    def _fetch_ahead(self, width: int) -> None:
        """Asks for the lines of the panel that are loaded `prefetch` bytes further on."""
        assert self.d.block is not None and self.flat is not None
        steps = max(1, self.prefetch // (self.d.block * GROUP_BYTES))
        for offset in range(0, width, LINE // GROUP_BYTES):
            ahead = self._in_panel(offset, steps * self.group)
            memref.prefetch(self.flat, ahead, False, SECOND_LEVEL, True)

    def _in_panel(self, offset: int, depth: int = 0) -> list[ir.Value]:
        """Where the group of a column lies whose elements are stored side by side, `depth` elements further on."""
        *place, inside, _ = self._address(self.d.loops.column, 0, offset, depth)
        return [*place, affine.apply(_times(self.group), [inside])]

    def _row_group(self, row: int, count: int) -> ir.Value:
        """The `count` neighbours at one row as 32 bits, zeros above them."""
        place = self._address(self.d.loops.row, row, 0)
        bits = 32 // self.group
        i32 = ir.IntegerType.get_signless(32)
        if count == self.group:
            pair = vector.load(ir.VectorType.get([count], self.element), self.row, place)
            word = vector.bitcast(ir.VectorType.get([1], i32), pair)
            value = vector.extract(word, [], [0])
        else:
            value = arith.constant(i32, 0)
            for i in range(count):
                raw = memref.load(self.row, [*place[:-1], arith.addi(place[-1], index(i))] if i else place)
                if not isinstance(self.element, ir.IntegerType):
                    raw = arith.bitcast(ir.IntegerType.get_signless(bits), raw)
                wide = arith.extui(i32, raw)
                value = arith.ori(value, arith.shli(wide, arith.constant(i32, i * bits)))
        return value

    def _column(self, point: _Point, count: int) -> ir.Value:
        """Groups of `point.columns` columns side by side; where not packed, two rows interleaved."""
        column = self.d.loops.column
        if self.flat is not None:
            place = self._in_panel(point.offset)
            return self._load(self.flat, place, self.group * point.columns, self.group * point.lanes)
        rows = [
            self._load(self.column, self._address(column, 0, point.offset, i), point.columns, point.lanes)
            for i in range(count)
        ]
        if count == 1:
            rows.append(_zeros(point.lanes, self.element))
        return interleaved(rows)

    def _load(self, source: ir.Value, place: list[ir.Value], count: int, lanes: int) -> ir.Value:
        """`count` neighbours in a register of `lanes`, zeros behind them."""
        element = ir.ShapedType(source.type).element_type
        loaded = vector.load(ir.VectorType.get([count], element), source, place)
        if count == lanes:
            return loaded
        return vector.insert_strided_slice(loaded, _zeros(lanes, element), [0], [1])

    def _dot(self, sum_: ir.Value, row: ir.Value, column: ir.Value, lanes: int) -> ir.Value:
        row = vector.bitcast(column.type, row)
        if self.group == 2:
            return x86.DotBF16Op(sum_, row, column, results=[sum_.type]).result
        return llvm.call_intrinsic(
            sum_.type, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", [sum_, row, column], [], []
        )

    def _address(self, operand: int, row: int, offset: int, depth: int = 0) -> list[ir.Value]:
        """Where an operand lies at a point of the register tile; the depth loop counts groups."""
        map_ = self.d.maps[operand]
        replaced = [ir.AffineExpr.get_dim(i) for i in range(map_.n_dims)]
        if self.unrolled is not None:
            replaced[self.unrolled] += row
        replaced[self.d.loops.vector] += offset
        replaced[self.d.loops.depth] = replaced[self.d.loops.depth] * self.group + depth
        shift = ir.AffineMap.get(map_.n_dims, 0, replaced)
        place = []
        for expr in map_.results:
            composed = ir.AffineMap.get(map_.n_dims, 0, [expr.compose(shift)])
            moved = composed.results[0]
            used = sorted(dims(moved))
            if is_dim(moved):
                place.append(self.ivs[used[0]])
            else:
                arguments = [self.ivs[d] if d in used else self.zero for d in range(map_.n_dims)]
                place.append(affine.apply(composed, arguments))
        return place


def _times(factor: int) -> ir.AffineMap:
    return ir.AffineMap.get(1, 0, [ir.AffineExpr.get_dim(0) * factor])


def _zeros(lanes: int, element: ir.Type) -> ir.Value:
    type_ = ir.VectorType.get([lanes], element)
    zero = (
        ir.FloatAttr.get(element, 0.0)
        if isinstance(element, ir.FloatType)
        else ir.IntegerAttr.get(element, 0)
    )
    return arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, zero))


def _first(value: ir.Value, count: int) -> ir.Value:
    """The first `count` lanes of a register."""
    type_ = ir.VectorType(value.type)
    if type_.shape[0] == count:
        return value
    return vector.extract_strided_slice(
        ir.VectorType.get([count], type_.element_type), value, [0], [count], [1]
    )
