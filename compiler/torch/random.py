"""Random numbers of `torch.compile`: PyTorch's own generator draws them before each call, in the order of the program.

What an operator such as `rand_like` or the mask of a dropout draws depends on shapes alone. Such operators become
inputs of the compiled graph, filled by the very operators that eager PyTorch runs: the same seed gives the same numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch.fx import Graph, GraphModule, Node

from tilewright.compiler.importers.torch.lowering import is_random

aten = torch.ops.aten

_OF_SHAPES = {
    *(aten.rand.default, aten.rand_like.default, aten.randn.default, aten.randn_like.default),
    *(aten.randint.default, aten.randint.low, aten.randint_like.default, aten.randint_like.low_dtype),
    *(aten.randperm.default, aten.bernoulli.p, aten.uniform.default, aten.normal_functional.default),
    *(aten.normal.float_float, aten.exponential.default, aten.log_normal.default, aten.cauchy.default),
    *(aten.geometric.default, aten.random.default, getattr(aten.random, "from"), aten.random.to),
}
"""Operators whose draws do not depend on what their tensors hold."""

_KEPT_APART = {
    *(aten.native_dropout, aten.bernoulli, aten.multinomial, aten.normal, aten.poisson),
    *(aten.rand, aten.rand_like, aten.randn, aten.randint, aten.randperm),
}
"""Random operators that PyTorch never takes for equal; the others it may merge, where arguments are the same."""


_MADE = {
    *(aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default),
    *(aten.new_empty.default, aten.new_zeros.default, aten.new_full.default, aten.clone.default),
}
"""Operators that make a tensor like another, to be filled."""


@dataclass(frozen=True)
class _Like:
    """A tensor that only says what an operator makes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, value: torch.Tensor) -> _Like:
        return cls(tuple(value.shape), tuple(value.stride()), value.dtype, value.device)

    def tensor(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class Draw:
    """A random operator with its arguments, and what its result is like."""

    operator: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: _Like

    @classmethod
    def of(cls, node: Node) -> Draw:
        like = {source: _Like.of(source.meta["val"]) for source in node.all_input_nodes}
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda source: like[source])
        operator: Any = _fill_with_flips if _fills_with_flips(node) else node.target
        return cls(operator, args, kwargs, _Like.of(node.meta["val"]))

    def __call__(self) -> torch.Tensor:
        """New numbers from the generator that eager PyTorch would take them from."""
        args = [a.tensor() if isinstance(a, _Like) else a for a in self.args]
        with torch.no_grad():
            return self.operator(*args, **self.kwargs)

    def example(self) -> torch.Tensor:
        """A tensor like the result; nothing is drawn."""
        return self.result.tensor()


def _fills_with_flips(node: Node) -> bool:
    """Whether a node stands for `bernoulli_`, which fills memory in its order, and not for `bernoulli`, row-major."""
    made = node.args[0] if node.target is aten.bernoulli.p else None
    return (
        isinstance(made, Node)
        and (made.target in _MADE or not made.all_input_nodes)
        and made.op != "placeholder"
    )


def _fill_with_flips(tensor: torch.Tensor, p: float) -> torch.Tensor:
    return tensor.bernoulli_(p)


def hoist_draws(module: GraphModule) -> list[Draw]:
    """Makes operators that draw by shapes alone inputs of the graph, after its own; returns them in program order.

    Only those before the first that draws by its data, which stays in its place: numbers keep their order.
    """
    graph = module.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1:]
    draws: list[Draw] = []
    for node in [node for node in graph.nodes if is_random(node)]:
        if node.target not in _OF_SHAPES:
            break
        draws.append(Draw.of(node))
        with graph.inserting_after(last[0]) if last else graph.inserting_before(next(iter(graph.nodes))):
            drawn = graph.placeholder(f"draw_{len(draws)}")
        drawn.meta = dict(node.meta)
        node.replace_all_uses_with(drawn)
        graph.erase_node(node)
        last = [drawn]
    if draws:
        graph.eliminate_dead_code()
        module.recompile()
    return draws


@contextlib.contextmanager
def drawn_apart(graph: Graph) -> Iterator[None]:
    """Keeps PyTorch's partitioner from merging equal random operators, each of which draws anew."""
    merged = [node for node in graph.nodes if is_random(node) and _packet(node) not in _KEPT_APART]
    with functorch_config.patch(cse=False) if merged else contextlib.nullcontext():
        yield


def _packet(node: Node) -> Any:
    return getattr(node.target, "_overloadpacket", None)


def drawn_after(before: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    """`operator` on its arguments; `before` is there so that it has been computed."""
    return operator(*args, **kwargs)


def keep_order(graph: Graph) -> None:
    """Makes each random operator wait for the one before it: the generator gives numbers to whoever asks first."""
    before: Node | None = None
    for node in [node for node in graph.nodes if is_random(node)]:
        if before is not None:
            node.args = (before, node.target, *node.args)
            node.target = drawn_after
        before = node
