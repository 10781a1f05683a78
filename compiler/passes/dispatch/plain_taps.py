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
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class PlainTaps(Pass):
    """Rewrites the indexing maps of all generics on static tensors."""

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            structured = Structured.read(generic)
            if structured is None:
                continue
            taps = {loop for loop, kind in enumerate(structured.kinds) if kind == "reduction"}
            taps = {loop for loop in taps if structured.extents[loop] == 1}
            maps = [_plain(map_, taps) for map_ in structured.maps]
            if maps != list(structured.maps):
                generic.attributes["indexing_maps"] = ir.ArrayAttr.get(
                    [ir.AffineMapAttr.get(map_) for map_ in maps]
                )


def _plain(map_: ir.AffineMap, taps: set[int]) -> ir.AffineMap:
    results = [_without(expr, taps) for expr in map_.results]
    return ir.AffineMap.get(map_.n_dims, 0, results) if results != list(map_.results) else map_


def _without(expr: ir.AffineExpr, taps: set[int]) -> ir.AffineExpr:
    """A sum without these loops; any other expression as it is."""
    kept = [t for t in terms(expr) if not (isinstance(t, ir.AffineDimExpr) and t.position in taps)]
    return reduce(add, kept) if kept else expr
