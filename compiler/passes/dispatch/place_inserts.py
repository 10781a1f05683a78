"""Decides where the tensors of @main lie that insertions put inside of others, and tells the dispatches.

    %x = call @conv(%a)                                            // tensor<1x56x56x64xf32>
    %f = linalg.fill ins(%zero) outs(%e)                           // tensor<1x58x58x64xf32>
    %p = tensor.insert_slice %x into %f[0, 1, 1, 0] ... {tilewright.in_place}
    %y = call @depthwise(%p)
      =>
    %x = call @conv(%a)          // @conv's result: tilewright.strides = array<i64: 215296, 3712, 64, 1>
    %f = linalg.fill ...
    %p = tensor.insert_slice %x into %f[0, 1, 1, 0] ... {tilewright.in_place}
    %y = call @depthwise(%p)

A dispatch's result is claimed for the place where it is inserted unless something needs it elsewhere or dense: it
is returned, inserted twice, reshaped in a way that strides cannot express, read by a dispatch that is more than
linalg, or made of pieces shorter than a cache line. Then a dispatch copies it; so it does a slice that some reader
cannot read where it lies. Insertions that several tensors begin with are one operation after CSE, and one per tensor
here. What the borders are, `share-borders` says once the order of the dispatches is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.compiler.analysis.placement import (
    IN_PLACE,
    STRIDES,
    Place,
    boxed,
    chain_of,
    dense_run,
    dense_strides,
    is_dense,
    is_inserted,
    is_reshape,
    own,
    places,
    reshaped,
    shape_of,
    unreshaped,
)
from tilewright.compiler.analysis.views import is_view, root_of
from tilewright.compiler.ir import func, functions, ir
from tilewright.compiler.passes.dispatch.materialize_returns import copy_of
from tilewright.compiler.passes.dispatch.outline_dispatches import OPERATOR
from tilewright.compiler.pipeline.pass_base import Pass

_STRIDED_OPS = {"linalg.generic", "linalg.fill", "arith.constant", "tensor.empty", "func.return"}
"""What a dispatch consists of that may read and write memory with gaps: loops over indices, and nothing else."""


@dataclass(frozen=True)
class PlaceInserts(Pass):
    """Runs on modules whose @main consists of dispatch calls; pieces below `shortest_bytes` are copied."""

    shortest_bytes: int = 64

    def run(self, op: ir.Operation) -> None:
        named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(op.opview)}
        main, prepack = named.get("main"), named.get("prepack")
        marked = [f for f in (main, prepack) if f is not None and _has_marks(f)]
        if main is None or not marked:
            return
        for function in marked:
            _Claims(function, named, self.shortest_bytes).run()
        _tell_dispatches(op.opview)


def _has_marks(function: ir.Operation) -> bool:
    return any(IN_PLACE in v.operation.attributes for v in function.regions[0].blocks[0].operations)


@dataclass
class _Claims:
    """Walks a function backwards and claims what every insertion inserts; what cannot be claimed is copied."""

    function: ir.Operation
    named: dict[str, ir.Operation]
    shortest_bytes: int
    known: dict[ir.Value, Place] = field(default_factory=dict)
    copies: dict[ir.Type, str] = field(default_factory=dict)

    def run(self) -> None:
        _separate_chains(self.function)
        *ops, terminator = (view.operation for view in self.function.regions[0].blocks[0].operations)
        for number, value in enumerate(terminator.operands):
            if is_bordered(root_of(value)):
                terminator.operands[number] = self.copied(value, ir.InsertionPoint(terminator))
        self.returned = {root_of(value) for value in terminator.operands}
        # Slices of slices first: what reads their copies reads no slice.
        for op in reversed(ops):
            if op.name == "tensor.extract_slice" and IN_PLACE in op.attributes:
                self.read_slice(op)
        for op in reversed(ops):
            if not is_inserted(op):
                continue
            result, destination = op.results[0], op.operands[1]
            here = self.known.setdefault(result, Place(result, 0, dense_strides(shape_of(result))))
            if not isinstance(destination.owner, ir.Block) and is_inserted(destination.owner.operation):
                self.known[destination] = here
            place = boxed(op, here)
            if not self.claim(op.operands[0], place):
                op.operands[0] = self.copied(op.operands[0], ir.InsertionPoint(op))
                self.known[op.operands[0]] = place

    def read_slice(self, op: ir.Operation) -> None:
        """Copies a slice that not all of its readers can read where it lies."""
        if self.is_readable(op.results[0], self.slice_place(op)):
            return
        uses = [(use.owner.operation, use.operand_number) for use in op.results[0].uses]
        copy = self.copied(op.results[0], ir.InsertionPoint.after(op))
        for user, number in uses:
            user.operands[number] = copy

    def slice_place(self, op: ir.Operation) -> Place:
        """Where a slice lies if nothing is claimed: in the memory of what it and other views lead back to."""
        return boxed(op, self.view_place(op.operands[0]))

    def view_place(self, value: ir.Value) -> Place:
        """Where `value` lies if nothing is claimed, and what cannot be read where it lies is copied."""
        if isinstance(value.owner, ir.Block) or not is_view(value.owner.operation):
            return own(value)
        view = value.owner.operation
        if view.name == "tensor.extract_slice":
            return self.slice_place(view)
        return reshaped(view, self.view_place(view.operands[0])) or own(value)

    def claim(self, source: ir.Value, place: Place) -> bool:
        """Puts the computation behind `source` at `place` if it can lie there."""
        path: list[tuple[ir.Value, Place]] = [(source, place)]
        value = source
        while not isinstance(value.owner, ir.Block) and is_reshape(value.owner.operation):
            before = unreshaped(value.owner.operation, path[-1][1])
            if before is None:
                return False
            value = value.owner.operands[0]
            path.append((value, before))
        if isinstance(value.owner, ir.Block) or value in self.returned:
            return False
        if any(reached in self.known for reached, _ in path) or not self.is_writable(value.owner.operation):
            return False
        shape, strides = shape_of(value), path[-1][1].strides
        bits = ir.RankedTensorType(value.type).element_type
        run_bytes = dense_run(shape, strides) * max(1, getattr(bits, "width", 64) // 8)
        if not is_dense(shape, strides) and run_bytes < self.shortest_bytes:
            return False
        if not self.is_readable(value, path[-1][1]):
            return False
        self.known.update(path)
        return True

    def is_writable(self, owner: ir.Operation) -> bool:
        """Whether `owner` can compute into any strides: a dispatch of loops, or insertions into nothing yet."""
        if owner.name == "func.call":
            return self.is_strided(owner)
        if not is_inserted(owner):
            return False
        base = chain_of(owner)[-1].operands[1]
        return not isinstance(base.owner, ir.Block) and base.owner.name == "tensor.empty"

    def is_readable(self, value: ir.Value, place: Place) -> bool:
        """Whether all readers of `value` and of views of it can read it at `place`."""
        for use in value.uses:
            user = use.owner.operation
            if is_view(user):
                seen = boxed(user, place) if user.name == "tensor.extract_slice" else reshaped(user, place)
                if seen is None or not self.is_readable(user.results[0], seen):
                    return False
            elif user.name == "func.call":
                if not is_dense(shape_of(value), place.strides) and not self.is_strided(user):
                    return False
            elif not is_inserted(user) or use.operand_number != 0:
                return False
        return True

    def is_strided(self, call: ir.Operation) -> bool:
        callee = self.named.get(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
        if callee is None:  # Of a declaration nothing is known.
            return False
        return all(v.operation.name in _STRIDED_OPS for v in callee.regions[0].blocks[0].operations)

    def copied(self, source: ir.Value, where: ir.InsertionPoint) -> ir.Value:
        """A call of a dispatch that copies `source`."""
        name = self.copies.get(source.type)
        if name is None:
            shape = "x".join(map(str, shape_of(source)))
            name = f"copy_{shape}_{len(self.named)}"
            dispatch = new_dispatch(
                self.function, name, [source.type], source.type, lambda arguments: copy_of(*arguments)
            )
            self.copies[source.type], self.named[name] = name, dispatch
        with (
            where,
            source.owner.location if not isinstance(source.owner, ir.Block) else self.function.location,
        ):
            return func.CallOp([source.type], name, [source]).results[0]


def _separate_chains(main: ir.Operation) -> None:
    """Repeats insertions that CSE merged: what fills one tensor, which lies in one place, is one chain."""
    *ops, _ = (view.operation for view in main.regions[0].blocks[0].operations)
    for op in reversed(ops):
        if not is_inserted(op):
            continue
        uses = [(use.owner.operation, use.operand_number) for use in op.results[0].uses]
        # Of equal insertions into it, CSE has left one.
        filled = [user for user, number in uses if is_inserted(user) and number == 1]
        for user in filled[int(len(filled) == len(uses)) :]:
            user.operands[1] = op.clone(ip=ir.InsertionPoint(op)).operation.results[0]


def is_bordered(value: ir.Value) -> bool:
    """Whether `value` is inserted into a fill, which @prepack computes: its memory is none of the call's own."""
    if isinstance(value.owner, ir.Block) or not is_inserted(value.owner.operation):
        return False
    base = chain_of(value.owner.operation)[-1].operands[1]
    return not isinstance(base.owner, ir.Block) and base.owner.name == "linalg.fill"


def new_dispatch(main: ir.Operation, name: str, inputs: list, result: ir.Type, body) -> ir.Operation:
    """A dispatch of one element-wise operation, `body(arguments)`, behind @main."""
    with main.location:
        type_ = ir.FunctionType.get(inputs, [result])
        with ir.InsertionPoint.after(main):
            dispatch = func.FuncOp(name, type_, visibility="private").operation
        block = dispatch.regions[0].blocks.append(*inputs, arg_locs=[main.location] * len(inputs))
        with ir.InsertionPoint(block):
            func.return_([body(list(block.arguments))])
    dispatch.attributes[OPERATOR] = ir.StringAttr.get("elementwise")
    return dispatch


Signature = tuple[tuple[int, ...] | None, ...]
"""Strides of a call's operands and results, None where they are dense."""


def _tell_dispatches(module) -> None:
    """Writes the strides on the dispatches; one called with several kinds of strides is cloned."""
    variants: dict[str, dict[Signature, list[ir.Operation]]] = defaultdict(lambda: defaultdict(list))
    for function in functions(module):
        *ops, _ = (view.operation for view in function.regions[0].blocks[0].operations)
        if not any(op.name == "func.call" for op in ops):
            continue
        placed = places(ops, is_view)
        for op in ops:
            if op.name == "func.call":
                signature = tuple(_strides(value, placed) for value in (*op.operands, *op.results))
                callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
                variants[callee][signature].append(op)
    named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(module)}
    for name, signatures in variants.items():
        if name not in named:
            continue
        function = named[name]
        clones = [function]
        for _ in range(len(signatures) - 1):
            clones.append(function.clone(ip=ir.InsertionPoint.after(clones[-1])).operation)
        for number, (clone, (signature, calls)) in enumerate(zip(clones, signatures.items())):
            if number:
                clone.attributes["sym_name"] = ir.StringAttr.get(f"{name}_s{number}")
                for call in calls:
                    call.attributes["callee"] = ir.FlatSymbolRefAttr.get(f"{name}_s{number}")
            if any(strides is not None for strides in signature):
                inputs = len(calls[0].operands)
                clone.attributes["arg_attrs"] = _stride_attributes(signature[:inputs])
                clone.attributes["res_attrs"] = _stride_attributes(signature[inputs:])


def _strides(value: ir.Value, placed: dict[ir.Value, Place]) -> tuple[int, ...] | None:
    place = placed.get(value)
    if place is None or is_dense(shape_of(value), place.strides):
        return None
    return place.strides


def _stride_attributes(strides: Iterable[tuple[int, ...] | None]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get(
        [
            ir.DictAttr.get({STRIDES: ir.DenseI64ArrayAttr.get(list(own))} if own is not None else {})
            for own in strides
        ]
    )
