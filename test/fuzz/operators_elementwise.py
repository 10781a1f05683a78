"""Element-wise functions of one, two and three tensors, comparisons, selections and activations."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.generator import Growth, dtype_of
from fuzz.tensors import FLOATS, INTEGERS

_ANY = (*FLOATS, *INTEGERS, "bool")
_EXACT = ["abs", "neg", "relu", "sign", "sgn", "floor", "ceil", "round", "trunc", "positive", "square"]
_FUNCTIONS = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "digamma",
    "logit",
    "deg2rad",
    "rad2deg",
    "sinc",
    "frac",
    "i0",
]
_PREDICATES = ["isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not", "isreal"]
_ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softsign",
    "tanhshrink",
    "hardtanh",
    "hardshrink",
    "softshrink",
]
_CANCELLING = ("tanhshrink", "logit", "lgamma", "digamma", "gelu", "acosh", "erfinv", "sinc")
"""Functions whose results near zero are small differences of large numbers, in eager PyTorch too."""
_ARITHMETIC = ["add", "sub", "mul", "div", "maximum", "minimum"]
_PAIRS = [
    "atan2",
    "fmax",
    "fmin",
    "hypot",
    "logaddexp",
    "copysign",
    "remainder",
    "fmod",
    "floor_divide",
    "heaviside",
    "xlogy",
    "pow",
    "logaddexp2",
    "ldexp",
]
_COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


@operator(3)
def exact_unary(g: Growth) -> None:
    a = g.any_of(_ANY)
    g.emit(f"torch.{g.choose.choice(_EXACT)}({a})", "once")


@operator(4)
def function(g: Growth) -> None:
    a = g.floating() if g.choose.random() < 0.85 else g.any_of(_ANY)
    name = g.choose.choice(_FUNCTIONS[:17] if g.choose.random() < 0.5 else _FUNCTIONS)
    if g.plain and name in ("log", "log2", "log10", "sqrt", "rsqrt", "lgamma", "reciprocal", "digamma"):
        a = g.emit(f"{a}.abs() + 0.5", "once")
    if name in ("asin", "acos", "atanh", "erfinv", "logit") and (g.plain or g.choose.random() < 0.7):
        a = g.emit(f"torch.sigmoid({a})" if name == "logit" else f"torch.tanh({a}) * 0.9", "once")
    g.emit(f"torch.{name}({a})", "inside" if name in _CANCELLING else "once")


@operator(1.5, plain=False)
def predicate(g: Growth) -> None:
    g.emit(f"torch.{g.choose.choice(_PREDICATES)}({g.any_of(_ANY)})")


@operator(3)
def activation(g: Growth) -> None:
    a, name = g.floating(), g.choose.choice(_ACTIVATIONS)
    options = {
        "gelu": ["", ", approximate='tanh'"],
        "leaky_relu": ["", ", 0.2"],
        "elu": ["", ", 0.7"],
        "hardtanh": ["", ", -0.5, 0.7"],
        "softplus": ["", ", 2.0, 5.0"],
    }.get(name, [""])
    g.emit(f"F.{name}({a}{g.choose.choice(options)})", "inside" if name in _CANCELLING else "once")


def scalar(g: Growth, dtype: str) -> str:
    """A Python number that suits a dtype."""
    if dtype in FLOATS:
        return g.choose.choice(("0.5", "2", "-1.5", "3.0", "0", "1", "-1", "1e-3", "0.1", "100"))
    if dtype == "bool":
        return g.choose.choice(("True", "False", "1", "0", "2"))
    return g.choose.choice(("1", "2", "3", "0", "7", "-1", "-2", "5", "100"))


@operator(7)
def arithmetic(g: Growth) -> None:
    a = g.any_of(_ANY)
    kind = dtype_of(g.values[a])
    b = g.like(a) if g.choose.random() < 0.75 else scalar(g, kind)
    if g.choose.random() < 0.12:
        b = g.like(a, g.choose.choice(_ANY))
    name = g.choose.choice(_ARITHMETIC)
    if b[0] not in "xvwc" and name in ("maximum", "minimum"):
        b = f"torch.tensor({b})" if g.choose.random() < 0.5 else g.like(a)
    if b[0] not in "xvwct" and g.choose.random() < 0.3:
        symbol = {"add": "+", "sub": "-", "mul": "*", "div": "/"}.get(name, "+")
        g.emit(f"{b} {symbol} {a}", "once")
    elif name in ("add", "sub") and g.choose.random() < 0.2:
        alpha = g.choose.choice((2, -1, 3)) if kind not in FLOATS else g.choose.choice((2, 0.5, -1.5))
        # The product of another number than a power of two is rounded, or not, before the sum, which may cancel it.
        g.emit(f"torch.{name}({a}, {b}, alpha={alpha})", "sum" if alpha == -1.5 else "once")
    else:
        g.emit(f"torch.{name}({a}, {b})", "once")


@operator(2)
def pair(g: Growth) -> None:
    name = g.choose.choice(_PAIRS)
    a = g.floating() if g.choose.random() < 0.7 else g.any_of(_ANY)
    b = g.like(a) if g.choose.random() < 0.85 else scalar(g, dtype_of(g.values[a]))
    if g.plain or (name == "pow" and g.choose.random() < 0.7):
        if name in ("pow", "xlogy"):
            a, b = (g.emit(f"{n}.abs() + 0.5", "once") if n in g.values else n for n in (a, b))
        elif name in ("remainder", "fmod", "floor_divide", "hypot"):
            b = g.emit(f"{b}.abs() + 1", "once") if b in g.values else "2"
    if b not in g.values and name not in ("remainder", "fmod", "floor_divide", "pow", "xlogy"):
        b = f"torch.full_like({a}, {b})"
    g.emit(f"torch.{name}({a}, {b})", "once")


@operator(1.0)
def power(g: Growth) -> None:
    a = g.any_of(_ANY)
    form = g.choose.choice(
        ("{0} ** 2", "{0} ** 3", "torch.pow({0}, 4)", "2 ** {0}", "{0} ** 0.5", "{0} ** -1", "{0} ** -0.5")
    )
    if g.plain:
        a = g.emit(f"{a}.abs() + 0.5", "once")
    g.emit(form.format(a), "once")


@operator(1.2, plain=False)
def integer_division(g: Growth) -> None:
    a = g.any_of(INTEGERS)
    b = g.like(a, fill="positive") if g.choose.random() < 0.7 else g.choose.choice(("2", "3", "-3", "7"))
    form = g.choose.choice(
        (
            "{0} // {1}",
            "{0} % {1}",
            "torch.fmod({0}, {1})",
            "torch.div({0}, {1}, rounding_mode='trunc')",
            "{0} / {1}",
            "torch.div({0}, {1}, rounding_mode='floor')",
            "torch.remainder({0}, {1})",
        )
    )
    g.emit(form.format(a, b), "once")


@operator(1)
def rounded_division(g: Growth) -> None:
    a = g.floating()
    b = g.like(a) if g.choose.random() < 0.6 else g.choose.choice(("2", "0.7", "-3"))
    g.emit(f"torch.div({a}, {b}, rounding_mode='{g.choose.choice(('trunc', 'floor'))}')", "once")


@operator(2.5, plain=False)
def comparison(g: Growth) -> None:
    a = g.any_of(_ANY)
    b = g.like(a) if g.choose.random() < 0.6 else scalar(g, dtype_of(g.values[a]))
    g.emit(f"torch.{g.choose.choice(_COMPARISONS)}({a}, {b})")


@operator(1.5, plain=False)
def logic(g: Growth) -> None:
    a = g.any_of(("bool",)) if g.choose.random() < 0.6 else g.any_of(_ANY)
    name = g.choose.choice(("and", "or", "xor"))
    g.emit(f"torch.logical_{name}({a}, {g.like(a)})")


@operator(1.5, plain=False)
def bitwise(g: Growth) -> None:
    a = g.any_of((*INTEGERS, "bool"))
    draw = g.choose.random()
    if draw < 0.2:
        g.emit(f"torch.bitwise_not({a})")
    elif draw < 0.4 and dtype_of(g.values[a]) != "bool":
        g.emit(f"{a} {g.choose.choice(('<<', '>>'))} {g.choose.choice((1, 2, 3))}")
    else:
        b = g.like(a) if g.choose.random() < 0.7 else scalar(g, dtype_of(g.values[a]))
        g.emit(f"torch.bitwise_{g.choose.choice(('and', 'or', 'xor'))}({a}, {b})")


@operator(3, plain=False)
def where(g: Growth) -> None:
    a = g.any_of(_ANY)
    c = g.like(a, "bool")
    b = g.like(a) if g.choose.random() < 0.6 else scalar(g, dtype_of(g.values[a]))
    if g.choose.random() < 0.1:
        b = a
    form = g.choose.choice(
        ("torch.where({c}, {a}, {b})", "torch.where({c}, {b}, {a})", "torch.where(~{c}, {a}, {b})")
    )
    g.emit(form.format(a=a, b=b, c=c))


@operator(1.5, plain=False)
def masked_fill(g: Growth) -> None:
    a = g.any_of(_ANY)
    kind = dtype_of(g.values[a])
    fill = g.choose.choice((scalar(g, kind), "-inf")) if kind in FLOATS else scalar(g, kind)
    g.emit(f"{a}.masked_fill({g.like(a, 'bool')}, {fill})")


@operator(1.5)
def clamp(g: Growth) -> None:
    a = g.any_of(_ANY)
    forms = [
        "torch.clamp({0}, -1, 1)",
        "torch.clamp({0}, min=0)",
        "torch.clamp({0}, max=2)",
        "{0}.clip(1, 3)",
    ]
    if not g.plain:
        forms += ["torch.clamp({0}, min={1})", "torch.clamp({0}, {1}, {2})", "torch.clamp({0}, -0.5, 2.5)"]
    form = g.choose.choice(forms)
    g.emit(form.format(a, g.like(a) if "{1}" in form else "", g.like(a) if "{2}" in form else ""), "once")


@operator(1)
def ternary(g: Growth) -> None:
    a = g.floating() if g.choose.random() < 0.85 else g.any_of(INTEGERS)
    b, c = g.like(a), g.like(a)
    form = g.choose.choice(
        (
            "torch.lerp({a}, {b}, 0.3)",
            "torch.lerp({a}, {b}, {c})",
            "torch.addcmul({a}, {b}, {c}, value=2)",
            "torch.addcdiv({a}, {b}, {c}.abs() + 1, value=0.5)",
            "torch.addcmul({a}, {b}, {c})",
        )
    )
    g.emit(form.format(a=a, b=b, c=c), "sum")


@operator(0.8, plain=False)
def nan_to_num(g: Growth) -> None:
    a = g.any_of(_ANY)
    g.emit(f"torch.nan_to_num({a}{g.choose.choice(('', ', 0.5', ', 1.0, 2.0, -2.0'))})")


@operator(0.5)
def threshold(g: Growth) -> None:
    g.emit(f"F.threshold({g.any_of((*FLOATS, 'int64'))}, 0.1, 20)")


@operator(0.6)
def gated(g: Growth) -> None:
    a = g.pick(lambda v: dtype_of(v) in FLOATS and v.dim() > 0 and v.shape[-1] % 2 == 0)
    g.emit(f"F.glu({a}, -1)", "once")


@operator(0.8)
def losses(g: Growth) -> None:
    a = g.floating(1)
    name = g.choose.choice(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"))
    reduction = g.choose.choice(("mean", "sum", "none"))
    b = g.new(g.values[a].shape, dtype_of(g.values[a]))
    g.emit(f"F.{name}({a}, {b}, reduction='{reduction}')", "sum")
