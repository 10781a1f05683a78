"""Elementary functions of f32 as straight-line arithmetic that LLVM vectorises: no branch, no call, no table.

Every function takes and gives `Number`s of f32, scalar or vector, treats NaN, infinities, signed zeros and
denormals as C's libm does, and claims its largest error in units in the last place (ulp), found by dense sweeps
against f64 (test/py/passes/test_elementary.py). Polynomial coefficients are minimax fits of
bench/fit_polynomials.py, which prints them. Range reductions follow W. J. Cody and W. Waite, "Software Manual for
the Elementary Functions", 1980, and J.-M. Muller, "Elementary Functions", 3rd edition, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.compiler.ir import ir
from tilewright.compiler.rewriting.elementary_angles import Angles
from tilewright.compiler.rewriting.expression import (
    Number,
    absolute,
    at_least,
    at_most,
    copysign,
    floor,
    fma,
    polynomial,
    roundeven,
    select,
)
from tilewright.compiler.rewriting.hyperbolic import Hyperbolics

EXP = (
    0.5000000095128689,
    0.1666651889796679,
    0.041666205984861183,
    0.008368882334597375,
    0.0013950478921522583,
)
"""(e^r - 1 - r) / r² on |r| <= ln(2)/2; 2^-28."""
EXPM1 = (
    0.500000004638652, 0.16666666816996642, 0.04166635478623891,
    0.00833327307221015, 0.0013940998037450037, 0.0001991415635467693,
)  # fmt: skip
"""(e^r - 1 - r) / r² on |r| <= ln(2)/2 for small e^r - 1; 2^-32."""
LOG = (
    0.3333331260388526, -0.2500000959918946, 0.20002118672307687, -0.16667995878096925, 0.14219552079862735,
    -0.1240558825913949, 0.11888163823425417, -0.11675656834487835, 0.06746643176041733,
)  # fmt: skip
"""(log(1 + f) - f + f²/2) / f³ on sqrt(1/2) <= 1 + f < sqrt(2); 2^-30."""
SIN = (-0.16666654600669953, 0.008332160188252388, -0.00019515203782792732)
"""(sin(r) - r) / r³ in r² on |r| <= π/4; 2^-28."""
COS = (0.041666646851998494, -0.0013887366776958298, 2.4438363652754545e-05)
"""(cos(r) - 1 + r²/2) / r⁴ in r² on |r| <= π/4; 2^-33."""
ERF = (
    (1.1283791695856822, 0.19245781012263638, 0.055581164484696265, 0.0041943446104731235,
     0.00040568974933639565, 6.586671984317191e-06),
    (1.0, 0.5038947146031738, 0.11722185596038603, 0.016212615485648316,
     0.0014074285210363337, 7.109718621751026e-05, 2.4889028922270025e-07),
)  # fmt: skip
"""erf(x) / x as a quotient in x² on |x| <= 3.925; 2^-29."""
ERFC = (
    1.276978381813051, -0.09276382856290624, -0.16603043115112642, 0.16405135534395066, -0.05421927140468029,
    -0.00803464465553104, 0.008716633878513319, 0.0012719023559273138, -0.0014339408412962634,
    -0.00044424644946976233, 0.000167279947760883, 0.00011548200568527178, 1.736757004894285e-05,
)  # fmt: skip
"""(1 + 2 x) e^(x²) erfc(x) in (x - 2) / (x + 2) on 0 <= x <= 10.25; 2^-32."""
TANH = (
    -0.3333328194177313,
    0.13331442191804818,
    -0.053739714553972,
    0.0206390854948943,
    -0.00570498501332432,
)
"""(tanh(x) - x) / x³ in x² on |x| <= 0.625; 2^-27."""
ATAN = (
    -0.3333329908905331, 0.19998548281590872, -0.14264241646145515, 0.10952185568905917, -0.08403449646275878,
    0.05795758057993714, -0.03117783164925594, 0.010914597471967376, -0.0017936197170928814,
)  # fmt: skip
"""(atan(x) - x) / x³ in x² on |x| <= 1; 2^-28."""
ASIN = (
    0.1666665999125275, 0.07500504187838111, 0.044516954362274146,
    0.031807726183873966, 0.014438573124897089, 0.03751649706708406,
)  # fmt: skip
"""(asin(x) - x) / x³ in x² on |x| <= 1/2; 2^-32."""
EXP2 = (
    0.6931469775973297, 0.24022242082677525, 0.05550733744825012, 0.009671512812489387, 0.0013264727213584328,
)  # fmt: skip
"""(2^f - 1) / f on |f| <= 1/2; 2^-23.4 of 2^f."""
EXP2_WIDE = (
    1.0, 0.693147180541652, 0.2402265107584965, 0.05550410962583567,
    0.009618036911150854, 0.001333343077615629, 0.0001546711029510827, 1.5314949494138796e-05,
)  # fmt: skip
"""2^f on |f| <= 1/2 in f64; 2^-34."""
LOG2_WIDE = (
    2.8853900817901414,
    0.9617966732836181,
    0.5770835945377594,
    0.4116722148009108,
    0.34073840187252175,
)
"""log2((1 + s) / (1 - s)) / s in s² on |s| <= 0.1716 in f64; 2^-36."""

_ROUND, _ROUND_BITS = 1.5 * 2.0**23, 0x4B400000
"""Added to |x| < 2^22, it leaves round(x) in the low bits of the sum, without a conversion, which is undefined
for NaN. Its bits as f32."""
_ROUND_WIDE = 1.5 * 2.0**52
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
"""ln(2) in two parts; products of the first, of 9 bits, with integers below 2^15 are exact in f32."""
_SQRT_HALF_BITS, _SQRT_HALF_BITS_WIDE = 0x3F3504F3, 0x3FE6A09E667F3BCD
_LOG2_E, _LOG10_E = math.log2(math.e), math.log10(math.e)


Scaled = Callable[[Number, Number, Number], Number]
"""x 2^n for |n| <= 252, right in the denormal range; n as a float and as an integer."""


def _power_of_two(n: Number) -> Number:
    """2^n for an integer -126 <= n <= 127, by its exponent field."""
    return ((n + 127) << 23).float_of_bits()


def _times_power_of_two(x: Number, _: Number, n: Number) -> Number:
    """x 2^n for |n| <= 252, right in the denormal range: two factors, the second one rounds."""
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


def _nearest(x: Number, factor: float) -> tuple[Number, Number]:
    """round(x factor) as a float and as an integer, for |x factor| < 2^22."""
    shifted = fma(x, factor, _ROUND)
    return shifted - _ROUND, shifted.bits() - _ROUND_BITS


def _modulo_ln2(x: Number) -> tuple[Number, Number, Number]:
    """n as a float and as an integer, and r, with x = n ln(2) + r and |r| <= ln(2)/2."""
    n, integer = _nearest(x, _LOG2_E)
    return n, integer, fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))


def _exp_reduced(x: Number, coefficients: tuple[float, ...]) -> tuple[Number, Number, Number]:
    """n, r and (e^r - 1 - r) with x = n ln(2) + r and |r| <= ln(2)/2."""
    _, n, r = _modulo_ln2(x)
    return n, r, r * r * polynomial(r, coefficients)


def _exp_near_zero(r: Number) -> Number:
    """e^r on |r| <= ln(2)/2, in as many operations as it has coefficients."""
    return polynomial(r, (1.0, 1.0, *EXP))


def exp(x: Number, scaled: Scaled = _times_power_of_two) -> Number:
    """e^x within 1 ulp; below -104 it is 0, above 88.73 infinity."""
    n, integer, r = _modulo_ln2(at_least(at_most(x, 89.0), -104.0))
    return scaled(_exp_near_zero(r), n, integer)


def exp2(x: Number, scaled: Scaled = _times_power_of_two) -> Number:
    """2^x within 1 ulp."""
    clamped = at_least(at_most(x, 129.0), -151.0)
    n, integer = _nearest(clamped, 1.0)
    return scaled(_exp_near_zero((clamped - n) * math.log(2.0)), n, integer)


def exp2_weight(x: Number) -> Number:
    """2^x within 2.1 ulp for x <= 1/2, as softmax needs it: in ten operations, and 0 below 2^-126.5."""
    clamped = select(x.constant(-127.0) > x, -127.0, x)
    # The sum's low bits are round(x) + 127; shifted into the exponent's place, everything above them is gone.
    shifted = clamped + (_ROUND + 127.0)
    f = clamped - (shifted - (_ROUND + 127.0))
    return fma(f, polynomial(f, EXP2), 1.0) * (shifted.bits() << 23).float_of_bits()


def expm1(x: Number) -> Number:
    """e^x - 1 within 1.5 ulp, small x included."""
    clamped = at_least(at_most(x, 89.0), -80.0)
    n, r, tail = _exp_reduced(clamped, EXPM1)
    half = _power_of_two(n - 1)
    return select(absolute(x) < 2.0**-25, x, 2.0 * fma(half, r + tail, half - 0.5))


def _split(x: Number) -> tuple[Number, Number]:
    """The integer e and the float m in [sqrt(1/2), sqrt(2)) with x = m 2^e, for normal x > 0."""
    shifted = x.bits() - _SQRT_HALF_BITS
    return shifted >> 23, ((shifted & 0x7FFFFF) + _SQRT_HALF_BITS).float_of_bits()


def _log_tail(f: Number) -> Number:
    """log(1 + f) - f on sqrt(1/2) <= 1 + f < sqrt(2)."""
    square = f * f
    return fma(square * f, polynomial(f, LOG), -0.5 * square)


def _log_split(x: Number) -> tuple[Number, Number]:
    """The exponent of x > 0 as a float and f, x = (1 + f) 2^e; denormals included."""
    denormal = x < 2.0**-126
    e, m = _split(select(denormal, x * 2.0**23, x))
    exponent = e.to_float(x.element)
    return select(denormal, exponent - 23.0, exponent), m - 1.0


def log_specials(x: Number, result: Number) -> Number:
    """The logarithm's values outside the positive finite numbers: -inf at 0, NaN below, inf and NaN themselves."""
    result = select(x < math.inf, result, x)
    result = select(x.equals(0.0), -math.inf, result)
    return select(x < 0.0, math.nan, result)


def log(x: Number) -> Number:
    """The natural logarithm within 1 ulp."""
    e, f = _log_split(x)
    return log_specials(x, fma(e, _LN2_HIGH, f + fma(e, _LN2_LOW, _log_tail(f))))


def log2(x: Number) -> Number:
    """The logarithm to base 2 within 1.5 ulp; exact at powers of two."""
    e, f = _log_split(x)
    tail = _log_tail(f)
    rest = fma(f, _LOG2_E - 1.0, tail * _LOG2_E)
    return log_specials(x, e + (f + rest))


def log10(x: Number) -> Number:
    """The logarithm to base 10 within 1.5 ulp."""
    e, f = _log_split(x)
    low = fma(e, math.log10(2.0) - 0.301025390625, _log_tail(f) * _LOG10_E)
    return log_specials(x, fma(e, 0.301025390625, fma(f, _LOG10_E, low)))


def log1p(x: Number) -> Number:
    """log(1 + x) within 1.6 ulp, small x included."""
    one_plus = 1.0 + x
    e, m = _split(one_plus)
    # x / 2^e + (1 / 2^e - 1), rounded once: what 1 + x loses is kept. From 2^24 on nothing is lost.
    scale = _power_of_two(0 - select(e < 120, e, 120))
    f = select(x < 2.0**24, fma(x, scale, scale - 1.0), m - 1.0)
    exponent = e.to_float(x.element)
    result = fma(exponent, _LN2_HIGH, f + fma(exponent, _LN2_LOW, _log_tail(f)))
    return select(absolute(x) < 2.0**-25, x, log_specials(one_plus, result))


def _quotient(x: Number, limit: float, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Number:
    """x P(x²) / Q(x²) for |x| <= limit, ±1 beyond and never outside [-1, 1]."""
    clamped = at_least(at_most(x, limit), -limit)
    square = clamped * clamped
    result = clamped * polynomial(square, coefficients[0]) / polynomial(square, coefficients[1])
    return at_least(at_most(result, 1.0), -1.0)


def tanh(x: Number) -> Number:
    """The hyperbolic tangent within 1.4 ulp; below 0.625 as exact as x is, so that x - tanh(x) keeps what it can."""
    size = absolute(x)
    square = size * size
    small = fma(size * square, polynomial(square, TANH), size)
    n, r, tail = _exp_reduced(at_most(size, 10.0) * 2.0, EXP)
    large = 1.0 - 2.0 / (fma(1.0 + (r + tail), _power_of_two(n), 1.0))
    return copysign(select(size < 0.625, small, large), x)


def erf(x: Number) -> Number:
    """The error function within 6.5 ulp, which is 3.9e-7 near its limits."""
    return _quotient(x, 3.925, ERF)


def erfc(x: Number) -> Number:
    """The complementary error function within 0.6 ulp, its tail down to denormals; computed in f64.

    Source: M. Shepherd and J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x in 0 <= x < ∞",
    Mathematics of Computation 36, 1981.
    """
    wide = x.to(ir.F64Type.get())
    size = at_most(absolute(wide), 10.25)
    scaled = polynomial((size - 2.0) / (size + 2.0), ERFC) / (1.0 + 2.0 * size)
    tail = scaled * _exp2_wide(size * size * -_LOG2_E)
    return select(wide < 0.0, 2.0 - tail, tail).to(x.element)


def _two_over_pi() -> tuple[float, ...]:
    """2/π as seven f64 of 28 bits each: their products with an f32 are exact."""
    digits = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A
    total = digits.bit_length()
    return tuple(((digits >> (total - 28 * (i + 1))) & 0xFFFFFFF) * 2.0 ** (-28 * (i + 1)) for i in range(7))


def _quadrant(x: Number) -> tuple[Number, Number]:
    """n modulo 4 (two low bits of an i32) and r in f32 with x = n π/2 + r, |r| <= π/4, for every finite x.

    M. Payne and R. Hanek's reduction (SIGNUM Newsletter 18, 1983) in f64: of each exact partial product of x and
    2/π the multiples of 4 are dropped before they are summed.
    """
    wide = x.to(ir.F64Type.get())
    parts = []
    for part in _two_over_pi():
        product = wide * part
        parts.append(fma(roundeven(product * 0.25), -4.0, product))
    shifted = sum(parts[1:], parts[0]) + _ROUND_WIDE
    turns = parts[0] - (shifted - _ROUND_WIDE)
    for part in parts[1:]:
        turns = turns + part
    return shifted.bits().narrow(32), (turns * (math.pi / 2)).to(x.element)


def _sine_and_cosine(r: Number) -> tuple[Number, Number]:
    """sin(r) and cos(r) on |r| <= π/4."""
    square = r * r
    sine = fma(square * r, polynomial(square, SIN), r)
    cosine = 1.0 + fma(square * square, polynomial(square, COS), -0.5 * square)
    return sine, cosine


def _turn(n: Number, even: Number, odd: Number) -> Number:
    """`even` or `odd` by the lowest bit of n, negated by the one above it."""
    chosen = select((n & 1).equals(0), even, odd)
    return select((n & 2).equals(0), chosen, -chosen)


def sin(x: Number) -> Number:
    """The sine within 1.6 ulp for every finite x."""
    n, r = _quadrant(x)
    sine, cosine = _sine_and_cosine(r)
    return select(x.equals(0.0), x, _turn(n, sine, cosine))


def cos(x: Number) -> Number:
    """The cosine within 1.6 ulp for every finite x."""
    n, r = _quadrant(x)
    sine, cosine = _sine_and_cosine(r)
    return _turn(n + 1, sine, cosine)


def tan(x: Number) -> Number:
    """The tangent within 3.6 ulp for every finite x."""
    n, r = _quadrant(x)
    sine, cosine = _sine_and_cosine(r)
    odd = (n & 1).equals(1)
    ratio = select(odd, -cosine, sine) / select(odd, sine, cosine)
    return select(x.equals(0.0), x, ratio)


_REDUCTIONS = 6
"""How often 2^51 divides the largest quotient of two f32, 2^277, and once more."""


def remainder(x: Number, y: Number) -> Number:
    """x - n y for the quotient n rounded toward zero, as C's `fmod`; exact, with the sign of x.

    In f64 a multiple of y that is near |x| leaves 2^-51 of it, of which no bit is lost: it ends where y does.
    """
    f64 = ir.F64Type.get()
    size, step = absolute(x).to(f64), absolute(y).to(f64)
    inverse = step.constant(1.0) / step
    rest = size
    for _ in range(_REDUCTIONS):
        rest = fma(-floor(rest * inverse), step, rest)
    rest = select(rest < 0.0, rest + step, rest)
    rest = select(rest >= step, rest - step, rest)
    return copysign(select(size < step, size, rest).to(x.element), x)


def pow(x: Number, y: Number) -> Number:
    """x^y within 1 ulp, with every special case of C's `pow`; computed in f64."""
    return _power(x, y.to(ir.F64Type.get()))


def pow_integer(x: Number, n: Number) -> Number:
    """x^n for a signed integer n of up to 64 bits, within 1 ulp."""
    return _power(x, n.to_float(ir.F64Type.get()))


def _power(x: Number, y: Number) -> Number:
    """x^y for f32 x and f64 y, which carries integers beyond 2^24 exactly."""
    # An infinite y acts like a huge even integer, and unlike infinity it times log2(1) is 0.
    y = at_least(at_most(y, 2.0**200), -(2.0**200))
    base = x.to(y.element)
    logarithm = _log2_wide(absolute(base))
    magnitude = _exp2_wide(at_least(at_most(y * logarithm, 300.0), -300.0)).to(x.element)
    half = y * 0.5
    whole, even = floor(y).equals(y), floor(half).equals(half)
    result = select(whole & ~even, copysign(magnitude, x), magnitude)
    result = select((x < 0.0) & (x > -math.inf) & ~whole, math.nan, result)
    return select(x.equals(1.0) | y.equals(0.0), 1.0, result)


def _log2_wide(x: Number) -> Number:
    """log2(x) within 2^-36 relative, for f64 x >= 0 that is zero, normal, infinite or NaN."""
    shifted = x.bits() - _SQRT_HALF_BITS_WIDE
    exponent = ((shifted >> 32).narrow(32) >> 20).to_float(x.element)
    m = ((shifted & 0xFFFFFFFFFFFFF) + _SQRT_HALF_BITS_WIDE).float_of_bits()
    s = (m - 1.0) / (m + 1.0)
    result = fma(s, polynomial(s * s, LOG2_WIDE), exponent)
    return select(x.equals(0.0), -math.inf, select(x < math.inf, result, x))


def _exp2_wide(x: Number) -> Number:
    """2^x within 2^-34 relative, for f64 |x| <= 1000 or NaN."""
    shifted = x + _ROUND_WIDE
    scale = ((shifted.bits() + 1023) << 52).float_of_bits()
    return polynomial(x - (shifted - _ROUND_WIDE), EXP2_WIDE) * scale


ANGLES = Angles(ATAN, ASIN, 1.5707963705062866, -4.371139000186241e-08)
"""`atan` within 1.6 ulp, `atan2` 3, `asin` 2, `acos` 1.5."""


HYPERBOLICS = Hyperbolics(exp, log, log1p, tuple(1 / math.factorial(n) for n in range(3, 13, 2)))
"""`sinh`, `cosh`, `asinh`, `acosh`, `atanh`."""
