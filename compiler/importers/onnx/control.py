"""Rules for control flow and sequences: branches become selections, loops are unrolled, sequences are lists."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tilewright.compiler.errors import ModelImportError
from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.guards import taken_where
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import POISON, Node, Refused, Value

MAX_TRIPS = 1024
"""Longest loop that is unrolled."""


def _select(b: Builder, condition: Value, then: Value, otherwise: Value) -> Value:
    if then is otherwise or _are_equal(then, otherwise):
        return then
    if then is POISON or otherwise is POISON:
        return POISON
    if then.items is not None or otherwise.items is not None:
        condition.known("cond")
    if then.shape != otherwise.shape or then.dtype != otherwise.dtype:
        condition.known("cond")
        raise Refused(f"its branches give different shapes, {then.shape} and {otherwise.shape}")
    return b.op("Where", condition, then, otherwise)


def _are_equal(x: Value, y: Value) -> bool:
    """Whether both are known, and the same number in the same type."""
    if x.array is None or y.array is None or x.weight or y.weight or x.size != 1:
        return False
    return x.dtype == y.dtype and x.shape == y.shape and x.array.tobytes() == y.array.tobytes()


@rule("If")
def branch(b: Builder, node: Node):
    """A known condition takes one branch; otherwise both are computed and selected from: ONNX has no effects.

    Where one cannot be, the condition is asked for: a branch for another sampling rate need not fit this input's shape.
    """
    condition = node.operand(0)
    if condition.array is not None:
        taken = node.attrs["then_branch" if bool(condition.array.reshape(-1)[0]) else "else_branch"]
        return b.subgraph(taken, node, [])
    condition = forms.reshape(b, condition, ())
    listed = [len(b.refused)]
    try:
        with taken_where(b, condition):
            then = b.subgraph(node.attrs["then_branch"], node, [])
        listed.append(len(b.refused))
        with taken_where(b, b.op("Not", condition)):
            otherwise = b.subgraph(node.attrs["else_branch"], node, [])
    except ModelImportError:
        if b.can_bind(condition.sources):
            condition.known("cond")
        raise
    listed.append(len(b.refused))
    one_alone = (listed[0] == listed[1]) != (listed[1] == listed[2])
    if one_alone and b.can_bind(condition.sources):
        condition.known("cond")
    return [_select(b, condition, x, y) for x, y in zip(then, otherwise)]


@rule("Loop")
def loop(b: Builder, node: Node):
    """Unrolled; a condition on data freezes the results once it is false.

    The body sees what was carried by those before as if they all were taken, so that a counter stays known.
    """
    body = node.attrs["body"]
    limit, condition = node.input(0), node.input(1)
    trips = None if limit is None else int(limit.known("M").reshape(-1)[0])
    carried: list[Value] = [POISON if v is None else v for v in node.inputs[2:]]
    kept = carried
    scanned: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    active = condition if condition is not None else b.const(np.array(True))
    step = 0
    while trips is None or step < trips:
        if active.array is not None and not active.array.reshape(-1)[0]:
            break
        if active.array is None and (trips is None or scanned):
            active.known("cond")
        if step >= MAX_TRIPS:
            raise Refused(f"it runs more than {MAX_TRIPS} times, the most that is unrolled")
        with taken_where(b, forms.reshape(b, active, ())):
            results = b.subgraph(body, node, [b.const(np.array(step, np.int64)), active, *carried])
        if POISON in results:
            return [POISON] * node.outputs
        proceed, extra = results[0], results[1 + len(carried) :]
        carried = results[1 : 1 + len(carried)]
        if active.array is None:
            mask = forms.reshape(b, active, ())
            kept = [_select(b, mask, fresh, old) for fresh, old in zip(carried, kept)]
            proceed = b.op("And", mask, forms.reshape(b, proceed, ()))
        else:
            kept = carried
        active = proceed
        for rows, value in zip(scanned, extra):
            rows.append(value)
        step += 1
    if not step and scanned:  # the body tells the shapes of its rows, and is not computed
        results = b.subgraph(body, node, [b.const(np.array(0, np.int64)), active, *carried])
        if POISON in results:
            return [POISON] * node.outputs
        rows = results[1 + len(carried) :]
        return [*carried, *(b.const(np.zeros((0, *row.shape)), row.dtype) for row in rows)]
    return [*kept, *(forms.stack(b, rows, 0) for rows in scanned)]


@rule("Scan")
def scan(b: Builder, node: Node):
    """Unrolled over the scan axis."""
    body = node.attrs["body"]
    count = node.attrs["num_scan_inputs"]
    states: list[Value] = [node.operand(i) for i in range(len(node.inputs) - count)]
    rows = [node.operand(i) for i in range(len(node.inputs) - count, len(node.inputs))]
    outputs = len(body.output) - len(states)
    in_axes = node.attrs.get("scan_input_axes") or [0] * count
    in_directions = node.attrs.get("scan_input_directions") or [0] * count
    out_axes = node.attrs.get("scan_output_axes") or [0] * outputs
    out_directions = node.attrs.get("scan_output_directions") or [0] * outputs
    trips = rows[0].shape[in_axes[0]]
    if not 0 < trips <= MAX_TRIPS:
        raise Refused(f"it scans {trips} entries, between 1 and {MAX_TRIPS} are unrolled")
    found: list[list[Value]] = [[] for _ in range(outputs)]
    for step in range(trips):
        parts = [
            forms.pick(b, x, axis, trips - 1 - step if backwards else step)
            for x, axis, backwards in zip(rows, in_axes, in_directions)
        ]
        results = b.subgraph(body, node, [*states, *parts])
        if POISON in results:
            return [POISON] * node.outputs
        states = results[: len(states)]
        for column, value in zip(found, results[len(states) :]):
            column.append(value)
    stacked = [
        forms.stack(b, column[::-1] if backwards else column, axis)
        for column, axis, backwards in zip(found, out_axes, out_directions)
    ]
    return [*states, *stacked]


# Sequences are lists of values while importing; nothing of them is left in the result.


def _items(value: Value) -> list[Value]:
    if value.items is None:
        raise Refused("its operand is not a sequence that is known when compiling")
    return value.items


@rule("SequenceConstruct")
def sequence_construct(b: Builder, node: Node):
    return b.sequence([v for v in node.inputs if v is not None])


@rule("SequenceEmpty")
def sequence_empty(b: Builder, node: Node):
    return b.sequence([])


@rule("SequenceLength")
def sequence_length(b: Builder, node: Node):
    return b.const(np.array(len(_items(node.operand(0))), np.int64))


@rule("SequenceAt")
def sequence_at(b: Builder, node: Node):
    return _items(node.operand(0))[node.operand(1).ints("position")[0]]


@rule("SequenceInsert")
def sequence_insert(b: Builder, node: Node):
    items = list(_items(node.operand(0)))
    place = node.input(2)
    items.insert(len(items) if place is None else place.ints("position")[0], node.operand(1))
    return b.sequence(items)


@rule("SequenceErase")
def sequence_erase(b: Builder, node: Node):
    items = list(_items(node.operand(0)))
    place = node.input(1)
    del items[-1 if place is None else place.ints("position")[0]]
    return b.sequence(items)


@rule("SequenceMap")
def sequence_map(b: Builder, node: Node):
    """The body, once per element; operands that are tensors go to every call."""
    first = _items(node.operand(0))
    columns: list[list[Value]] = [[] for _ in range(node.outputs)]
    for index in range(len(first)):
        inputs = [v.items[index] if v is not None and v.items is not None else v for v in node.inputs]
        for column, value in zip(columns, b.subgraph(node.attrs["body"], node, inputs)):
            column.append(value)
    return [b.sequence(column) for column in columns]


@rule("SplitToSequence")
def split_to_sequence(b: Builder, node: Node):
    x, split = node.operand(0), node.input(1)
    axis = node.attrs.get("axis", 0) % x.rank
    extent = x.shape[axis]
    if split is None:
        sizes = [1] * extent
    elif split.rank == 0:
        size = split.ints("split")[0]
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    else:
        sizes = split.ints("split")
    starts = np.cumsum([0, *sizes])
    parts = [forms.slice_axis(b, x, axis, int(s), int(s) + n) for s, n in zip(starts, sizes)]
    if split is None and not node.attrs.get("keepdims", 1):
        parts = [forms.pick(b, part, axis, 0) for part in parts]
    return b.sequence(parts)


@rule("ConcatFromSequence")
def concat_from_sequence(b: Builder, node: Node):
    join = forms.stack if node.attrs.get("new_axis", 0) else forms.concat
    return join(b, _items(node.operand(0)), node.attrs["axis"])


@rule("Optional")
def optional(b: Builder, node: Node):
    if node.input(0) is None:
        raise Refused("an optional without a value is not taken")
    return node.operand(0)


@rule("OptionalGetElement")
def optional_get_element(b: Builder, node: Node):
    return node.operand(0)


@rule("OptionalHasElement")
def optional_has_element(b: Builder, node: Node):
    return b.const(np.array(node.input(0) is not None), TensorProto.BOOL)
