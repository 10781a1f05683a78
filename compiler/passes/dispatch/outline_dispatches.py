"""Outlines every group of operations as a dispatch.

    %0 = linalg.fill ; %1 = linalg.generic // matmul ; %2 = linalg.generic // bias, relu
      =>
    %2 = call @matmul_128x3072x768(%x, %w, %bias)

Groups are those of `analysis/fusion_groups.py`, which says what is computed together.
Edges that stay cut are recorded on the dispatch as `tilewright.unfused`. Reshapes and contiguous slices stay
outside as views of buffers, insertions in place do too (see `join-in-place`). Identical groups become one
function, called several times.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from tilewright.compiler.analysis.dispatch_group import Group
from tilewright.compiler.analysis.fusion_groups import Grouping, IllegalChoiceError
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.ir import func, functions, ir, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.target import Target

OPERATOR = "tilewright.operator"
UNFUSED = "tilewright.unfused"


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
            outliner = _Outliner(module, function, self, outlined)
            try:
                outliner.run()
            except IllegalChoiceError as broken:
                raise self.refusal(broken.op, str(broken)) from None


class _Outliner(Grouping):
    """Outlines the groups of one function; equal dispatches are one of `outlined`."""

    def __init__(
        self, module, function: ir.Operation, options: OutlineDispatches, outlined: dict[str, ir.Operation]
    ):
        super().__init__(module, function, options)
        self.outlined = outlined

    def run(self) -> None:
        groups = self.groups(range(len(self.ops)))
        for group in reversed(groups):
            self.outline(group)
        taken = {number for group in groups for number in group.members}
        for number in range(len(self.ops) - 1, -1, -1):
            op = self.ops[number]
            if number in taken or not any(len(list(result.uses)) for result in op.results):
                op.erase()

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
        reasons = [
            f"{_kind(self.read(producer), self.ops[producer])}: {reason}"
            for producer, reason in group.refused.items()
            if producer not in group.members
        ]
        _add_reasons(dispatch, reasons)
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


def _kind(structured: Structured | None, op: ir.Operation) -> str:
    if structured is None:
        return op.name.split(".", 1)[1].replace(".", "_")
    if structured.is_contraction:
        return "matmul" if all(m.is_projected_permutation for m in structured.maps[:1]) else "conv"
    return "elementwise" if structured.is_elementwise else "reduction"


def _label(kind: str, structured: Structured | None, op: ir.Operation) -> str:
    extents = structured.extents if structured else ()
    return re.sub(r"\W", "_", kind) + ("_" + "x".join(map(str, extents)) if extents else "")
