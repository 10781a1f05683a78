"""Random ONNX graphs: the first of them against references, and the fuzzer of graphs itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from fuzz import graph_run
from fuzz.draw import draw
from fuzz.generator import NoFit
from fuzz.graph import PATH, Graph
from fuzz.graph_draw import draw_graph, graph_operators
from fuzz.graph_growth import Growth
from fuzz.graph_oracle import expected, wrong
from fuzz.minimise import minimise
from fuzz.outcome import FAILURES, Outcome
from fuzz.pool import outcomes

CHUNKS, GRAPHS = 2, 14
FUZZ = Path(__file__).parents[2] / "fuzz"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_graphs_do_what_references_do(chunk: int) -> None:
    drawn = (draw(seed, {PATH: 1}) for seed in range(chunk * GRAPHS, (chunk + 1) * GRAPHS))
    failed = [(g, o) for g, o in outcomes(drawn, processes=1) if o.kind in FAILURES]
    assert not failed, "\n\n".join(
        f"# {o.kind}: {o.detail}\n# seed {g.seed}\n{g.script()}" for g, o in failed
    )


def test_a_seed_is_the_same_graph_in_every_process() -> None:
    code = f"import sys; sys.path[0] = {str(FUZZ.parent)!r}\nfrom fuzz.graph_draw import draw_graph\nfor s in range(6): print(draw_graph(s))"
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert found.stdout.splitlines() == [str(draw_graph(seed)) for seed in range(6)]


@pytest.mark.parametrize("operator", graph_operators(), ids=lambda operator: operator.name)
def test_every_operator_is_drawn(operator) -> None:
    for seed in range(60):
        growth = Growth(seed)
        try:
            operator.grow(growth)
        except NoFit:
            continue
        if growth.unused:
            assert growth.graph().proto().graph.output
            return
    pytest.fail("no seed has it")


def compiled_as(monkeypatch: pytest.MonkeyPatch, fault) -> None:
    """Puts the reference evaluator, with a fault, in the compiler's place."""

    def compile(model, example):
        names = [value.name for value in model.graph.input]
        weights = {tensor.name for tensor in model.graph.initializer}
        names = [name for name in names if name not in weights]
        evaluator = onnx.reference.ReferenceEvaluator(model)
        return lambda *inputs: [fault(r) for r in evaluator.run(None, dict(zip(names, inputs)))]

    monkeypatch.setattr(graph_run.tilewright, "compile", compile)


def test_right_and_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = of("Relu")
    compiled_as(monkeypatch, lambda result: result)
    assert graph_run.run(graph).kind == "ok"
    for fault in (lambda r: r + 1, lambda r: r[:1], lambda r: r.astype(np.float64)):
        compiled_as(monkeypatch, fault)
        assert graph_run.run(graph).kind == "wrong"


def of(*ops: str) -> Graph:
    """A chain of functions."""
    growth = Growth(1)
    growth.odd, growth.opset = False, 21
    name = growth.fresh((3, 4), "float32", "normal", "input")
    for op in ops:
        (name,) = growth.emit(op, [name])
    growth.choose.seed(3)
    graph = growth.graph()
    model = graph.proto()
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return replace(graph, model=model.SerializeToString())


def test_bounds_are_a_few_ulp() -> None:
    graph = of("Exp")
    (want,) = expected(graph, graph.build(1))[0]
    assert (want.bound < 40 * 1.2e-7 * want.value.abs()).all()
    assert wrong(want.value.numpy(), [want]) is None
    assert wrong(want.value.numpy() * 1.0001, [want]) is not None


def test_failures_are_made_small() -> None:
    def check(graph: Graph) -> Outcome:
        ops = {node.op_type for node in graph.proto().graph.node}
        return Outcome("wrong", "tangent") if "Tan" in ops else Outcome("ok")

    found = minimise(of("Exp", "Tan", "Relu", "Neg"), Outcome("wrong", "tangent"), check)
    assert [node.op_type for node in found.proto().graph.node] == ["Tan"]
    assert len(found.inputs) == 1
