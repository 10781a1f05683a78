"""Turns contractions of bf16 pairs and byte quads into loops over AMX tiles, two rows of tiles by two columns of them.

    linalg.generic (m, n, k) C[m, n] += extf(A[m, k]) * extf(B[n floordiv 32, k floordiv 2, n mod 32, k mod 2])
      =>
    scf.for n0 step 32 { scf.for m0 step 32 {
      %acc:4 = scf.for q step 16 in k / 2 iter_args(4 x !llvm.x86_amx) {
        %a0, %a1 = tileloadd A[m0 .. m0 + 16, 2 q .. 2 q + 32], A[m0 + 16 .. ]
        %b0, %b1 = tileloadd B[n0 floordiv 32, q .. q + 16, 0 .. 16, ..], B[.., 16 .. 32, ..]
        %acc_ij = tdpbf16ps %acc_ij, %a_i, %b_j
      }
      tilestored %acc_ij, C[m0 + 16 i .., n0 + 16 j ..]
    } }

Operands are packed as for `vectorize-dots` (a tile of B is 16 groups of 16 columns), and read where they lie: rows
of a tile may be any distance apart, so convolutions of any stride need no copy. Fewer rows or a shorter last chunk of
the depth are smaller tiles. What does not fit, an odd depth, a handful of rows or columns that are not packed in
sixteens, is left for `vectorize-dots`.

Tiles are LLVM's `x86_amx` and its intrinsics from the start: the types of upstream's `x86.amx` operations are no LLVM
types, so accumulators carried by a loop could be converted by nothing but one conversion of everything, which
knows no bare pointers. LLVM writes the tile configuration.

Source: Intel, Architecture Instruction Set Extensions and Future Features, 319433, ch. 3 (tiles of 16 rows of
64 bytes, eight of them); Intel 64 and IA-32 Optimization Reference Manual, "Intel AMX", for 2 x 2 blocking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.affine_access import dims, evaluate, is_dim, map_dims, terms
from tilewright.compiler.ir import affine, arith, ir, linalg, llvm, memref, walk
from tilewright.compiler.kernels.dot_product import flattened
from tilewright.compiler.kernels.loop_nest import LoopNest, index
from tilewright.compiler.kernels.reduction import take_fill
from tilewright.compiler.passes.base import Pass
from tilewright.compiler.passes.vectorize_dots import Dots
from tilewright.compiler.target import Target

_ROWS, _ROW_BYTES = 16, 64
_GROUPS = _ROW_BYTES // 4
_FEWEST_ROWS = 4
"""Rows from which tiles are worth their configuration: fewer leave most of a tile empty."""


@dataclass(frozen=True)
class TileDots(Pass):
    """Takes contractions of `bf16` and `int8` operands, where the target has tiles for them."""

    anchor: ClassVar[str] = "func.func"
    bf16: bool = False
    int8: bool = False

    @classmethod
    def for_target(cls, target: Target) -> TileDots:
        """The pass with what the target's features allow."""
        features = set(target.cpu_features)
        tiles = "amx-tile" in features
        return cls(bf16=tiles and "amx-bf16" in features, int8=tiles and "amx-int8" in features)

    def run(self, op: ir.Operation) -> None:
        taken = {"bf16": self.bf16, "i8": self.int8}
        for generic in walk(op, "linalg.generic") if any(taken.values()) else []:
            dots = Dots.read(generic)
            if dots is None or not taken[dots.product.element]:
                continue
            rows = tiled_rows(dots)
            if rows is not None:
                with ir.InsertionPoint(generic), generic.location:
                    _Emitter(dots, rows).emit()
                generic.erase()


def tiled_rows(dots: Dots) -> int | None:
    """The loop that makes the rows of tiles; None where a contraction does not fit tiles."""
    if dots.block is None or dots.block % _ROWS or dots.extents[dots.loops.depth] % dots.product.group:
        return None
    column, row = dots.maps[dots.loops.column], dots.maps[dots.loops.row]
    types = [ir.MemRefType(value.type) for value in dots.op.operands]
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    if any(dynamic in type_.get_strides_and_offset()[0] for type_ in types):
        return None
    candidates = [
        d
        for d in dots.parallel
        if d != dots.loops.vector
        and d not in map_dims(column)
        and dots.extents[d] >= _FEWEST_ROWS
        and _steps_evenly(row, d)
        and _steps_evenly(dots.maps[2], d)
    ]
    return max(candidates, key=lambda d: (min(dots.extents[d], 2 * _ROWS), d), default=None)


def _steps_evenly(map_: ir.AffineMap, loop: int) -> bool:
    """Whether every step of `loop` moves an operand by the same distance."""
    moved = [term for expr in map_.results for term in terms(expr) if loop in dims(term)]
    return bool(moved) and all(
        is_dim(t) or (isinstance(t, ir.AffineMulExpr) and is_dim(t.lhs)) for t in moved
    )


class _Emitter(LoopNest):
    """Writes the loops of one contraction at the current insertion point."""

    def __init__(self, dots: Dots, rows: int):
        super().__init__(dots.maps, dots.extents)
        self.d, self.rows = dots, rows
        self.group = dots.product.group
        operands = list(dots.op.operands)
        self.a, self.b, self.c = (
            _Buffer(operands[dots.loops.row]),
            _Buffer(flattened(operands[dots.loops.column], self.group)),
            _Buffer(operands[2]),
        )
        self.tile = ir.Type.parse("!llvm.x86_amx")
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
        loops, panel = self.d.loops, map_dims(self.d.maps[self.d.loops.column])
        outer = [d for d in self.d.parallel if d not in (loops.vector, self.rows)]
        before, inside = [d for d in outer if d in panel], [d for d in outer if d not in panel]
        wide = 2 * _ROWS if (self.d.block or 0) % (2 * _ROWS) == 0 else _ROWS

        def tiles(width: int) -> None:
            self.nest(
                inside, lambda: self.segments(self.rows, 2 * _ROWS, lambda rows: self._block(rows, width))
            )

        self.nest(before, lambda: self.segments(loops.vector, wide, tiles))

    def _block(self, rows: int, width: int) -> None:
        heights = [min(_ROWS, rows - at) for at in range(0, rows, _ROWS)]
        columns = list(range(0, width, _ROWS))
        self.ivs[self.d.loops.depth] = self.zero
        stride = self.c.stride(self.d.maps[2], self.rows)
        places = [
            self.c.pointer(self._place(2, at * _ROWS, column))
            for at in range(len(heights))
            for column in columns
        ]
        shapes = [(height, _ROW_BYTES) for height in heights for _ in columns]
        if self.zeroed:
            sums = [self._call("tilezero", [*_shape(shape)]) for shape in shapes]
        else:
            sums = [self._load(shape, place, stride) for shape, place in zip(shapes, places)]
        outer = [d for d in self.d.reduction if d != self.d.loops.depth]
        for shape, place, value in zip(shapes, places, self._reduce(outer, sums, heights, columns)):
            llvm.call_intrinsic(
                None, "llvm.x86.tilestored64.internal", [*_shape(shape), place, _i64(stride), value], [], []
            )

    def _reduce(
        self, loops: Sequence[int], sums: list[ir.Value], heights: list[int], columns: list[int]
    ) -> list[ir.Value]:
        if loops:
            first, *rest = loops
            return self.reduce(
                first,
                0,
                self.extents[first],
                1,
                sums,
                lambda carried: self._reduce(rest, carried, heights, columns),
            )
        depth = self.d.loops.depth
        groups = self.extents[depth] // self.group
        full = groups - groups % _GROUPS
        sums = self.reduce(
            depth, 0, full, _GROUPS, sums, lambda carried: self._step(_GROUPS, carried, heights, columns)
        )
        return self.reduce(
            depth, full, groups, groups - full, sums,
            lambda carried: self._step(groups - full, carried, heights, columns),
        )  # fmt: skip

    def _step(
        self, groups: int, sums: list[ir.Value], heights: list[int], columns: list[int]
    ) -> list[ir.Value]:
        """One chunk of the depth: a tile of columns is loaded when the first tile of rows meets it."""
        product = "tdpbf16ps" if self.group == 2 else "tdpbusd"
        row_stride = self.a.stride(self.d.maps[self.d.loops.row], self.rows)
        loaded: list[ir.Value] = []
        results = list(sums)
        for i, height in enumerate(heights):
            place = self.a.pointer(self._place(self.d.loops.row, i * _ROWS, 0))
            row = self._load((height, 4 * groups), place, row_stride)
            for j, column in enumerate(columns):
                if i == 0:
                    *outer, inside, _ = self._place(self.d.loops.column, 0, column)
                    flat = affine.apply(
                        ir.AffineMap.get(1, 0, [ir.AffineExpr.get_dim(0) * self.group]), [inside]
                    )
                    stride = self.b.strides[self._group_dim()] * self.b.bytes
                    loaded.append(self._load((groups, _ROW_BYTES), self.b.pointer([*outer, flat]), stride))
                at = i * len(columns) + j
                shape = [_i16(height), _i16(_ROW_BYTES), _i16(4 * groups)]
                results[at] = self._call(product, [*shape, results[at], row, loaded[j]])
        return results

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

    def _load(self, shape: tuple[int, int], place: ir.Value, stride: int) -> ir.Value:
        return self._call("tileloadd64", [*_shape(shape), place, _i64(stride)])

    def _call(self, name: str, operands: Sequence[ir.Value]) -> ir.Value:
        return llvm.call_intrinsic(self.tile, f"llvm.x86.{name}.internal", operands, [], [])


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


def _shape(shape: tuple[int, int]) -> tuple[ir.Value, ir.Value]:
    return _i16(shape[0]), _i16(shape[1])


def _i16(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(16), value)


def _i64(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(64), value)
