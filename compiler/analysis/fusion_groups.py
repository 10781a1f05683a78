"""Groups the operations of one function around sinks: what one dispatch computes.

Going backwards from each sink, a producer joins when all its users are in the group and cutting the group into
rTasks still costs no recomputation:
  - fills, constants and scalars are cloned into every group that uses them;
  - an element-wise producer joins element-wise ops and reductions, never a contraction, which reads each
    element many times;
  - a reduction of windows, as a depthwise convolution, joins the product that reads it element by element, with what
    is computed in between, where it has more than `kept_bytes`: each rTask then takes whole rows of the product;
  - with `under_windows`, padding joins the depthwise convolution or pooling whose windows alone slide over it, and
    what chooses parts of a tensor the product that takes one of them at a time, which reads them where they lie;
  - a reduction joins what follows it when enough rows remain to cut along (softmax, layer norm);
  - a contraction joins a purely element-wise group that covers all of its output (its epilogue). Of several that
    could, one that follows a product with the same weight goes before one that does not: a recurrent product waits
    for the step before anyway, while all steps' products of inputs can run at once while they are on their own;
  - what others read as well joins, as a copy, where it is so little work on what lies in memory anyway that writing and
    reading its result would be more (`repeated_work.py`), and all that reads it can have a copy.
An operation that carries `joins` in its `tilewright.choice` does as that says, or is refused with the rule that it breaks;
that few rows would remain, or which of several contractions goes first, is no rule.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Protocol

from tilewright.compiler.analysis.chosen_parts import chosen_parts
from tilewright.compiler.analysis.dense_constants import is_splat
from tilewright.compiler.analysis.dependences import bits_before, external_operands
from tilewright.compiler.analysis.dispatch_group import Group
from tilewright.compiler.analysis.padding import slid_padding
from tilewright.compiler.analysis.placement import bases_of_chains, is_inserted
from tilewright.compiler.analysis.products_after import products_after
from tilewright.compiler.analysis.repeated_work import is_cheap, large_operands, tensor_bytes
from tilewright.compiler.analysis.shared_rows import ACROSS, REPEATED, apart
from tilewright.compiler.analysis.structure import Structured, volume
from tilewright.compiler.analysis.views import is_view, root_of
from tilewright.compiler.analysis.weight_flow import argument_roles
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir

_CLONED = {"arith.constant", "tensor.empty", "linalg.fill"}
_SMALL_ELEMENTS = 4096
RULES = (
    "not a structured operation",
    "it has several results",
    "its elements are gathered by index",
    "its result is used elsewhere",
    "its run-time checks would be repeated",
    "a contraction would recompute it",
    "an indexed reduction is not cut",
    "a windowed reduction would recompute it",
    "the group holds a reduction already",
    "the consumer does not cover its output",
    "nothing that reads it has loops",
    ACROSS,
    REPEATED,
)
"""Why a producer cannot join those that read it."""
_ELSEWHERE, _ANOTHER, _NO_READER = RULES[3], RULES[8], RULES[10]
_TASTES = re.compile("only [0-9]+ rows would remain|the cores' own caches keep it")
"""Reasons that a choice overrules."""


class Limits(Protocol):
    """What decides whether operations are computed together: see the options of `outline-dispatches`."""

    @property
    def min_rows(self) -> int: ...
    @property
    def under_windows(self) -> bool: ...
    @property
    def kept_bytes(self) -> int: ...
    @property
    def along_same(self) -> bool: ...


class IllegalChoiceError(PassError):
    """An operation cannot join those that read it, as its choice says: `op`, and the `rule`."""

    def __init__(self, op: ir.Operation, rule: str):
        super().__init__(choice_attribute.refused(op, "joins", f"{rule}; write false"), op.location)
        self.op, self.rule = op, rule


class Grouping:
    """The groups of one function of `module`, which is kept: operations end with it. They are named by their position in the block.

    `joins` says of some whether they join those that read them; about others the group decides.
    """

    def __init__(self, module: ir.Module, function: ir.Operation, options: Limits):
        self.module, self.options, self.under_windows = module, options, options.under_windows
        self.fixed = {
            argument
            for argument, role in zip(function.regions[0].blocks[0].arguments, argument_roles(function))
            if role in ("weight", "packed")
        }
        self.is_main = ir.StringAttr(function.attributes["sym_name"]).value == "main"
        self.ops = [view.operation for view in function.regions[0].blocks[0].operations][:-1]
        self.structured: dict[int, Structured | None] = {}
        self.in_place: dict[int, bool] = {}
        self.operands = [external_operands(op) for op in self.ops]
        self.producer = {result: number for number, op in enumerate(self.ops) for result in op.results}
        self.bases = bases_of_chains(self.ops)
        self.cloned: set[int] = set()
        for number, op in enumerate(self.ops):
            if _is_cloned(op) or (is_view(op) and self.producer.get(op.operands[0]) in self.cloned):
                self.cloned.add(number)
        self.users: dict[ir.Value, list[int]] = defaultdict(list)
        for number, values in enumerate(self.operands):
            for value in values:
                self.users[value].append(number)
        self.joins = {
            number: bool(choice["joins"])
            for number, op in enumerate(self.ops)
            if choice_attribute.ATTRIBUTE in op.attributes
            and "joins" in (choice := choice_attribute.read(op))
        }
        self.computed_anyway: set[int] = set()
        *_, terminator = function.regions[0].blocks[0].operations
        for value in terminator.operation.operands:
            self.users[value].append(len(self.ops))

    def groups(self, numbers: Sequence[int]) -> list[Group]:
        """The groups of some operations, the last one's first; raises IllegalChoiceError for choices against a rule."""
        self.computed_anyway = set()
        groups = self.grouped(numbers)
        sinks = {group.members[0] for group in groups}
        while in_vain := {number for group in groups for number in group.repeated} & sinks:
            self.computed_anyway |= in_vain
            groups = self.grouped(numbers)
            sinks = {group.members[0] for group in groups}
        taken = {number for group in groups for number in group.members}
        for number in numbers:
            if self.joins.get(number) and (number in sinks or number not in taken):
                reasons = [group.refused[number] for group in groups if number in group.refused]
                raise IllegalChoiceError(self.ops[number], (reasons or [_NO_READER])[-1])
        return groups

    def grouped(self, numbers: Sequence[int]) -> list[Group]:
        """The groups as they are grown, the last operation's first."""
        taken: set[int] = set()
        groups: list[Group] = []
        for number in reversed(numbers):
            if number in taken or self.is_kept(number) or self.is_repeated_by_all(number, groups):
                continue
            group = self.preferred_first(self.grow(number, taken), taken)
            taken.update(set(group.members) - group.repeated)
            groups.append(group)
        return groups

    def is_repeated_by_all(self, number: int, groups: list[Group]) -> bool:
        """Whether every group that reads an operation computes it for itself."""
        users = {user for result in self.ops[number].results for user in self.users[result]}
        reading = [group for group in groups if users & set(group.members)]
        return bool(reading) and len(self.ops) not in users and all(number in g.repeated for g in reading)

    def is_kept(self, number: int) -> bool:
        """Whether an operation stays outside of dispatches."""
        op = self.ops[number]
        return is_view(op) or number in self.cloned or op.name == "arith.constant" or self.stays(op)

    def stays(self, op: ir.Operation) -> bool:
        """Whether `op` moves nothing, so that `place-inserts` only has to say where tensors lie.

        An insertion into what something else computes keeps that where nothing is inserted: it copies.
        """
        if not self.is_main or not is_inserted(op):
            return False
        base = self.bases[op.results[0]]
        return not isinstance(base.owner, ir.Block) and base.owner.name in ("tensor.empty", "linalg.fill")

    def read(self, number: int) -> Structured | None:
        if number not in self.structured:
            self.structured[number] = Structured.read(self.ops[number])
        return self.structured[number]

    def preferred_first(self, group: Group, taken: set[int]) -> Group:
        """The group, or another one of the same sink that holds the contraction that goes before the one in this.

        That is one that was asked for, or a recurrent one where this holds none.
        """
        inside = [n for n in group.members if (s := self.read(n)) is not None and s.is_contraction]
        if not group.passed_over or not inside or any(self.joins.get(n) for n in inside):
            return group
        wanted = [n for n in group.passed_over if self.joins.get(n)]
        if not wanted and not any(n in self.recurrent for n in inside):
            wanted = [n for n in group.passed_over if n in self.recurrent and n not in self.joins]
        if not wanted:
            return group
        other = self.grow(group.members[0], taken, left_out=frozenset(inside))
        return other if any(n in other.members for n in wanted) else group

    @cached_property
    def recurrent(self) -> set[int]:
        """Contractions that need the result of another one with the same weight."""
        products = [n for n in range(len(self.ops)) if (s := self.read(n)) is not None and s.is_contraction]
        weights = {
            n: {root for v in self.operands[n] if (root := root_of(v)) in self.fixed} for n in products
        }
        uses = Counter(weight for found in weights.values() for weight in found)
        bits = {weight: 1 << i for i, weight in enumerate(w for w, count in uses.items() if count > 1)}
        own = {n: reduce(or_, (bits.get(weight, 0) for weight in found), 0) for n, found in weights.items()}
        needed = [[self.producer[v] for v in values if v in self.producer] for values in self.operands]
        before = bits_before(needed, own)
        return {n for n in products if before[n] & own[n]}

    def grow(self, sink: int, taken: set[int], left_out: frozenset[int] = frozenset()) -> Group:
        group = Group([sink])
        if (structured := self.read(sink)) is None:
            return group
        group.begin(structured)
        frontier = [sink]
        while frontier or (frontier := self.repeated(group)):
            consumer = frontier.pop(0)
            for value in self.operands[consumer]:
                producer = self.producer.get(value)
                if (
                    producer is None
                    or producer in group.members
                    or producer in taken
                    or producer in self.cloned
                ):
                    continue
                reason = (
                    "a recurrent product is fused instead"
                    if producer in left_out
                    else self.refusal(producer, consumer, group)
                )
                asked = self.joins.get(producer)
                is_taste = reason is None or _TASTES.match(reason) is not None or producer in left_out
                if is_taste and asked is not None:
                    reason = None if asked else reason or "its choice keeps it apart"
                if (
                    reason == _ANOTHER
                    and asked is not False
                    and (s := self.read(producer)) is not None
                    and s.is_contraction
                ):
                    group.passed_over.append(producer)
                if reason is None:
                    read = None if self.is_read_in_place(producer) else self.read(producer)
                    group.join(producer, read, self.users[value])
                    frontier.append(producer)
                else:
                    group.refused[producer] = reason
        return group

    def repeated(self, group: Group) -> list[int]:
        """What others read as well and the group can compute for itself at no cost: takes it in, and returns it."""
        for producer, reason in list(group.refused.items()):
            is_apart = self.joins.get(producer) is False or producer in self.computed_anyway
            if reason != _ELSEWHERE or is_apart or producer in group.members:
                continue
            if not self.is_repeatable(producer):
                continue
            consumer = next(n for n in self.users[self.ops[producer].results[0]] if n in group.members)
            if self.refusal(producer, consumer, group, repeats=True) is None:
                group.repeated.add(producer)
                group.join(producer, self.read(producer), self.users[self.ops[producer].results[0]])
                return [producer]
        return []

    def is_repeatable(self, number: int) -> bool:
        """Whether all that reads an operation's result could as well compute it, from what lies in memory anyway."""
        structured = self.read(number)
        if structured is None or not is_cheap(structured) or not self.may_join(number):
            return False
        return all(self.lies_anyway(value) for value in large_operands(structured))

    def lies_anyway(self, value: ir.Value) -> bool:
        """Whether a tensor that one operation reads is in memory whatever becomes of that."""
        while (producer := self.producer.get(value)) is not None and len(self.users[value]) == 1:
            if not is_view(self.ops[producer]):
                return False
            value = self.ops[producer].operands[0]
        return True

    def refusal(self, producer: int, consumer: int, group: Group, repeats: bool = False) -> str | None:
        """Why `producer` cannot join the group, None if it can; with `repeats` though others read it too."""
        structured, reader, root = self.read(producer), self.read(consumer), self.read(group.members[0])
        if structured is None or reader is None or root is None:
            return "not a structured operation"
        if len(self.ops[producer].results) != 1:
            return "it has several results"
        if self.ops[producer].results[0] not in list(self.ops[consumer].operands):
            return "its elements are gathered by index"
        readers = self.users[self.ops[producer].results[0]]
        if any(user not in group.members or user in group.repeated for user in readers) and not repeats:
            return _ELSEWHERE
        if len(self.users[self.ops[producer].results[0]]) > 1 and structured.checks:
            return "its run-time checks would be repeated"
        if self.is_read_in_place(producer):
            return None
        if reader.is_contraction or self.is_read_in_place(consumer):
            if self.product_after.get(producer) != consumer:
                return "a contraction would recompute it"
        elif _slides(reader):
            return "a windowed reduction would recompute it"
        if structured.has_index and not structured.is_elementwise:
            return "an indexed reduction is not cut"
        loops = group.loops_with(structured, self.users[self.ops[producer].results[0]])
        if self.product_after.get(producer) in group.members:
            if (
                reader.is_contraction
                and tensor_bytes(self.ops[producer].results[0].type) <= self.options.kept_bytes
            ):
                return "the cores' own caches keep it"
            rows = volume(root.extents, loops)
            return None if rows >= self.options.min_rows else f"only {rows} rows would remain to cut along"
        if structured.is_contraction:
            if any(not other.is_elementwise for other in self.in_order(group.members)):
                return _ANOTHER
            if volume(root.extents, loops) < root.points:
                return "the consumer does not cover its output"
            return None
        if self.options.along_same and not structured.is_elementwise:
            if any(other.is_contraction for other in self.in_order(group.members)):
                return _ANOTHER
            joined = self.in_order([*group.members, producer])
            if (reason := apart(joined.index(structured), joined)) is not None:
                return reason
        rows, before = (volume(root.extents, cut) for cut in (loops, group.loops))
        if rows >= min(before, self.options.min_rows):
            return None
        if max(s.points for s in (*self.in_order(group.members), structured)) <= _SMALL_ELEMENTS:
            return None
        return f"only {rows} rows would remain to cut along"

    def may_join(self, number: int) -> bool:
        """Whether there are groups that an operation could join: whether nothing but its group speaks against it."""
        if self.is_read_in_place(number):
            return True
        structured = self.read(number)
        if structured is None or len(self.ops[number].results) != 1:
            return False
        if structured.has_index and not structured.is_elementwise:
            return False
        (result,) = self.ops[number].results
        users = self.users[result]
        return (0 < len(users) <= (1 if structured.checks else len(self.ops))) and all(
            user < len(self.ops)
            and (reader := self.read(user)) is not None
            and result in list(self.ops[user].operands)
            and (self.product_after.get(number) == user or not (reader.is_contraction or _slides(reader)))
            for user in users
        )

    @cached_property
    def product_after(self) -> dict[int, int]:
        """The products that windows can join, of these and of what is computed from them."""
        found = [self.read(number) for number in range(len(self.ops))]
        return products_after(found, self.users) if self.under_windows else {}

    def in_order(self, members: list[int]) -> list[Structured]:
        """The group's structured operations in program order; what is read in place follows any cut of those."""
        found = [self.read(number) for number in sorted(members) if not self.is_read_in_place(number)]
        return [s for s in found if s is not None]

    def is_read_in_place(self, number: int) -> bool:
        """Whether the operation pads what windows of another one alone slide over, or chooses parts for a product."""
        if number not in self.in_place:
            op = self.ops[number]
            found = self.under_windows and (slid_padding(op) is not None or chosen_parts(op) is not None)
            self.in_place[number] = found
        return self.in_place[number]


def _slides(reader: Structured) -> bool:
    """Whether it reduces what windows, or other maps than plain ones, reach several times."""
    return not reader.is_elementwise and not all(m.is_projected_permutation for m in reader.maps)


def _is_cloned(op: ir.Operation) -> bool:
    """Whether every user gets its own copy: scalars, shapes, and constants that need no memory."""
    if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
        return is_splat(op)
    if op.name in _CLONED:
        return True
    return bool(len(op.results)) and not any(isinstance(r.type, ir.RankedTensorType) for r in op.results)
