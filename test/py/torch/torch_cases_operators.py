"""Elementwise operators and reductions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch_cases import case, made, module, randn

# Elementwise, one argument. Some want arguments inside a domain: `positive`, `unit`.
_UNARY = [
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "logit",
    "nan_to_num",
    "neg",
    "positive",
    "rad2deg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "i0",
]
_DOMAIN = {
    **dict.fromkeys(
        ["log", "log10", "log1p", "log2", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"],
        lambda x: x.abs() + 0.1,
    ),
    **dict.fromkeys(["acos", "asin", "atanh", "erfinv", "logit"], lambda x: torch.sigmoid(x) * 0.9 + 0.05),
    "acosh": lambda x: x.abs() + 1.1,
}
for _name in _UNARY:
    _f, _d = getattr(torch, _name), _DOMAIN.get(_name, lambda x: x)
    made(f"unary_{_name}", lambda f=_f, d=_d: (lambda x: f(x), (d(randn(3, 5)),)))
for _name in ["abs", "neg", "sign", "square", "relu", "bitwise_not", "sgn"]:
    case(f"unary_{_name}_i64", getattr(torch, _name), (3, 4), dtype=torch.int64)
for _dtype in (torch.float64, torch.float16, torch.bfloat16):
    for _name in ["exp", "tanh", "sigmoid", "sqrt", "rsqrt", "abs", "neg", "relu", "erf", "sin", "floor"]:
        _f, _d = getattr(torch, _name), _DOMAIN.get(_name, lambda x: x)
        made(
            f"unary_{_name}_{str(_dtype)[6:]}",
            lambda f=_f, d=_d, t=_dtype: (lambda x: f(x), (d(randn(3, 5)).to(t),)),
            1e-4 if _dtype == torch.float64 else 2e-2,
        )

_ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
]
for _name in _ACTIVATIONS:
    case(f"activation_{_name}", getattr(F, _name), (3, 4, 5))
    case(f"activation_{_name}_bf16", getattr(F, _name), (3, 4), dtype=torch.bfloat16)
case("activation_gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), (3, 4, 5))
case("activation_threshold", lambda x: F.threshold(x, 0.1, 20.0), (3, 4))
case("activation_glu", lambda x: F.glu(x, 1), (3, 4, 5))
case("activation_softmax", lambda x: F.softmax(x, -1), (3, 4, 5))
case("activation_softmax_0", lambda x: F.softmax(x, 0), (3, 4, 5))
case("activation_softmax_bf16", lambda x: F.softmax(x, -1), (3, 4, 5), dtype=torch.bfloat16)
case("activation_softmax_f64", lambda x: F.softmax(x, 1), (3, 4, 5), dtype=torch.float64)
case("activation_softmin", lambda x: F.softmin(x, 1), (3, 4, 5))
case("activation_log_softmax", lambda x: F.log_softmax(x, -1), (3, 4, 5))
case("activation_logsumexp", lambda x: torch.logsumexp(x, 1), (3, 4, 5))
case("activation_softmax_dtype", lambda x: F.softmax(x, -1, dtype=torch.float64), (3, 4))
module("activation_prelu", lambda: nn.PReLU(4), (3, 4, 5))
module("activation_rrelu", nn.RReLU, (3, 4, 5))
module("activation_softmax2d", nn.Softmax2d, (2, 3, 4, 5))

_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "atan2",
    "fmax",
    "fmin",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "copysign",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "remainder",
    "fmod",
    "floor_divide",
    "heaviside",
    "xlogy",
    "ldexp",
]
for _name in _BINARY:
    case(f"binary_{_name}", getattr(torch, _name), (3, 4, 5), (4, 1))
for _dtype in (torch.int64, torch.int32, torch.uint8, torch.float64, torch.bfloat16, torch.float16):
    for _name in ["add", "sub", "mul", "maximum", "minimum", "eq", "lt", "ge"]:
        case(f"binary_{_name}_{str(_dtype)[6:]}", getattr(torch, _name), (3, 4), (4,), dtype=_dtype)
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    case(f"binary_{_name}_i64", getattr(torch, _name), (3, 4), (4,), dtype=torch.int64)
    case(f"binary_{_name}_bool", getattr(torch, _name), (3, 4), (4,), dtype=torch.bool)
for _name in ["logical_and", "logical_or", "logical_xor"]:
    case(f"binary_{_name}", getattr(torch, _name), (3, 4), (4,))
    case(f"binary_{_name}_bool", getattr(torch, _name), (3, 4), (4,), dtype=torch.bool)
case("binary_div_i64", lambda x, y: x / (y * y + 1), (3, 4), (4,), dtype=torch.int64)
case("binary_floordiv_i64", lambda x, y: x // (y * y + 1), (3, 4), (4,), dtype=torch.int64)
case("binary_mod_i64", lambda x, y: x % (y * y + 1), (3, 4), (4,), dtype=torch.int64)
case("binary_shift_i64", lambda x: (x << 2) + (x >> 1), (3, 4), dtype=torch.int64)
case("binary_div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), (3, 4), (4,))
case("binary_div_floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), (3, 4), (4,))
case("binary_pow", lambda x, y: torch.pow(x.abs() + 0.1, y), (3, 4), (4,))
case("binary_pow_scalar", lambda x: x**2 + x**3 + (x.abs() + 0.1) ** 0.5 + 2**x, (3, 4))
case("binary_add_alpha", lambda x, y: torch.add(x, y, alpha=2) + torch.sub(x, y, alpha=3), (3, 4), (4,))
case("binary_rsub", lambda x: 1 - x, (3, 4))
case("binary_scalar_div", lambda x: 1 / (x.abs() + 1), (3, 4))
case("binary_lerp", lambda x, y: torch.lerp(x, y, 0.3), (3, 4), (3, 4))
case("binary_addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), (3, 4), (3, 4), (4,))
case("binary_addcdiv", lambda x, y, z: torch.addcdiv(x, y, z.abs() + 1, value=0.5), (3, 4), (3, 4), (4,))
made("binary_promote", lambda: (lambda x, y: x + y, (randn(3, 4), randn(4, dtype=torch.int64))))
made("binary_promote_bool", lambda: (lambda x, y: x * y, (randn(3, 4), randn(4, dtype=torch.bool))))
made("binary_promote_f64", lambda: (lambda x, y: x - y, (randn(3, 4), randn(4, dtype=torch.float64))))
case("clamp", lambda x: torch.clamp(x, -0.5, 0.5) + x.clamp_min(0.1) + x.clamp_max(0.3), (3, 4))
case("clamp_tensor", lambda x, y: torch.clamp(x, y - 0.5, y + 0.5), (3, 4), (3, 4))
case("clamp_i64", lambda x: torch.clamp(x, -2, 2), (3, 4), dtype=torch.int64)
case("isclose", lambda x: torch.isclose(x, x + 1e-9), (3, 4))
case("where", lambda x, y: torch.where(x > 0, x, y), (3, 4), (4,))
case("where_scalar", lambda x: torch.where(x > 0, x, 0.0) + torch.where(x > 0, 1.0, x), (3, 4))
case("masked_fill", lambda x: x.masked_fill(x > 0, -1.0), (3, 4))
case("masked_fill_inf", lambda x: torch.softmax(x.masked_fill(x > 0, float("-inf")), -1), (3, 40))
made(
    "to_dtypes",
    lambda: (lambda x: (x.double(), x.int(), x.bool(), x.half(), x.bfloat16()), (randn(3, 4) * 5,)),
)
made("to_uint8", lambda: (lambda x: x.to(torch.uint8) + 7, (torch.randint(0, 200, (3, 4)),)))
made(
    "uint8_to_float", lambda: (lambda x: x.float() / 255, (torch.randint(0, 256, (3, 4), dtype=torch.uint8),))
)

# Reductions.
for _name in ["sum", "mean", "prod", "amax", "amin", "std", "var", "logsumexp"]:
    _f = getattr(torch, _name)
    if _name != "logsumexp":
        case(f"reduce_{_name}_all", lambda x, f=_f: f(x), (3, 4, 5))
    if _name != "prod":
        case(f"reduce_{_name}_dims", lambda x, f=_f: f(x, dim=(0, 2)), (3, 4, 5))
        case(f"reduce_{_name}_keep", lambda x, f=_f: f(x, dim=(1,), keepdim=True), (3, 4, 5))
for _name in ["sum", "amax", "amin", "prod"]:
    _f = getattr(torch, _name)
    case(f"reduce_{_name}_i64", lambda x, f=_f: f(x, 1), (3, 4), dtype=torch.int64)
for _name in ["sum", "mean", "amax", "var"]:
    _f = getattr(torch, _name)
    case(
        f"reduce_{_name}_bf16",
        lambda x, f=_f: f(x, 1),
        (3, 8),
        dtype=torch.bfloat16,
        tolerance=4e-2,
    )
for _name in ["max", "min", "median"]:
    _f = getattr(torch, _name)
    case(f"reduce_{_name}_dim", lambda x, f=_f: tuple(f(x, 1)), (3, 7))
for _name in ["argmax", "argmin"]:
    _f = getattr(torch, _name)
    case(f"reduce_{_name}", lambda x, f=_f: (f(x), f(x, 1), f(x, 0, keepdim=True)), (3, 7))
case("reduce_max_all", lambda x: (x.max(), x.min()), (3, 7))
case("reduce_prod_dim", lambda x: torch.prod(x, 1), (3, 4))
case("reduce_any_all", lambda x: (x.any(), x.all(), x.any(1), x.all(0)), (3, 4), dtype=torch.bool)
case("reduce_any_float", lambda x: (x > 0).any(1), (3, 4))
case("reduce_count_nonzero", lambda x: torch.count_nonzero(x > 0, 1), (3, 4))
case(
    "reduce_norm",
    lambda x: (x.norm(), torch.norm(x, p=1, dim=1), torch.linalg.vector_norm(x, 3, dim=0)),
    (3, 4),
)
case("reduce_norm_inf", lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1), (3, 4))
case("reduce_frobenius", lambda x: torch.linalg.matrix_norm(x), (2, 3, 4))
case("reduce_var_mean", lambda x: torch.var_mean(x, 1, correction=0), (3, 4))
case("reduce_std_mean", lambda x: torch.std_mean(x, 1), (3, 4))
case("reduce_aminmax", lambda x: tuple(torch.aminmax(x, dim=1)), (3, 4))
case("reduce_nansum", lambda x: torch.nansum(torch.where(x > 1, float("nan"), x)), (3, 4))
case("reduce_sum_dtype", lambda x: x.sum(dtype=torch.float64), (3, 4))
case("reduce_sum_bool", lambda x: x.sum(1), (3, 4), dtype=torch.bool)
case("cumsum", lambda x: torch.cumsum(x, 1), (3, 4))
case("cumsum_i64", lambda x: torch.cumsum(x, 0), (3, 4), dtype=torch.int64)
case("cumprod", lambda x: torch.cumprod(x, 1), (3, 4))
case("cummax", lambda x: tuple(torch.cummax(x, 1)), (3, 4))
case("cummin", lambda x: tuple(torch.cummin(x, 1)), (3, 4))
case("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), (3, 4))
case("trace", torch.trace, (4, 4))
case("sort", lambda x: tuple(torch.sort(x, 1)), (3, 7))
case("sort_descending", lambda x: tuple(torch.sort(x, 0, descending=True)), (5, 3))
case("argsort", lambda x: torch.argsort(x, 1), (3, 7))
case("topk", lambda x: tuple(torch.topk(x, 3, 1)), (3, 7))
case("topk_smallest", lambda x: tuple(torch.topk(x, 2, 0, largest=False)), (5, 3))
case("kthvalue", lambda x: tuple(torch.kthvalue(x, 2, 1)), (3, 7))
case("bucketize", lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), (3, 7))
case("searchsorted", lambda x, y: torch.searchsorted(torch.sort(x, -1)[0], y), (3, 7), (3, 2))
case("histc_like_one_hot", lambda x: F.one_hot(x.abs() % 10, 10).sum(0), (17,), dtype=torch.int64)
