"""ONNX control flow: If, Loop and Scan with bodies of a node or two, reading outer values."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from fuzz.graph import code_of
from fuzz.graph_draw import node
from fuzz.graph_growth import Growth, name_of

FUNCTIONS = ("Relu", "Neg", "Abs", "Tanh", "Identity")


def typed(name: str, array: np.ndarray | None = None, code: int = 0) -> object:
    if array is None:
        return (
            helper.make_empty_tensor_value_info(name)
            if not code
            else helper.make_tensor_value_info(name, code, [])
        )
    return helper.make_tensor_value_info(name, code_of(name_of(array)), array.shape)


def body(nodes: list[NodeProto], inputs: list, outputs: list) -> GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs)


@node(1)
def choice(g: Growth) -> None:
    a = g.any_of(("float32", "float64"))
    array = g.arrays[a]
    shape = g.choose.choice(((), (1,)))
    condition = g.fresh(shape, "bool", g.choose.choice(("ones", "zeros", "normal")))
    branches = []
    for _ in range(2):
        made = g.name()
        inner = helper.make_node(g.choose.choice(FUNCTIONS), [a], [made])
        nodes = [inner]
        if g.maybe(0.4):
            last = g.name()
            nodes.append(helper.make_node("Add", [made, a], [last]))
            made = last
        branches.append(body(nodes, [], [typed(made, array)]))
    g.emit("If", [condition], then_branch=branches[0], else_branch=branches[1])


@node(1)
def loop(g: Growth) -> None:
    a = g.any_of(("float32", "float64", "int64"))
    array = g.arrays[a]
    trips = g.known(np.array(g.choose.randint(0, 4), np.int64)) if g.maybe(0.9) else None
    i, flag, state, kept, after, out = (g.name() for _ in range(6))
    nodes = []
    stops = trips is None or g.maybe(0.3)
    if stops:
        limit = g.name()
        value = helper.make_tensor(limit, TensorProto.INT64, [], [g.choose.randint(0, 4)])
        nodes += [helper.make_node("Constant", [], [limit], value=value)]
        nodes += [helper.make_node("Less", [i, limit], [kept])]
    else:
        nodes += [helper.make_node("Identity", [flag], [kept])]
    other = g.like(a, array.shape)
    nodes.append(helper.make_node("Add", [state, other], [after]))
    nodes.append(helper.make_node("Identity", [after], [out]))
    inner = body(
        nodes,
        [typed(i, code=TensorProto.INT64), typed(flag, code=TensorProto.BOOL), typed(state, array)],
        [typed(kept, code=TensorProto.BOOL), typed(after, array), typed(out, array)],
    )
    first = g.known(np.array(g.maybe(0.9))) if g.maybe() or trips is None else None
    g.emit("Loop", [trips, first, a], 2, body=inner)


@node(1)
def scan(g: Growth) -> None:
    if g.opset < 9:
        return
    a = g.any_of(("float32", "float64"), 1, 3)
    array = g.arrays[a]
    axis = g.axis(array.ndim)
    if g.opset < 11:
        axis %= array.ndim
    shape = [n for k, n in enumerate(array.shape) if k != axis % array.ndim]
    first = g.fresh(shape, name_of(array), "normal")
    state, item, after, out = (g.name() for _ in range(4))
    piece = g.arrays[first]
    nodes = [helper.make_node(g.choose.choice(("Add", "Mul", "Sub")), [state, item], [after])]
    nodes.append(helper.make_node(g.choose.choice(FUNCTIONS), [after], [out]))
    inner = body(nodes, [typed(state, piece), typed(item, piece)], [typed(after, piece), typed(out, piece)])
    attrs = {
        "scan_input_axes": g.optional([axis]) if axis == 0 else [axis],
        "scan_input_directions": g.optional([g.choose.randint(0, 1)]),
        "scan_output_directions": g.optional([g.choose.randint(0, 1)]),
        "scan_output_axes": g.optional([g.choose.randrange(piece.ndim + 1)]),
    }
    g.emit("Scan", [first, a], 2, body=inner, num_scan_inputs=1, **attrs)
