"""Writes what a program changes of its arguments where these lie; else the whole is computed beside it and copied over.

    func @main(%cache {tilewright.updated_by = 0}, ..) {
      %0 = call @scatter(%values, %at, %cache)
      %1 = call @attention(%q, %0)
      return %0, %1
      =>
      %0 = call @scatter(%values, %at, %cache) {tilewright.overwrites = 2}    // and @scatter: tilewright.overwrites = 2

A step of a decoder writes a few rows of its caches, which are as long as the longest text; an optimizer computes every
element of a parameter from itself. The result of such a call lies where its operand does (`placement`), and what is given
back is the argument itself. All else that reads the operand moves before the call, and where that needs the call's
result, the new value is computed beside the old one.

A program that fails changes nothing: run-time checks move before the first write, those apart that depend on what was
written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.call_accesses import failing_dispatches
from tilewright.compiler.analysis.dependences import in_order, needed_by
from tilewright.compiler.analysis.placement import OVERWRITES, REPLACES, UPDATED_BY, is_reshape
from tilewright.compiler.analysis.views import is_view
from tilewright.compiler.analysis.written_over import kept_argument, replaced_arguments
from tilewright.compiler.ir import functions, ir, walk
from tilewright.compiler.pipeline.pass_base import Pass

_Write = tuple[ir.Operation, int]
"""A call and the number of the operand that it writes over."""


@dataclass(frozen=True)
class UpdateInPlace(Pass):
    """Marks calls of @main by which scatters, insertions and element-wise operations make new values of arguments, and their dispatches."""

    def run(self, op: ir.Operation) -> None:
        named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(op.opview)}
        if "main" not in named:
            return
        main = named["main"]
        block = main.regions[0].blocks[0]
        *ops, terminator = (view.operation for view in block.operations)
        order = _Order(ops, terminator)
        found: list[_Write] = []
        for number, argument in enumerate(block.arguments):
            result = _updated_by(main, number)
            if result is None:
                continue
            results = list(terminator.operands)
            if result >= len(results) or results[result].type != argument.type:
                expected = f"the number of a result of {argument.type}"
                raise self.refusal(
                    main, f"argument {number}: `{UPDATED_BY}`: expected {expected}, found {result}"
                )
            chain = _chain(results[result], argument, named)
            if chain and order.put_last(chain):
                found += chain
        if found:
            order.put_first(failing_dispatches(op.opview), {call for call, _ in found})
            order.carry_out()
            _mark(found, named)


def _updated_by(main: ir.Operation, number: int) -> int | None:
    """The result that is the new value of an argument; None for one that stays as it is."""
    if "arg_attrs" not in main.attributes:
        return None
    attributes = ir.DictAttr(main.attributes["arg_attrs"][number])
    return ir.IntegerAttr(attributes[UPDATED_BY]).value if UPDATED_BY in attributes else None


def _chain(value: ir.Value, argument: ir.Value, named: dict[str, ir.Operation]) -> list[_Write]:
    """The calls, one into the result of the other, that make `value` of `argument`; none where more than these do."""
    chain: list[_Write] = []
    while value != argument:
        if isinstance(value.owner, ir.Block):
            return []
        op = value.owner.operation
        operand = _written_over(op, argument, named)
        if operand is not None:
            chain.append((op, operand))
            value = op.operands[operand]
        elif is_reshape(op):
            value = op.operands[0]
        else:
            return []
    return chain


def _written_over(op: ir.Operation, argument: ir.Value, named: dict[str, ir.Operation]) -> int | None:
    """The operand that the result of a call may be written over; None where there is none."""
    if op.name != "func.call":
        return None
    dispatch = named[_callee(op)]
    kept = kept_argument(dispatch)
    if kept is not None:
        return kept
    # Of several operands that are read element by element, the argument itself.
    return next((n for n in replaced_arguments(dispatch) if _reshaped(op.operands[n]) == argument), None)


def _reshaped(value: ir.Value) -> ir.Value:
    """What a tensor is a reshape of."""
    while not isinstance(value.owner, ir.Block) and is_reshape(value.owner.operation):
        value = value.owner.operands[0]
    return value


def _readers(value: ir.Value) -> Iterator[ir.Operation]:
    """What reads a tensor or a view of it, once for every operand."""
    for use in value.uses:
        op = use.owner.operation
        if is_view(op):
            yield from _readers(op.results[0])
        else:
            yield op


class _Order:
    """The operations of @main, each behind those that it needs; more of these are asked for, then all are carried out."""

    def __init__(self, ops: Sequence[ir.Operation], terminator: ir.Operation):
        self.ops, self.terminator = ops, terminator
        self.numbers = {op: number for number, op in enumerate(ops)}
        self.needed = [set(numbers) for numbers in needed_by(ops)]

    def put_last(self, chain: Sequence[_Write]) -> bool:
        """Puts every call of a chain behind all else that reads what it writes over; False, and nothing, where that cannot be."""
        asked: list[tuple[int, int]] = []
        for call, operand in chain:
            value = call.operands[operand]
            while not isinstance(value.owner, ir.Block) and is_view(value.owner.operation):
                value = value.owner.operands[0]
            readers = list(_readers(value))
            if self.terminator in readers or readers.count(call) > 1:
                return False
            asked += [(self.numbers[call], self.numbers[reader]) for reader in readers if reader != call]
        before = {later: set(self.needed[later]) for later, _ in asked}
        for later, earlier in asked:
            if later in self._needed_by(earlier):
                for number, needed in before.items():
                    self.needed[number] = needed
                return False
            self.needed[later].add(earlier)
        return True

    def put_first(self, failing: set[str], writing: set[ir.Operation]) -> None:
        """Puts calls of `failing` dispatches before those of `writing` that they do not need."""
        checks = [
            number
            for number, op in enumerate(self.ops)
            if op.name == "func.call" and _callee(op) in failing and op not in writing
        ]
        for check in checks:
            needed = self._needed_by(check)
            for write in (self.numbers[call] for call in writing):
                if write not in needed:
                    self.needed[write].add(check)

    def carry_out(self) -> None:
        """Moves the operations."""
        for number in in_order([sorted(numbers) for numbers in self.needed], range(len(self.ops))):
            self.ops[number].move_before(self.terminator)

    def _needed_by(self, number: int) -> set[int]:
        """An operation, and all that stand before it in every order."""
        pending, found = [number], {number}
        while pending:
            new = self.needed[pending.pop()] - found
            found |= new
            pending += new
        return found


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _mark(found: list[_Write], named: dict[str, ir.Operation]) -> None:
    """Marks calls and their dispatches; a dispatch that is called in other ways too has a clone that writes in place."""
    ways: dict[tuple[str, int], list[ir.Operation]] = defaultdict(list)
    for call, operand in found:
        ways[_callee(call), operand].append(call)
    called = [_callee(call) for function in named.values() for call in walk(function, "func.call")]
    for (name, operand), calls in ways.items():
        dispatch = named[name]
        mark = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), operand)
        if called.count(name) > len(calls):
            dispatch = dispatch.clone(ip=ir.InsertionPoint.after(dispatch)).operation
            dispatch.attributes["sym_name"] = ir.StringAttr.get(f"{name}_over_{operand}")
            for call in calls:
                call.attributes["callee"] = ir.FlatSymbolRefAttr.get(f"{name}_over_{operand}")
        dispatch.attributes[OVERWRITES] = mark
        if kept_argument(dispatch) is None:
            dispatch.attributes[REPLACES] = ir.UnitAttr.get()
        for call in calls:
            call.attributes[OVERWRITES] = mark
