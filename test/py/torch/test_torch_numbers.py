"""Functions of floats at their poles, infinities and roots, and what exact division leaves, against eager PyTorch."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

import tilewright

aten = torch.ops.aten

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def compiled(functions, *args):
    """The results of all `functions`, compiled as one."""
    return tilewright.compile(lambda *args: [function(*args) for function in functions], args)(*args)


@pytest.mark.parametrize("dtype", FLOATS)
def test_division_leaves_exact_rests(dtype):
    x = torch.cat(
        [torch.linspace(-50, 50, 41), torch.tensor([0.0, -0.0, 6e4, -1e20, math.inf, math.nan])]
    ).to(dtype)
    y = torch.tensor([0.3, -0.7, 3.0, math.inf, 0.0, math.nan]).to(dtype).unsqueeze(1)
    functions = [torch.fmod, torch.remainder]
    functions += [
        lambda x, _, rest=rest, y=y: rest(x, y) for rest in (torch.fmod, torch.remainder) for y in (0.3, -2)
    ]
    found = compiled(functions, x, y)
    by_numbers = [torch.tensor(number, dtype=dtype) for number in (0.3, -2)]
    divisors = [y, y, *by_numbers, *by_numbers]
    rests = [torch.fmod, torch.remainder, *[torch.fmod] * 2, *[torch.remainder] * 2]
    for ours, rest, divisor in zip(found, rests, divisors, strict=True):
        wanted = rest(x.to(torch.float64), divisor.to(torch.float64)).to(
            dtype
        )  # eager's f32 gives up beside 1e20
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, wanted, rtol=0, atol=0, equal_nan=True)
        number = ~wanted.isnan()
        assert torch.equal(ours.signbit()[number], wanted.signbit()[number])


@pytest.mark.parametrize("dtype", FLOATS)
def test_gamma_functions_at_poles_and_roots(dtype):
    special = [0.0, -0.0, -1, -2, 1, 2, 0.5, 1.5, 2.5, 1e4, -1e306, math.inf, -math.inf, math.nan]
    beside = [c + d for c in (0.0, 1, 2, -1, 3) for d in (1e-2, -1e-2, 1e-6, -1e-6, 0.3)]
    x = torch.tensor(special + beside, dtype=torch.float64).to(dtype)
    log, derivative = compiled([torch.lgamma, torch.digamma], x)
    accuracy = {torch.float64: 1e-12, torch.float32: 1e-6}.get(dtype)
    for ours, function in ((log, torch.lgamma), (derivative, torch.digamma)):
        wanted = function(x.to(torch.float64)).to(dtype)
        torch.testing.assert_close(
            ours, wanted, rtol=accuracy, atol=None if accuracy is None else 0, equal_nan=True
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.uint8])
def test_numbers_keep_their_precision(dtype):
    x = torch.tensor([0.1, 1.1, 2.3, 7.7], dtype=torch.float64).to(dtype)
    functions = [
        lambda x: math.pi - x,
        lambda x: torch.rsub(x, 3.3) if x.dtype.is_floating_point else x,
        lambda x: torch.rsub(x, 7, alpha=2),
        lambda x: torch.linspace(4.3, 50.3, 50, dtype=x.dtype),
        lambda x: torch.linspace(40, 1, 7, dtype=x.dtype),
        lambda x: torch.linspace(40, 1, 2, dtype=x.dtype),
    ]
    accuracy = {torch.float64: 1e-14, torch.float32: 1e-6}.get(dtype, 0)
    for ours, function in zip(compiled(functions, x), functions, strict=True):
        torch.testing.assert_close(ours, function(x), rtol=accuracy, atol=0)


@pytest.mark.parametrize("parameter", [None, "its own", torch.float32])
@pytest.mark.parametrize("dtype", FLOATS)
def test_saved_statistics_have_the_type_of_parameters(dtype, parameter):
    x = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    if dtype == torch.float64 and parameter == torch.float32:
        pytest.skip("eager has no narrower parameters")
    weight = (
        None if parameter is None else torch.ones(4, dtype=dtype if parameter == "its own" else parameter)
    )
    functions = [
        lambda x: aten._native_batch_norm_legit.no_stats(x, weight, weight, True, 0.1, 1e-5),
        lambda x: aten.native_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5),
        lambda x: aten.native_group_norm(x, weight, weight, 2, 4, 4, 2, 1e-5),
        lambda x: aten.native_layer_norm(x, [4], weight, weight, 1e-5),
    ]
    for ours, function in zip(compiled(functions, x), functions, strict=True):
        wanted, *statistics = function(x)  # eager normalises by statistics that it has rounded to 16 bits
        torch.testing.assert_close(ours[0], wanted, rtol=0, atol=4 * torch.finfo(dtype).eps)
        torch.testing.assert_close(list(ours[1:]), statistics, check_stride=False)


def _spread(low: float, high: float) -> list[float]:
    return torch.linspace(low, high, 60, dtype=torch.float64).tolist()


def _powers(least: int) -> list[float]:
    return [10.0**-n for n in range(1, least)]


_WIDE = _spread(-9, 9) + _spread(9, 80) + [1e6, -1e12]

SPECIAL_FUNCTIONS = {
    "erfc": (torch.erfc, mpmath.erfc, _spread(-6, 27.2) + _powers(300), 3),
    "erfinv": (
        torch.erfinv,
        mpmath.erfinv,
        _spread(-0.99, 0.99) + _powers(300) + [1 - step for step in _powers(17)] + [2.0**-53 - 1],
        3,
    ),
    "lgamma": (torch.lgamma, mpmath.loggamma, _spread(0.01, 12) + _spread(12, 200) + _powers(300), 6),
    "digamma": (torch.digamma, mpmath.digamma, _spread(1.7, 40) + _powers(300), 12),
    "i0": (torch.special.i0, lambda x: mpmath.besseli(0, x), _spread(-9, 9) + _spread(9, 80), 6),
    "i0e": (torch.special.i0e, lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), _WIDE, 6),
    "i1": (
        torch.special.i1,
        lambda x: mpmath.besseli(1, x),
        _spread(-9, 9) + _spread(9, 80) + _powers(300),
        6,
    ),
    "i1e": (
        torch.special.i1e,
        lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
        [*_WIDE, *_powers(300)],
        6,
    ),
    "erfcx": (
        torch.special.erfcx,
        lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
        _spread(-9, 6) + _spread(6, 80),
        6,
    ),
}
"""name -> (function, exact function, where, largest error in units of eps times the result)."""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_special_functions_are_as_exact_as_their_type(dtype):
    wide = [torch.tensor(values, dtype=torch.float64) for _, _, values, _ in SPECIAL_FUNCTIONS.values()]
    places = [x[x > -math.inf if dtype == torch.float64 else x.abs() > 1e-37].to(dtype) for x in wide]
    functions = [function for function, *_ in SPECIAL_FUNCTIONS.values()]
    found = tilewright.compile(lambda *xs: [f(x) for f, x in zip(functions, xs)], tuple(places))(*places)
    info = torch.finfo(dtype)
    for (name, (_, exact, _, bound)), x, ours in zip(SPECIAL_FUNCTIONS.items(), places, found, strict=True):
        poles = math.inf if name == "erfinv" else None
        with mpmath.workdps(40):
            wanted = [poles * v if poles and abs(v) == 1 else float(exact(mpmath.mpf(v))) for v in x.tolist()]
        for place, got, want in zip(x.tolist(), ours.tolist(), wanted, strict=True):
            error = 0.0 if got == want else abs(got - want)
            allowed = bound * info.eps * max(abs(want), info.smallest_normal)
            assert error <= allowed, (name, place, got, want)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_special_functions_of_integers_are_those_of_floats(dtype):
    x = torch.arange(9).to(dtype)
    functions = [torch.erfc, torch.erfinv, torch.lgamma, torch.digamma, torch.special.i0, torch.special.ndtr]
    functions += [torch.special.i0e, torch.special.i1, torch.special.i1e, torch.special.erfcx]
    for ours, function in zip(compiled(functions, x), functions, strict=True):
        torch.testing.assert_close(ours, function(x), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["i0e", "i1", "i1e", "erfcx", "log_ndtr"])
def test_special_functions_beyond_the_numbers_are_eagers(name, dtype):
    function = getattr(torch.special, name)
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e30, -1e30, 3e-39, 710.0, -27.5]).to(dtype)
    (found,) = compiled([function], x)
    wanted = function(x)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0, equal_nan=True)
    assert torch.equal(found.signbit() & (found == 0), wanted.signbit() & (wanted == 0))


@pytest.mark.parametrize(
    "x", [torch.linspace(-6, 9, 90), torch.arange(-6, 9), torch.arange(-6, 9).to(torch.int8)]
)
def test_the_lower_tail_of_the_normal_distribution_is_kept(x):
    (found,) = compiled([torch.special.ndtr], x)
    wanted = torch.tensor([float(mpmath.ncdf(v)) for v in x.tolist()])
    torch.testing.assert_close(found, wanted, rtol=3e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_signs_of_every_short_float_are_its_highest_bit(dtype):
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    _signs_are_eagers(x)
    _signs_are_eagers(x[77])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_signs_are_the_highest_bit(dtype):
    least = torch.finfo(dtype).smallest_normal / 4
    x = torch.tensor([0.0, -0.0, least, -least, 1, -1, math.inf, -math.inf, math.nan], dtype=dtype)
    _signs_are_eagers(torch.cat([x, -x]))
    _signs_are_eagers(torch.cat([x, -x]).reshape(2, 9).t())


def _signs_are_eagers(x):
    functions = [
        torch.signbit,
        lambda x: torch.copysign(torch.ones_like(x), x),
        lambda x: torch.copysign(x, -0.0),
    ]
    for ours, function in zip(compiled(functions, x), functions, strict=True):
        number = ~x.isnan() | (ours.dtype == torch.bool)
        assert torch.equal(ours[number], function(x)[number]), function
        assert torch.equal(ours.signbit()[number], function(x).signbit()[number]), function


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rounded_quotients_are_rounded_as_in_eager(dtype, mode):
    torch.manual_seed(3)
    special = torch.tensor([0, -0.0, 1, -1, 3.5, -0.25, math.inf, -math.inf, math.nan], dtype=dtype)
    pairs = torch.cartesian_prod(special, special)
    x = torch.cat([(torch.randn(5000) * 10 ** (torch.rand(5000) * 4 - 1)).to(dtype), pairs[:, 0]])
    y = torch.cat([((torch.randn(5000).abs() + 0.01) * 10 ** (torch.rand(5000) * 2)).to(dtype), -pairs[:, 1]])
    functions = [lambda x, y: torch.div(x, y, rounding_mode=mode)]
    functions += [lambda x, y: torch.div(x, y[:1], rounding_mode=mode)]
    functions += [lambda x, y: torch.div(x, y[1], rounding_mode=mode)]
    functions += [
        lambda x, y, n=n: torch.div(x, n, rounding_mode=mode) for n in (0.3, -0.07, 3, 0.0, math.inf)
    ]
    for number, (ours, function) in enumerate(zip(compiled(functions, x, y), functions, strict=True)):
        wanted = function(x, y)
        same = (ours == wanted) & (ours.signbit() == wanted.signbit()) | ours.isnan() & wanted.isnan()
        assert same.all(), (number, x[~same][:3], y[~same][:3], ours[~same][:3], wanted[~same][:3])


@pytest.mark.parametrize("dtype", FLOATS)
def test_means_beside_deviations_are_nan_where_an_infinity_is_left_behind(dtype):
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5).to(dtype)
    for row, place in enumerate(((0, 0), (2, 3), (2, 4))):
        x[row][place] = math.inf
    functions = [lambda x: torch.var_mean(x, (1, 2))[1], lambda x: torch.std_mean(x, (1, 2), keepdim=True)[1]]
    functions += [lambda x: torch.var_mean(x)[1], lambda x: torch.var_mean(x[:, :1], 1)[1]]
    functions += [lambda x: torch.native_group_norm(x, None, None, 4, 3, 5, 1, 1e-5)[1]]
    functions += [lambda x: torch.native_layer_norm(x, [3, 5], None, None, 1e-5)[1]]
    for ours, function in zip(compiled(functions, x), functions, strict=True):
        torch.testing.assert_close(ours, function(x), equal_nan=True)


@pytest.mark.parametrize("parameter", [None, torch.float32, "same"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_batches_are_normalised_by_the_statistics_that_are_saved(dtype, parameter):
    torch.manual_seed(0)
    kind = dtype if parameter == "same" else parameter
    x = (torch.randn(8, 5, 7) * 3 + 2).to(dtype)
    weight, bias = (None, None) if kind is None else (torch.randn(5).to(kind), torch.randn(5).to(kind))
    functions = [lambda x: torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)]
    (found,) = compiled(functions, x)
    _, mean, rstd = found
    for ours, wanted in zip(found, functions[0](x), strict=True):
        assert ours.dtype == wanted.dtype
    for ours, wanted in zip((mean, rstd), functions[0](x)[1:], strict=True):
        torch.testing.assert_close(ours, wanted, rtol=torch.finfo(dtype).eps, atol=0)
    columns = [s.float().unsqueeze(1) for s in (mean, rstd, *(p for p in (weight, bias) if p is not None))]
    by_saved = (x.float() - columns[0]) * columns[1]
    by_saved = by_saved if weight is None else by_saved * columns[2] + columns[3]
    off = found[0] != by_saved.to(dtype)
    assert off.sum() <= 0.02 * off.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_powers_keep_what_the_smaller_adds(dtype):
    x = torch.cat(
        [
            torch.linspace(-40, -2, 50),
            torch.tensor([0.0, 300, -300, math.inf, -math.inf, -math.inf, math.nan, math.nan, math.nan]),
        ]
    )
    special = torch.tensor([-0.0, 300, 300, math.inf, math.inf, -math.inf, 1, math.inf, -math.inf])
    y = torch.cat([torch.linspace(-1e-5, 0, 50), special])
    x, y = x.to(dtype), y.to(dtype)
    functions = [
        turned
        for function in (torch.logaddexp, torch.logaddexp2)
        for turned in (function, lambda x, y, function=function: function(y, x))
    ]
    accuracy = 1e-4 if dtype == torch.float32 else 1e-12
    for ours, function in zip(compiled(functions, x, y), functions, strict=True):
        torch.testing.assert_close(ours, function(x, y), rtol=accuracy, atol=0, equal_nan=True)


@pytest.mark.parametrize("weight", [0.3, 0.7, -1.5, "tensor"])
def test_between_two_numbers_is_rounded_as_in_eager(weight):
    x = torch.cat([torch.randn(300) * 10.0 ** torch.arange(-6, 9).repeat(20), torch.tensor([math.inf, 3e38])])
    y = torch.cat([-x[:150] * (1 + torch.randn(150) * 1e-6), torch.randn(150), torch.tensor([1.0, -3e38])])
    weight = torch.linspace(-0.2, 1.2, len(x)) if weight == "tensor" else weight
    wide = weight.double() if isinstance(weight, torch.Tensor) else weight
    (found,) = compiled([lambda x, y: torch.lerp(x, y, weight)], x, y)
    wanted, exact = torch.lerp(x, y, weight), torch.lerp(x.double(), y.double(), wide)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=0, equal_nan=True)
    number = found.isfinite() & exact.isfinite()
    error, eagers = ((value.double() - exact).abs()[number] for value in (found, wanted))
    assert (error <= eagers + found.abs()[number] * 2**-23).all()


@pytest.mark.parametrize("dtype", FLOATS[:2])
@pytest.mark.parametrize("bound", [0.2, 0.5, 1.3])
def test_bounds_taken_away_are_not_rounded_to_short_floats(dtype, bound):
    x = torch.cat([torch.linspace(-2, 2, 257), torch.tensor([bound, -bound, math.inf, math.nan])]).to(dtype)
    (found,) = compiled([lambda x: torch.nn.functional.softshrink(x, bound)], x)
    torch.testing.assert_close(
        found, torch.nn.functional.softshrink(x, bound), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("alpha", [1, 2, 0])
def test_biases_times_zero_are_not_read(dtype, alpha):
    left, right = (
        torch.tensor([[[1, 2], [3, 4]]]).to(dtype),
        torch.tensor([[[5, 6, 7], [-1, -2, -3]]]).to(dtype),
    )
    bias = torch.full((1, 1, 3), 9 if dtype == torch.int32 else math.nan).to(dtype)
    functions = [
        lambda b, x, y: torch.baddbmm(b, x, y, beta=0, alpha=alpha),
        lambda b, x, y: torch.addbmm(b[0], x, y, beta=0, alpha=alpha),
        lambda b, x, y: torch.addmm(b[0], x[0], y[0], beta=0, alpha=alpha),
        lambda b, x, y: torch.addmv(b[0, 0, :2], x[0], y[0, :, 0], beta=0, alpha=alpha),
        lambda b, x, y: torch.addr(b[0], x[0, 0], y[0, 0], beta=0, alpha=alpha),
    ]
    for ours, function in zip(compiled(functions, bias, left, right), functions, strict=True):
        torch.testing.assert_close(ours, function(bias, left, right))


WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
@pytest.mark.parametrize("dtype", [*WHOLE, torch.float16, torch.bfloat16, torch.float32])
def test_quotients_have_the_type_that_their_mode_gives_them(dtype, mode):
    """Without a mode the quotient of bytes is no byte, whatever it is then cast to."""
    x = torch.tensor([0, 3, 7, 1]).to(dtype)
    divisors = [
        2,
        2.0,
        torch.tensor(2),
        *(torch.tensor([1, 2, 3, 5]).to(t) for t in (*WHOLE[1:], torch.float16)),
    ]

    def quotients(x):
        found = [torch.div(x, y, rounding_mode=mode) for y in divisors]
        return found + [quotient.to(torch.bfloat16) for quotient in found]

    for ours, wanted in zip(tilewright.compile(quotients, (x,))(x), quotients(x), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_numbers_are_divided_downwards_as_tensors_are(dtype):
    x = torch.tensor(
        [3e38, 1e30, 5.0, math.inf, -math.inf, -2.0] if dtype.is_floating_point else [1, 2, 9, 3]
    ).to(dtype)
    functions = [lambda x, n=n: n // x for n in (-7, 7, 0, -0.5, 2.5)]

    def quotients(x):
        return [function(x) for function in functions]

    for ours, wanted in zip(tilewright.compile(quotients, (x,))(x), quotients(x), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8])
def test_bessel_functions_of_the_least_and_the_largest_integer(dtype):
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.min, limits.min + 1, 0, 3, limits.max], dtype=dtype)
    functions = [torch.special.i0, torch.special.i0e, torch.special.i1, torch.special.i1e]

    def values(x):
        return [function(x) for function in functions]

    for ours, wanted in zip(tilewright.compile(values, (x,))(x), values(x), strict=True):
        torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_special_functions_of_16_bit_floats_are_rounded_once(dtype):
    """What their steps give may be beyond the type though the result is not."""
    x = torch.cat([torch.linspace(-14, 14, 225), torch.linspace(0.01, 0.99, 25)]).to(dtype)
    names = (
        "digamma entr erf erfc erfcx erfinv exp2 expm1 expit gammaln i0 i0e i1 i1e log1p log_ndtr logit sinc"
    )
    functions = [getattr(torch.special, name) for name in names.split()]
    functions += [
        torch.nn.functional.softplus,
        torch.nn.functional.mish,
        lambda x: torch.special.polygamma(1, x.abs()),
    ]
    for ours, function in zip(compiled(functions, x), functions, strict=True):
        wanted = function(x.to(torch.float32)).to(dtype)
        near = torch.isfinite(ours) == torch.isfinite(wanted)
        assert near.all(), (function, x[~near], ours[~near], wanted[~near])
        torch.testing.assert_close(ours, wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-6, equal_nan=True)
