"""Imports PyTorch models: nn.Module, functions and ExportedProgram, stateless, with weights as arguments."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from tilewright.compiler.errors import ModelImportError, UnsupportedError
from tilewright.compiler.importers import Imported
from tilewright.compiler.importers.torch.capture import Capture, trace
from tilewright.compiler.importers.torch.decompositions import decomposition_table
from tilewright.compiler.importers.torch.exported import check_examples
from tilewright.compiler.importers.torch.fold import fold_constants
from tilewright.compiler.importers.torch.kept import can_be_remade
from tilewright.compiler.importers.torch.lowering import annotate, lower_graph, second_chance
from tilewright.compiler.importers.torch.own_tensors import unwrapped
from tilewright.compiler.importers.torch.simplify import lift_constants, simplify
from tilewright.compiler.importers.torch.types import dtype_name
from tilewright.runtime.program import TensorSpec
from tilewright.runtime.signature import Output, Signature, Tree

_ROUNDS = 4
"""How often operators that cannot be lowered are decomposed further before giving up."""


def import_torch(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | Any = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Imported:
    """Traces `model` on `example_inputs` (a tuple, a mapping by name, or one tensor) and lowers it.

    Without them an exported program is traced on those that it was exported with. Shapes, dtypes and Python constants
    are those of the example. Raises UnsupportedError that lists every operator which cannot be lowered, and
    ModelImportError when the model cannot be traced.
    """
    is_exported = isinstance(model, torch.export.ExportedProgram)
    if is_exported and example_inputs is None and kwargs is None and model.example_inputs is not None:
        example_inputs, kwargs = model.example_inputs
    args, kwargs = _arguments(example_inputs, kwargs)
    call, forward = _callable(model)
    if isinstance(call, GraphModule):
        args, kwargs = _as_exported(call, args, kwargs)
    if is_exported:
        check_examples(model, args, kwargs)
    arguments = _structure(forward, args, kwargs)
    inputs = [tensor for _, tensor in arguments.inputs]

    def rebuild(tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = {name: tree.build(tensors) for name, tree in arguments.trees}
        return tuple(values[name] for name in arguments.positional[: len(args)]), {
            n: values[n] for n in kwargs
        }

    table = decomposition_table()
    for _ in range(_ROUNDS):
        captured = trace(call, rebuild, inputs, table)
        program = Program.of(captured, len(inputs))
        try:
            module = lower_graph(program.graph_module)
        except UnsupportedError:
            extra = second_chance(program.graph_module.graph, table)
            if not extra:
                raise
            table = {**table, **extra}
            continue
        return program.imported(module, arguments)
    raise ModelImportError(f"operators still cannot be lowered after {_ROUNDS} rounds of decomposition")


def _arguments(example: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if example is None:
        return (), dict(kwargs or {})
    if isinstance(example, Mapping):
        return (), {**example, **(kwargs or {})}
    if isinstance(example, (tuple, list)):
        return tuple(example), dict(kwargs or {})
    return (example,), dict(kwargs or {})


def _callable(model: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What to trace, and the function whose parameters name the arguments."""
    if isinstance(model, torch.export.ExportedProgram):
        module = unwrapped(model).module(check_guards=False)
        return module, module.forward
    if isinstance(model, torch.nn.Module):
        return model, model.forward
    if callable(model):
        return model, model
    raise ModelImportError(
        f"expected an nn.Module, an ExportedProgram or a function, found {type(model).__name__}"
    )


def _as_exported(
    module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by name that an exported program takes by position, put in their places."""
    spec = getattr(module, "_in_spec", None)
    if spec is None or spec.num_children != 2:
        return args, kwargs
    by_name = set(spec.child(1).context or ())
    names = [name for name in inspect.signature(module.forward).parameters if name not in by_name]
    moved = [name for name in names[len(args) :] if name in kwargs]
    rest = {name: value for name, value in kwargs.items() if name not in moved}
    return (*args, *(kwargs[name] for name in moved)), rest


@dataclasses.dataclass(frozen=True)
class Arguments:
    """A model's arguments: names by position, structures, which may be left out, and the tensors inside."""

    positional: tuple[str, ...]
    trees: tuple[tuple[str, Tree], ...]
    optional: tuple[str, ...]
    inputs: list[tuple[str, torch.Tensor]]


def _structure(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """How the example's arguments are named and built."""
    names: list[str] = []
    defaults: dict[str, Any] = {}
    try:
        for parameter in inspect.signature(forward).parameters.values():
            if isinstance(parameter.default, (bool, int, float, str, type(None))):
                defaults[parameter.name] = parameter.default
            if parameter.kind is parameter.VAR_POSITIONAL:
                names += [f"{parameter.name}[{i}]" for i in range(max(0, len(args) - len(names)))]
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
    except (TypeError, ValueError):
        names = []
    names += [f"arg{i}" for i in range(len(names), len(args))]
    given = dict(zip(names, args))
    inputs: list[tuple[str, torch.Tensor]] = []

    def number(value: Any, path: str) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        inputs.append((path, value))
        return len(inputs) - 1

    ordered = [(name, given[name]) for name in names if name in given]
    ordered += [(name, kwargs[name]) for name in names if name in kwargs and name not in given]
    ordered += [(name, value) for name, value in kwargs.items() if name not in names]
    left_out = [(name, value) for name, value in defaults.items() if name not in dict(ordered)]
    arguments = tuple(
        (name, Tree.of(value, number, name, can_be_remade)) for name, value in ordered + left_out
    )
    optional = tuple(
        name
        for name, tree in arguments
        if tree.kind == "constant" and name in defaults and tree.value == defaults[name]
    )
    return Arguments(tuple(names), arguments, optional, inputs)


@dataclasses.dataclass
class Program:
    """A captured graph whose placeholders are weights, then user inputs, then state (mutated own tensors)."""

    graph_module: GraphModule
    captured: Capture
    weights: list[tuple[str, torch.Tensor]]
    state: list[int]
    """Numbers of own tensors that calls update."""

    @classmethod
    def of(cls, captured: Capture, num_inputs: int) -> Program:
        """Simplifies the graph, makes constants weights, and orders the placeholders."""
        graph = captured.graph_module.graph
        owned = len(captured.tensors)
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        mutated = [m.index for m in captured.mutations if m.target == "tensor"]
        returned = {o.index for o in captured.outputs if o.source == "tensor"}
        simplify(captured.graph_module)
        constants = lift_constants(captured.graph_module)
        fold_constants(captured.graph_module)
        weights, nodes = [], []
        for number, ((name, tensor), node) in enumerate(zip(captured.tensors, placeholders[:owned])):
            if number in mutated:
                continue
            if node.users or number in returned:
                weights.append((name, tensor))
                nodes.append(node)
            else:
                graph.erase_node(node)
        for name, tensor, node in constants:
            weights.append((name, tensor))
            nodes.append(node)
        nodes += placeholders[owned : owned + num_inputs]
        nodes += [placeholders[number] for number in mutated]
        for node in reversed(nodes):
            first = next(iter(graph.nodes))
            if node is not first:
                first.prepend(node)
        graph.lint()
        return cls(captured.graph_module, captured, weights, mutated)

    def imported(self, module: Any, arguments: Arguments) -> Imported:
        """The lowered module with its signature, weights and state."""
        own, inputs = self.captured.tensors, arguments.inputs
        state = [own[number] for number in self.state]
        mutations = tuple(
            dataclasses.replace(m, target="state", index=self.state.index(m.index))
            if m.target == "tensor"
            else m
            for m in self.captured.mutations
        )
        first = {"input": len(self.weights), "state": len(self.weights) + len(inputs)}
        annotate(
            module,
            [("weight", name) for name, _ in self.weights] + [("input", n) for n, _ in inputs + state],
            updates={first[m.target] + m.index: m.result for m in mutations},
        )
        output = next(node for node in self.graph_module.graph.nodes if node.op == "output")
        results = [node.meta["val"] for node in output.args[0]]
        signature = Signature(
            positional=arguments.positional,
            arguments=arguments.trees,
            optional=arguments.optional,
            in_memory=self.captured.in_memory,
            inputs=tuple(_spec(name, tensor) for name, tensor in inputs),
            results=tuple(_spec(f"result{i}", value) for i, value in enumerate(results)),
            outputs=tuple(self._resolved(output) for output in self.captured.outputs),
            returns=self.captured.returns,
            state=tuple(_spec(name, tensor) for name, tensor in state),
            mutations=mutations,
        )
        return Imported(module, signature, [t for _, t in self.weights], [t for _, t in state])

    def _resolved(self, output: Output) -> Output:
        """`output` with a model's own tensor named as the weight or state that it became."""
        if output.source != "tensor":
            return output
        if output.index in self.state:
            return dataclasses.replace(output, source="state", index=self.state.index(output.index))
        tensor = self.captured.tensors[output.index][1]
        number = next(i for i, (_, weight) in enumerate(self.weights) if weight is tensor)
        return dataclasses.replace(output, source="weight", index=number)


def _spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(name, dtype_name(tensor.dtype), tuple(int(extent) for extent in tensor.shape))
