"""Reads softmax and causal masks off expression trees.

    e / u,  e = exp(x - t),  t = max over n of x,  u = sum over n of e

with or without selections that make zeros of rows whose scores are all -inf: `t` is where(t == -inf, 0, t) and the
quotient where(u == 0, 0, e / u), or e / where(u == 0, 1, u) in its place or in it; or the quotient is where(all of x == -inf, 0, e / u).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.analysis.element_expression import Apply, Expressions, Node, Position, Read, number
from tilewright.compiler.analysis.element_source import Element, Linear, Loops
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.quasi_affine import QuasiAffine

WEIGHTS_END_IN = frozenset({"arith.divf", "arith.select"})
"""The operations that a softmax's weights are the result of."""
_EQUAL = {1, 8}
"""Codes of arith.cmpf's oeq and ueq."""
_NEUTRAL = {"arith.addf": 0.0, "arith.maximumf": -math.inf, "arith.andi": True}
_ORDER = {2: ("less", 1), 3: ("less", 0), 4: ("greater", 1), 5: ("greater", 0)}
"""arith.cmpi's slt, sle, sgt, sge: the side that is smaller, and by how much at least."""


@dataclass(frozen=True)
class Softmax:
    """The scores that a softmax is taken of, as a tree; `zero_empty` says what rows of -inf give."""

    scores: Node
    zero_empty: bool

    @classmethod
    def read(cls, weights: Node, expressions: Expressions, column: Linear) -> Softmax | None:
        """The softmax over `column` that `weights` is an element of; None for anything else."""
        masked, weights = _masked_whole(weights)
        quotient, guarded = _guarded(weights, 0.0)
        if not isinstance(quotient, Apply) or quotient.name != "arith.divf":
            return None
        powers, divisor = quotient.operands
        total, empty = _guarded(divisor, 0.0, instead=1.0)
        if any(tested is not None and not expressions.same(tested, total) for tested in (guarded, empty)):
            return None
        summed = _reduced(total, "arith.addf", expressions, column)
        if summed is None or not expressions.same(summed, powers):
            return None
        if not isinstance(powers, Apply) or powers.name != "math.exp":
            return None
        difference = powers.operands[0]
        if not isinstance(difference, Apply) or difference.name != "arith.subf":
            return None
        scores, top = difference.operands
        largest, tested = _guarded(top, -math.inf)
        if tested is not None and not expressions.same(tested, largest):
            return None
        compared = _reduced(largest, "arith.maximumf", expressions, column)
        if compared is None or not expressions.same(compared, scores):
            return None
        if masked is not None:
            tested = _reduced(masked, "arith.andi", expressions, column)
            if tested is None or not expressions.same(_tested(tested, -math.inf) or masked, scores):
                return None
        return cls(scores, any(tested is not None for tested in (guarded, empty, masked)))


def _guarded(node: Node, special: float, instead: float = 0.0) -> tuple[Node, Node | None]:
    """`x` and `t` of `select(t == special, instead, x)`; the node itself and None when it is something else."""
    if isinstance(node, Apply) and node.name == "arith.select":
        condition, yes, no = node.operands
        tested = _tested(condition, special)
        if tested is not None and number(yes) == instead:
            return no, tested
    return node, None


def _tested(condition: Node, special: float) -> Node | None:
    """`t` of `t == special`."""
    if not isinstance(condition, Apply) or condition.name != "arith.cmpf":
        return None
    tested, constant = condition.operands
    code = ir.IntegerAttr(condition.op.attributes["predicate"]).value
    return _unextended(tested) if code in _EQUAL and number(constant) == special else None


def _masked_whole(node: Node) -> tuple[Node | None, Node]:
    """`c` and `x` of `select(c, 0, x)` whose condition was reduced; None and the node itself when it is another one."""
    if isinstance(node, Apply) and node.name == "arith.select":
        condition, yes, no = node.operands
        if isinstance(condition, Read) and number(yes) == 0.0:
            return condition, no
    return None, node


def _unextended(node: Node) -> Node:
    return node.operands[0] if isinstance(node, Apply) and node.name == "arith.extf" else node


def _reduced(node: Node, combiner: str, expressions: Expressions, column: Linear) -> Node | None:
    """What `node` is the sum or maximum of along `column`; None unless that is all it is."""
    if not isinstance(node, Read):
        return None
    op = producer(node.element.value)
    structured = Structured.read(op) if op is not None else None
    if op is None or structured is None or structured.num_inputs != 1 or len(op.results) != 1:
        return None
    reduction = [loop for loop, kind in enumerate(structured.kinds) if kind == "reduction"]
    names = [view.operation.name for view in structured.body.operations]
    start = producer(op.operands[1])
    if len(reduction) != 1 or names != [combiner, "linalg.yield"] or start is None:
        return None
    if set(structured.body.operations[0].operation.operands) != set(structured.body.arguments):
        return None
    if start.name != "linalg.fill" or (filled := producer(start.operands[0])) is None:
        return None
    if filled.name != "arith.constant" or filled.attributes["value"].value != _NEUTRAL[combiner]:
        return None
    loops = expressions.loops
    if structured.extents[reduction[0]] != loops.extents[column.variables[0]]:
        return None
    exprs = {reduction[0]: column}
    for expr, index in zip(structured.result_map.results, node.element.index):
        if is_dim(expr):
            exprs[expr.position] = index
    read = structured.maps[0]
    if not read.is_permutation or len(exprs) != read.n_dims:
        return None
    index = tuple(exprs[ir.AffineDimExpr(expr).position] for expr in read.results)
    expressions.inlined.add(node.element.value)
    return expressions.of(Element(op.operands[0], index))


def causal_bound(scores: Node, loops: Loops, row: int, column: int) -> int | None:
    """The least `c` found such that scores with column > row + c are -inf; None when nothing bounds them.

    Sees selections and sums on the way from the root: -inf plus anything finite stays -inf.
    """
    if not isinstance(scores, Apply):
        return None
    if scores.name in ("arith.addf", "arith.select"):
        inner = scores.operands if scores.name == "arith.addf" else ()
        bounds = [causal_bound(operand, loops, row, column) for operand in inner]
        if scores.name == "arith.select":
            condition, yes, no = scores.operands
            if number(no) == -math.inf:
                bounds += [_bound(condition, True, loops, row, column), causal_bound(yes, loops, row, column)]
            elif number(yes) == -math.inf:
                bounds += [_bound(condition, False, loops, row, column), causal_bound(no, loops, row, column)]
        return min((bound for bound in bounds if bound is not None), default=None)
    return None


def _bound(condition: Node, visible: bool, loops: Loops, row: int, column: int) -> int | None:
    """`c` when the condition being `visible` implies column <= row + c."""
    if not isinstance(condition, Apply) or condition.name != "arith.cmpi":
        return None
    code = ir.IntegerAttr(condition.op.attributes["predicate"]).value
    if code not in _ORDER:
        return None
    side, least = _ORDER[code]
    small, large = condition.operands if side == "less" else reversed(condition.operands)
    if not visible:
        small, large, least = large, small, 1 - least
    low, high = (_positions(node) for node in (small, large))
    if low is None or high is None:
        return None
    difference = loops.resolved(high + low.scaled(-1).shifted(-least))
    is_bound = difference.shifted(-difference.offset) == QuasiAffine.of(row) - QuasiAffine.of(column)
    return difference.offset if is_bound else None


def _positions(node: Node) -> Linear | None:
    """A tree of loop positions and integers as one linear expression; None when it is something else."""
    if isinstance(node, Position):
        return node.expr
    if (value := number(node)) is not None and value.is_integer():
        return QuasiAffine((), int(value))
    if not isinstance(node, Apply):
        return None
    if node.name in ("arith.index_cast", "arith.extsi", "arith.trunci"):
        return _positions(node.operands[0])
    if node.name in ("arith.addi", "arith.subi"):
        left, right = map(_positions, node.operands)
        if left is not None and right is not None:
            return left + right.scaled(1 if node.name == "arith.addi" else -1)
    return None
