"""A tracer of ATen operators for long models: shapes are computed once per operator and argument types.

Unrolled loops repeat the same few operators thousands of times. `make_fx` runs PyTorch's fake kernels for
each; here a dictionary answers all but the first. What it does not know it leaves to `make_fx`
(`NotTraceable`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._dispatch.python import no_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx import traceback as fx_traceback
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from tilewright.compiler.importers.torch.known_values import RELIED_ON, evaluated, offer

_CPU = torch.device("cpu")
NEEDS_STORAGE = {torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default}
"""Operators that read the memory of a tensor beyond its own elements."""

_aten = torch.ops.aten
_KEEP_THE_START = {
    *(
        getattr(_aten, name).default
        for name in ("alias", "detach", "expand", "permute", "t", "unsqueeze", "view")
    ),
    *(_aten.split.Tensor, _aten.split_with_sizes.default, _aten.unbind.int),
    *(_aten.squeeze.dim, _aten.squeeze.dims, _aten.transpose.int),
}
"""Operators that give views whose places count from where their operand starts."""


class Layout(NamedTuple):
    """How the elements of a tensor lie: steps and the offset are in elements, from the start of its memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int

    def moved(self, offset: int) -> Layout:
        """The same, `offset` elements further on."""
        return Layout(self.shape, self.strides, self.dtype, self.offset + offset)


class NotTraceable(Exception):
    """This tracer does not know an operator or a kind of argument."""


class Traced(torch.Tensor):
    """A tensor without data that stands for a node of the graph."""

    node: Node
    form: Layout

    @staticmethod
    def of(layout: Layout, node: Node) -> Traced:
        shape, strides, dtype, offset = layout
        made = torch.Tensor._make_wrapper_subclass(
            Traced, shape, strides=strides, storage_offset=offset, dtype=dtype, device=_CPU
        )
        made.node, made.form = node, layout
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotTraceable(
            f"{func} of a tensor without data, which stood for one of a model's while that was compiled: a hook or a function "
            "kept it outside of the model's modules"
        )


def layout_of(tensor: torch.Tensor) -> Layout:
    """The layout of any strided tensor on the CPU; raises NotTraceable for others."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise NotTraceable(f"a {tensor.layout} tensor on {tensor.device}")
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, int(tensor.storage_offset()))


def _form(value: torch.Tensor) -> Layout:
    return value.form if isinstance(value, Traced) else layout_of(value)


@cache
def _effect(func: Any) -> str:
    """What the layout of an operator's results has to do with its operands' offsets: "none", "moved" by the first's, or "any"."""
    if func in _KEEP_THE_START:
        return "moved"
    makes_views = not isinstance(func, OpOverload) or any(r.alias_info for r in func._schema.returns)
    return "any" if makes_views else "none"


class Tracer(TorchDispatchMode):
    """Records every operator that runs under it as a node of `graph`, after decomposing it by `table`."""

    def __init__(self, table: dict[Any, Any]):
        super().__init__()
        self.graph = Graph()
        self.table = table
        self.constants: dict[str, torch.Tensor] = {}
        self._of_constant: dict[int, Traced] = {}
        self._fake = FakeTensorMode()
        self._fake.cache_enabled = False  # `_results` is one already
        self._values: dict[Layout, Any] = {}
        self._results: dict[Any, Any] = {}
        self._composite: dict[Any, bool] = {}

    def placeholder(self, tensor: torch.Tensor) -> Traced:
        """A graph input like `tensor`."""
        layout = layout_of(tensor)
        node = self.graph.placeholder(f"arg{len(self.graph.nodes)}_1")
        node.meta["val"] = self._value(layout)
        return Traced.of(layout, node)

    def finish(self, outputs: list[torch.Tensor]) -> GraphModule:
        """The graph that returns `outputs`."""
        found = [out if isinstance(out, Traced) else self._constant(out) for out in outputs]
        self.graph.output([out.node for out in found])
        root = torch.nn.Module()
        for name, tensor in self.constants.items():
            root.register_buffer(name, tensor)
        with _use_lazy_graph_module(True):  # nobody calls it: writing its code would take time
            return _make_graph_module(root, self.graph)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        decomposition = self.table.get(func)
        if decomposition is not None:
            with self:
                found = decomposition(*args, **kwargs)
            if found is not NotImplemented:
                return found
        composite = self._composite.get(func)
        if composite is None:
            composite = self._composite[func] = self._is_composite(func)
        if composite:
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        effect = _effect(func)
        key: list[Any] = [func, effect]
        nodes = tuple(self._argument(a, key) for a in args)
        named = {name: self._argument(a, key, name) for name, a in kwargs.items()}
        known = tuple(key)
        layout = self._results.get(known)
        if layout is None:
            try:
                layout = self._results[known] = self._infer(func, args, kwargs, effect)
            except (DataDependentOutputException, DynamicOutputShapeException):
                found = self._of_constants(func, nodes, named)
                if found is None:
                    raise
                return found
        if effect == "moved" and (start := _form(args[0]).offset):
            parts = layout if not isinstance(layout, Layout) else None
            layout = layout.moved(start) if parts is None else type(parts)(p.moved(start) for p in parts)
        return self._record(func, nodes, named, layout)

    @staticmethod
    def _is_composite(func: Any) -> bool:
        # The lowering of as_strided follows storages, which the values of our nodes do not tell apart.
        if not isinstance(func, OpOverload) or func._schema.is_mutable or func in NEEDS_STORAGE:
            raise NotTraceable(str(func))
        return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")

    def _argument(self, value: Any, key: list[Any], name: str = "") -> Any:
        """The graph's form of an argument; its type, or its value when it is no tensor, joins the key."""
        kind = type(value)
        if kind is Traced:
            key.append(value.form if key[1] == "any" else value.form[:3])
            return value.node
        if kind in (list, tuple):
            key.append((name, kind, len(value)))
            return [self._argument(inner, key) for inner in value]
        if isinstance(value, torch.Tensor):
            traced = self._constant(value)
            key.append(traced.form if key[1] == "any" else traced.form[:3])
            return traced.node
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Generator)):
            raise NotTraceable(f"an argument of {kind}")
        # True == 1 == 1.0, which give different dtypes; -0.0 == 0.0.
        key.append((name, kind, repr(value) if kind is float else value))
        return value

    def _constant(self, value: torch.Tensor) -> Traced:
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise NotTraceable(f"an argument of {type(value)}")
        if id(value) not in self._of_constant:
            name = f"_tensor_constant{len(self.constants)}"
            self.constants[name] = value
            layout = layout_of(value)
            node = self.graph.create_node("get_attr", name, name=name)
            node.meta["val"] = self._value(layout)
            self._of_constant[id(value)] = Traced.of(layout, node)
        return self._of_constant[id(value)]

    def of_value(self, function: Callable[[torch.Tensor], Any], tensor: Any) -> Any:
        """What `function` gives of a tensor that follows from constants alone; None of others."""
        known = isinstance(tensor, Traced)
        return (
            evaluated(self.graph, function, (tensor.node,), {}, self.constants.__getitem__) if known else None
        )

    def _of_constants(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operator gives whose operands follow from constants alone; None where they do not."""
        found = evaluated(self.graph, func, args, kwargs, self.constants.__getitem__)
        return tree_map_only(torch.Tensor, self._constant, found)

    def _value(self, layout: Layout) -> Any:
        """The fake tensor that nodes of this layout carry."""
        if layout not in self._values:
            shape, strides, dtype, offset = layout
            extent = (
                offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else offset
            )
            with no_python_dispatcher():
                whole = torch.empty(extent, dtype=dtype, device="meta")
                view = whole.as_strided(shape, strides, offset)
            self._values[layout] = FakeTensor(self._fake, view, _CPU)
        return self._values[layout]

    def _infer(self, func: Callable[..., Any], args: Any, kwargs: Any, effect: str) -> Any:
        """The layouts of the operator's results: one, or a list or tuple of them, as the operator gives them."""
        view = _VIEWS.get(func)
        layout = view(*args) if view is not None and not kwargs and type(args[0]) is Traced else None
        if layout is not None:
            return layout

        def fake(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                form = _form(value)
                return self._value(form if effect == "any" else form.moved(-form.offset))
            return [fake(inner) for inner in value] if isinstance(value, (list, tuple)) else value

        with self._fake:
            found = func(*map(fake, args), **{name: fake(value) for name, value in kwargs.items()})
        if isinstance(found, torch.Tensor):
            return layout_of(found)
        if not isinstance(found, (list, tuple)) or not all(isinstance(part, torch.Tensor) for part in found):
            raise NotTraceable(f"{func} returns {type(found)}")
        return type(found)(map(layout_of, found))

    def _record(self, func: Any, args: Any, kwargs: Any, layout: Any) -> Any:
        stack = fx_traceback.current_meta.get("stack_trace")
        if isinstance(layout, Layout):
            return Traced.of(layout, self._node(func, args, kwargs, self._value(layout), stack))
        values = type(layout)(map(self._value, layout))
        node = self._node(func, args, kwargs, values, stack)
        parts = [
            Traced.of(part, self._node(operator.getitem, (node, i), {}, values[i], stack))
            for i, part in enumerate(layout)
        ]
        return parts if isinstance(layout, list) else tuple(parts)

    def _node(self, target: Any, args: Any, kwargs: Any, value: Any, stack: str | None) -> Node:
        node = self.graph.create_node("call_function", target, args, kwargs)
        node.meta["val"] = value
        if stack:
            node.meta["stack_trace"] = stack
        return node


def _selected(x: Traced, dim: int, index: int) -> Layout | None:
    """The layout of `x.select(dim, index)`; None where PyTorch has to say what is wrong."""
    shape, strides, dtype, offset = x.form
    if not -len(shape) <= dim < len(shape) or not -shape[dim] <= index < shape[dim]:
        return None
    at = dim % len(shape)
    start = offset + index % shape[at] * strides[at]
    return Layout((*shape[:at], *shape[at + 1 :]), (*strides[:at], *strides[at + 1 :]), dtype, start)


def _sliced(
    x: Traced, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Layout | None:
    """The layout of `x` along part of a dimension; None where PyTorch has to say what is wrong."""
    shape, strides, dtype, offset = x.form
    if not -len(shape) <= dim < len(shape) or step < 1:
        return None
    at = dim % len(shape)
    steps = range(shape[at])[start:end:step]
    first = slice(start, end).indices(shape[at])[0]
    cut = (*shape[:at], len(steps), *shape[at + 1 :])
    stepped = (*strides[:at], strides[at] * step, *strides[at + 1 :])
    return Layout(cut, stepped, dtype, offset + first * strides[at])


_VIEWS: dict[Any, Callable[..., Layout | None]] = {
    torch.ops.aten.select.int: _selected,
    torch.ops.aten.slice.Tensor: _sliced,
}
"""Operators that loops over steps call with another number each time -> the layout of what they give."""


def is_relied_on(value: torch.Tensor) -> bool:
    """Whether the trace holds only for the value that this tensor of the model has now."""
    return isinstance(value, Traced) and RELIED_ON in value.node.meta


def trace_fast(
    function: Callable[..., Any],
    examples: list[torch.Tensor],
    table: dict[Any, Any],
    own: list[torch.Tensor] | None = None,
) -> GraphModule:
    """The graph of `function` on tensors like `examples`; raises NotTraceable, or what the function does.

    The first ones are like a model's `own`, whose numbers are known.
    """
    tracer = Tracer(table)
    inputs = [tracer.placeholder(example) for example in examples]
    for placeholder, tensor in zip(inputs, own or []):
        offer(placeholder.node, tensor)
    with tracer:
        outputs = function(*inputs)
    return tracer.finish(outputs)
