"""Splits a flat ATen graph into parts that are compiled and operators that run in eager PyTorch."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.traceback import preserve_node_meta

from tilewright.compiler import debug
from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers.torch.decompositions import decomposition_table
from tilewright.compiler.importers.torch.graph import import_graph
from tilewright.compiler.importers.torch.lowering import (
    is_random,
    location,
    operator_name,
    other_layout,
    refusal,
    second_chance,
    unsupported,
)
from tilewright.compiler.importers.torch.simplify import gather_from_memory, simplify
from tilewright.compiler.torch import fallback
from tilewright.compiler.torch.devices import CPU, beside, device_of, strays, target_of
from tilewright.compiler.torch.options import Options
from tilewright.compiler.torch.random import drawn_after, hoist_draws, keep_order
from tilewright.compiler.torch.saved import read_row_major
from tilewright.compiler.torch.watched import Watched
from tilewright.compiler.torch.writes import Run, Writes

_VIEWS = {
    getattr(torch.ops.aten, name)
    for name in [
        "view",
        "_unsafe_view",
        "permute",
        "t",
        "transpose",
        "expand",
        "unsqueeze",
        "squeeze",
        "slice",
        "select",
        "alias",
        "detach",
    ]
}
"""Operators that move no data: on their own they are left to eager PyTorch, and not counted."""


@dataclass(frozen=True)
class Parameters:
    """Which arguments of a graph are its model's parameters and buffers, by number.

    `kept` ones are laid out for their kernels once, and again when they change; others at every call, as in training.
    """

    numbers: frozenset[int] = frozenset()
    kept: bool = True

    def among(self, nodes: Sequence[Any], placeholders: Sequence[Node]) -> Parameters:
        """Those that a part of the graph is given, whose arguments are `nodes`."""
        chosen = {placeholders[i] for i in self.numbers}
        return Parameters(frozenset(i for i, node in enumerate(nodes) if node in chosen), self.kept)


def build(module: GraphModule, options: Options, parameters: Parameters, arguments: Sequence[Any]) -> Run:
    """A function of the flat arguments that runs the graph, compiled as far as possible.

    In strict mode raises what cannot be compiled.
    """
    writes = Writes.take(module)
    parameters = Parameters(parameters.numbers - set(writes.arguments), parameters.kept)
    draws = hoist_draws(module)
    run = _build(
        module, options, parameters, [*arguments, *(draw.example() for draw in draws)], writes.arguments
    )
    return writes.after((lambda given: run([*given, *(draw() for draw in draws)])) if draws else run)


def _build(
    module: GraphModule,
    options: Options,
    parameters: Parameters,
    arguments: Sequence[Any],
    written: Sequence[int],
) -> Run:
    if not any(node.op == "call_function" for node in module.graph.nodes):
        return lambda given: run_graph(module, given)
    simplify(module)
    module.recompile()
    device = device_of(module.graph, arguments)
    apart = any(is_random(node) or other_layout(node) for node in module.graph.nodes)
    is_whole = not apart and not strays(module.graph, device)
    if is_whole:
        try:
            return Part(copy.deepcopy(module), options, parameters, arguments, written)
        except UnsupportedError as error:  # the operators are found again below, and cut out of the graph
            debug.log(1, f"the graph is split: {error}")
        except Exception as error:  # whatever is wrong inside, the user's model runs
            if options.strict:
                raise
            _report_whole(module, error)
            read_row_major(module.graph, _computes)
            reshape_views(module)
            return lambda given: run_eagerly(module, given)
    extra = second_chance(module.graph, decomposition_table())
    if extra:
        module = _decomposed(module, extra, arguments)
    gather_from_memory(module)
    module.recompile()
    leaving = [node for node in strays(module.graph, device) if refusal(node) is None]
    refused = UnsupportedError([*unsupported(module.graph).operators, *map(_across_devices, leaving)])
    if options.strict and refused.operators:
        raise refused
    fallback.warn(refused.operators)
    return Split(module, options, parameters, device)


def _across_devices(node: Node) -> UnsupportedOperator:
    reason = "it moves or makes a tensor on another device than the rest of its graph"
    return UnsupportedOperator(operator_name(node), reason, location(node))


def reshape_views(module: GraphModule) -> None:
    """Lets PyTorch copy what a graph views, where its images do not lie as they did when it was traced."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default
    module.recompile()


def run_graph(module: GraphModule, arguments: list[Any]) -> list[Any]:
    """The graph's outputs, computed by PyTorch."""
    with torch.no_grad():
        return list(module(*arguments))


def run_eagerly(module: GraphModule, arguments: list[Any]) -> list[Any]:
    """`run_graph`, with its operators counted as fallbacks."""
    fallback.count(_operators(module))
    return run_graph(module, arguments)


def _operators(module: GraphModule) -> int:
    return sum(map(_computes, module.graph.nodes))


def _computes(node: Node) -> bool:
    packet = getattr(node.target, "_overloadpacket", None)
    return node.op == "call_function" and node.target is not operator.getitem and packet not in _VIEWS


def _report_whole(module: GraphModule, error: Exception) -> None:
    reason = " ".join(f"the compiler failed on its graph: {type(error).__name__}: {error}".split())[:400]
    fallback.warn(
        UnsupportedOperator(operator_name(node), reason, location(node))
        for node in module.graph.nodes
        if _computes(node)
    )


def _decomposed(module: GraphModule, extra: dict[Any, Any], arguments: Sequence[Any]) -> GraphModule:
    """The graph with the operators of `extra` decomposed."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    # Sizes that a graph was specialised to are numbers, of which tracing keeps no value.
    values = [node.meta.get("val", argument) for node, argument in zip(placeholders, arguments)]
    mode = next((v.fake_mode for v in values if hasattr(v, "fake_mode")), None)

    def run(*given: Any) -> Any:
        with preserve_node_meta():
            return Interpreter(module).run(*given)

    table = {**decomposition_table(), **extra}
    mode = mode or torch._subclasses.FakeTensorMode()
    takes_data, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True  # constants of the graph
    try:
        with mode, torch.no_grad():
            return make_fx(run, decomposition_table=table)(*values)
    finally:
        mode.allow_non_fake_inputs = takes_data


class Part:
    """A compiled graph with its weights: bound once, and again when one of them changed.

    Its last results are the new values of the arguments numbered in `written`, some of them in these arguments' memory.
    """

    def __init__(
        self,
        module: GraphModule,
        options: Options,
        parameters: Parameters,
        arguments: Sequence[Any],
        written: Sequence[int] = (),
    ):
        from tilewright.compiler.driver import compile_imported

        chosen = parameters.numbers if parameters.kept else frozenset()
        weights = [
            a.detach() if i in chosen and isinstance(a, torch.Tensor) else None
            for i, a in enumerate(arguments)
        ]
        self._device = device_of(module.graph, arguments)
        target = target_of(options.target, self._device)
        _make_tokens(module, arguments)
        imported = import_graph(module, weights, parameters.numbers, written)
        on = self._device if self._device.type == "cuda" else None
        self._model = compile_imported(imported, target, dict(options.compiler), on)
        used = {id(weight) for weight in imported.weights}
        numbers = {id(w): i for i, w in enumerate(weights) if w is not None and id(w) in used}
        self._weights = [numbers.get(id(weight)) for weight in imported.weights]
        self._constants = list(imported.weights)
        self._inputs = [
            i for i, a in enumerate(arguments) if weights[i] is None and isinstance(a, torch.Tensor)
        ]
        self._bound = Watched(self._among(arguments))
        self._model.follows_weights = False

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if self._weights and self._bound.changes(self._among(arguments)):
            self._rebind(arguments)
        given = [arguments[i] for i in self._inputs]
        if self._device != CPU:
            given = [beside(argument, self._device) for argument in given]
        return self._model(*given)

    def _among(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """The weights among a call's arguments."""
        return [arguments[i] for i in self._weights if i is not None]

    def _rebind(self, arguments: Sequence[Any]) -> None:
        weights = [
            constant if i is None else arguments[i].detach()
            for i, constant in zip(self._weights, self._constants)
        ]
        self._model.rebind(weights)


def _make_tokens(module: GraphModule, arguments: Sequence[Any]) -> None:
    """Makes the empty tensors by which AOTAutograd orders effects, and which it gives no call, inside of the graph."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node, argument in zip(placeholders, arguments):
        token = node.meta.get("val")
        if argument is None and isinstance(token, torch.Tensor) and not token.numel():
            with module.graph.inserting_after(placeholders[-1]):
                made = module.graph.call_function(torch.ops.aten.full.default, (list(token.shape), 0))
            made.meta["val"], node.meta["val"] = token, None
            node.replace_all_uses_with(made)


class _Compiled(torch.nn.Module):
    """A part of a split graph: compiled, or in eager PyTorch when the compiler failed on it."""

    def __init__(self, module: GraphModule, options: Options, parameters: Parameters):
        super().__init__()
        self.eager = module
        self.options = options
        self.model_parameters = parameters
        self.run: Run | None = None
        self.single = not isinstance(_result(module), (list, tuple))

    def forward(self, *arguments: Any) -> Any:
        run = self.run
        if run is None:
            run = self.run = self._build(arguments)
        found = run(list(arguments))
        return found[0] if self.single else found

    def _build(self, arguments: Sequence[Any]) -> Run:
        module = copy.deepcopy(self.eager)
        output = next(node for node in module.graph.nodes if node.op == "output")
        if self.single:
            output.args = ((output.args[0],),)
            module.recompile()
        eager = copy.deepcopy(module)
        try:
            return Part(module, self.options, self.model_parameters, arguments)
        except Exception as error:
            if self.options.strict:
                raise
            _report_whole(eager, error)
            read_row_major(eager.graph, _computes)
            reshape_views(eager)
            return lambda given: run_eagerly(eager, given)


def _result(module: GraphModule) -> Any:
    return next(node for node in module.graph.nodes if node.op == "output").args[0]


class _Supported(OperatorSupportBase):
    def __init__(self, strays: Sequence[Node]):
        self._strays = set(strays)

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        if node.op != "call_function" or node in self._strays or node.target is drawn_after:
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(submodules, node.args[0])  # type: ignore[arg-type]
        return refusal(node) is None


class Split:
    """A graph whose supported regions are compiled, each at its first call."""

    def __init__(self, module: GraphModule, options: Options, parameters: Parameters, device: torch.device):
        supported = _Supported(strays(module.graph, device))
        keep_order(module.graph)
        read_row_major(module.graph, lambda n: _computes(n) and not supported.is_node_supported(None, n))
        partitioner = CapabilityBasedPartitioner(module, supported, allows_single_node_partition=True)
        partitions = [p for p in partitioner.propose_partitions() if any(map(_computes, p.nodes))]
        self._module = partitioner.fuse_partitions(partitions)
        reshape_views(self._module)
        placeholders = [node for node in self._module.graph.nodes if node.op == "placeholder"]
        for node in self._module.graph.nodes:
            if node.op == "call_module":
                inner = self._module.get_submodule(str(node.target))
                part = _Compiled(inner, options, parameters.among(node.args, placeholders))  # type: ignore[arg-type]
                setattr(self._module, str(node.target), part)
        self._eager = _operators(self._module)

    def __call__(self, arguments: list[Any]) -> list[Any]:
        fallback.count(self._eager)
        return run_graph(self._module, arguments)
