"""Modified Bessel functions of the first kind, and the scaled complement of the error function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tilewright.compiler.importers.torch.special import polynomial

aten = torch.ops.aten

_I0_SMALL = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576, 0.010546460394594998,
    -0.02373741480589947, 0.04930528423967071, -0.09490109704804764, 0.17162090152220877,
    -0.3046826723431984, 0.6767952744094761,
)  # fmt: skip
"""Chebyshev coefficients of e^-x I0(x) on [0, 8]. Source: S. Moshier, Cephes Mathematical Library, i0.c."""
_I0_LARGE = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15, 3.8116806693526224e-15,
    -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
    2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05, 0.0033691164782556943,
    0.8044904110141088,
)  # fmt: skip
"""Chebyshev coefficients of e^-x sqrt(x) I0(x) on [8, infinity], in 32 / x - 2. Source: as above."""
_I1_SMALL = (
    2.7779141127610464e-18, -2.111421214358166e-17, 1.5536319577362005e-16, -1.1055969477353862e-15,
    7.600684294735408e-15, -5.042185504727912e-14, 3.223793365945575e-13, -1.9839743977649436e-12,
    1.1736186298890901e-11, -6.663489723502027e-11, 3.625590281552117e-10, -1.8872497517228294e-09,
    9.381537386495773e-09, -4.445059128796328e-08, 2.0032947535521353e-07, -8.568720264695455e-07,
    3.4702513081376785e-06, -1.3273163656039436e-05, 4.781565107550054e-05, -0.00016176081582589674,
    0.0005122859561685758, -0.0015135724506312532, 0.004156422944312888, -0.010564084894626197,
    0.024726449030626516, -0.05294598120809499, 0.1026436586898471, -0.17641651835783406, 0.25258718644363365,
)  # fmt: skip
"""Chebyshev coefficients of e^-x I1(x) / x on [0, 8]. Source: S. Moshier, Cephes Mathematical Library, i1.c."""
_I1_LARGE = (
    7.517296310842105e-18, 4.414348323071708e-18, -4.6503053684893586e-17, -3.209525921993424e-17,
    2.96262899764595e-16, 3.3082023109209285e-16, -1.8803547755107825e-15, -3.8144030724370075e-15,
    1.0420276984128802e-14, 4.272440016711951e-14, -2.1015418427726643e-14, -4.0835511110921974e-13,
    -7.198551776245908e-13, 2.0356285441470896e-12, 1.4125807436613782e-11, 3.2526035830154884e-11,
    -1.8974958123505413e-11, -5.589743462196584e-10, -3.835380385964237e-09, -2.6314688468895196e-08,
    -2.512236237870209e-07, -3.882564808877691e-06, -0.00011058893876262371, -0.009761097491361469,
    0.7785762350182801,
)  # fmt: skip
"""Chebyshev coefficients of e^-x sqrt(x) I1(x) on [8, infinity], in 32 / x - 2. Source: as above."""


def _chebyshev(x, coefficients):
    """Half of the sum of the coefficients, given by falling degree, times Chebyshev polynomials of x / 2."""
    before, last, total = torch.zeros_like(x), torch.zeros_like(x), torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        before, last = last, total
        total = x * last - before + c
    return 0.5 * (total - before)


def i0e(x):
    """e^-|x| I0(x), in double precision."""
    a = torch.abs(x)
    far = torch.clamp_min(a, 8.0)
    small = _chebyshev(a / 2 - 2, _I0_SMALL)
    return torch.where(a <= 8, small, _chebyshev(32 / far - 2, _I0_LARGE) / torch.sqrt(far))


def i1e(x):
    """e^-|x| I1(x), in double precision."""
    a = torch.abs(x)
    far = torch.clamp_min(a, 8.0)
    small = a * _chebyshev(a / 2 - 2, _I1_SMALL)
    large = _chebyshev(32 / far - 2, _I1_LARGE) / torch.sqrt(far)
    found = torch.where(a <= 8, small, large)
    return torch.where(x < 0, -found, found)  # 0 for both zeros, as eager has it


def i0(x):
    """Cephes' Chebyshev series in double precision; else Abramowitz and Stegun 9.8.1 and 9.8.2, in single precision."""
    if x.dtype == torch.float64:
        return torch.exp(torch.abs(x)) * i0e(x)
    if x.dtype in (torch.float16, torch.bfloat16):  # the exponential overflows before the result does
        return i0(x.to(torch.float32)).to(x.dtype)
    if not x.dtype.is_floating_point:  # the least integer has no absolute value
        x = x.to(torch.get_default_dtype())
    a = torch.abs(x)
    t = (a / 3.75) * (a / 3.75)
    small = polynomial(t, (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0))
    u = 3.75 / torch.clamp_min(a, 3.75)
    large = polynomial(
        u,
        (
            0.00392377,
            -0.01647633,
            0.02635537,
            -0.02057706,
            0.00916281,
            -0.00157565,
            0.00225319,
            0.01328592,
            0.39894228,
        ),
    )
    return torch.where(a < 3.75, small, torch.exp(a) / torch.sqrt(torch.clamp_min(a, 3.75)) * large)


def i1(x):
    """I1(x), in double precision."""
    return torch.exp(torch.abs(x)) * i1e(x)


_LEVELS = 30
"""Of the continued fraction of `erfcx`: enough for f64 from 5 on."""


def erfcx(x):
    """e^(x^2) erfc(x), in double precision; a continued fraction from 5 on.

    x^2 is taken as an exact square and a rest, which the exponential would else make large errors of.
    Source: Abramowitz and Stegun 7.1.14.
    """
    near = torch.clamp_max(x, 5.0)
    high = near.to(torch.float32).to(torch.float64)
    high = torch.where(torch.isfinite(high), high, near)
    rest = torch.where(torch.isfinite(near), (near - high) * (near + high), 0.0)
    small = torch.exp(high * high) * torch.exp(rest) * torch.special.erfc(near)
    far = torch.clamp_min(x, 5.0)
    fraction = far
    for level in range(_LEVELS, 0, -1):
        fraction = far + (level / 2) / fraction
    return torch.where(x < 5.0, small, 1 / (math.sqrt(math.pi) * fraction))


def _in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of floats, computed in double precision."""

    def decomposition(x):
        if not x.dtype.is_floating_point:
            return NotImplemented
        return function(x.to(torch.float64)).to(x.dtype)

    return decomposition


TABLE: dict[Any, Any] = {
    **dict.fromkeys((aten.i0.default, aten.special_i0.default), i0),
    aten.special_modified_bessel_i0.default: _in_double(i0),
    aten.special_i0e.default: _in_double(i0e),
    **dict.fromkeys((aten.special_i1.default, aten.special_modified_bessel_i1.default), _in_double(i1)),
    aten.special_i1e.default: _in_double(i1e),
    aten.special_erfcx.default: _in_double(erfcx),
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
