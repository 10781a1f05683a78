"""Rewrites of a captured ATen graph that lowering relies on: constants, and tensors without elements."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from tilewright.compiler.importers.torch.lowering import UNREADABLE, location
from tilewright.compiler.importers.torch.outside import refuse_without_data
from tilewright.compiler.importers.torch.tracer import NEEDS_STORAGE
from tilewright.compiler.ir import fx_importer

aten = torch.ops.aten


def gather_from_memory(module: GraphModule) -> None:
    """Makes every `as_strided` a gather by constant indices, unless one of them cannot be.

    It needs the whole graph: a view reads the memory of the tensor that it is a view of. What stays as it is,
    `refusal` finds.
    """
    try:
        fx_importer.rewrite_as_strided(module.graph)
    except ValueError as error:
        for node in module.graph.find_nodes(op="call_function", target=aten.as_strided.default):
            node.meta[UNREADABLE] = (
                f"the memory that it reads is not that of one tensor of the graph: {error}"
            )
    for node in module.graph.find_nodes(op="get_attr"):
        if type(node.meta.get("val")) is torch.Tensor:  # one of the indices, its data included
            node.meta["val"] = _as_fake(module, node.meta["val"])


def lift_constants(module: GraphModule) -> list[tuple[str, torch.Tensor, Node]]:
    """Turns tensor attributes of the graph into placeholders: (name, tensor, placeholder), each tensor once.

    A constant of one element becomes a `full`, which folds into its consumers. Raises UnsupportedError where a
    constant has no values.
    """
    graph = module.graph
    gather_from_memory(module)
    lifted: dict[int, tuple[str, torch.Tensor, Node]] = {}
    for node in [n for n in graph.nodes if n.op == "get_attr"]:
        value = _attribute(module, node.target)
        if not isinstance(value, torch.Tensor):
            continue
        refuse_without_data(
            value, f"a tensor {list(value.shape)} that was made while tracing", location(node)
        )
        with graph.inserting_before(node):
            if value.numel() == 1 and not value.dtype.is_complex:
                replacement = _full(module, node, value)
            elif id(value) in lifted:
                replacement = lifted[id(value)][2]
            else:
                with graph.inserting_before(next(iter(graph.nodes))):
                    replacement = graph.placeholder(f"constant_{len(lifted)}")
                replacement.meta = _meta(node, _known(module, node, value))
                lifted[id(value)] = (str(node.target), value, replacement)
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)
    return list(lifted.values())


def _meta(source: Node, value: Any) -> dict[str, Any]:
    """What a new node says of itself: its value, and where the model asked for it."""
    stack = source.meta.get("stack_trace")
    return {"val": value, "stack_trace": stack} if stack else {"val": value}


def _attribute(module: torch.nn.Module, target: str) -> Any:
    value: Any = module
    for part in target.split("."):
        value = getattr(value, part)
    return value


def _as_fake(module: GraphModule, value: torch.Tensor) -> torch.Tensor:
    for node in module.graph.nodes:
        known = node.meta.get("val")
        if hasattr(known, "fake_mode"):
            return known.fake_mode.from_tensor(value, static_shapes=True)
    return torch._subclasses.FakeTensorMode().from_tensor(value)


def _known(module: GraphModule, node: Node, value: torch.Tensor) -> torch.Tensor:
    """What the node says that it is, where that is no tensor of data."""
    known = node.meta.get("val")
    if isinstance(known, torch.Tensor) and hasattr(known, "fake_mode"):
        return known
    return _as_fake(module, value)


def _full(module: GraphModule, at: Node, value: torch.Tensor) -> Node:
    arguments = (list(value.shape), value.item())
    made = module.graph.call_function(aten.full.default, arguments, _placement(value))
    made.meta = _meta(at, _known(module, at, value))
    return made


def _placement(value: torch.Tensor) -> dict[str, Any]:
    return {"dtype": value.dtype, "layout": torch.strided, "device": value.device, "pin_memory": False}


def _empty(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 0


_MARKS = {
    torch.ops.profiler._record_function_enter.default,
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
}
"""What `torch.profiler.record_function` leaves in a graph: names of its parts, for eager PyTorch's profiler."""


def simplify(module: GraphModule) -> None:
    """Drops the profiler's marks, computes nothing on tensors without elements, and lets writes by index count from the front only.

    The values of empty tensors are known, and lowerings trip over them; a scatter at row -1 would write before
    its target. Negative dimensions are counted from the front too: some lowerings end the process on them.
    """
    graph = module.graph
    for node in reversed(graph.nodes):
        if node.target in _MARKS:
            graph.erase_node(node)
    for node in list(graph.nodes):
        if isinstance(node.target, OpOverload):
            _count_dimensions_from_the_front(node)
        if node.target in _WRITES_BY_INDEX and "counted" not in node.meta:
            _count_from_the_front(module, node)
    if any(_empty(node.meta.get("val")) for node in graph.nodes):
        for node in list(graph.nodes):
            if node.op == "call_function":
                _simplify_empty(module, node)
    graph.eliminate_dead_code()


_OTHER_RANK = {aten.unsqueeze.default, aten.stack.default, aten.diag_embed.default, aten.cat.default}
"""Operators whose dimensions do not count those of their first argument."""


@cache
def _dimension_arguments(operator: OpOverload) -> tuple[int, ...]:
    """Positions of the arguments that name dimensions of the first one."""
    if operator in _OTHER_RANK:
        return ()
    names = ("dim", "dim0", "dim1", "dim2")
    return tuple(i for i, argument in enumerate(operator._schema.arguments) if i and argument.name in names)


def _count_dimensions_from_the_front(node: Node) -> None:
    """Adds the rank of the first argument to every negative dimension."""
    positions = _dimension_arguments(node.target)  # type: ignore[arg-type]
    if not positions or not node.args or not isinstance(node.args[0], Node):
        return
    value = node.args[0].meta.get("val")
    rank = value.dim() if isinstance(value, torch.Tensor) else 0
    args = list(node.args)
    for i in positions:
        if i < len(args) and rank:
            dim = args[i]
            if type(dim) is int and dim < 0:
                args[i] = dim + rank
            elif isinstance(dim, (list, tuple)) and all(type(d) is int for d in dim):
                args[i] = [d + rank if d < 0 else d for d in dim]  # type: ignore[operator]
    if args != list(node.args):
        node.args = tuple(args)


_WRITES_BY_INDEX = {aten.index_put.default, aten._unsafe_index_put.default}


def _count_from_the_front(module: GraphModule, node: Node) -> None:
    """Adds the extent of its dimension to every negative index of an `index_put`."""
    shape = node.args[0].meta["val"].shape  # type: ignore[union-attr]
    wrapped: list[Any] = []
    with module.graph.inserting_before(node):
        for d, index in enumerate(node.args[1]):  # type: ignore[arg-type]
            if isinstance(index, Node) and index.meta["val"].dtype != torch.bool:
                value = index.meta["val"]
                negative = module.graph.call_function(aten.lt.Scalar, (index, 0))
                negative.meta = _meta(node, value < 0)
                raised = module.graph.call_function(aten.add.Scalar, (index, int(shape[d])))
                raised.meta = _meta(node, value)
                index = module.graph.call_function(aten.where.self, (negative, raised, index))
                index.meta = _meta(node, value)
            wrapped.append(index)
    node.args = (node.args[0], wrapped, *node.args[2:])
    node.meta["counted"] = True


def _simplify_empty(module: GraphModule, node: Node) -> None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return
    sources = [source.meta.get("val") for source in node.all_input_nodes]
    replacement: Node | None = None
    with module.graph.inserting_before(node):
        if value.numel() == 0:
            replacement = module.graph.call_function(
                aten.full.default, (list(value.shape), 0), _placement(value)
            )
        elif node.target is aten.cat.default:
            full = [part for part in node.args[0] if not _empty(part.meta["val"])]  # type: ignore[union-attr]
            if len(full) == 1:
                replacement = _copy(module, full[0], value)
            elif len(full) < len(node.args[0]):  # type: ignore[arg-type]
                node.args = (full, *node.args[1:])
        elif sources and all(map(_empty, sources)) and node.target not in NEEDS_STORAGE:
            replacement = _evaluated(module, node, value)
    if replacement is not None and replacement is not node:
        if replacement.op in ("call_function", "get_attr"):
            replacement.meta = _meta(node, value)
        node.replace_all_uses_with(replacement)
        module.graph.erase_node(node)


def _copy(module: GraphModule, source: Node, value: torch.Tensor) -> Node:
    """`source` in memory of its own and of the type of `value`: never the caller's tensor itself."""
    if source.meta["val"].dtype == value.dtype:
        return module.graph.call_function(aten.clone.default, (source,))
    return module.graph.call_function(torch.ops.prims.convert_element_type.default, (source, value.dtype))


def _evaluated(module: GraphModule, node: Node, value: torch.Tensor) -> Node:
    """The result of an operator whose inputs all have no elements, as a constant of the graph."""
    real = {n: torch.empty(n.meta["val"].shape, dtype=n.meta["val"].dtype) for n in node.all_input_nodes}
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: real[n])
    constant = node.target(*args, **kwargs)  # type: ignore[operator]
    name = f"_of_empty_{len(list(module.named_buffers()))}"
    module.register_buffer(name, constant)
    return module.graph.get_attr(name)
