"""ONNX reductions, searches, sorts and scans."""

from __future__ import annotations

import numpy as np

from fuzz.generator import NoFit
from fuzz.graph_draw import node
from fuzz.graph_growth import Growth, name_of
from fuzz.graph_movement import axes_of

REDUCTIONS = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip


@node(5)
def reduction(g: Growth) -> None:
    op = g.choose.choice(REDUCTIONS)
    a = g.operand(op, fill="positive" if op == "ReduceLogSum" and g.maybe(0.8) else None)
    rank = g.arrays[a].ndim
    axes = axes_of(g, rank) if g.maybe(0.75) and rank else None
    attrs = {"keepdims": g.optional(g.choose.randint(0, 1))}
    if g.opset >= (13 if op == "ReduceSum" else 18):
        given = [a]
        if axes is not None or g.maybe(0.4):
            given.append(g.ints(*(axes or ())))
        g.emit(op, given, noop_with_empty_axes=g.optional(g.choose.randint(0, 1), 0.4), **attrs)
        return
    if axes is not None and g.opset < 11:
        axes = [axis % rank for axis in axes]
    g.emit(op, [a], axes=axes, **attrs)


@node(2)
def argument(g: Growth) -> None:
    op = g.choose.choice(("ArgMax", "ArgMin"))
    a = g.operand(op, 1, fill=g.choose.choice((None, "integers", "normal")))
    if not g.arrays[a].size:
        raise NoFit("of nothing")
    axis = g.axis(g.arrays[a].ndim)
    if g.opset < 11:
        axis %= g.arrays[a].ndim
    last = g.optional(g.choose.randint(0, 1)) if g.opset >= 12 else None
    g.emit(
        op,
        [a],
        axis=axis if axis else g.optional(0),
        keepdims=g.optional(g.choose.randint(0, 1)),
        select_last_index=last,
    )


@node(1.5)
def top(g: Growth) -> None:
    a = g.operand("TopK", 1, fill=g.choose.choice((None, "normal")))
    axis = g.axis(g.arrays[a].ndim)
    n = g.arrays[a].shape[axis]
    k = g.choose.randint(min(1, n), n)
    place = axis if axis != -1 else g.optional(-1)
    if g.opset < 10:
        g.emit("TopK", [a], 2, k=k, axis=place)
        return
    attrs = {"largest": g.optional(g.choose.randint(0, 1)), "sorted": g.optional(1)} if g.opset >= 11 else {}
    g.emit("TopK", [a, g.ints(k)], 2, axis=place, **attrs)


@node(1.5)
def cumulative(g: Growth) -> None:
    op = "CumProd" if g.opset >= 26 and g.maybe(0.3) else "CumSum"
    a = g.operand(op, 1)
    axis = np.array(g.axis(g.arrays[a].ndim), g.choose.choice((np.int64, np.int32)))
    attrs = {name: g.optional(g.choose.randint(0, 1)) for name in ("exclusive", "reverse")}
    g.emit(op, [a, g.known(axis)], **attrs)


@node(2.5)
def softmax(g: Growth) -> None:
    op = g.choose.choice(("Softmax", "LogSoftmax", "Hardmax"))
    a = g.operand(op, 1)
    axis = g.axis(g.arrays[a].ndim)
    if g.opset < 11:
        axis %= g.arrays[a].ndim
    if g.arrays[a].ndim == 1 and g.opset < 13:
        axis = 0
    g.emit(op, [a], axis=g.optional(axis, 0.8) if g.arrays[a].ndim > 1 else axis)


@node(0.7)
def norm_of_vectors(g: Growth) -> None:
    op = g.choose.choice(("LpNormalization", "MeanVarianceNormalization"))
    a = g.operand(op, 2)
    if op == "LpNormalization":
        axis = g.axis(g.arrays[a].ndim)
        g.emit(op, [a], axis=g.optional(axis), p=g.optional(g.choose.choice((1, 2))))
    else:
        g.emit(op, [a], axes=axes_of(g, g.arrays[a].ndim))


@node(0.7)
def loss(g: Growth) -> None:
    op = g.choose.choice(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    dtype = g.dtype(op)
    classes = g.choose.randint(1, 5)
    shape = (g.choose.randint(1, 3), classes, *g.shape(0, 2))
    x = g.fresh(shape, dtype, "normal")
    target = g.fresh((shape[0], *shape[2:]), g.choose.choice(("int64", "int32")), f"index:{classes}")
    weight = g.fresh((classes,), name_of(g.arrays[x]), "positive") if g.maybe() else None
    attrs = {
        "reduction": g.optional(g.choose.choice(("none", "sum", "mean"))),
        "ignore_index": g.optional(g.choose.choice((0, -1, classes - 1)), 0.4),
    }
    outputs = 2 if op.startswith("Softmax") and g.maybe() else 1
    g.emit(op, [x, target, weight], outputs, **attrs)
