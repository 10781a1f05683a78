"""Traces an `nn.Module` (or any function of tensors) once into a functional ATen graph over flat tensors.

One pass of fake tensors under C++ functionalisation does what `torch.export` plus `run_decompositions` do in
several, and leaves parameters, buffers and plain tensor attributes as graph inputs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx import Graph, GraphModule, Interpreter
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from tilewright.compiler.errors import (
    ModelImportError,
    TilewrightError,
    UnsupportedError,
    UnsupportedOperator,
)
from tilewright.compiler.importers.torch.decompositions import Table
from tilewright.compiler.importers.torch.functions import OwnFunctions
from tilewright.compiler.importers.torch.kept import (
    Held,
    can_be_remade,
    is_object,
)
from tilewright.compiler.importers.torch.lowering import location
from tilewright.compiler.importers.torch.memory_reads import refused_capsules
from tilewright.compiler.importers.torch.outside import WrittenOutsideError, refuse_without_data
from tilewright.compiler.importers.torch.own_methods import own_methods
from tilewright.compiler.importers.torch.own_tensors import (
    Named,
    held_tensors,
    is_alone_in_memory,
    own_tensors,
    refuse_shared_state,
    unwrapped,
)
from tilewright.compiler.importers.torch.repeated_calls import (
    assigned_in_place,
    halves_agree,
    refuse_changed_arguments,
    refuse_kept,
)
from tilewright.compiler.importers.torch.results import Results, refuse_layout
from tilewright.compiler.importers.torch.source_lines import UNKNOWN, SourceLines, here, place
from tilewright.compiler.importers.torch.substitution import substituted
from tilewright.compiler.importers.torch.tracer import NEEDS_STORAGE, trace_fast
from tilewright.compiler.importers.torch.tracing_state import tracing_state, without_reports
from tilewright.runtime.signature import Mutation, Output, Tree
from tilewright.runtime.views import is_injective

_functional: Any = torch  # functionalisation has no public names

_OF_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
Rebuild = Callable[[Sequence[torch.Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]
"""Makes a model's positional and keyword arguments of its input tensors in order."""


@dataclass
class Capture:
    """A traced model: `graph_module` takes `tensors` then the user's inputs, and returns `results`.

    `tensors` are the model's own (name, tensor); `outputs`, `returns` and `mutations` are as in `Signature`,
    with sources and targets "tensor" for the model's own tensors.
    """

    graph_module: GraphModule
    tensors: list[tuple[str, torch.Tensor]]
    outputs: list[Output] = field(default_factory=list)
    returns: Tree = field(default_factory=lambda: Tree("constant"))
    mutations: list[Mutation] = field(default_factory=list)
    in_memory: tuple[int, ...] = ()


def run_graph_module(module: GraphModule) -> Callable[..., Any]:
    """Calls an exported graph module node by node, so that traced nodes inherit its source lines."""

    def run(*args: Any, **kwargs: Any) -> Any:
        spec = getattr(module, "_in_spec", None)
        if spec is None:
            return module(*args, **kwargs)
        flat, found = pytree.tree_flatten((args, kwargs))
        if found != spec:
            return module(*args, **kwargs)
        with preserve_node_meta():
            out = Interpreter(module).run(*flat, enable_io_processing=False)
        return pytree.tree_unflatten(out, cast(Any, module._out_spec))

    return run


def capture(
    model: Callable[..., Any],
    rebuild: Rebuild,
    inputs: list[torch.Tensor],
    table: Table,
    is_told: bool = True,
) -> Capture:
    """Traces `model` on what `rebuild` makes of tensors like `inputs`, decomposing by `table`.

    Tensors of its objects and containers are its own where it writes to them, and known values otherwise. The model is told that it is
    exported, if `is_told`.
    """
    own = own_tensors(model, here)
    captured = partial(_captured, model, rebuild, inputs, table, is_told)
    try:
        return captured(own)
    except WrittenOutsideError as error:
        written = {id(tensor) for tensor in error.tensors}
        reached = [named for number, named in held_tensors(model).items() if number in written]
        if len(reached) < len(written):
            raise
    return captured(own + reached)


def _captured(
    model: Callable[..., Any],
    rebuild: Rebuild,
    inputs: list[torch.Tensor],
    table: Table,
    is_told: bool,
    tensors: Named,
) -> Capture:
    _refuse_unknown_kinds(tensors, inputs)
    held = held_tensors(model)
    call = run_graph_module(model) if isinstance(model, GraphModule) else model
    record: dict[str, Any] = {}

    def called(
        wrapped: list[torch.Tensor],
        before: Sequence[torch.Tensor],
        use: Callable[[Results, Held], list[torch.Tensor]],
    ) -> list[torch.Tensor]:
        """What `use` makes of a call with `wrapped` for the model's own tensors, which were `before`, and its inputs.

        Meanwhile the model holds what it kept of the call.
        """
        args, kwargs = rebuild(wrapped[len(tensors) :])
        named = [*((f"argument {number}", value) for number, value in enumerate(args)), *kwargs.items()]
        given = Held(named, looks_into=can_be_remade)
        constants = [
            (name, leaf) for name, value in named for leaf in pytree.tree_leaves(value) if is_object(leaf)
        ]
        replacement = {id(tensor): new for tensor, new in zip(before, wrapped)}
        with substituted(model, replacement, constants) as kept:
            with contextlib.ExitStack() as while_called:
                lines = contextlib.nullcontext() if isinstance(model, GraphModule) else SourceLines()
                for context in (lines, _traced_parameters(), own_methods(), refused_capsules(here)):
                    while_called.enter_context(context)
                functions = while_called.enter_context(OwnFunctions(here, held))
                returned = call(*args, **kwargs)
            functions.outside.refuse_written(at_end=True)
            refuse_changed_arguments(given, here())
            return use(Results(wrapped, len(tensors), returned, functions.assertions), kept)

    def flat(*values: torch.Tensor) -> list[torch.Tensor]:
        def use(results: Results, held: Held) -> list[torch.Tensor]:
            is_alone = partial(is_alone_in_memory, tensors)
            kept = assigned_in_place(held.changes(), held, own, is_alone, results.outputs, here())
            results.assertions.add_own(tensors, values)
            outs = results.finish(values)
            record.update(
                returns=results.returns, outputs=results.outputs, mutations=results.mutations, kept=kept
            )
            return outs + next_call(values, own, results) if kept else outs

        _functional._enable_functionalization(reapply_views=True)
        try:
            wrapped = [_functional._to_functional_tensor(value) for value in values]
            own = wrapped[: len(tensors)]
            return called(wrapped, [tensor for _, tensor in tensors], use)
        finally:
            _functional._disable_functionalization()

    def next_call(
        values: Sequence[torch.Tensor], own: list[torch.Tensor], first: Results
    ) -> list[torch.Tensor]:
        """The results of a call that finds what the first one kept; none where it differs by more than their values."""

        def use(results: Results, _: Held) -> list[torch.Tensor]:
            outs = results.finish(values)
            return outs if (results.outputs, results.mutations) == (first.outputs, first.mutations) else []

        with contextlib.suppress(Exception):
            return called([_functional._to_functional_tensor(value) for value in values], own, use)
        return []

    examples = [_without_overlap(tensor) for tensor in [*(t for _, t in tensors), *inputs]]
    traced = _traced(flat, examples, table, [tensor for _, tensor in tensors], is_told)
    if (kept := record.pop("kept")) and not halves_agree(traced, [t for _, t in tensors], inputs):
        refuse_kept(kept, here())
    in_memory = _read_in_memory(traced.graph, [t for _, t in tensors] + inputs, len(tensors))
    traced.graph.eliminate_dead_code()
    refuse_shared_state(tensors, {m.index for m in record["mutations"] if m.target == "tensor"})
    return Capture(traced, tensors, **record, in_memory=in_memory)


def _refuse_unknown_kinds(own: list[tuple[str, torch.Tensor]], inputs: list[torch.Tensor]) -> None:
    """Raises UnsupportedError where a tensor has no data, or another layout than one with strides."""
    for name, tensor in [*own, *((f"argument {number}", tensor) for number, tensor in enumerate(inputs))]:
        refuse_without_data(tensor, name, here())
        refuse_layout(tensor, "a tensor")


def _fake(mode: FakeTensorMode, example: torch.Tensor) -> torch.Tensor:
    """A tensor without data like `example`, in memory that no other example has a part in."""
    if example.layout is not torch.strided:
        return mode.from_tensor(example.detach())
    return torch.empty_strided(example.shape, example.stride(), dtype=example.dtype, device=example.device)


def _without_overlap(example: torch.Tensor) -> torch.Tensor:
    """A tensor like `example` of which no two elements share a place.

    An expanded example becomes one with gaps, its dimensions in the order that eager PyTorch gives to results:
    then copies where only contiguous memory will do are made for it as for the example.
    """
    if example.layout is not torch.strided or is_injective(tuple(example.shape), tuple(example.stride())):
        return example
    strides = [2 * step for step in torch.empty_like(example, device="meta").stride()]
    return torch.empty_strided(example.shape, strides, dtype=example.dtype, device=example.device)


def _read_in_memory(graph: Graph, examples: list[torch.Tensor], owned: int) -> tuple[int, ...]:
    """Numbers of the user's inputs that `as_strided` reads: it sees memory and not a tensor's own elements."""
    readers = [node for node in graph.nodes if node.target in NEEDS_STORAGE]
    storages = {node.args[0].meta["val"].untyped_storage()._cdata: node for node in readers}
    found = []
    for number, (node, example) in enumerate(zip(graph.nodes, examples)):
        reader = storages.get(node.meta["val"].untyped_storage()._cdata)
        if reader is None or number < owned:
            continue
        if not example.is_contiguous() or example.storage_offset():
            reason = "it reads the memory of an argument that is not contiguous from the start of its memory"
            raise UnsupportedError([UnsupportedOperator(str(reader.target), reason, location(reader))])
        found.append(number - owned)
    return tuple(found)


def _traced(
    flat: Callable[..., Any],
    examples: list[torch.Tensor],
    table: Table,
    own: list[torch.Tensor],
    is_told: bool,
) -> GraphModule:
    """The graph of `flat`, by our own tracer; by make_fx for what that does not know and for its errors."""
    with torch.no_grad(), enable_python_dispatcher(), tracing_state(is_told):
        try:
            return trace_fast(flat, examples, table, own)
        except WrittenOutsideError:
            raise
        except Exception as error:
            refused = error
            logging.getLogger(__name__).debug("make_fx traces this model: %s", refused)
        fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        with fake_mode:
            fakes = [_fake(fake_mode, example) for example in examples]
            try:
                return make_fx(flat, decomposition_table=table, tracing_mode="real")(*fakes)
            except _OF_VALUES as error:  # it knows fewer values, and may end before the line that is at fault
                if isinstance(refused, _OF_VALUES) and place(refused) != UNKNOWN:
                    raise refused from error
                raise


def trace(model: Callable[..., Any], rebuild: Rebuild, inputs: list[torch.Tensor], table: Table) -> Capture:
    """`capture`, with failures as errors that say where in the model they arose.

    A model that fails when it is told that it is exported is traced as if it ran in eager PyTorch; if it fails then, too, it goes
    through torch.export first, which knows more of Python.
    """
    try:
        return capture(model, rebuild, inputs, table)
    except _OF_VALUES as error:
        operator = UnsupportedOperator(
            str(error.func), "its result depends on values, not only on shapes", place(error)
        )
        raise UnsupportedError([operator]) from error
    except UnsupportedOperatorException as error:
        operator = UnsupportedOperator(
            str(error.func), "PyTorch traces it with data only; compute without it", place(error)
        )
        raise UnsupportedError([operator]) from error
    except TilewrightError:
        raise
    except Exception as direct:
        _refuse_by_words(direct)
        with contextlib.suppress(Exception):
            return capture(model, rebuild, inputs, table, is_told=False)
        if isinstance(model, torch.nn.Module) and not isinstance(model, GraphModule):
            with contextlib.suppress(Exception), without_reports():
                args, kwargs = rebuild(inputs)
                exported = unwrapped(torch.export.export(model, args, kwargs, strict=False))
                return capture(exported.module(check_guards=False), rebuild, inputs, table)
        raise ModelImportError(
            f"the model cannot be traced: {type(direct).__name__}: {direct} ({place(direct)})"
        ) from direct


_SAID_IN_WORDS = {
    "as_strided() is non-compositional": (
        "aten.as_strided.default",
        "it is written through, and PyTorch cannot trace where that lies; write to the tensor itself",
    ),
    "PackedParamsBase": (
        "a module of quantised weights",
        "PyTorch has packed them for kernels of its own; quantise what torch.export gives, or an ONNX model",
    ),
    "does not require grad and does not have a grad_fn": (
        "a gradient",
        "models are traced as under torch.no_grad(); take it under torch.enable_grad(), or by torch.func.grad",
    ),
}
"""What PyTorch's errors have in their text alone: which operator is refused then, and why."""


def _refuse_by_words(error: Exception) -> None:
    """Raises UnsupportedError for what PyTorch refuses to trace in words alone."""
    for words, (operator, reason) in _SAID_IN_WORDS.items():
        if words in str(error):
            raise UnsupportedError([UnsupportedOperator(operator, reason, place(error))]) from error


@contextlib.contextmanager
def _traced_parameters() -> Iterator[None]:
    """Parameters that a model makes while it is traced are traced, where PyTorch's class would cut them off."""
    made = torch.nn.Parameter.__dict__["__new__"]

    def make(cls: type, data: torch.Tensor | None = None, requires_grad: bool = True) -> torch.Tensor:
        if data is None or not _functional._is_functional_tensor(data):
            return made(cls, data, requires_grad)
        parameter: Any = data.detach().requires_grad_(requires_grad)
        parameter._is_param = True  # what `isinstance` asks for where tensors are of another class
        return parameter

    torch.nn.Parameter.__new__ = make  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Parameter.__new__ = made  # type: ignore[method-assign]
