"""Elementary functions of f64 as straight-line arithmetic that LLVM vectorises: no branch, no call, no table.

As in elementary.py, whose formulas these are with longer polynomials: every function takes and gives `Number`s, treats
NaN, infinities, signed zeros and denormals as C's libm does, and claims its largest error in units in the last place
(ulp), found by sweeps against 80-bit references, for `erf` and `erfc` of 50 digits (test/py/passes/test_elementary_wide.py). Polynomials are those of
bench/fit_polynomials.py.

Sines, cosines and tangents stay libm's: large arguments need 1,100 bits of 2/pi. So do powers, whose logarithm needs
more bits than an f64 has.
"""

from __future__ import annotations

import math

from tilewright.compiler.ir import math as math_dialect
from tilewright.compiler.rewriting.elementary import log_specials
from tilewright.compiler.rewriting.elementary_angles import Angles
from tilewright.compiler.rewriting.expression import (
    Number,
    absolute,
    at_least,
    at_most,
    copysign,
    fma,
    polynomial,
    select,
)
from tilewright.compiler.rewriting.hyperbolic import Hyperbolics

EXP = (
    0.5000000000000001, 0.16666666666666669, 0.041666666666624164, 0.008333333333330065, 0.0013888888917196719,
    0.00019841269863040545, 2.4801521322368692e-05, 2.7557268480310024e-06, 2.7620075879983367e-07,
    2.5100375832561234e-08,
)  # fmt: skip
"""(e^r - 1 - r) / r² on |r| <= ln(2)/2; 2^-53."""
LOG = (
    0.666666666666667, 0.39999999999899505, 0.28571428625975487, 0.2222221113479508, 0.18182889125261723,
    0.15331721600556042, 0.14616449685043406,
)  # fmt: skip
"""(log((1 + s) / (1 - s)) - 2 s) / s³ in s² on |s| <= 0.1716; 2^-51."""
TANH = (
    -0.3333333333333333, 0.13333333333333042, -0.05396825396789699, 0.021869488519008305, -0.008863235103240878,
    0.0035921217511549622, -0.0014557754120478055, 0.0005896606577757043, -0.0002375906496055562,
    9.257116129556769e-05, -3.12011014257974e-05, 6.485163482793113e-06,
)  # fmt: skip
"""(tanh(x) - x) / x³ in x² on |x| <= 0.625; 2^-57."""
ERF = (
    0.12837916709551256, -0.37612638903183543, 0.11283791670945006, -0.02686617064323777, 0.0052239776071164225,
    -0.0008548325975389692, 0.00012055294904839707, -1.492473690741966e-05, 1.6447424703317362e-06,
    -1.6208483801871705e-07, 1.3720064546777686e-08, -7.795898827002142e-10,
)  # fmt: skip
"""(erf(x) - x) / x in x² on |x| <= 1; 2^-56."""
ERFC = (
    1.2769783815525286, -0.09276382658574606, -0.166030397615291, 0.16405128003344926, -0.054220000991916796,
    -0.008034015082710722, 0.00872265387220286, 0.0012713389712163319, -0.0014568138933825372,
    -0.00045434088459456336, 0.00020636672115237334, 0.00015103949768486682, -1.5069765277957697e-06,
    -3.64244761777777e-05, -1.3503999959243437e-05, 3.712787176401846e-06, 5.252708908860738e-06,
    1.5036456208720954e-06, -7.452806220729046e-07, -8.42044569908468e-07, -2.0704759956788876e-07,
    1.5429431885974933e-07, 1.2462817066292515e-07, 1.0355556982683514e-08, -1.9682932801012006e-08,
    -6.966377499558123e-09, -4.4988458806253334e-10,
)  # fmt: skip
"""(1 + 2 x) e^(x²) erfc(x) in (x - 2) / (x + 2) on 0 <= x <= 27.5; 2^-57."""
ERFC_NEAR = (
    1.2769783815525289, -0.09276382658574567, -0.16603039761538094, 0.1640512800334108, -0.054220000980438124,
    -0.008034015088992756, 0.008722653320714637, 0.0012713396464095273, -0.0014568013120680693,
    -0.00045436367347200164, 0.00020622298352353452, 0.00015138939943308723, -7.732504942759844e-07,
    -3.896023943591018e-05, -1.4074763120545218e-05, 1.0923519568424604e-05,
)  # fmt: skip
"""The same on 1 <= x <= 6; 2^-52."""
ATAN = (
    -0.3333333333333333, 0.1999999999999992, -0.14285714285701234, 0.11111111110268297, -0.0909090906193528,
    0.07692307078827029, -0.06666657934573768, 0.05882264416776449, -0.052624922290256754, 0.04758080083637821,
    -0.043306538430670664, 0.03938687540798632, -0.035271331066871296, 0.030330719265790507,
    -0.024191345810140718, 0.01718398172211335, -0.010412153260359241, 0.005140912856746939,
    -0.0019612554271685326, 0.0005376839297396244, -9.371186345052626e-05, 7.767624330289919e-06,
)  # fmt: skip
"""(atan(x) - x) / x³ in x² on |x| <= 1; 2^-60."""
ASIN = (
    0.16666666666666669, 0.07499999999998433, 0.04464285714635543, 0.030381944138531247, 0.02237217294214989,
    0.017352392720869973, 0.013971212973552933, 0.011479177415184906, 0.01032281435018578, 0.005457506718640358,
    0.01740087944269402, -0.014851887071247204, 0.028757851367421566,
)  # fmt: skip
"""(asin(x) - x) / x³ in x² on |x| <= 1/2; 2^-55."""

_ROUND = 1.5 * 2.0**52
"""Added to |x| < 2^51, it leaves round(x) in the low bits of the sum."""
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln(2) in two parts; products of the first, of 32 bits, with exponents are exact."""
_LOG10_2_HIGH, _LOG10_2_LOW = 3.01029995663611771306e-01, 3.69423907715893078616e-13
"""log10(2) in two such parts."""
_LOG2_E, _LOG10_E = math.log2(math.e), math.log10(math.e)
_SQRT_HALF_BITS, _MANTISSA = 0x3FE6A09E667F3BCD, 0xFFFFFFFFFFFFF
_BIAS = 1023


def _power_of_two(shifted: Number, bias: int = _BIAS) -> Number:
    """2^n for an integer -1022 <= n <= 1023, of which `_ROUND + n` is given; with another `bias`, times a power of two."""
    return ((shifted.bits() + bias) << 52).float_of_bits()


def _modulo_ln2(x: Number) -> tuple[Number, Number]:
    """`_ROUND + n`, and r, with x = n ln(2) + r and |r| <= ln(2)/2."""
    shifted = fma(x, _LOG2_E, _ROUND)
    n = shifted - _ROUND
    return shifted, fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))


def _scaled(r: Number, n: Number) -> Number:
    """e^r 2^n for |r| <= ln(2)/2 and |n| <= 2044, right in the denormal range: two factors, the second one rounds."""
    half = fma(n, 0.5, _ROUND)
    rest = (n - (half - _ROUND)) + _ROUND
    power = 1.0 + (r + r * r * polynomial(r, EXP))
    return power * _power_of_two(half) * _power_of_two(rest)


def exp(x: Number) -> Number:
    """e^x within 1.1 ulp; below -746 it is 0, above 709.8 infinity."""
    shifted, r = _modulo_ln2(at_least(at_most(x, 710.0), -746.0))
    return _scaled(r, shifted - _ROUND)


def exp2(x: Number) -> Number:
    """2^x within 1.1 ulp."""
    clamped = at_least(at_most(x, 1025.0), -1076.0)
    n = (clamped + _ROUND) - _ROUND
    return _scaled((clamped - n) * math.log(2.0), n)


def expm1(x: Number) -> Number:
    """e^x - 1 within 2.4 ulp, small x included."""
    shifted, r = _modulo_ln2(at_least(at_most(x, 710.0), -80.0))
    half = _power_of_two(shifted, _BIAS - 1)
    tail = r * r * polynomial(r, EXP)
    return select(absolute(x) < 2.0**-54, x, 2.0 * fma(half, r + tail, half - 0.5))


def _split(x: Number) -> tuple[Number, Number]:
    """The integer e as a float, and m in [sqrt(1/2), sqrt(2)), with x = m 2^e, for normal x > 0."""
    shifted = x.bits() - _SQRT_HALF_BITS
    exponent = ((shifted >> 32).narrow(32) >> 20).to_float(x.element)
    return exponent, ((shifted & _MANTISSA) + _SQRT_HALF_BITS).float_of_bits()


def _log_tail(f: Number) -> Number:
    """log(1 + f) - f on sqrt(1/2) <= 1 + f < sqrt(2), by log((1 + s) / (1 - s)) of s = f / (2 + f)."""
    s = f / (f + 2.0)
    z = s * s
    half_square = 0.5 * f * f
    return fma(s, fma(z, polynomial(z, LOG), half_square), -half_square)


def _log_split(x: Number) -> tuple[Number, Number]:
    """The exponent of x > 0 as a float and f, x = (1 + f) 2^e; denormals included."""
    denormal = x < 2.0**-1022
    exponent, m = _split(select(denormal, x * 2.0**54, x))
    return select(denormal, exponent - 54.0, exponent), m - 1.0


def log(x: Number) -> Number:
    """The natural logarithm within 1 ulp."""
    e, f = _log_split(x)
    return log_specials(x, fma(e, _LN2_HIGH, f + fma(e, _LN2_LOW, _log_tail(f))))


def log2(x: Number) -> Number:
    """The logarithm to base 2 within 1.5 ulp; exact at powers of two."""
    e, f = _log_split(x)
    rest = fma(f, _LOG2_E - 1.0, _log_tail(f) * _LOG2_E)
    return log_specials(x, e + (f + rest))


def log10(x: Number) -> Number:
    """The logarithm to base 10 within 1.5 ulp."""
    e, f = _log_split(x)
    low = fma(e, _LOG10_2_LOW, _log_tail(f) * _LOG10_E)
    return log_specials(x, fma(e, _LOG10_2_HIGH, fma(f, _LOG10_E, low)))


def log1p(x: Number) -> Number:
    """log(1 + x) within 1.6 ulp, small x included."""
    one_plus = 1.0 + x
    exponent, m = _split(one_plus)
    # The bits of 2^-e: those of 1 + x and of m differ by e in the exponent's place.
    scale = ((m.bits() - one_plus.bits()) + (_BIAS << 52)).float_of_bits()
    # x / 2^e + (1 / 2^e - 1), rounded once: what 1 + x loses is kept. From 2^53 on nothing is lost.
    f = select(x < 2.0**53, fma(x, scale, scale - 1.0), m - 1.0)
    result = fma(exponent, _LN2_HIGH, f + fma(exponent, _LN2_LOW, _log_tail(f)))
    return select(absolute(x) < 2.0**-54, x, log_specials(one_plus, result))


def tanh(x: Number) -> Number:
    """The hyperbolic tangent within 1.5 ulp."""
    size = absolute(x)
    square = size * size
    small = fma(size * square, polynomial(square, TANH), size)
    shifted, r = _modulo_ln2(at_most(size, 22.0) * 2.0)
    power = 1.0 + (r + r * r * polynomial(r, EXP))
    large = 1.0 - 2.0 / fma(power, _power_of_two(shifted), 1.0)
    return copysign(select(size < 0.625, small, large), x)


def _erfc_of_size(size: Number, coefficients: tuple[float, ...]) -> Number:
    """erfc(x) for positive x where the coefficients are good.

    Source: M. Shepherd and J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x in 0 <= x < ∞",
    Mathematics of Computation 36, 1981.
    """
    square = size * size
    lost = fma(size, size, -square)
    tail = polynomial((size - 2.0) / (size + 2.0), coefficients) / fma(size, 2.0, 1.0) * exp(-square)
    return fma(-lost, tail, tail)


def erf(x: Number) -> Number:
    """The error function within 1.5 ulp."""
    size = absolute(x)
    small = fma(size, polynomial(size * size, ERF), size)
    large = 1.0 - _erfc_of_size(at_least(at_most(size, 6.0), 1.0), ERFC_NEAR)
    return copysign(select(size < 1.0, small, large), x)


def erfc(x: Number) -> Number:
    """The complementary error function within 4 ulp, its tail down to denormals."""
    tail = _erfc_of_size(at_most(absolute(x), 27.5), ERFC)
    return select(x < 0.0, 2.0 - tail, tail)


ANGLES = Angles(ATAN, ASIN, math.pi / 2, 6.123233995736766e-17)
"""`atan` within 1.6 ulp, `atan2` 3, `asin` 2.1, `acos` 1.5."""


def pow_integer(x: Number, n: Number) -> Number:
    """x^n by libm's pow."""
    return Number(math_dialect.powf(x.value, n.to_float(x.element).value))


HYPERBOLICS = Hyperbolics(exp, log, log1p, tuple(1 / math.factorial(n) for n in range(3, 21, 2)))
"""`sinh`, `cosh`, `asinh`, `acosh`, `atanh`."""
