"""hoist-weights: what depends on weights alone is computed once, at load, by a function of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.package.prepack import (
    INDEX,
    empty_prepack,
    function_type,
    packed_attributes,
    return_values,
    retype,
)
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import is_read
from tilewright.runtime.program import ITEM_BYTES

_RESHAPES = frozenset({"tensor.expand_shape", "tensor.collapse_shape", "tensor.cast"})
_TRIVIAL = frozenset({"arith.constant", "tensor.empty", "linalg.fill"})
_CHEAP_MATH = frozenset(
    f"math.{name}"
    for name in ["absf", "absi", "ceil", "copysign", "floor", "fma", "round", "roundeven", "trunc"]
)


_MANY, SEVERAL = 100, 4
"""Scalar operations per element from which a constant tensor, of any size or a small one, is computed once: a
consumer that computes it instead does so for each of its own elements."""
SMALL_BYTES = 16384


@dataclass(frozen=True)
class HoistWeights(Pass):
    """Splits @main at the last values that depend on weights and constants only; @prepack computes those once.

    Before:

        func.func @main(%w {tilewright.role = "weight"}, %x {tilewright.role = "input"}) {
          %t = linalg.transpose ins(%w)
          %y = linalg.matmul ins(%x, %t)

    After:

        func.func @main(%w {... "weight"}, %x {... "input"}, %p {tilewright.role = "packed", tilewright.index = 0}) {
          %y = linalg.matmul ins(%x, %p)
        func.func @prepack(%w {... "weight"}) -> tensor<...> {
          %t = linalg.transpose ins(%w)
          return %t

    @prepack takes all weights, in @main's order. Argument `tilewright.index` of @main is result `index` of
    @prepack; packed arguments come last. What costs nothing stays in @main, computed from what crosses: fills,
    reshapes, scalars, short or large index arithmetic without elementary functions, and copies that make their
    source more than `max-growth` times larger. Ops that may fail (an assert inside or outside a body) stay too.
    The pass may run again after others: it then extends @prepack, and drops results that @main no longer reads.
    """

    anchor: ClassVar[str] = "builtin.module"
    max_growth: float = 4.0

    def run(self, op: ir.Operation) -> None:
        named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions_of(op)}
        main = named.get("main")
        if main is None or "arg_attrs" not in main.attributes:
            return
        if len(main.regions[0].blocks) != 1:
            count = len(main.regions[0].blocks)
            raise PassError(
                f"`hoist-weights`: expected @main to be one block of tensor operations, found {count}; "
                "run it before control flow is lowered",
                main.location,
            )
        roles = argument_roles(main)
        cut = decide(main, roles, self.max_growth)
        if cut.crossing:
            prepack = named.get("prepack") or empty_prepack(main, roles)
            _move(cut, main, prepack, roles)
        elif "prepack" in named:
            _drop_unread(main, named["prepack"])


@dataclass
class Cut:
    """The values that cross from @prepack to @main, in order, and the ops that compute them, in order."""

    crossing: list[ir.Value] = field(default_factory=list)
    slice: list[ir.Operation] = field(default_factory=list)


def functions_of(module: ir.Operation) -> list[ir.Operation]:
    block = module.regions[0].blocks[0]
    return [op.operation for op in block.operations if op.operation.name == "func.func"]


@dataclass
class _Facts:
    """What is known of a value computed from weights and constants: whether a weight is among its sources and,
    for those of constants alone, how many scalar operations each element took."""

    weight: bool
    operations: int


def decide(main: ir.Operation, roles: list[str], max_growth: float) -> Cut:
    """Where to cut @main, whose arguments have `roles`; does not change the IR. Linear in the number of ops."""
    flow = WeightFlow.of(main, roles)
    facts: dict[ir.Value, _Facts] = {}
    for argument in main.regions[0].blocks[0].arguments:
        facts[argument] = _Facts(weight=True, operations=0)
    for op, sources in flow.sources.items():
        weight = any(facts[value].weight for value in sources)
        # Only of constants is it asked whether they are worth keeping.
        before = max((facts[value].operations for value in sources), default=0)
        operations = 0 if weight else before + _operations(op)
        for result in op.results:
            facts[result] = _Facts(weight, operations)

    crossing: set[ir.Value] = set()
    settled: set[ir.Value] = set()
    wanted = flow.read_elsewhere()
    while wanted:
        value = wanted.pop()
        if value in settled or isinstance(value.owner, ir.Block):
            continue
        settled.add(value)
        if _crosses(value, facts[value], flow.sources[value.owner], max_growth):
            crossing.add(value)
        else:
            wanted.extend(flow.sources[value.owner])

    needed = {value.owner for value in crossing}
    pending = list(needed)
    while pending:
        for value in flow.sources[pending.pop()]:
            if not isinstance(value.owner, ir.Block) and value.owner not in needed:
                needed.add(value.owner)
                pending.append(value.owner)
    cut = Cut()
    for op in flow.sources:
        if op in needed:
            cut.slice.append(op)
            cut.crossing.extend(result for result in op.results if result in crossing)
    return cut


def _operations(op: ir.Operation) -> int:
    """Scalar operations per element of `op`; elementary functions, reductions, sorts and products count as many."""
    dialect, _, name = op.name.partition(".")
    if dialect != "linalg":
        return _MANY if dialect in ("tm_tensor", "tilewright") else 0
    if name != "generic":
        return 0 if name in ("fill", "broadcast", "transpose") else _MANY
    if "reduction" in str(op.attributes["iterator_types"]):
        return _MANY
    count = 0
    for view in op.regions[0].blocks[0].operations:
        inner = view.operation.name
        if inner.startswith("math.") and inner not in _CHEAP_MATH:
            return _MANY
        count += inner.startswith(("arith.", "math."))
    return count


def _crosses(value: ir.Value, fact: _Facts, sources: list[ir.Value], max_growth: float) -> bool:
    """Whether `value` is kept in memory for @main; otherwise @main computes it from its sources."""
    op = value.owner
    if op.name in _TRIVIAL or op.name in _RESHAPES or not isinstance(value.type, ir.RankedTensorType):
        return False
    if not fact.weight:
        small = _nbytes(value.type) <= SMALL_BYTES and fact.operations >= SEVERAL
        if fact.operations < _MANY and not small:
            return False
    if not value.type.has_static_shape or str(value.type.element_type) not in _STORED:
        return False
    if _is_copy(op):
        read = sum(_nbytes(source.type) for source in set(sources) if not _is_uninitialised(source))
        return _nbytes(value.type) <= max_growth * read
    return True


def _is_copy(op: ir.Operation) -> bool:
    """Whether `op` only moves elements: a broadcast, a pad, or a body that yields what it reads."""
    if op.name in ("linalg.broadcast", "tensor.pad"):
        return True
    return op.name == "linalg.generic" and len(op.regions[0].blocks[0].operations) == 1


def _is_uninitialised(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "tensor.empty"


_STORED = frozenset(ITEM_BYTES) | {"complex<f32>", "complex<f64>"}


def _nbytes(type_: ir.Type) -> int:
    """Bytes of a tensor in memory; 0 for anything else."""
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return 0
    element = str(type_.element_type)
    item = {"complex<f32>": 8, "complex<f64>": 16, "index": 8}.get(element) or ITEM_BYTES.get(element, 1)
    count = 1
    for extent in type_.shape:
        count *= extent
    return count * item


def _move(cut: Cut, main: ir.Operation, prepack: ir.Operation, roles: list[str]) -> None:
    """Computes the slice in @prepack, and gives @main the crossing values as arguments."""
    block, entry = main.regions[0].blocks[0], prepack.regions[0].blocks[0]
    terminator = entry.operations[len(entry.operations) - 1].operation
    kept = list(terminator.operands)
    inside: dict[ir.Value, ir.Value] = {}
    weights = iter(entry.arguments)
    for argument, role, attributes in zip(block.arguments, roles, main.attributes["arg_attrs"]):
        if role == "weight":
            inside[argument] = next(weights)
        elif role == "packed":
            inside[argument] = kept[ir.IntegerAttr(attributes[INDEX]).value]
    for op in cut.slice:
        clone = op.clone(ip=ir.InsertionPoint(terminator)).operation
        for inner in walk(clone):
            for number, value in enumerate(inner.operands):
                if value in inside:
                    inner.operands[number] = inside[value]
        inside.update(zip(op.results, clone.results))

    types = list(function_type(main).inputs)
    attributes = list(main.attributes["arg_attrs"])
    for number, value in enumerate(cut.crossing, len(kept)):
        argument = block.add_argument(value.type, value.owner.location)
        kept.append(inside[value])
        value.replace_all_uses_with(argument)
        types.append(value.type)
        attributes.append(packed_attributes(number))
    for op in reversed(cut.slice):
        if not any(is_read(result) for result in op.results):
            op.erase()
    retype(main, types, list(function_type(main).results), attributes)
    return_values(prepack, terminator, kept)
    _drop_unread(main, prepack)


def _drop_unread(main: ir.Operation, prepack: ir.Operation) -> None:
    """Removes packed arguments that @main does not read, what computed them, and numbers the others anew."""
    block, entry = main.regions[0].blocks[0], prepack.regions[0].blocks[0]
    terminator = entry.operations[len(entry.operations) - 1].operation
    results = list(terminator.operands)
    types, attributes, kept = [], [], []
    unread = []
    for number, (role, entry_attributes) in enumerate(
        zip(argument_roles(main), main.attributes["arg_attrs"])
    ):
        argument = block.arguments[number]
        if role == "packed":
            if not is_read(argument):
                unread.append(number)
                continue
            kept.append(results[ir.IntegerAttr(entry_attributes[INDEX]).value])
            entry_attributes = packed_attributes(len(kept) - 1)
        types.append(argument.type)
        attributes.append(entry_attributes)
    if not unread:
        return
    for number in reversed(unread):
        block.erase_argument(number)
    retype(main, types, list(function_type(main).results), attributes)
    return_values(prepack, terminator, kept)
    for view in reversed(list(entry.operations)):
        op = view.operation
        if len(op.results) and not any(is_read(result) for result in op.results):
            op.erase()
    if not kept:
        prepack.erase()
