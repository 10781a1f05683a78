"""Reads a convolution's input at the loops of its result where its windows have one tap.

    (n, h, w, f, r, s, c) -> (n, h + r, w + s, c)   with r, s < 1   =>   (n, h, w, c)

A convolution of 1x1 is a product of matrices, element by element of the image: what stands before it can be cut along
with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

from tilewright.compiler.analysis.affine_access import terms
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir, static_shape, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class PlainTaps(Pass):
    """Rewrites the indexing maps of all generics on static tensors."""

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            structured = Structured.read(generic)
            if structured is None:
                continue
            maps = [
                _plain(map_, operand.type, structured)
                for operand, map_ in zip(generic.operands, structured.maps)
            ]
            if maps != list(structured.maps):
                generic.attributes["indexing_maps"] = ir.ArrayAttr.get(
                    [ir.AffineMapAttr.get(map_) for map_ in maps]
                )


def _plain(map_: ir.AffineMap, type_: ir.Type, structured: Structured) -> ir.AffineMap:
    """The map without taps; what is longer than the loop that is left, as windows that do not fit in leave it, stays."""
    shape = static_shape(type_) if isinstance(type_, ir.ShapedType) else ()
    results = []
    for expr, size in zip(map_.results, shape):
        plain = _without_taps(expr, structured)
        is_longer = isinstance(plain, ir.AffineDimExpr) and structured.extents[plain.position] != size
        results.append(expr if is_longer else plain)
    return ir.AffineMap.get(map_.n_dims, 0, results) if results != list(map_.results) else map_


def _without_taps(expr: ir.AffineExpr, structured: Structured) -> ir.AffineExpr:
    """A sum without reduction loops of one step; any other expression as it is."""
    kept = [
        term
        for term in terms(expr)
        if not (
            isinstance(term, ir.AffineDimExpr)
            and structured.kinds[term.position] == "reduction"
            and structured.extents[term.position] == 1
        )
    ]
    return reduce(add, kept) if kept else expr
