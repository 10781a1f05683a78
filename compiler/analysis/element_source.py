"""Where an element of a tensor comes from: its index in the tensor that reshapes, slices and copies lead back to.

An index is linear in loops, one per dimension. Reading a 4-d view of a projection at (b, h, m, k)
through

    %x : [B, T, 3*H*D] -> expand [B, T, 3, H, D] -> transpose [3, B, H, T, D] -> slice 1 -> [B, H, T, D]

is reading %x at (b, m, H*D + D*h + k). Loops may have to be split on the way: `[B*H, T, D]` collapsed from
`[B, H, T, D]` is read along one loop, which becomes two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.compiler.analysis.structure import maps_of, producer
from tilewright.compiler.ir import ir, static_shape
from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Range, Term

Linear: TypeAlias = QuasiAffine[int]
"""An index that takes no quotients or remainders of its loops."""


@dataclass
class Loops:
    """Loops with their extents. Those in `splittable` may be taken apart; `parts` remembers into which."""

    extents: list[int] = field(default_factory=list)
    splittable: set[int] = field(default_factory=set)
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)

    def new(self, extent: int, splittable: bool = False) -> Linear:
        """A new loop as an expression; one of extent 1 is the constant 0."""
        return QuasiAffine() if extent == 1 else QuasiAffine.of(self._add(extent, splittable))

    def fixed(self, extent: int) -> Linear:
        """A new loop that stays whole, even one of extent 1."""
        return QuasiAffine.of(self._add(extent, False))

    def _add(self, extent: int, splittable: bool) -> int:
        self.extents.append(extent)
        if splittable:
            self.splittable.add(len(self.extents) - 1)
        return len(self.extents) - 1

    def split(self, loop: int, inner: int) -> None:
        """Takes `loop` apart: its inner part runs over `inner` values."""
        self.parts[loop] = (self._add(self.extents[loop] // inner, True), self._add(inner, True))

    def resolved(self, expr: Linear) -> Linear:
        """`expr` over loops that are not taken apart."""
        return expr.substituted(self._parts_of)

    def _parts_of(self, loop: int) -> Linear:
        if loop not in self.parts:
            return QuasiAffine.of(loop)
        outer, inner = self.parts[loop]
        return self._parts_of(outer).scaled(self.extents[inner]) + self._parts_of(inner)

    def terms(self, expr: Linear) -> list[Term[int]]:
        """The terms of `expr` over loops that are not taken apart, largest stride first."""
        return sorted(self.resolved(expr).terms, key=lambda term: (-term.scale, term.variable))

    def digits(self, expr: Linear, extents: Sequence[int]) -> list[Linear] | None:
        """`expr` in mixed radix: one expression per dimension of `extents`, whose row-major index it is.

        None where no loop boundary falls on a dimension's boundary, or a carry would cross it.
        """
        inner = [math.prod(extents[d + 1 :]) for d in range(len(extents))]
        while True:
            found: list[Linear] = [QuasiAffine() for _ in extents]
            again = False
            for term in self.terms(expr):
                loop, stride, extent = term.variable, term.scale, self.extents[term.variable]
                if extent == 1:
                    continue
                place = next((d for d, size in enumerate(inner) if size <= stride and extents[d] > 1), None)
                if place is None or stride % inner[place]:
                    return None
                limit = inner[place] * extents[place]
                if (extent - 1) * stride >= limit:
                    count = limit // stride
                    if limit % stride or extent % count or loop not in self.splittable or count < 2:
                        return None
                    self.split(loop, count)
                    again = True
                    break
                found[place] += QuasiAffine((Term(loop, stride // inner[place]),))
            if not again:
                break
        offsets = [expr.offset // size % extent if d else expr.offset // size
                   for d, (size, extent) in enumerate(zip(inner, extents))]  # fmt: skip
        result = [own.shifted(offset) for own, offset in zip(found, offsets)]
        fits = (own.range(self.range_of).high < extent for own, extent in zip(result, extents))
        return result if all(fits) else None

    def range_of(self, loop: int) -> Range:
        return Range(0, self.extents[loop] - 1)

    def row_major(self, index: Sequence[Linear], extents: Sequence[int]) -> Linear:
        """The one index that several are in row-major order."""
        total = QuasiAffine()
        for expr, extent in zip(index, extents):
            total = total.scaled(extent) + expr
        return total


@dataclass(frozen=True)
class Element:
    """`value[index]`."""

    value: ir.Value
    index: tuple[Linear, ...]


def moved_from(element: Element, loops: Loops) -> Element | None:
    """The element of another tensor that `element` is a copy or a view of, one operation back; None at its origin."""
    op = producer(element.value)
    if op is None or not len(op.operands) or not isinstance(op.operands[0].type, ir.RankedTensorType):
        return None
    source = op.operands[0]
    if not ir.RankedTensorType(source.type).has_static_shape:
        return None
    shape, index = static_shape(source.type), element.index
    if op.name == "tensor.cast":
        return Element(source, index)
    if op.name == "tensor.collapse_shape":
        split = digits_of_groups(op, index, shape, loops)
        return None if split is None else Element(source, split)
    if op.name == "tensor.expand_shape":
        own = static_shape(element.value.type)
        rows = [
            loops.row_major([index[dim] for dim in group], [own[dim] for dim in group])
            for group in reassociation(op)
        ]
        return Element(source, tuple(rows))
    if op.name == "tensor.extract_slice":
        return _sliced(element, op, source)
    at = copied_at(op)
    if at is None:
        return None
    through = dict(zip(at[1], index))
    return Element(source, tuple(_position(expr, through) for expr in at[0].results))


def copied_at(op: ir.Operation) -> tuple[ir.AffineMap, list[int]] | None:
    """The map by which a copying operation reads, and the loop of each dimension it writes; None for other operations.

    Transposes and broadcasts copy too.
    """
    if op.name not in ("linalg.generic", "linalg.transpose", "linalg.broadcast") or len(op.operands) != 2:
        return None
    body = op.regions[0].blocks[0]
    first = body.operations[0].operation
    if first.name != "linalg.yield" or first.operands[0] != body.arguments[0]:
        return None
    read, written = maps_of(op)
    plain = (ir.AffineDimExpr, ir.AffineConstantExpr)
    if not written.is_permutation or not all(isinstance(expr, plain) for expr in read.results):
        return None
    return read, [ir.AffineDimExpr(expr).position for expr in written.results]


def _position(expr: ir.AffineExpr, loops: dict[int, Linear]) -> Linear:
    if isinstance(expr, ir.AffineConstantExpr):
        return QuasiAffine((), expr.value)
    return loops[expr.position]


def _sliced(element: Element, op: ir.Operation, source: ir.Value) -> Element | None:
    offsets, sizes, strides = (
        list(op.attributes[name]) for name in ("static_offsets", "static_sizes", "static_strides")
    )
    dynamic = ir.ShapedType.get_dynamic_size()
    if dynamic in offsets or dynamic in sizes or dynamic in strides:
        return None
    own = list(static_shape(element.value.type))
    pending = list(zip(own, element.index))
    index = []
    for offset, size, stride in zip(offsets, sizes, strides):
        # A dimension of one element may have been dropped from the result: which one makes no difference.
        dropped = size == 1 and (not pending or pending[0][0] != 1)
        expr = QuasiAffine() if dropped else pending.pop(0)[1]
        index.append(expr.scaled(stride).shifted(offset))
    return None if pending else Element(source, tuple(index))


def reassociation(op: ir.Operation) -> list[list[int]]:
    """Groups of dimensions of a `tensor.collapse_shape` or `tensor.expand_shape`."""
    return [[ir.IntegerAttr(dim).value for dim in group] for group in op.attributes["reassociation"]]


def digits_of_groups(
    op: ir.Operation, index: Sequence[Linear], shape: Sequence[int], loops: Loops
) -> tuple[Linear, ...] | None:
    """The index into the `shape` whose groups of dimensions `index` counts; None where one has no such digits.

    A tensor without dimensions has no groups: all dimensions of the other one are of one element.
    """
    groups = reassociation(op)
    found: list[Linear] = [] if groups else [QuasiAffine() for _ in shape]
    for expr, group in zip(index, groups):
        digits = loops.digits(expr, [shape[dim] for dim in group])
        if digits is None:
            return None
        found.extend(digits)
    return tuple(found)


def origin(element: Element, loops: Loops) -> Element:
    """`element` followed back through everything that only moves it."""
    while (found := moved_from(element, loops)) is not None:
        element = found
    return element
