"""Runs one ONNX graph through the compiler and says what became of it; makes failing ones small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import tilewright
from fuzz.bounds import Expected, compared
from fuzz.graph import Graph, Input, name_of
from fuzz.graph_oracle import expected, inlined, wrong
from fuzz.graph_reference import evaluations, names_read
from fuzz.outcome import Outcome

SECOND_CALL = 7_000_003


def run(graph: Graph) -> Outcome:
    """The outcome of a graph, called on its example and on other values."""
    from fuzz.execution import raised

    calls: list[tuple[dict[str, np.ndarray], list[list[Expected]]]] = []
    for seed in (graph.seed, graph.seed + SECOND_CALL):
        feeds = graph.build(seed)
        try:
            calls.append((feeds, expected(graph, feeds)))
        except ValueError as error:
            if not calls:
                return Outcome("invalid", str(error))
    counts = [compared([want for wants in wanted for want in wants[:1]]) for _, wanted in calls]
    outcome = Outcome("ok")
    try:
        example: Any = list(calls[0][0].values()) if graph.seed % 2 else calls[0][0]
        compiled = tilewright.compile(graph.proto(), example)
        for number, (feeds, wanted) in enumerate(calls):
            text = _differs(compiled(*feeds.values()), wanted)
            if text is not None:
                outcome = Outcome("wrong", f"{('first', 'second')[number]} call: {text}")
                break
    except Exception as error:
        outcome = raised(graph, error)
    return replace(outcome, compared=sum(c for c, _ in counts), elements=sum(n for _, n in counts))


def _differs(results: Any, wanted: list[list[Expected]]) -> str | None:
    results = list(results) if isinstance(results, tuple | list) else [results]
    if len(results) != len(wanted):
        return f"{len(results)} results, not {len(wanted)}"
    for number, (result, wants) in enumerate(zip(results, wanted)):
        text = wrong(result, wants)
        if text is not None:
            return f"output {number}: {text}"
    return None


def smaller(graph: Graph) -> Iterator[Graph]:
    """Smaller graphs: one output, one node alone, the results of a node as inputs, inputs of plain numbers."""
    model = inlined(graph.proto())
    outputs = list(model.graph.output)
    if len(outputs) > 1:
        for output in outputs:
            yield _with(graph, model, list(model.graph.node), [output])
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | graph.build(graph.seed)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    nodes = list(model.graph.node)
    for node in nodes:
        arrays.update(zip(node.output, next(iter(evaluations(node, arrays, opset)), [])))
    computed = [node for node in nodes if node.op_type != "Constant"]
    for node in reversed(computed):
        if len(computed) > 1:
            others = [n for n in nodes if n.op_type == "Constant"]
            yield _with(graph, model, [*others, node], list(node.output), arrays)
    for node in computed[:-1]:
        yield _with(graph, model, [n for n in nodes if n is not node], outputs, arrays)
    for number, tensor in enumerate(graph.inputs):
        if tensor.fill not in ("normal", "") and ":" not in tensor.fill:
            inputs = [*graph.inputs]
            inputs[number] = replace(tensor, fill="normal")
            yield replace(graph, inputs=tuple(inputs))


def _with(
    graph: Graph,
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    outputs: list[Any],
    arrays: dict[str, np.ndarray] | None = None,
) -> Graph:
    """The graph of some of its nodes, without what no output needs; what they lack becomes inputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    named = [o if isinstance(o, str) else o.name for o in outputs]
    needed, live = set(named), []
    for node in reversed(nodes):
        if needed & set(node.output):
            live.append(node)
            needed.update(names_read(node))
    live.reverse()
    del made.graph.node[:], made.graph.output[:], made.graph.input[:]
    made.graph.node.extend(live)
    produced = {name for node in live for name in node.output}
    weights = [t for t in model.graph.initializer if t.name in needed]
    del made.graph.initializer[:]
    made.graph.initializer.extend(weights)
    inputs = [tensor for tensor in graph.inputs if tensor.name in needed]
    given = {t.name for t in weights} | {t.name for t in inputs} | produced
    for name in sorted(needed - given - {""}):
        if arrays is None or name not in arrays:
            return graph
        array = arrays[name]
        inputs.append(Input(name, array.shape, name_of(array), "", tuple(array.reshape(-1).tolist())))
    from onnx import helper

    from fuzz.graph import code_of

    made.graph.input.extend(
        helper.make_tensor_value_info(t.name, code_of(t.dtype), list(t.shape)) for t in inputs
    )
    kinds = {o.name: o.type.tensor_type.elem_type for o in model.graph.output}
    for name in named:
        kind = kinds.get(name) or code_of(name_of((arrays or {})[name]))
        made.graph.output.append(helper.make_tensor_value_info(name, kind, None))
    return replace(graph, model=made.SerializeToString(), inputs=tuple(inputs))
