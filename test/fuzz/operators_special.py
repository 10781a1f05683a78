"""Special functions, and functions of integers and of the parts of numbers, in all their forms."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.forms import draw_form, written
from fuzz.generator import Growth
from fuzz.tensors import FLOATS

_SPECIAL = {
    "once": (
        "torch.special.<i0|i0e|i1|i1e|modified_bessel_i0|modified_bessel_i1>({float})",
        "torch.special.<i0|i0e|i1|i1e|erfcx|erfc|erfinv|expit|ndtr|log_ndtr|entr|exp2>({any})",
        "torch.special.<xlogy|xlog1py>({any}, {other})",
        "torch.special.<xlogy|xlog1py>({any}, <0|2|0.5|-1|nan>)",
        "torch.special.<xlogy|xlog1py>(<0|2|0.5|inf>, {any})",
        "torch.special.logit({float}, <1e-3|0.1>)",
        "torch.special.exp2({number})",
        "torch.<i0|erf|erfc|exp2|expm1|sinc|asinh|atanh|logit>({any})",
        "torch.<heaviside|copysign|hypot|fmax|fmin|logaddexp2>({number}, {like})",
        "torch.ldexp({float}, {at:;5} - 2)",
        "torch.ldexp({any}, torch.tensor(<-3|1|7>))",
        "torch.gcd({int}, {like})",
        "torch.gcd({int}, torch.tensor(<6|0|-4>).to({a}.dtype))",
        # Eager PyTorch divides by the divisor, which may be -1 of the least number: that ends the process.
        "torch.lcm({int} // 2, {like})",
        "torch.lcm({int} // 2, torch.tensor(<6|0|-4>).to({a}.dtype))",
        "torch.<sigmoid|tanh|erf|exp|log1p|atan|asinh|cosh>({int})",
        "torch.nan_to_num({any}, <0|2>, neginf=<-1|None>)",
        "torch.floor_divide({number}, {positive})",
        "torch.true_divide({int}, {positive})",
    ),
    "inside": (
        "torch.special.<erfcx|log_ndtr|psi|gammaln|digamma|ndtr>({float})",
        "torch.<digamma|lgamma>({number})",
        # Eager PyTorch counts up from negative numbers by ones, for minutes from large ones.
        "torch.polygamma(<0|1|2|3|5>, {float}.clamp(-99, 99))",
        "torch.special.polygamma(<1|2>, {number}.clamp(-99, 99))",
        "{float}.<polygamma(1)|lgamma()|digamma()|mvlgamma(1)>",
        "torch.special.multigammaln({float}.abs() + 3, <1|2|4>)",
    ),
    "sum": (
        "torch.special.<softmax|log_softmax>({float}, <0|-1>)",
        "torch.special.logsumexp({float}, {dims}{keep})",
    ),
    "exact": (
        "torch.frexp({float})",
        "torch.<bitwise_left_shift|bitwise_right_shift>({int}, {like} & 7)",
        "{int}.<__lshift__|__rshift__>(torch.tensor(<0|1|6>))",
        "torch.<bitwise_left_shift|bitwise_right_shift>(<1|-3|100>, {int} & 5)",
        "torch.bitwise_<and|or|xor>({int}, <1|-1|6>)",
        "torch.<signbit|isreal|isposinf|isneginf>({any})",
        "torch.isclose({float}, {like}, rtol=<1e-3|0>, atol=<0|0.5>, equal_nan=<True|False>)",
        "torch.isin({number}, {t:3}.to({a}.dtype), invert=<True|False>)",
    ),
}


@operator(5, plain=False)
def special(g: Growth) -> None:
    draw_form(g, _SPECIAL)


_FOURIER = (
    "torch.view_as_real(torch.fft.<fft|ifft|rfft|ihfft>({float1}, dim={dim}, norm=<None|'ortho'|'forward'>))",
    "torch.view_as_real(torch.fft.<fft|rfft>({float1}, n=<1|4|7|30>))",
    "torch.view_as_real(torch.fft.<fftn|ifftn|rfftn>({float1}))",
    "torch.view_as_real(torch.fft.<fft2|rfft2|ifft2>(torch.atleast_2d({float1})))",
    "torch.fft.<irfft|hfft>({float1}, n=<5|8|None>, dim={dim})",
    "torch.fft.irfft(torch.fft.rfft({float1}, dim={dim}) * {scalar}, dim={dim})",
    "torch.fft.<fftshift|ifftshift>({float1}, {dim})",
    "torch.view_as_real(torch.stft({float1}.flatten(), 8, hop_length=<3|4>, return_complex=True))",
)


@operator(1, plain=False)
def fourier(g: Growth) -> None:
    """Transforms of what is finite: which results infinite numbers make NaN, the order of the sums says."""
    finite = g.emit(f"{g.any_of(FLOATS, 1)}.nan_to_num(0, 9, -9).clamp(-99, 99)")
    g.emit(written(g, g.choose.choice(_FOURIER).replace("{float1}", "{a}"), finite), "sum")
