"""Values that follow from a graph's constants, and from a model's own numbers, computed while the graph is traced."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.node import map_arg
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import _get_current_dispatch_mode

aten = torch.ops.aten


_OWN, RELIED_ON = "own_value", "relied_on"
_KNOWN = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_KNOWN |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_may_rely = True


def offer(node: Node, tensor: torch.Tensor) -> None:
    """Lets the placeholder of a model's own tensor be known to have the value of `tensor`, where that is one number."""
    if tensor.numel() == 1 and tensor.dtype in _KNOWN and bool(tensor == tensor):
        node.meta[_OWN] = tensor


@contextlib.contextmanager
def without_own() -> Iterator[None]:
    """Numbers of the model's own are not relied on meanwhile."""
    global _may_rely
    before, _may_rely = _may_rely, False
    try:
        yield
    finally:
        _may_rely = before


def evaluated(
    graph: Graph, function: Callable[..., Any], args: Any, kwargs: Any, constant: Callable[[str], Any]
) -> Any:
    """What `function` gives of operands among which are nodes of `graph`; None where one depends on an input or a draw.

    `constant` gives the tensor of an attribute of the graph by name. Numbers of the model's own are relied on where they may be.
    """
    needed: set[Node] = set()
    waiting: list[Node] = []
    map_arg((args, kwargs), waiting.append)
    while waiting:
        node = waiting.pop()
        is_own = node.op == "placeholder" and _OWN in node.meta and _may_rely
        if node.op not in ("call_function", "get_attr") and not is_own:
            return None
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return None
        if node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    values: dict[Node, Any] = {}
    with unset_fake_temporarily(), no_dispatch():
        for node in (node for node in graph.nodes if node in needed):
            if node.op == "placeholder":
                node.meta[RELIED_ON] = True
                values[node] = node.meta[_OWN]
            elif node.op == "get_attr":
                values[node] = constant(str(node.target))
            else:
                operands, named = map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*operands, **named)  # type: ignore[operator]
        operands, named = map_arg((args, kwargs), values.__getitem__)
        return function(*operands, **named)


def of_value(function: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> Any:
    """What `function` gives of a tensor in a decomposition; None where its value depends on an input or a draw."""
    tracing = get_proxy_mode()
    traced = None if tracing is None else get_proxy_slot(tensor, tracing.tracer, None)
    if tracing is not None and traced is not None:
        root, graph = tracing.tracer.root, tracing.tracer.graph
        return evaluated(graph, function, (traced.proxy.node,), {}, functools.partial(getattr, root))
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        with unset_fake_temporarily(), no_dispatch():
            return function(tensor)
    own = _get_current_dispatch_mode()
    return own.of_value(function, tensor) if isinstance(own, KnowsValues) else None


@runtime_checkable
class KnowsValues(Protocol):
    """A tracer that keeps the tensors which its graph's constants are."""

    def of_value(self, function: Callable[[torch.Tensor], Any], tensor: Any) -> Any:
        """What `function` gives of a tensor of the graph; None where its value depends on an input or a draw."""
        ...


def _tabulated(operator: Any) -> Callable[..., torch.Tensor]:
    """`operator`, which computes a tensor from Python's numbers, as a constant of that tensor."""

    def decomposition(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        with unset_fake_temporarily(), no_dispatch():
            found = operator(*args, **{**kwargs, "device": "cpu"})
        made = aten.lift_fresh_copy(found)
        return made if device is None else made.to(device)

    return decomposition


_OF_NUMBERS = (
    "bartlett_window blackman_window hamming_window hann_window kaiser_window fft_fftfreq fft_rfftfreq"
)

TABLE: dict[Any, Callable[..., Any]] = {
    operator: _tabulated(operator)
    for packet in (getattr(aten, name) for name in _OF_NUMBERS.split())
    for operator in (getattr(packet, overload) for overload in packet.overloads())
    if not operator._schema.is_mutable
}
"""Operator -> decomposition: what they give is known while a model is traced."""
