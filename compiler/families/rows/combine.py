"""How partial results of a reduction combine: sums and the like, and the greatest element with its index.

Both are found in the body of a reduction: an operation that may be regrouped and that alone reads the accumulator,
or a maximum beside which an index is kept of the element that was greater than the maximum before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tilewright.compiler.families.cpu.reduction import is_regroupable, neutral_attribute
from tilewright.compiler.ir import arith, ir

_GREATER = {
    "arith.cmpf": {2: (True, True), 3: (True, False), 4: (False, True), 5: (False, False)},
    "arith.cmpi": {
        4: (True, True), 5: (True, False), 2: (False, True), 3: (False, False),
        8: (True, True), 9: (True, False), 6: (False, True), 7: (False, False),
    },
}  # fmt: skip
"""Predicates that hold for the greater (True) or the smaller, and whether equal elements are left out."""


@dataclass(frozen=True, eq=False)
class Combination:
    """Outputs of a reduction that combine together, by number: one, or an extreme value and its index.

    `operation` is the arith operation for values; `strict` says that of equal values the first one's index is kept,
    else the last one's; `compare` is the comparison of values for the index; with `nan_wins` the first NaN is beyond all.
    """

    outputs: tuple[int, ...]
    operation: str
    strict: bool = True
    compare: ir.Operation | None = None
    nan_wins: bool = False

    def start(self, types: list[ir.Type]) -> list[ir.Value] | None:
        """What changes nothing when combined; None for an index, where only the reduction's own start does not."""
        if len(self.outputs) > 1:
            return None
        (type_,) = types
        return [arith.constant(type_, neutral_attribute(self.operation, type_))]

    def combine(self, left: list[ir.Value], right: list[ir.Value]) -> list[ir.Value]:
        """Two partial results as one; either order gives the same."""
        values = ir.Operation.create(self.operation, [left[0].type], [left[0], right[0]]).results[0]
        if self.compare is None:
            return [values]
        name, predicate = self.compare.name, self.compare.attributes["predicate"]
        take = self.holds(name, predicate, right[0], left[0])
        if not self.strict:
            # `>=` takes the right one of two equal ones too, which the index decides below.
            take = arith.andi(take, self.differs(left[0], right[0]))
        same = self.equal(left[0], right[0])
        if self.nan_wins:
            is_nan = [arith.cmpf(arith.CmpFPredicate.UNO, side[0], side[0]) for side in (left, right)]
            is_number = arith.cmpf(arith.CmpFPredicate.ORD, left[0], left[0])
            take = arith.ori(take, arith.andi(is_number, is_nan[1]))
            same = arith.ori(same, arith.andi(*is_nan))
        order = arith.CmpIPredicate.slt if self.strict else arith.CmpIPredicate.sgt
        earlier = arith.cmpi(order, right[1], left[1])
        take = arith.ori(take, arith.andi(same, earlier))
        return [values, arith.select(take, right[1], left[1])]

    def holds(self, name: str, predicate: ir.Attribute, left: ir.Value, right: ir.Value) -> ir.Value:
        i1 = ir.IntegerType.get_signless(1)
        return ir.Operation.create(name, [i1], [left, right], {"predicate": predicate}).results[0]

    def equal(self, left: ir.Value, right: ir.Value) -> ir.Value:
        if isinstance(left.type, ir.FloatType):
            return arith.cmpf(arith.CmpFPredicate.OEQ, left, right)
        return arith.cmpi(arith.CmpIPredicate.eq, left, right)

    def differs(self, left: ir.Value, right: ir.Value) -> ir.Value:
        if isinstance(left.type, ir.FloatType):
            return arith.cmpf(arith.CmpFPredicate.UNE, left, right)
        return arith.cmpi(arith.CmpIPredicate.ne, left, right)


class Reduction(Protocol):
    """A reduction on tensors or buffers, as far as its body is concerned."""

    @property
    def body(self) -> ir.Block: ...

    @property
    def num_inputs(self) -> int: ...


def read_combinations(generic: Reduction) -> tuple[Combination, ...] | None:
    """How the outputs of a reduction combine; None where its body cannot be regrouped."""
    body = generic.body
    *_, terminator = (view.operation for view in body.operations)
    accumulators = list(body.arguments)[generic.num_inputs :]
    yielded = list(terminator.operands)
    found: list[Combination] = []
    left = set(range(len(yielded)))
    for number, value in enumerate(yielded):
        op = _owner(value, body)
        if number not in left or op is None or not is_regroupable(op.name):
            continue
        operands = list(op.operands)
        if operands.count(accumulators[number]) != 1:
            continue
        (other,) = [v for v in operands if v != accumulators[number]] or [accumulators[number]]
        if any(_depends(other, accumulator, body) for accumulator in accumulators):
            continue
        users = [use.owner.operation for use in accumulators[number].uses]
        if len(users) == 1:
            found.append(Combination((number,), op.name))
            left.discard(number)
            continue
        index = _index_of(op, other, number, accumulators, yielded, users, body)
        if index is not None:
            found.append(index)
            left -= set(index.outputs)
    return tuple(found) if not left else None


def _index_of(op, other, number, accumulators, yielded, users, body) -> Combination | None:
    """The pair of an extreme value `number` and the index that a select keeps of it."""
    best = accumulators[number]
    compares = [user for user in users if user.name in _GREATER and list(user.operands) == [other, best]]
    if len(compares) != 1:
        return None
    (compare,) = compares
    code = ir.IntegerAttr(compare.attributes["predicate"]).value
    if code not in _GREATER[compare.name]:
        return None
    wins, nan_check = _or_is_first_nan(compare, other, best, body)
    if any(user not in (op, compare, nan_check) for user in users):
        return None
    greater, strict = _GREATER[compare.name][code]
    if greater != ("max" in op.name):
        return None
    for second, value in enumerate(yielded):
        select = _owner(value, body)
        if second == number or select is None or select.name != "arith.select":
            continue
        condition, taken, kept = select.operands
        readers = [use.owner.operation for use in accumulators[second].uses]
        if condition == wins and kept == accumulators[second] and readers == [select]:
            if any(_depends(taken, accumulator, body) for accumulator in accumulators):
                return None
            if isinstance(taken.type, ir.IntegerType):
                return Combination((number, second), op.name, strict, compare, nan_check is not None)
    return None


def _or_is_first_nan(compare, other, best, body) -> tuple[ir.Value, ir.Operation | None]:
    """The condition `compare or (other is NaN and best is not)`, and what reads `best` in it; else `compare`, None."""
    wins = compare.results[0]
    either = [use.owner.operation for use in wins.uses]
    if [op.name for op in either] != ["arith.ori"]:
        return wins, None
    both = [_owner(value, body) for value in either[0].operands if value != wins]
    if len(both) != 1 or both[0] is None or both[0].name != "arith.andi":
        return wins, None
    wanted = {arith.CmpFPredicate.UNO: other, arith.CmpFPredicate.ORD: best}
    found = {}
    for check in (_owner(value, body) for value in both[0].operands):
        if check is not None and check.name == "arith.cmpf":
            found[ir.IntegerAttr(check.attributes["predicate"]).value] = check
    checks = [found.get(int(predicate)) for predicate in wanted]
    if any(c is None or list(c.operands) != [v, v] for c, v in zip(checks, wanted.values())):
        return wins, None
    return either[0].results[0], checks[1]


def _owner(value: ir.Value, body: ir.Block) -> ir.Operation | None:
    if isinstance(value.owner, ir.Block) or value.owner.operation.block != body:
        return None
    return value.owner.operation


def _depends(value: ir.Value, on: ir.Value, body: ir.Block) -> bool:
    """Whether `value` is computed from `on`; every operation is looked at once, however many ways lead to it."""
    seen, left = {value}, [value]
    while left:
        op = _owner(left.pop(), body)
        operands = set(op.operands) - seen if op is not None else set()
        seen |= operands
        left.extend(operands)
    return on in seen
