"""Element-wise ONNX operators: functions, arithmetic, comparisons, logic, casts, selections."""

from __future__ import annotations

import numpy as np

from fuzz.generator import NoFit
from fuzz.graph_draw import node
from fuzz.graph_growth import DTYPES, FLOATS, INTEGERS, Growth, element_type, name_of

PLAIN = {
    "Abs": None, "Acos": "unit", "Acosh": "positive", "Asin": "unit", "Asinh": None, "Atan": None, "Atanh": "unit",
    "Ceil": None, "Cos": None, "Cosh": None, "Erf": None, "Exp": None, "Floor": None, "HardSwish": None,
    "Identity": None, "IsNaN": "special", "Log": "positive", "Mish": None, "Neg": None, "Not": None,
    "Reciprocal": None, "Relu": None, "Round": None, "Sigmoid": None, "Sign": None, "Sin": None, "Sinh": None,
    "Softplus": None, "Softsign": None, "Sqrt": "positive", "Tan": None, "Tanh": None, "BitwiseNot": None,
}  # fmt: skip
"""Functions without attributes, and the values that they are defined on."""
WITH_NUMBERS = {
    "Elu": ("alpha",), "LeakyRelu": ("alpha",), "Selu": ("alpha", "gamma"), "HardSigmoid": ("alpha", "beta"),
    "ThresholdedRelu": ("alpha",), "Celu": ("alpha",), "Shrink": ("bias", "lambd"), "Swish": ("alpha",),
}  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "And", "Or", "Xor", "Equal", "Greater", "Less",
          "GreaterOrEqual", "LessOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor")  # fmt: skip


@node(4)
def function(g: Growth) -> None:
    op, fill = g.choose.choice(list(PLAIN.items()))
    g.emit(op, [g.operand(op, fill=fill if g.maybe(0.7) else None)])


@node(1.5)
def function_of_numbers(g: Growth) -> None:
    op, names = g.choose.choice(list(WITH_NUMBERS.items()))
    odd = (0.5, 1.0, 2.0, 0.0, -1.0, 0.1)
    low = (0.5, 1.0, 2.0) if op == "Celu" else odd
    g.emit(op, [g.operand(op)], **{name: g.optional(g.choose.choice(low)) for name in names})


@node(0.5)
def gelu(g: Growth) -> None:
    g.emit("Gelu", [g.operand("Gelu")], approximate=g.optional(g.choose.choice(("none", "tanh"))))


@node(0.4)
def is_inf(g: Growth) -> None:
    attrs = {name: g.optional(g.choose.randint(0, 1)) for name in ("detect_negative", "detect_positive")}
    g.emit("IsInf", [g.operand("IsInf", fill="special")], **attrs)


@node(4)
def binary(g: Growth) -> None:
    op = g.choose.choice(BINARY)
    a = g.operand(op)
    kind = name_of(g.arrays[a])
    integer = kind in INTEGERS
    fill = "positive" if (op in ("Div", "Mod") and integer) or op == "Pow" else None
    attrs = {}
    if op == "Mod":
        attrs["fmod"] = 1 if not integer else g.optional(g.choose.randint(0, 1))
    if op == "Pow" and g.maybe(0.4) and g.opset >= 12:
        b = g.fresh(g.broadcasting(g.arrays[a].shape), g.dtype("Pow", 1), "unit")
    elif op == "PRelu":
        shape = g.broadcasting(g.arrays[a].shape)
        b = g.fresh(shape[-g.arrays[a].ndim :] if g.arrays[a].ndim else (), kind)
    else:
        b = g.like(a, fill=fill)
    operands = [a, b]
    if op != "PRelu" and fill is None and kind not in INTEGERS and g.maybe(0.3):
        operands.reverse()
    g.emit(op, operands, **attrs)


@node(0.5)
def shift(g: Growth) -> None:
    a = g.operand("BitShift")
    b = g.fresh(g.broadcasting(g.arrays[a].shape), name_of(g.arrays[a]), "index:8")
    g.emit("BitShift", [a, b], direction=g.choose.choice(("LEFT", "RIGHT")))


@node(1.5)
def many(g: Growth) -> None:
    """Min, Max, Sum and Mean of any number of operands."""
    op = g.choose.choice(("Min", "Max", "Sum", "Mean"))
    a = g.operand(op)
    g.emit(op, [a, *(g.like(a) for _ in range(g.choose.choice((0, 1, 1, 2, 3))))])


@node(1.5)
def where(g: Growth) -> None:
    a = g.any_of(g.types("Where", 1))
    condition = g.fresh(g.broadcasting(g.arrays[a].shape), "bool")
    g.emit("Where", [condition, a, g.like(a)] if g.maybe() else [condition, g.like(a), a])


@node(1.5)
def clip(g: Growth) -> None:
    if g.opset < 11:
        a = g.any_of(g.types("Clip"))
        g.emit("Clip", [a], min=g.optional(-0.5), max=g.optional(g.choose.choice((0.25, 3.0))))
        return
    a = g.operand("Clip")
    kind = g.arrays[a].dtype
    low, high = g.choose.choice(((0, 3), (1, 2), (2, 1), (0, 0), (-1, 1)))
    if kind.kind == "u":
        low, high = abs(low), abs(high)
    bounds = [g.known(np.array(n, kind)) if g.maybe(0.7) else None for n in (low, high)]
    g.emit("Clip", [a, *bounds])


@node(3)
def cast(g: Growth) -> None:
    op = "Cast"
    a = g.operand(op)
    try:
        allowed = g.types("Cast", 0)
    except NoFit:
        allowed = list(DTYPES)
    to = g.choose.choice(allowed)
    if g.maybe(0.15) and g.opset >= 19:
        small = g.choose.choice(("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"))
        if name_of(g.arrays[a]) in FLOATS:
            small_cast(g, a, small)
            return
    if g.maybe(0.2) and g.opset >= 15:
        g.emit("CastLike", [a, g.fresh((1,), to)])
        return
    g.emit("Cast", [a], to=element_type(to))


def small_cast(g: Growth, a: str, small: str) -> None:
    """To eight bits and back, in a function body's place: both nodes or none."""
    from onnx import TensorProto, helper

    from fuzz.graph_reference import evaluations

    first, second = g.name(), g.name()
    to = helper.make_node(
        "Cast", [a], [first], to=getattr(TensorProto, small), saturate=g.choose.randint(0, 1)
    )
    found = evaluations(to, g.arrays, g.opset)
    if not found:
        raise NoFit("no reference casts it")
    g.arrays[first] = found[0][0]
    back = helper.make_node("Cast", [first], [second], to=TensorProto.FLOAT)
    g.nodes.append(to)
    try:
        g.add(back)
    except NoFit:
        g.nodes.pop()
        raise
    finally:
        del g.arrays[first]


@node(0.3)
def bit_cast(g: Growth) -> None:
    a = g.operand("BitCast")
    size = g.arrays[a].dtype.itemsize
    wanted = [
        n
        for n in g.types("BitCast")
        if n != "bool" and np.dtype(n if n != "bfloat16" else "float16").itemsize == size
    ]
    g.emit("BitCast", [a], to=element_type(g.choose.choice(wanted or ["float32"])))
