"""ONNX operators on quantised numbers."""

from __future__ import annotations

from fuzz.graph_draw import node
from fuzz.graph_growth import Growth, name_of

BYTES = ("uint8", "int8")


def scale(g: Growth, shape: tuple[int, ...] = (), kind: str = "float32") -> str:
    return g.fresh(shape, kind, "positive")


@node(1.5)
def quantise(g: Growth) -> None:
    op = "QuantizeLinear"
    x = g.any_of(g.types(op), 1, 4, fill="normal")
    kind = g.dtype(op, 2, ("uint8", "int8", "int16", "uint16"))
    shape, axis = (), None
    if g.opset >= 13 and g.maybe(0.4):
        axis = g.axis(g.arrays[x].ndim)
        shape = (g.arrays[x].shape[axis],)
    of = name_of(g.arrays[x]) if name_of(g.arrays[x]) in g.types(op, 1) else "float32"
    zero = g.fresh(shape, kind, "normal") if g.maybe(0.7) else None
    (q,) = g.emit(op, [x, scale(g, shape, of), zero], axis=axis)
    if g.maybe(0.6):
        dequantise(g, q)


def dequantise(g: Growth, q: str) -> None:
    op = "DequantizeLinear"
    if name_of(g.arrays[q]) not in g.types(op):
        return
    shape, axis = (), None
    if g.opset >= 13 and g.maybe(0.4) and g.arrays[q].ndim:
        axis = g.axis(g.arrays[q].ndim)
        shape = (g.arrays[q].shape[axis],)
    zero = g.fresh(shape, name_of(g.arrays[q]), "normal") if g.maybe() else None
    g.emit(op, [q, scale(g, shape), zero], axis=axis)


@node(1)
def dequantised(g: Growth) -> None:
    kind = g.dtype("DequantizeLinear", 0, ("uint8", "int8", "int32", "int16", "uint16"))
    dequantise(g, g.fresh(g.shape(1), kind, "normal"))


@node(0.5)
def dynamic(g: Growth) -> None:
    g.emit("DynamicQuantizeLinear", [g.fresh(g.shape(0), "float32", "normal")], 3)


@node(1)
def integer_product(g: Growth) -> None:
    m, k, n = (g.choose.choice((1, 2, 3, 5)) for _ in range(3))
    batch = g.choose.choice(((), (), (2,)))
    kinds = [g.choose.choice(BYTES) for _ in range(2)]
    a, b = g.fresh((*batch, m, k), kinds[0], "special"), g.fresh((k, n), kinds[1], "special")
    zeros = [g.fresh((), kind, "normal") if g.maybe() else None for kind in kinds]
    g.emit("MatMulInteger", [a, b, *zeros])


@node(1)
def quantised_product(g: Growth) -> None:
    op = "QLinearMatMul"
    m, k, n = (g.choose.choice((1, 2, 3, 5)) for _ in range(3))
    kinds = [g.choose.choice(BYTES) for _ in range(3)]
    operands = []
    for shape, kind in (((m, k), kinds[0]), ((k, n), kinds[1])):
        operands += [g.fresh(shape, kind, "special"), scale(g), g.fresh((), kind, "normal")]
    g.emit(op, [*operands, scale(g), g.fresh((), kinds[2], "normal")])


@node(1)
def quantised_convolution(g: Growth) -> None:
    op = g.choose.choice(("QLinearConv", "ConvInteger"))
    kinds = [g.choose.choice(BYTES) for _ in range(2)]
    c, count = g.choose.randint(1, 3), g.choose.randint(1, 3)
    x = g.fresh((1, c, g.choose.randint(2, 5), g.choose.randint(2, 5)), kinds[0], "special")
    w = g.fresh((count, c, 2, 2), kinds[1], "special")
    attrs = {
        "pads": g.optional([1, 0, 1, 1]),
        "strides": g.optional([2, 1]),
        "kernel_shape": g.optional([2, 2]),
    }
    zeros = [g.fresh((), kind, "normal") for kind in kinds]
    if op == "ConvInteger":
        g.emit(op, [x, w, *zeros], **attrs)
        return
    bias = g.fresh((count,), "int32", "normal") if g.maybe() else None
    last = g.fresh((), kinds[0], "normal")
    g.emit(op, [x, scale(g), zeros[0], w, scale(g), zeros[1], scale(g), last, bias], **attrs)
