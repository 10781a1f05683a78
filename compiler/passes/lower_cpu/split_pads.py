"""Writes padding that an rTask makes for itself as copies of what lies inside and fills around it, without a test per element.

    linalg.generic (h, w) -> %p[h, w]                       scf.for %h = 0 to 6                   // cut: %i rows on
      %in = 0 <= %i + h - 1 < 14 and 0 <= w - 1 < 14          if 0 <= %i + %h - 1 < 14
      yield select(%in, %x[...], %c)                   =>       fill %p[%h, 0], %p[%h, 15] ; copy %x[%i + %h - 1, :] to %p[%h, 1 .. 14]
                                                              else fill %p[%h, :]

A dimension that no cut moves is split once and needs no loop. What is copied in another order than it lies in is
transposed by `vectorize-transposes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.padding import Along, Padding
from tilewright.compiler.families.cpu.index_loops import index, loop, sum_of
from tilewright.compiler.ir import affine, arith, ir, linalg, memref, scf, walk
from tilewright.compiler.pipeline.pass_base import Pass

Place = int | ir.Value
Box = tuple[tuple[Place, int], ...]
"""Where a part of the padded memory begins, and how long it is, by dimension."""


@dataclass(frozen=True)
class SplitPads(Pass):
    """Rewrites padding on memrefs whose rows lie one element after the other; other gathers stay."""

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            on_buffers = len(generic.operands) and isinstance(generic.operands[0].type, ir.MemRefType)
            padding = Padding.read(generic) if on_buffers else None
            if padding is not None:
                with ir.InsertionPoint(generic), generic.location:
                    _Split(padding, generic.operands[0]).emit()
                generic.erase()


class _Split:
    """Writes one padding at the current insertion point."""

    def __init__(self, padding: Padding, padded: ir.Value):
        self.padding, self.padded = padding, padded
        self.shape = list(ir.MemRefType(padded.type).shape)

    def emit(self) -> None:
        bounded = {a.loop: a for a in self.padding.along if a.bounded}
        # Each source dimension's offset is computed once, outside of all loops.
        self.base = {a: _base(a) for a in self.padding.along}
        self.extents = dict(zip(self.padding.along, ir.MemRefType(self.padding.source.type).shape))
        self._part(
            [bounded[d] for d in range(len(self.shape)) if d in bounded], tuple((0, n) for n in self.shape)
        )

    def _part(self, left: Sequence[Along], box: Box) -> None:
        """A part of the memory that is inside along all dimensions but those that are `left`."""
        if not left:
            self._copy(box)
            return
        along, *rest = left
        assert along.loop is not None
        dim, base, extent = along.loop, self.base[along], self.extents[along]
        if not isinstance(base, int):
            self._rows(along, base, rest, box)
            return
        size = self.shape[dim]
        low = min(size, max(0, -base))
        high = max(low, min(size, extent - base))
        for start, end in ((0, low), (high, size)):
            if start < end:
                self._fill(_cut(box, dim, start, end - start))
        if low < high:
            self._part(rest, _cut(box, dim, low, high - low))

    def _rows(self, along: Along, base: ir.Value, left: Sequence[Along], box: Box) -> None:
        """Row by row where it depends on the rTask which of them are inside."""
        dim = along.loop
        assert dim is not None

        def row(at: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            inside = arith.cmpi(arith.CmpIPredicate.ult, sum_of(at, base), index(self.extents[along]))
            branch = scf.IfOp(inside, has_else=True)
            with ir.InsertionPoint(branch.then_block):
                self._part(left, _cut(box, dim, at, 1))
                scf.yield_([])
            with ir.InsertionPoint(branch.else_block):
                self._fill(_cut(box, dim, at, 1))
                scf.yield_([])
            return []

        loop(0, self.shape[dim], 1, row)

    def _fill(self, box: Box) -> None:
        linalg.fill(self.padding.value, outs=[_view(self.padded, box)])

    def _copy(self, box: Box) -> None:
        """The part of the source that belongs into the box, all of which is inside."""
        places, kept = [], []
        for along in self.padding.along:
            start, size = (0, 1) if along.loop is None else box[along.loop]
            places.append((_sum(self.base[along], start), size))
            kept.append(along.loop is not None)
        source = _view(self.padding.source, tuple(places), kept)
        target = _view(self.padded, box)
        rank = len(box)
        loops = [a.loop for a in self.padding.along if a.loop is not None]
        read = ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(d) for d in loops])
        maps = [ir.AffineMapAttr.get(m) for m in (read, ir.AffineMap.get_identity(rank))]
        kinds = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank)
        copy = linalg.GenericOp([], [source], [target], ir.ArrayAttr.get(maps), kinds)
        element = ir.MemRefType(source.type).element_type
        block = copy.regions[0].blocks.append(element, element)
        with ir.InsertionPoint(block):
            linalg.YieldOp([block.arguments[0]])


def _base(along: Along) -> Place:
    """Where the source is read when the loop is at zero."""
    total: Place = along.start
    for moved in along.moved:
        given = [index(0) if operand is None else operand for operand in moved.operands]
        total = _sum(affine.apply(moved.map, given), total)
    return total


def _sum(left: Place, right: Place) -> Place:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if isinstance(left, int):
        left, right = right, left
    if isinstance(right, int):
        if not right:
            return left
        d0 = ir.AffineExpr.get_dim(0)
        return affine.apply(ir.AffineMap.get(1, 0, [d0 + right]), [left])
    return sum_of(left, right)


def _cut(box: Box, dim: int, start: Place, size: int) -> Box:
    return (*box[:dim], (start, size), *box[dim + 1 :])


def _view(value: ir.Value, box: Box, kept: Sequence[bool] = ()) -> ir.Value:
    """The box of a memref, without the dimensions that are not `kept`."""
    type_ = ir.MemRefType(value.type)
    if not kept and all(place == 0 and size == n for (place, size), n in zip(box, type_.shape)):
        return value
    strides, offset = type_.get_strides_and_offset()
    unknown = ir.ShapedType.get_dynamic_stride_or_offset()
    for (place, _), stride in zip(box, strides):
        known = isinstance(place, int) and offset != unknown
        offset = offset + place * stride if known else unknown
    some = [d for d in range(len(box)) if not kept or kept[d]]
    layout = ir.StridedLayoutAttr.get(offset, [strides[d] for d in some])
    result = ir.MemRefType.get([box[d][1] for d in some], type_.element_type, layout, type_.memory_space)
    dynamic = ir.ShapedType.get_dynamic_size()
    return memref.SubViewOp(
        result,
        value,
        [place for place, _ in box if not isinstance(place, int)],
        [],
        [],
        [place if isinstance(place, int) else dynamic for place, _ in box],
        [size for _, size in box],
        [1] * len(box),
    ).result
