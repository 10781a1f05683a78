"""Evaluates element-wise operators on constants while they are still ATen's."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

aten = torch.ops.aten

_CONSTANTS = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0}
"""Operators that make a tensor of one number -> which argument it is."""

_MOVES = {
    getattr(aten, name).default
    for name in [
        "view",
        "_unsafe_view",
        "reshape",
        "expand",
        "permute",
        "repeat",
        "unsqueeze",
        "squeeze",
        "clone",
        "alias",
        "lift_fresh",
        "lift_fresh_copy",
        "t",
    ]
} | {
    torch.ops.prims.squeeze.default,
    torch.ops.prims.view_of.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.transpose.int,
    aten.slice.Tensor,
    aten.select.int,
}
"""Operators that only move elements: of a tensor of one number they make another."""

_PICKS = {
    *(aten.sort.default, aten.sort.stable, aten.topk.default, aten.kthvalue.default, aten.mode.default),
    *(
        aten.max.dim,
        aten.min.dim,
        aten.median.dim,
        aten.nanmedian.dim,
        aten.cummax.default,
        aten.cummin.default,
    ),
}
"""Operators whose first result holds elements of their operand, in some order."""

_INSERTIONS: dict[Any, OpOverload] = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
}
"""What reads a part of a tensor -> what writes the part at the same arguments."""


def fold_constants(module: GraphModule) -> None:
    """Replaces nodes that hold one number everywhere, by element-wise operators and moves of such, by `full`.

    PyTorch's own arithmetic decides: torch-mlir's folders take `-7 // 2` and `-7 % 3` for other numbers, a true
    boolean for -1, and end the process on a comparison of integers with a fraction.
    """
    numbers: dict[Node, torch.Tensor] = {}  # of one element: those of rank 0 promote types in another way
    for node in list(module.graph.nodes):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype.is_complex:
            continue
        if node.target in _CONSTANTS:
            number = node.args[_CONSTANTS[node.target]]  # type: ignore[index]
            if isinstance(number, (bool, int, float)):
                numbers[node] = torch.full(_one(value), number, dtype=value.dtype)
            continue
        if node.target is aten.index_select.default and node.args[0] in numbers and value.dim():
            _gather(module, node)
            continue
        if node.target is aten.index.Tensor and node.args[0] in numbers:
            _index(module, node, numbers[node.args[0]].item())
            continue
        written = _written(node) or _chosen(node, numbers) or _picked(node)
        if written in numbers:
            result = numbers[written].to(value.dtype).reshape(_one(value))
        elif not all(source in numbers for source in node.all_input_nodes):
            continue
        elif node.target in _MOVES:
            result = numbers[node.all_input_nodes[0]].reshape(_one(value))
        elif _is_elementwise(node):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: numbers[n])
            try:
                result = node.target(*args, **kwargs).to(value.dtype)  # type: ignore[operator]
            except RuntimeError:  # an integer divided by zero: an error of the call, not of compiling
                continue
        else:
            continue
        placement: dict[str, Any] = {
            "dtype": value.dtype,
            "layout": torch.strided,
            "device": torch.device("cpu"),
            "pin_memory": False,
        }
        with module.graph.inserting_before(node):
            arguments = (list(value.shape), result.item())
            folded = module.graph.call_function(aten.full.default, arguments, placement)
        folded.meta = dict(node.meta)
        numbers[folded] = result
        node.replace_all_uses_with(folded)
        module.graph.erase_node(node)


def _gather(module: GraphModule, node: Node) -> None:
    """Selects by `gather`, whose indices stay checked: torch-mlir folds what is selected of one number, indices and all."""
    x, dim, index = node.args
    value, shape = node.meta["val"], [1] * node.meta["val"].dim()
    shape[dim] = -1  # type: ignore[call-overload]
    with module.graph.inserting_before(node):
        line = module.graph.call_function(aten.reshape.default, (index, shape))
        line.meta = _meta(node, index.meta["val"].reshape(shape))  # type: ignore[union-attr]
        places = module.graph.call_function(aten.expand.default, (line, list(value.shape)))
        places.meta = _meta(node, line.meta["val"].expand(value.shape))
        gathered = module.graph.call_function(aten.gather.default, (x, dim, places))
        gathered.meta = dict(node.meta)
    node.replace_all_uses_with(gathered)
    module.graph.erase_node(node)


def _index(module: GraphModule, node: Node, number: int | float) -> None:
    """Looks `number` up by `gather` along one index, to which what the others look up in zeros is added.

    Masks, of which torch-mlir makes shapes that are not known, stay as they are.
    """
    x, indices = node.args[0].meta["val"], node.args[1]  # type: ignore[union-attr]
    value, given = node.meta["val"], [d for d, index in enumerate(indices) if index is not None]  # type: ignore[arg-type]
    if not given or any(indices[d].meta["val"].dtype != torch.int64 for d in given):  # type: ignore[index, union-attr]
        return

    def emit(target: OpOverload, *args: Any) -> Node:
        made = module.graph.call_function(target, args)
        made.meta = _meta(node, target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"])))
        return made

    def looked_up(entry: int | float, dtype: torch.dtype, extent: int, index: Node) -> Node:
        behind = emit(aten.add.Tensor, index, extent)
        front = emit(aten.where.self, emit(aten.lt.Scalar, index, 0), behind, index)
        flat = emit(aten.reshape.default, front, [-1])
        placement = {"dtype": dtype, "device": torch.device("cpu")}
        entries = module.graph.call_function(aten.full.default, ([extent], entry), placement)
        entries.meta = _meta(node, x.new_full([extent], entry, dtype=dtype))
        shape = list(index.meta["val"].shape)
        return emit(aten.reshape.default, emit(aten.gather.default, entries, 0, flat), shape)

    with module.graph.inserting_before(node):
        place = indices[given[0]]  # type: ignore[index]
        for d in given[1:]:
            place = emit(aten.add.Tensor, place, looked_up(0, torch.int64, x.shape[d], indices[d]))  # type: ignore[index]
        found = looked_up(number, x.dtype, x.shape[given[0]], place)  # type: ignore[arg-type]
        is_one_run = given == list(range(given[0], given[-1] + 1))
        before = given[0] if is_one_run else 0
        rank = found.meta["val"].dim()
        ones = [1] * before, [1] * (value.dim() - before - rank)
        spread = emit(aten.reshape.default, found, [*ones[0], *found.meta["val"].shape, *ones[1]])
        result = emit(aten.expand.default, spread, list(value.shape))
    node.replace_all_uses_with(result)
    module.graph.erase_node(node)


def _meta(node: Node, value: torch.Tensor) -> dict[str, Any]:
    """What is known of a node that stands for `node` in part, and has another value."""
    return {**{name: known for name, known in node.meta.items() if name != "tensor_meta"}, "val": value}


def _picked(node: Node) -> Node | None:
    """What elements are picked of by the operator whose first result `node` is; None for other nodes."""
    if node.target is not operator.getitem or node.args[1] != 0:
        return None
    source: Any = node.args[0]
    return source.args[0] if source.target in _PICKS else None


def _written(node: Node) -> Node | None:
    """What a tensor is a copy of, or was written over with, or what was written to the part that is read; else None."""
    if node.target is aten.copy.default:
        return node.args[1]  # type: ignore[return-value]
    if node.target is aten.slice_scatter.default and _covers(node):
        return node.args[1]  # type: ignore[return-value]
    whole = _before_views(node.args[0]) if node.target in _INSERTIONS else None  # type: ignore[arg-type]
    if (
        isinstance(whole, Node)
        and whole.target is _INSERTIONS[node.target]
        and whole.args[2:] == node.args[1:]
    ):
        return whole.args[1]  # type: ignore[return-value]
    return None


def _before_views(node: Node) -> Node:
    """The tensor that views were taken of and taken back to its shape: every element is where it was."""
    source: Any = node
    while source.target in (aten.view.default, aten._unsafe_view.default, aten.reshape.default):
        source = source.args[0]
        if source.meta["val"].shape == node.meta["val"].shape:
            node = source
    return node


def _covers(node: Node) -> bool:
    """Whether what is written is as large as what it is written into, and so all of it."""
    return node.args[1].meta["val"].shape == node.meta["val"].shape  # type: ignore[union-attr]


def _chosen(node: Node, numbers: dict[Node, torch.Tensor]) -> Node | None:
    """The operand of a `where` that is taken everywhere: of a constant condition, or either of two that are equal."""
    if node.target is not aten.where.self:
        return None
    condition, *operands = node.args
    if condition in numbers:
        return operands[0 if numbers[condition].item() else 1]  # type: ignore[return-value, index]
    if not all(operand in numbers for operand in operands):
        return None
    first, second = (numbers[operand].to(node.meta["val"].dtype) for operand in operands)  # type: ignore[index]
    is_same = first.item() == second.item() and bool(first.signbit() == second.signbit())
    return operands[0] if is_same else None  # type: ignore[return-value]


def _one(value: torch.Tensor) -> list[int]:
    """The shape of one element of `value`: of rank 0 where `value` is, else 1."""
    return [1] * min(value.dim(), 1)


def _is_elementwise(node: Node) -> bool:
    target = node.target
    return (
        isinstance(target, OpOverload)
        and torch.Tag.pointwise in target.tags
        and torch.Tag.nondeterministic_seeded not in target.tags
    )
