"""orient-narrow-weights: weights of fewer columns than half a vector lie along the reduction, as their activations do.

    %c = linalg.generic (m, n, k) ins(%x : 16384x64, %w : 64x3)                   // w: (k, n)
      =>
    %v = linalg.generic // w transposed to 3x64
    %c = linalg.generic (m, n, k) ins(%x, %v)                                     // v: (n, k)

So do the last layers of networks that tell few classes apart, or make images of three colours. Vectors of columns would be
nearly empty; those along the reduction are full, at the price of an addition of lanes per result. By `tilewright explain` of linear
layers on 16,384 rows, on Zen 4 with AVX-512 and with AVX2, 1.4 to 6 times faster for 2 to 7 columns of 32 and 64 steps, as fast at 4 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, is_dim, map_dims
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir, static_shape, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import elementwise
from tilewright.compiler.rewriting.layout_rules import transposed_by

_MOST_COLUMNS = 7
_FEWEST_STEPS = 16
"""Steps of a reduction from which vectors along it pay."""
_FEWEST_ROWS = 16
"""How many times the operand is read that is copied."""


@dataclass(frozen=True)
class OrientNarrowWeights(Pass):
    """Takes contractions of floats of 32 bits or more with one reduction, which one operand lies along and the other does not."""

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            structured = Structured.read(generic)
            if structured is None or not structured.is_contraction:
                continue
            for number in range(2):
                order = _order_along(structured, number)
                if order is not None:
                    _reorder(generic, structured, number, order)
                    break


def _order_along(s: Structured, number: int) -> list[int] | None:
    """The dimensions of an operand with that of the reduction last; None where it is not narrow, or lies so already."""
    element = ir.RankedTensorType(s.op.operands[number].type).element_type
    if not isinstance(element, ir.FloatType) or element.width < 32:
        return None
    wide = [loop for loop, extent in enumerate(s.extents) if extent > 1]
    own, other = (_moving(s, n, wide) for n in (number, 1 - number))
    if own is None or not other or not is_dim(s.maps[1 - number].results[-1]):
        return None
    steps = [loop for loop in wide if s.kinds[loop] == "reduction"]
    columns = [loop for loop in wide if loop in own and loop not in other]
    rows = [loop for loop in wide if loop in other and loop not in own]
    results = map_dims(s.result_map)
    if len(steps) != 1 or sorted([*steps, *columns, *rows]) != wide or not results.issuperset(columns + rows):
        return None
    (step,) = steps
    count = math.prod(s.extents[loop] for loop in columns)
    is_narrow = 1 < count <= _MOST_COLUMNS and s.extents[step] >= _FEWEST_STEPS
    read = math.prod(s.extents[loop] for loop in rows)
    if not is_narrow or read < _FEWEST_ROWS or other[-1] != step or step not in own or own[-1] == step:
        return None
    place = own.index(step)
    return [d for d in range(len(own)) if d != place] + [place]


def _moving(s: Structured, number: int, wide: Sequence[int]) -> list[int | None] | None:
    """Of each dimension of an operand the loop of several steps that moves along it; None where two do.

    A window of one tap moves nowhere.
    """
    found = [[loop for loop in dims(expr) if loop in wide] for expr in s.maps[number].results]
    if any(len(loops) > 1 for loops in found):
        return None
    return [loops[0] if loops else None for loops in found]


def _reorder(generic: ir.Operation, s: Structured, number: int, order: Sequence[int]) -> None:
    value, map_ = generic.operands[number], s.maps[number]
    with ir.InsertionPoint(generic), generic.location:
        generic.operands[number] = _permuted(value, order)
        maps = list(s.maps)
        maps[number] = ir.AffineMap.get(map_.n_dims, 0, [map_.results[d] for d in order])
        generic.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])


def _permuted(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """The tensor with its dimensions in this order: what it was transposed from, where that is the same."""
    source = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if source is not None and transposed_by(source) is not None:
        before = transposed_by(source)
        if [before[d] for d in order] == list(range(len(order))):
            return source.operands[0]
    shape = static_shape(value.type)
    type_ = ir.RankedTensorType.get([shape[d] for d in order], ir.RankedTensorType(value.type).element_type)
    read = ir.AffineMap.get_permutation([order.index(d) for d in range(len(order))])
    return elementwise(type_, [value], [read], lambda x: x).results[0]
