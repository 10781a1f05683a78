"""Random element-wise kernels: arithmetic of every dtype with broadcasting, comparisons, conversions, functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernel_draws import FLOATS, INTEGERS, Case, Draw

ALL = (*FLOATS, *INTEGERS)


def broadcast(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`."""
    kept = [1 if draw.flip(0.3) else extent for extent in shape]
    return tuple(kept[draw.pick([0, 0, 0, 1]) if len(kept) > 1 else 0 :])


def pair(draw: Draw, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    shape = draw.shape(draw.random.randint(1, 4))
    tensors = draw.tensor(shape, dtype), draw.tensor(broadcast(draw, shape), dtype)
    return tensors if draw.flip() else tensors[::-1]


def arithmetic(draw: Draw) -> Case:
    """One rounding each, so the results agree exactly."""
    dtype = draw.pick(ALL)
    forms = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "abs": lambda x, y: x.abs() + 0 * y,
        "neg": lambda x, y: (-x, -y),
        "sign": lambda x, y: (x.sign(), y.sign()),
        "clamp": lambda x, y: (x.clamp(1, 3), y.clamp(min=2)),
        "relu": lambda x, y: (torch.relu(x), y.square()),
        "scalar": lambda x, y: (x + 3, y * 2, 5 - x),
    }
    form = draw.pick(list(forms))
    x, y = pair(draw, dtype)
    return Case(f"{form} {[*x.shape]} {[*y.shape]} {dtype}", forms[form], (x, y), (), 0)


def division(draw: Draw) -> Case:
    """Quotients and remainders of every sign, and shifts."""
    dtype = draw.pick(ALL)
    x, y = pair(draw, dtype)
    y = torch.where(y == 0, torch.ones((), dtype=dtype), y)
    forms = {
        "true": torch.div,
        "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        "remainder": torch.remainder,
        "fmod": torch.fmod,
        "floordiv": lambda x, y: x // y,
        "by_scalar": lambda x, y: (x // 3, y % 4, x / 7),
        "by_negative": lambda x, y: (torch.div(x, -3, rounding_mode="floor"), torch.remainder(y, -4)),
    }
    shifts = {
        "shift_left": lambda x, y: x << (y & 3),
        "shift_right": lambda x, y: x >> (y & 7),
        "bits": lambda x, y: (x & y, x | y, x ^ y, ~x),
    }
    if not dtype.is_floating_point:
        forms |= shifts
    if dtype == torch.uint8:
        del forms["by_negative"]
    form = draw.pick(list(forms))
    name = f"{form} {[*x.shape]} {[*y.shape]} {dtype}"
    exact = not dtype.is_floating_point or (form in ("true", "trunc", "fmod") and dtype in FLOATS[:2])
    return Case(
        name, forms[form], (x, y), (), 0 if exact and form not in ("true", "by_scalar") else None, slack=4
    )


def extremes(draw: Draw) -> Case:
    """NaN, infinities and both zeros through everything that compares."""
    dtype = draw.pick(FLOATS)
    shape = draw.shape(draw.random.randint(1, 3))
    x, y = draw.special(shape, dtype), draw.special(shape, dtype)
    forms = {
        "maximum": lambda x, y: (torch.maximum(x, y) + 0.0, torch.minimum(x, y) + 0.0),
        "fmax": lambda x, y: (torch.fmax(x, y) + 0.0, torch.fmin(x, y) + 0.0),
        "compare": lambda x, y: (x < y, x <= y, x == y, x != y, x > y, x >= y),
        "predicates": lambda x, y: (x.isnan(), y.isinf(), torch.isfinite(x), torch.signbit(y)),
        "where": lambda x, y: torch.where(x > y, x, y),
        "relu": lambda x, y: (torch.relu(x) + 0.0, F.relu6(y) + 0.0),
        "clamp": lambda x, y: (x.clamp(-1, 1), y.clamp(min=0.5)),
        "nan_to_num": lambda x, y: (torch.nan_to_num(x), torch.nan_to_num(y, 1.0, 2.0, 3.0)),
        "negate": lambda x, y: (-x, y.abs(), 0.0 - x, x * 0.0, x + 0.0),
        "sign": lambda x, y: (torch.sign(x), torch.copysign(x.nan_to_num(), y)),
        "rounding": lambda x, y: (x.floor(), y.ceil(), x.round(), y.trunc()),
        "product": lambda x, y: (x * y, x + y, x - y),
        "threshold": lambda x, y: (F.leaky_relu(x), F.hardtanh(y), F.threshold(x, 0.5, 2.0)),
        "logical": lambda x, y: (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_not(x)),
    }
    form = draw.pick(list(forms))
    return Case(f"special {form} {[*shape]} {dtype}", forms[form], (x, y), (), 0)


def choices(draw: Draw) -> Case:
    """Selections by masks, and comparisons that give booleans."""
    dtype = draw.pick((*ALL, torch.bool))
    shape = draw.shape(draw.random.randint(1, 4))
    x, y = draw.tensor(shape, dtype), draw.tensor(broadcast(draw, shape), dtype)
    mask = draw.tensor(broadcast(draw, shape), torch.bool)
    forms = {
        "where": lambda x, y, m: torch.where(m, x, y),
        "masked_fill": lambda x, y, m: x.masked_fill(m, 1),
        "where_scalar": lambda x, y, m: torch.where(m, x, 0),
        "compare": lambda x, y, m: (x == y) | m,
        "not_equal": lambda x, y, m: (x != y) & ~m,
        "xor": lambda x, y, m: m ^ (x == y),
        "to_bool": lambda x, y, m: (x.bool(), y.to(torch.int64), m.to(torch.float32)),
        "returned_masks": lambda x, y, m: (m.clone(), m.logical_not(), x == x),
    }
    form = draw.pick(list(forms))
    name = f"{form} {[*x.shape]} {[*y.shape]} {[*mask.shape]} {dtype}"
    return Case(name, forms[form], (x, y, mask), (), 0)


def conversions(draw: Draw) -> Case:
    """From every dtype to every other, promotion included."""
    kinds = (*ALL, torch.bool)
    source, target, other = draw.pick(kinds), draw.pick(kinds), draw.pick(kinds)
    shape = draw.shape(draw.random.randint(1, 3))
    x, y = draw.tensor(shape, source), draw.tensor(shape, other)
    if source.is_floating_point:
        x = x * 8
        if target == torch.uint8:
            x = x.abs()
    form = draw.pick(["to", "to", "promote", "there_and_back"])
    name = f"{form} {[*shape]} {source} -> {target} ({other})"
    if form == "promote":
        return Case(
            name,
            lambda x, y: x + y if x.dtype != torch.bool or y.dtype != torch.bool else x & y,
            (x, y),
            (),
            0,
        )
    if form == "there_and_back":
        return Case(name, lambda x: x.to(target).to(torch.float32), (x,), (), 0)
    return Case(name, lambda x: x.to(target), (x,), (), 0)


def functions(draw: Draw) -> Case:
    """Transcendental functions and activations."""
    dtype = draw.dtype()
    shape = draw.shape(draw.random.randint(1, 3))
    x = draw.tensor(shape, dtype)
    one = {
        "exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "sin": torch.sin,
        "cos": torch.cos, "log": lambda x: torch.log(x.abs() + 0.5), "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.5),
        "sqrt": lambda x: torch.sqrt(x.abs()), "pow": lambda x: (x.abs() + 0.1) ** 1.7, "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "softplus": F.softplus, "mish": F.mish,
        "elu": F.elu, "selu": F.selu, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "atan": torch.atan,
        "expm1": torch.expm1, "log1p": lambda x: torch.log1p(x.abs()), "reciprocal": lambda x: 1 / (x.abs() + 0.5),
        "square": torch.square, "cube": lambda x: x**3, "chain": lambda x: torch.tanh(x * 0.5 + 1) * F.relu(x) - 2,
        "softsign": F.softsign, "logsigmoid": F.logsigmoid, "celu": F.celu, "exp2": torch.exp2, "log2": lambda x: torch.log2(x.abs() + 0.5),
        "atan2": lambda x: torch.atan2(x, x.flip(0)), "hypot": lambda x: torch.hypot(x, x.flip(0)),
        "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3), "addcmul": lambda x: torch.addcmul(x, x, x.flip(0), value=0.5),
    }  # fmt: skip
    form = draw.pick(list(one))
    return Case(f"{form} {[*shape]} {dtype}", one[form], (x,), slack=24)


def ranks(draw: Draw) -> Case:
    """Scalars, scalars between kernels, tensors without elements, and results that are views or constants."""
    x, y = draw.tensor((draw.extent(9), draw.extent(9))), draw.tensor(())
    forms = {
        "scalar": lambda x, y: y + 1,
        "scalars": lambda x, y: x * y + y.exp() * 0,
        "reduced": lambda x, y: x / (x.square().sum() + 1),
        "maximum": lambda x, y: x - x.max(),
        "empty": lambda x, y: (x[:0], x[:0].sum(), x[:, :0].sum(1), torch.cat([x, x[:0]])),
        "empty_product": lambda x, y: x[:, :0] @ x[:, :0].T,
        "empty_function": lambda x, y: (torch.relu(x[:0]), x[:0].sum(0), x[:0].reshape(0)),
        "views": lambda x, y: (x.T, x.reshape(-1), x[None]),
        "constants": lambda x, y: (
            torch.ones(3),
            torch.arange(5),
            torch.full((2,), 2.5),
            x + torch.eye(x.shape[1])[:1],
        ),
        "twice": lambda x, y: (x + 1, x + 1, x),
        "indices": lambda x, y: torch.arange(x.shape[0])[:, None] * x + torch.linspace(0, 1, x.shape[1]),
        "triangle": lambda x, y: torch.triu(torch.ones(7, 7), 1) * 2,
        "picked": lambda x, y: x[0, 0] * x[-1],
        "deep": lambda x, y: (x.sum() * y).expand(3, 2) + x.mean(),
    }
    form = draw.pick(list(forms))
    return Case(f"{form} {[*x.shape]}", forms[form], (x, y), slack=16)


KINDS = {
    "arithmetic": arithmetic,
    "division": division,
    "extremes": extremes,
    "choices": choices,
    "conversions": conversions,
    "functions": functions,
    "ranks": ranks,
}
