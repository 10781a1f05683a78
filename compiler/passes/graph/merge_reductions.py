"""merge-reductions: a maximum of maxima is one maximum over the loops of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import body, indexing_maps, terminator

_NAMES = "andi maximumf maxnumf maxsi maxui minimumf minnumf minsi minui ori"
IDEMPOTENT = frozenset(f"arith.{name}" for name in _NAMES.split())
"""Combiners that give the same bits in every order, and for which taking an element twice changes nothing."""


@dataclass(frozen=True)
class MergeReductions(Pass):
    """Merges two reductions in a row, as torch-mlir gives `amax` over several axes, into one.

    Before:

        %r = linalg.generic ins(%x : tensor<64x56x56xf32>) outs(%lowest : tensor<64x56xf32>) { maximumf }
        %s = linalg.generic ins(%r : tensor<64x56xf32>) outs(%lower : tensor<64xf32>) { maximumf }

    After:

        %s = linalg.generic ins(%x : tensor<64x56x56xf32>) outs(%lower : tensor<64xf32>) { maximumf }

    Holds for maxima, minima, `and` and `or` whose starts are fills of one constant, when the second is the only
    reader of the first. Sums and products are left: their rounding depends on the order.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for second in walk(op, "linalg.generic"):
            # Three and more in a row merge from the front: the merged one is the first of the next pair.
            pair = _pair(second)
            if pair is not None:
                _merge(second, pair)


def combiner(generic: ir.Operation) -> str | None:
    """The op that combines one input with the accumulator when the body is that alone, and idempotent."""
    if len(generic.operands) != 2 or len(generic.results) != 1 or len(body(generic).operations) != 2:
        return None
    block = body(generic)
    combine = block.operations[0].operation
    if combine.name not in IDEMPOTENT or terminator(block).operands[0] != combine.results[0]:
        return None
    return combine.name if set(combine.operands) == set(block.arguments) else None


@dataclass(frozen=True)
class _Pair:
    """The reduction that feeds another one, and the merged one's input and output maps over the loops of the first."""

    first: ir.Operation
    read: ir.AffineMap
    target: ir.AffineMap


def _pair(second: ir.Operation) -> _Pair | None:
    """The reduction in front of `second` if the two merge."""
    found = _producer(second.operands[0]) if combiner(second) is not None else None
    if found is None or combiner(found[0]) != combiner(second):
        return None
    first, kept = found
    start = _fill(first.operands[1])
    if start is None or start != _fill(second.operands[1]):
        return None
    read = indexing_maps(first)[0]
    source, target = indexing_maps(second)
    loops: dict[int, ir.AffineExpr] = {}
    for inner, outer in zip(kept, source.results):
        if isinstance(outer, ir.AffineDimExpr) and outer.position not in loops:
            loops[outer.position] = inner
        elif not isinstance(outer, ir.AffineConstantExpr):
            return None
    # A loop of `second` that its input does not run through would have to be added.
    if len(loops) != source.n_dims:
        return None
    exprs = [loops[e.position] if isinstance(e, ir.AffineDimExpr) else e for e in target.results]
    return _Pair(first, read, ir.AffineMap.get(read.n_dims, 0, exprs))


def _producer(value: ir.Value) -> tuple[ir.Operation, list[ir.AffineExpr]] | None:
    """The generic that computes `value`, its only reader known, and the first's loop behind each dimension.

    An `expand_shape` in between that only adds dimensions of extent 1 is seen through: they are constant 0.
    """
    if isinstance(value.owner, ir.Block) or len(list(value.uses)) != 1:
        return None
    op = value.owner.operation
    if op.name == "tensor.expand_shape":
        found = _producer(op.operands[0])
        shape = ir.RankedTensorType(value.type).shape
        groups = [[ir.IntegerAttr(dim).value for dim in group] for group in op.attributes["reassociation"]]
        long = [[dim for dim in group if shape[dim] != 1] for group in groups]
        if found is None or any(len(dims) > 1 for dims in long):
            return None
        exprs: list[ir.AffineExpr] = [ir.AffineConstantExpr.get(0) for _ in shape]
        for dims, expr in zip(long, found[1]):
            if dims:
                exprs[dims[0]] = expr
        return found[0], exprs
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    kept = list(indexing_maps(op)[-1].results)
    if not all(isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr)) for expr in kept):
        return None
    return op, kept


def _fill(value: ir.Value) -> ir.Attribute | None:
    """The constant that a `linalg.fill` sets `value` to."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "linalg.fill":
        return None
    filled = value.owner.operation.operands[0].owner
    if isinstance(filled, ir.Block) or filled.operation.name != "arith.constant":
        return None
    return filled.operation.attributes["value"]


def _merge(second: ir.Operation, pair: _Pair) -> None:
    running = {expr.position for expr in pair.target.results if isinstance(expr, ir.AffineDimExpr)}
    kinds = ["parallel" if loop in running else "reduction" for loop in range(pair.read.n_dims)]
    reshape = second.operands[0].owner.operation
    second.operands[0] = pair.first.operands[0]
    second.attributes["indexing_maps"] = ir.ArrayAttr.get(
        [ir.AffineMapAttr.get(map_) for map_ in (pair.read, pair.target)]
    )
    second.attributes["iterator_types"] = ir.ArrayAttr.get(
        [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
    )
    while reshape != pair.first:
        reshape, dead = reshape.operands[0].owner.operation, reshape
        dead.erase()
    pair.first.erase()
