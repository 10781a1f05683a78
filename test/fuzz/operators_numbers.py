"""Element-wise calls in other forms: methods, operators, keywords, numbers of all kinds, pairs of dtypes."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.forms import draw_form
from fuzz.generator import Growth

_NUMBER = "<True|False|2|-1|0|0.5|-2.5|inf|-inf|nan|1e10|1e-30|2**31|2**40|-2**33>"

_PROMOTION = {
    "once": (
        "{any} <+|-|*|/> {other}",
        "{any} <//|%> {positive}",
        "torch.<add|sub|mul|div|maximum|minimum|fmax|fmin|true_divide|rsub>({any}, {other})",
        "torch.<atan2|hypot|copysign|logaddexp|xlogy|float_power>({any}, {other})",
        "torch.<fmod|remainder|floor_divide>({number}, {other}.abs() + 1)",
        "torch.where({any} > 0, {a}, {other})",
        "torch.<clamp_min|clamp_max>({any}, {other})",
        "torch.clamp({any}, min={other}, max={other})",
        "{any}.add({other}, alpha=2)",
        "{any} + torch.tensor(" + _NUMBER + ")",
        "torch.tensor(" + _NUMBER + ") * {any}",
    ),
    "exact": (
        "torch.<eq|ne|lt|le|gt|ge>({any}, {other})",
        "torch.logical_<and|or|xor>({any}, {other})",
        "torch.bitwise_<and|or|xor>({int}, {other})",
        "torch.isclose({any}, {other}.to({a}.dtype))",
        "torch.isin({number}, torch.tensor([0, 1, 2]))",
        "torch.cat(({any1}, {a}.to(torch.{dtype})))",
        "torch.stack(({any}, {a}.to(torch.{dtype}), {a}))",
    ),
}

_NUMBERS = {
    "once": (
        "{any} <+|-|*> " + _NUMBER,
        _NUMBER + " <+|-|*> {any}",
        "{any} / <2|-0.5|3|inf|True>",
        "<1|2.5|-3> / {any}",
        "{number} <//|%> <3|-2|0.5|2.0|-1.5>",
        "{int} <//|%> <3|-2|100|127>",
        "<7|-7|2.5> <//|%> ({number}.abs() + 1)",
        "{any} ** <2|3|0|1|0.5|-1|-2|2.0|4>",
        "<2|0.5|-1|1> ** {any}",
        "torch.<add|sub|mul>({any}, " + _NUMBER + ")",
        "torch.<clamp|clip>({any}, <-1|0|True|0.5|-inf|-5>, <1|2.5|inf|5>)",
        "torch.<clamp_min|clamp_max>({any}, <0|1|0.5|-2>)",
        "{any}.clamp(min=<-1|0.5>)",
        "torch.rsub({number}, <2|0.5>, alpha=<2|1>)",
        "torch.div({number}, <2|3|-0.5>, rounding_mode=<'floor'|'trunc'|None>)",
        "torch.where({mask}, <1|1.5|True>, {any})".replace("{mask}", "{bool}"),
        "torch.where({bool}, <1|0.5|True|2>, <0|2.5|False|-1>)",
        "{any}.add(1, alpha=2)",
        "torch.full_like({any}, <True|2|0|1>)",
        "torch.full_like({any}, <0.5|inf|2>, dtype=torch.{real})",
        "torch.full((2, 3), <True|2|0.5|inf|-1>)",
        "torch.full((2, 1), <True|2|1>, dtype=torch.{dtype})",
        "torch.arange(<0.5|-3|0>, 4, <0.5|1|0.75|2>)",
        "torch.arange(<5|4.5>, 0, <-2|-1|-0.5>)",
        "torch.arange(-2, 5, <1|2|3>, dtype=torch.<int8|float16|int64|float64|uint8|int16>)",
        "torch.linspace(<-1|0|2>, <1|5>, <1|2|5|7>, dtype=torch.<float32|float64|int64>)",
        "torch.logspace(0, 2, <1|3|4>)",
        "torch.eye(<3|2>, <4|2>, dtype=torch.{dtype})",
        "{any} + torch.ones((), dtype=torch.{dtype})",
        "torch.tensor([[1, 2.5], [True, 3]])",
        "torch.scalar_tensor(<3|2.5>, dtype=torch.{dtype})",
        "torch.<ones|zeros>(2, 0, 3)",
        "torch.empty_like({any}).<zero_()|fill_(1)|copy_({a})>",
        "{any}.new_tensor([1, 0, 2])",
        "{any}.new_<ones|zeros>((2, 2), dtype=torch.{dtype})",
        "{any}.to(torch.{dtype}, copy=True)",
        "{any}.to({other})",
        "{any}.<float|double|half|bfloat16|bool|to_dense>()",
        "torch.heaviside({float}, torch.tensor(<0.5|1.0>, dtype={a}.dtype))",
    ),
}

_FUNCTIONS = {
    "once": (
        "{any}.<abs|neg|sign|square|sigmoid|exp|cos|tanh|reciprocal|sqrt|rsqrt|log1p|expm1|floor|ceil|round|trunc>()",
        "torch.<abs|sin|exp|neg|sqrt|tanh|erf>({float}, out=torch.empty_like({a}))",
        "torch.<add|mul|sub|maximum>({any}, {like}, out=torch.empty_like({a}))".replace("{like}", "{new}"),
        "torch.special.<entr|expit|exp2|expm1|log1p|erf|i0|i0e|round|sinc>({float})",
        "torch.special.<xlog1py|xlogy>({float}, {like})",
        "torch.round({float}, decimals=<1|2|-1>)",
        "torch.<fix|absolute|negative|deg2rad|angle|arccos|arctan|real|conj_physical|nan_to_num>({any})",
        "F.prelu({float1}, torch.tensor(<0.25|-0.5>, dtype={a}.dtype))",
        "F.<celu|elu>({float}, <0.5|1.5>)",
        "F.softplus({float}, beta=<0.5|3|-1>, threshold=<1|20>)",
        "F.<hardshrink|softshrink>({float}, <0.2|0.0>)",
        "F.rrelu({float}, 0.1, 0.3, False)",
        "F.leaky_relu({float}, <-0.3|0.0|1.5>)",
        "F.hardtanh({number}, <-2|0>, <1|3>)",
        "F.glu({float22}[:, :1].repeat(1, 2), dim=<1|-1>)",
        "torch.logit({float}, eps=<1e-3|0.1>)",
        "torch.nan_to_num({any}, nan=<0.5|-1>, posinf=<2|1e3>, neginf=<-2|None>)",
        "torch.frexp({float}.float())[0]",
        "torch.ldexp({float}, torch.tensor([<2|-3|0>]))",
        "torch.dropout({float}, 0.5, False) * 2",
        "F.alpha_dropout({float}, 0.5, False)",
        "torch.sigmoid({float}) * <2|{a}>",
        "sum({any1}.unbind(0))",
        "torch.vmap(lambda row: row * 2 - 1)({number1})",
        "torch.stack([row * 2 for row in {number1}])",
        "(lambda t, k=3: t * k)({any})",
        "torch.clone({any}).<add|mul>_(<1|2>)",
    ),
    "inside": (
        "torch.special.<log_ndtr|ndtr|erfcx|digamma|gammaln|logit>({float})",
        "torch.mvlgamma({float}.abs() + 2, 2)",
        "F.gelu({float}, approximate='<none|tanh>')",
    ),
    "sum": ("torch.addcmul({number}, {like}, {like}, value=<-1|2>)",),
    "exact": (
        "torch.<isnan|isfinite|isinf|signbit|logical_not|isposinf|isneginf>({any})",
        "{any}.<isnan|bool|logical_not|detach|clone|contiguous>()",
        "torch.bitwise_left_shift({int}, <0|1|5>)",
        "{int} >> <0|1|6>",
        "{int} << <0|2|7>",
        "~{int}",
        "torch.<eq|ne|lt|ge>({any}, <0|0.5|True|1|-1|300|inf>)",
        "{any}.masked_fill({mask}, <True|1|0|2>)",
        "{any}.where({mask}, {like})",
    ),
}


@operator(8, plain=False)
def promotion(g: Growth) -> None:
    draw_form(g, _PROMOTION)


@operator(8, plain=False)
def numbers(g: Growth) -> None:
    draw_form(g, _NUMBERS)


@operator(8, plain=False)
def functions_otherwise(g: Growth) -> None:
    draw_form(g, _FUNCTIONS)
