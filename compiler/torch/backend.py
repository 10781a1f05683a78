"""The `torch.compile` backend: AOTAutograd's forward and backward graphs, compiled as far as possible.

torch.compile(model, backend="tilewright", options={"target": "cuda", "opt": "O1", "strict": False})
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.exc import TorchDynamoException, exceptions_allowed_to_be_fallback
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from tilewright.compiler.errors import TilewrightError, UnsupportedOperator
from tilewright.compiler.importers.torch.decompositions import decomposition_table
from tilewright.compiler.importers.torch.functions import replace_functions
from tilewright.compiler.importers.torch.lowering import location
from tilewright.compiler.torch import fallback
from tilewright.compiler.torch.options import Options
from tilewright.compiler.torch.partition import Parameters, build
from tilewright.compiler.torch.random import drawn_apart
from tilewright.compiler.torch.saved import name_views, save_channels_last
from tilewright.compiler.torch.specialise import Specialising, is_dynamic
from tilewright.compiler.workers.pool import prepare

# Dynamo looks at this before it asks any backend: unless it is set, models with recurrent layers fall apart around
# them, unseen and uncounted, because such layers take long to compile elsewhere.
torch._dynamo.config.allow_rnn = True


def tilewright_backend(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: Any = None,
) -> Callable[..., Any]:
    """Compiles a graph captured by TorchDynamo.

    `options`: `target` (default: the device of the graph's tensors, CPU or NVIDIA GPU); `strict` raises instead of
    running anything in eager PyTorch; everything else goes to the compiler as in `tilewright.compile`. `mode` is one
    of `MODES`. Raises TilewrightError for another option or mode, ModelImportError in strict mode.
    """
    from torch._dynamo.backends.common import aot_autograd

    settings = Options.of(options, mode)
    replace_functions(graph_module)
    prepare()
    compiled = aot_autograd(
        fw_compiler=lambda gm, inputs: _compiled(gm, settings, _parameters(kept=False)),
        bw_compiler=lambda gm, inputs: _compiled(gm, settings, Parameters(kept=False)),
        inference_compiler=lambda gm, inputs: _compiled(gm, settings, _parameters(kept=True)),
        decompositions=decomposition_table(),
        partition_fn=_partition,
        # Where gradients may be asked for, AOTAutograd writes itself: what is written may have been saved for them.
        keep_inference_input_mutations=not torch.is_grad_enabled(),
    )
    try:
        return compiled(graph_module, example_inputs)
    except (TilewrightError, TorchDynamoException, *exceptions_allowed_to_be_fallback):
        raise  # of these, TorchDynamo breaks the graph at the operator and compiles the rest
    except Exception as error:  # AOTAutograd has no functional form of every program that eager PyTorch runs
        if settings.strict:
            raise
        return _untraced(graph_module, error)


def _untraced(module: GraphModule, error: Exception) -> Callable[..., Any]:
    """The captured graph in eager PyTorch, gradients included; every operator counted as a fallback."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    is_ours = frame.f_globals.get("__name__", "").startswith("tilewright.")  # generated code has no name
    what = "the compiler failed on its graph" if is_ours else "AOTAutograd cannot trace its graph"
    reason = " ".join(f"{what}: {type(error).__name__}: {str(error) or 'no reason'}".split())[:400]
    nodes = [node for node in module.graph.nodes if node.op.startswith("call_")]
    computing = [node for node in nodes if node.target is not operator.getitem]
    fallback.warn(UnsupportedOperator(_called(node), reason, location(node)) for node in computing)

    def run(*arguments: Any) -> Any:
        fallback.count(len(computing))
        return module(*arguments)

    return run


def _called(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _partition(joint: GraphModule, *args: Any, **kwargs: Any) -> Any:
    """PyTorch's split into forward and backward that saves the least, and what views are taken of instead of views."""
    from functorch.compile import min_cut_rematerialization_partition

    _save_compared(joint.graph)
    name_views(joint.graph)
    with drawn_apart(joint.graph), torch._functorch.config.patch(recompute_views=True):
        forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
    save_channels_last(forward, backward, kwargs["num_fwd_outputs"])
    return forward, backward


def _save_compared(graph: Graph) -> None:
    """Has floats that are compared for equality saved, as gradients of maxima compare them.

    Computed anew in another graph, and rounded otherwise, the largest element may not equal the maximum: its gradient
    would be divided among no elements.
    """
    for node in graph.nodes:
        if node.target in (torch.ops.aten.eq.Tensor, torch.ops.aten.ne.Tensor):
            magnitudes = [n for n in node.all_input_nodes if n.target is torch.ops.aten.abs.default]
            compared = [*node.all_input_nodes, *(n.all_input_nodes[0] for n in magnitudes)]
            for operand in compared:
                if operand.op == "call_function" and operand.meta["val"].is_floating_point():
                    operand.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _parameters(kept: bool) -> Parameters:
    """The graph's inputs that are parameters and buffers of the model, without those that it writes itself."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return Parameters(kept=kept)
    written = set(metadata.mutated_inp_runtime_indices)
    return Parameters(frozenset(metadata.static_input_indices or ()) - written, kept)


def _compiled(module: GraphModule, options: Options, parameters: Parameters) -> Callable[..., Any]:
    """A boxed function for a flat graph; the work is done at the first call, when parameters are at hand."""
    built: list[Callable[[list[Any]], list[Any]]] = []

    def call(arguments: list[Any]) -> list[Any]:
        given = list(arguments)
        arguments.clear()
        if not built:
            if is_dynamic(module):
                built.append(Specialising(module, options, parameters))
            else:
                built.append(build(module, options, parameters, given))
        return built[0](given)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call
