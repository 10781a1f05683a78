"""Groups operations around one sink each and outlines every group as a dispatch.

    %0 = linalg.fill ; %1 = linalg.generic // matmul ; %2 = linalg.generic // bias, relu
      =>
    %2 = call @matmul_128x3072x768(%x, %w, %bias)

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
    for the step before anyway, while all steps' products of inputs can run at once while they are on their own.
An operation that carries `joins` in its `tilewright.choice` does as that says, or is refused with the rule that it breaks;
that few rows would remain, or which of several contractions goes first, is no rule.
Edges that stay cut are recorded on the dispatch as `tilewright.unfused`. Reshapes and contiguous slices stay
outside as views of buffers, insertions in place do too (see `join-in-place`). Identical groups become one
function, called several times.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from tilewright.compiler.analysis.chosen_parts import chosen_parts
from tilewright.compiler.analysis.dense_constants import is_splat
from tilewright.compiler.analysis.dispatch_group import Group
from tilewright.compiler.analysis.padding import slid_padding
from tilewright.compiler.analysis.placement import bases_of_chains, is_inserted
from tilewright.compiler.analysis.products_after import products_after
from tilewright.compiler.analysis.shared_rows import ACROSS, REPEATED, apart
from tilewright.compiler.analysis.structure import Structured, volume
from tilewright.compiler.analysis.views import is_view
from tilewright.compiler.analysis.weight_flow import argument_roles
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import func, functions, ir, walk
from tilewright.compiler.package.plan import tensor_spec
from tilewright.compiler.passes.graph.join_in_place import root_of
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.block_order import bits_before, external_operands
from tilewright.compiler.targets.target import Target

OPERATOR = "tilewright.operator"
UNFUSED = "tilewright.unfused"
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
_ANOTHER, _NO_READER = RULES[8], RULES[10]
_TASTES = re.compile("only [0-9]+ rows would remain|the cores' own caches keep it")
"""Reasons that a choice overrules."""


@dataclass(frozen=True)
class OutlineDispatches(Pass):
    """Outlines the bodies of all public functions.

    `min_rows` is how many rows a fused reduction must leave. With `under_windows` padding joins windows, and windows join
    products; by themselves where they give more than `kept_bytes`, which the cores' own caches keep for the next dispatch.
    With `along_same` reductions join only those along the same loops, no product, and nothing that repeats their rows: what
    threads of a GPU's block share are rows of one kind.
    """

    min_rows: int = 8
    under_windows: bool = False
    kept_bytes: int = 0
    along_same: bool = False

    @classmethod
    def for_target(cls, target: Target) -> OutlineDispatches:
        """The pass for a target; half of a cache is what one operand is counted to have."""
        if target.kind != "cpu":
            return cls(along_same=True)
        return cls(under_windows=True, kept_bytes=target.num_cores * target.own_cache.capacity_bytes // 2)

    def run(self, op: ir.Operation) -> None:
        module = op.opview
        outlined: dict[str, ir.Operation] = {}
        for function in list(functions(module)):
            outliner = Outliner(module, function, self, outlined)
            try:
                outliner.run()
            except IllegalChoiceError as broken:
                raise self.refusal(broken.op, str(broken)) from None


class IllegalChoiceError(PassError):
    """An operation cannot join those that read it, as its choice says: `op`, and the `rule`."""

    def __init__(self, op: ir.Operation, rule: str):
        super().__init__(choice_attribute.refused(op, "joins", f"{rule}; write false"), op.location)
        self.op, self.rule = op, rule


class Outliner:
    """Outlines one function. Operations are named by their position in the block.

    `joins` says of some whether they join those that read them; about others the group decides.
    """

    def __init__(
        self,
        module,
        function: ir.Operation,
        options: OutlineDispatches,
        outlined: dict[str, ir.Operation] | None = None,
    ):
        self.module, self.options, self.under_windows = module, options, options.under_windows
        self.outlined = {} if outlined is None else outlined
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
        *_, terminator = function.regions[0].blocks[0].operations
        for value in terminator.operation.operands:
            self.users[value].append(len(self.ops))

    def run(self) -> None:
        groups = self.groups(range(len(self.ops)))
        for group in reversed(groups):
            self.outline(group)
        taken = {number for group in groups for number in group.members}
        for number in range(len(self.ops) - 1, -1, -1):
            op = self.ops[number]
            if number in taken or not any(len(list(result.uses)) for result in op.results):
                op.erase()

    def groups(self, numbers: Sequence[int]) -> list[Group]:
        """The groups of some operations, the last one's first; raises IllegalChoiceError for choices against a rule."""
        taken: set[int] = set()
        groups = []
        for number in reversed(numbers):
            if number not in taken and not self.is_kept(number):
                group = self.preferred_first(self.grow(number, taken), taken)
                taken.update(group.members)
                groups.append(group)
        sinks = {group.members[0] for group in groups}
        for number in numbers:
            if self.joins.get(number) and (number in sinks or number not in taken):
                reasons = [group.refused[number] for group in groups if number in group.refused]
                raise IllegalChoiceError(
                    self.ops[number], (reasons or ["nothing that reads it has loops"])[-1]
                )
        return groups

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
        while frontier:
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
                    group.reasons.append(f"{_kind(self.read(producer), self.ops[producer])}: {reason}")
                    group.refused[producer] = reason
        return group

    def refusal(self, producer: int, consumer: int, group: Group) -> str | None:
        """Why `producer` cannot join the group, None if it can."""
        structured, reader, root = self.read(producer), self.read(consumer), self.read(group.members[0])
        if structured is None or reader is None or root is None:
            return "not a structured operation"
        if len(self.ops[producer].results) != 1:
            return "it has several results"
        if self.ops[producer].results[0] not in list(self.ops[consumer].operands):
            return "its elements are gathered by index"
        if any(user not in group.members for user in self.users[self.ops[producer].results[0]]):
            return "its result is used elsewhere"
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
                and tensor_spec(self.ops[producer].results[0].type, "").nbytes <= self.options.kept_bytes
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

    def outline(self, group: Group) -> None:
        body = sorted([*self.closure(group.members), *group.members])
        for number in body:
            if choice_attribute.ATTRIBUTE in self.ops[number].attributes:
                del self.ops[number].attributes[choice_attribute.ATTRIBUTE]
        inside = set(body)
        inputs = list(
            dict.fromkeys(
                v for number in body for v in self.operands[number] if self.producer.get(v) not in inside
            )
        )
        sink = self.ops[group.members[0]]
        results = list(sink.results)
        heavy = [s for s in self.in_order(group.members) if not s.is_elementwise]
        products = [s for s in heavy if s.is_contraction]
        main = max(
            reversed(products),
            key=lambda s: s.points,
            default=heavy[0] if heavy else self.read(group.members[0]),
        )
        kind = _kind(main, sink)
        location = main.op.location if main is not None else sink.location
        with location:
            type_ = ir.FunctionType.get([v.type for v in inputs], [r.type for r in results])
            with ir.InsertionPoint(self.module.body):
                dispatch = func.FuncOp("dispatch", type_, visibility="private").operation
            block = dispatch.regions[0].blocks.append(*type_.inputs, arg_locs=[location] * len(inputs))
            clone_into(block, [self.ops[n] for n in body], dict(zip(inputs, block.arguments)), results)
        dispatch.attributes[OPERATOR] = ir.StringAttr.get(kind)
        # The key is taken before reasons are attached: who could not join says nothing about the code.
        key = hashlib.sha256(
            dispatch.get_asm(enable_debug_info=False, use_local_scope=True).encode()
        ).hexdigest()
        known = self.outlined.get(key)
        if known is None:
            name = f"{_label(kind, main, sink)}_{len(self.outlined)}"
            dispatch.attributes["sym_name"] = ir.StringAttr.get(name)
            self.outlined[key] = dispatch
        else:
            dispatch.erase()
            dispatch = known
        _add_reasons(dispatch, group.reasons)
        with ir.InsertionPoint(sink), location:
            name = ir.StringAttr(dispatch.attributes["sym_name"]).value
            call = func.CallOp([r.type for r in results], name, inputs)
        for old, new in zip(results, call.results):
            old.replace_all_uses_with(new)
            self.replace(old, new)

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Keeps the cached operands true after `old` became `new`."""
        for user in self.users.pop(old, []):
            if user < len(self.ops):
                self.operands[user] = [new if value == old else value for value in self.operands[user]]

    def closure(self, members: list[int]) -> list[int]:
        """Constants, fills and scalar computations that the members need."""
        found: set[int] = set()
        pending = list(members)
        while pending:
            for value in self.operands[pending.pop()]:
                number = self.producer.get(value)
                if number is not None and number not in found and number in self.cloned:
                    found.add(number)
                    pending.append(number)
        return sorted(found)


def _slides(reader: Structured) -> bool:
    """Whether it reduces what windows, or other maps than plain ones, reach several times."""
    return not reader.is_elementwise and not all(m.is_projected_permutation for m in reader.maps)


def _add_reasons(dispatch: ir.Operation, reasons: list[str]) -> None:
    known = (
        [ir.StringAttr(r).value for r in dispatch.attributes[UNFUSED]]
        if UNFUSED in dispatch.attributes
        else []
    )
    if reasons:
        merged = sorted({*known, *reasons})
        dispatch.attributes[UNFUSED] = ir.ArrayAttr.get([ir.StringAttr.get(r) for r in merged])


def clone_into(block: ir.Block, ops: list[ir.Operation], values: dict[ir.Value, ir.Value], results) -> None:
    """Clones `ops` into `block` with operands replaced by `values`, and returns the clones of `results`."""
    with ir.InsertionPoint(block):
        for op in ops:
            clone = op.clone()
            clone = clone.operation
            for inner in walk(clone) if len(clone.regions) else [clone]:
                for i, value in enumerate(inner.operands):
                    if value in values:
                        inner.operands[i] = values[value]
            values.update(zip(op.results, clone.results))
        func.return_([values[r] for r in results])


def _is_cloned(op: ir.Operation) -> bool:
    """Whether every user gets its own copy: scalars, shapes, and constants that need no memory."""
    if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
        return is_splat(op)
    if op.name in _CLONED:
        return True
    return bool(len(op.results)) and not any(isinstance(r.type, ir.RankedTensorType) for r in op.results)


def _kind(structured: Structured | None, op: ir.Operation) -> str:
    if structured is None:
        return op.name.split(".", 1)[1].replace(".", "_")
    if structured.is_contraction:
        return "matmul" if all(m.is_projected_permutation for m in structured.maps[:1]) else "conv"
    return "elementwise" if structured.is_elementwise else "reduction"


def _label(kind: str, structured: Structured | None, op: ir.Operation) -> str:
    extents = structured.extents if structured else ()
    return re.sub(r"\W", "_", kind) + ("_" + "x".join(map(str, extents)) if extents else "")
