"""Decompositions of operators that torch-mlir does not lower: special functions, distances, cells."""

from __future__ import annotations

import math
from typing import Any

import torch

from tilewright.compiler.importers.torch.result_memory import laid_out_as

aten = torch.ops.aten

_BESIDE_TWO = (
    -2.7595228851242334e-10,
    5.731367241678862e-10,
    -1.1921401405860912e-09,
    2.4836745438024785e-09,
    -5.183475041970047e-09,
    1.0838659214896955e-08,
    -2.2711094608943164e-08,
    4.7698101693639804e-08,
    -1.0043224823968099e-07,
    2.1207184805554665e-07,
    -4.492469198764566e-07,
    9.55141213040742e-07,
    -2.039215753801366e-06,
    4.374866789907488e-06,
    -9.439488275268397e-06,
    2.050721277567069e-05,
    -4.492623673813314e-05,
    9.945751278180853e-05,
    -0.00022315475845357939,
    0.0005096695247430425,
    -0.001192753911703261,
    0.0028905103307415234,
    -0.007385551028673986,
    0.020580808427784546,
    -0.0673523010531981,
    0.3224670334241132,
    0.42278433509846713,
)
"""Coefficients of lgamma(2 + z) / z by falling powers: (-1)^k (zeta(k) - 1) / k, and 1 less Euler's constant.

Source: Abramowitz and Stegun 6.1.33."""


_ERFINV_INNER = (
    (-0.140543331, 0.914624893, -1.645349621, 0.886226899),
    (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0),
)
_ERFINV_OUTER = (1.641345311, 3.429567803, -1.624906493, -1.970840454), (1.637067800, 3.543889200, 1.0)
"""P and Q with erfinv(x) = x P(x²) / Q(x²) up to 0.7, then P(z) / Q(z) for z = sqrt(-log((1 - x) / 2)).

Source: PyTorch's calc_erfinv (ATen/native/Math.h)."""


def erfinv(x):
    """Giles' formula in single precision, Halley's steps from a quotient in double.

    Source: M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2011, ch. 10.
    """
    y = _erfinv_double(x) if x.dtype == torch.float64 else _erfinv_single(x)
    return torch.where(torch.abs(x) == 1, torch.sign(x) * math.inf, y)


def _erfinv_double(x):
    """By the rest of `erf`, or of `erfc` where erf(y) - x is all rounding."""
    size = torch.abs(x)
    square, z = x * x, torch.sqrt(-torch.log((1 - size) / 2))
    inner = size * polynomial(square, _ERFINV_INNER[0]) / polynomial(square, _ERFINV_INNER[1])
    outer = polynomial(z, _ERFINV_OUTER[0]) / polynomial(z, _ERFINV_OUTER[1])
    y = torch.where(size <= 0.7, inner, outer)
    for _ in range(2):
        rest = torch.where(size <= 0.7, torch.erf(y) - size, (1 - size) - torch.erfc(y))
        step = rest * (math.sqrt(math.pi) / 2) * torch.exp(y * y)
        y = y - step / (1 + y * step)
    return torch.copysign(y, x)


def _erfinv_single(x):
    w = -torch.log((1 - x) * (1 + x))
    small, large = w - 2.5, torch.sqrt(torch.clamp_min(w, 0)) - 3
    p = polynomial(
        small,
        (
            2.81022636e-08,
            3.43273939e-07,
            -3.5233877e-06,
            -4.39150654e-06,
            0.00021858087,
            -0.00125372503,
            -0.00417768164,
            0.246640727,
            1.50140941,
        ),
    )
    q = polynomial(
        large,
        (
            -0.000200214257,
            0.000100950558,
            0.00134934322,
            -0.00367342844,
            0.00573950773,
            -0.0076224613,
            0.00943887047,
            1.00167406,
            2.83297682,
        ),
    )
    return torch.where(w < 5, p, q) * x


def polynomial(x, coefficients):
    total = torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def _in_double(operator: Any, function: Any) -> Any:
    """`function` in double precision, for `operator` on every type."""

    def decomposition(x):
        return function(x) if x.dtype == torch.float64 else operator(x.to(torch.float64)).to(x.dtype)

    return decomposition


_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
"""Coefficients of Stirling's series in 1 / x² by falling powers. Source: Abramowitz and Stegun 6.1.41."""


def lgamma(x):
    """A series beside the roots 1 and 2, steps down to it, Stirling's series from 8.5; reflected below one half."""
    size = torch.where(x < 0.5, 1 - x, x)
    near, factors = size, torch.ones_like(x)
    for _ in range(6):
        step = (near >= 2.5) & (size < 8.5)
        near = torch.where(step, near - 1, near)
        factors = torch.where(step, factors * near, factors)
    z = torch.where(near < 1.5, near - 1, near - 2)
    small = z * polynomial(z, _BESIDE_TWO)
    small = torch.where(near < 1.5, small - torch.log1p(z), small + torch.log(factors))
    series = polynomial(1 / (size * size), _STIRLING) / size
    large = (size - 0.5) * (torch.log(size) - 1) + (math.log(2 * math.pi) - 1) / 2 + series
    value = torch.where(size < 8.5, small, large)
    mirrored = math.log(math.pi) - torch.log(torch.abs(torch.sin(math.pi * (x - torch.round(x))))) - value
    found = torch.where(x < 0.5, mirrored, value)
    is_pole = (x <= 0) & (x == torch.round(x))  # where the two that make `mirrored` may be infinite both
    return torch.where(is_pole | (x == math.inf), math.inf, found)


def digamma(x):
    """Recurrence up to 10, then the asymptotic series; reflected for negative arguments, whole ones but 0 NaN."""
    z = torch.where(x < 0, 1 - x, x)
    shifted, correction = z, torch.zeros_like(x)
    for _ in range(10):
        step = shifted < 10
        correction = torch.where(step, correction - 1 / shifted, correction)
        shifted = torch.where(step, shifted + 1, shifted)
    inverse = 1 / (shifted * shifted)
    series = (
        polynomial(inverse, (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)) * inverse
    )
    value = (
        correction + torch.log(shifted) - 0.5 / shifted - series
    )  # in eager's order, which rounds beside roots
    fraction = x - torch.trunc(x)
    mirrored = torch.where(fraction == 0, math.nan, value - math.pi / torch.tan(math.pi * fraction))
    return torch.where(x == 0, -1 / x, torch.where(x < 0, mirrored, value))


_BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}
"""Integers of as many bytes as a float."""


def signbit(x):
    """The highest bit, which denormals, zeros and NaN have too."""
    return (x.view(_BITS[x.itemsize]) if x.dtype.is_floating_point else x) < 0


def copysign(x, y):
    """The magnitude of `x` with the sign of `y`."""
    x, y = torch.broadcast_tensors(x, y) if isinstance(y, torch.Tensor) else (x, torch.full_like(x, y))
    magnitude = torch.abs(x if x.dtype.is_floating_point else x.to(torch.get_default_dtype()))
    return torch.where(torch.signbit(y), -magnitude, magnitude)


def fmax(x, y):
    """The maximum that prefers numbers to NaN."""
    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, torch.maximum(x, y)))


def fmin(x, y):
    """The minimum that prefers numbers to NaN."""
    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, torch.minimum(x, y)))


def fmod_scalar(x, y):
    """The remainder by a number, as that by a tensor."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    return torch.fmod(x, torch.full([], y, dtype=x.dtype))


def hypot(x, y):
    """sqrt(x^2 + y^2), scaled by the larger so that squares do not overflow."""
    x, y = torch.abs(x), torch.abs(y)
    top, low = torch.maximum(x, y), torch.minimum(x, y)
    ratio = low / torch.where(top == 0, 1.0, top)
    return torch.where(top == math.inf, math.inf, top * torch.sqrt(1 + ratio * ratio))


def angle(x):
    """0 or pi for real numbers."""
    if x.dtype.is_complex:
        return torch.atan2(x.imag, x.real)
    if not x.dtype.is_floating_point:
        x = x.to(torch.get_default_dtype())
    return torch.where(torch.isnan(x), x, torch.where(x < 0, torch.full_like(x, math.pi), 0.0))


def diagonal_scatter(x, source, offset=0, dim1=0, dim2=1):
    """`x` with `source` on a diagonal, chosen by comparing row and column numbers."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows = torch.arange(moved.shape[-2]).unsqueeze(1)
    columns = torch.arange(moved.shape[-1]).unsqueeze(0)
    length = source.shape[-1]
    if not length:  # as a diagonal beyond the last row is
        return x.clone()
    # Row r of the diagonal holds element r + min(offset, 0) of the source: spread it over rows, then choose.
    spread = aten.constant_pad_nd(source, [max(-offset, 0), moved.shape[-2] - length - max(-offset, 0)], 0)
    chosen = (columns - rows == offset) & (rows >= max(-offset, 0)) & (rows < length + max(-offset, 0))
    return laid_out_as(torch.where(chosen, spread.unsqueeze(-1), moved).movedim((-2, -1), (dim1, dim2)), x)


def on_one_element(operator: Any):
    """`operator` along a dimension of a tensor without dimensions, by way of one of one element."""

    def decomposition(x, *args, **kwargs):
        if x.dim():
            return NotImplemented
        found = operator(x.unsqueeze(0), *args, **kwargs)
        if isinstance(found, torch.Tensor):
            return found.reshape([])
        return tuple(part.reshape([]) for part in found)

    return decomposition


def take(x, index):
    """Elements of the flattened tensor by number, negative ones from its end."""
    if not x.numel():
        return NotImplemented
    front = torch.where(index < 0, index + x.numel(), index)
    return torch.index_select(x.reshape(-1), 0, front.reshape(-1)).reshape(index.shape)


def cdist_forward(x, y, p, compute_mode=None):
    """Distances between all rows in the p-norm; eager PyTorch's largest difference is that of those which are numbers."""
    difference = torch.abs(x.unsqueeze(-2) - y.unsqueeze(-3))
    if p == 2:
        return torch.sqrt(torch.sum(difference * difference, -1))
    if p == math.inf:
        return torch.amax(torch.where(torch.isnan(difference), 0, difference), -1)
    if p == 1:
        return torch.sum(difference, -1)
    if p == 0:
        return torch.sum(torch.where(torch.isnan(difference), difference, (difference != 0).to(x.dtype)), -1)
    return torch.sum(difference**p, -1) ** (1 / p)


def cdist_backward(grad, x, y, p, distances):
    """The gradient of distances with regard to the rows of `x`; 0 where a distance, or what it has no slope of, is 0."""
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    grad, distances, size = grad.unsqueeze(-1), distances.unsqueeze(-1), torch.abs(difference)
    if p == 0:
        return torch.zeros_like(difference).sum(-2)
    if p == 1:
        return torch.sum(grad * torch.sign(difference), -2)
    if p == math.inf:
        return torch.sum(torch.where(size == distances, grad * torch.sign(difference), 0), -2)
    none = distances == 0
    if p == 2:
        slope = difference / distances
    elif p < 2:
        none = none | (difference == 0) if p < 1 else none
        slope = torch.sign(difference) * size ** (p - 1) / distances ** (p - 1)
    else:
        slope = difference * size ** (p - 2) / distances ** (p - 1)
    return torch.sum(torch.where(none, 0, grad * slope), -2)


def constant_pad_nd(x, pad, value=0):
    """Cuts where the padding is negative, then pads where it is not."""
    if all(width >= 0 for width in pad):
        return NotImplemented
    for i in range(len(pad) // 2):
        d = x.dim() - 1 - i
        cut = max(-pad[2 * i], 0), max(-pad[2 * i + 1], 0)
        if any(cut):
            x = x.narrow(d, cut[0], x.shape[d] - sum(cut))
    widths = [max(width, 0) for width in pad]
    return aten.constant_pad_nd(x, widths, value) if any(widths) else x.clone()


def rrelu(x, noise, lower=0.125, upper=1 / 3, training=False, generator=None):
    """A leaky relu with the mean slope, outside of training."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise


def rrelu_with_noise(x, noise, lower=0.125, upper=1 / 3, training=False, generator=None):
    """A leaky relu with the mean slope, outside of training."""
    found = rrelu(x, noise, lower, upper, training)
    return found if found is NotImplemented else found[0]


def mkldnn_rnn_layer(
    x, w_input, w_hidden, b_input, b_hidden, h, c, reverse, batch_sizes, mode, hidden_size, layers, has_biases,
    bidirectional, batch_first, train,
):  # fmt: skip
    """One LSTM layer over [time, batch, features]: the input product for all steps, then the recurrence."""
    if mode != 2 or layers != 1 or bidirectional or batch_first:
        return NotImplemented
    projected = torch.matmul(x, w_input.t())
    if has_biases:
        projected = projected + (b_input + b_hidden)
    h, c = h.squeeze(0), c.squeeze(0)
    w = w_hidden.t()
    steps: list[Any] = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        gates = projected[t] + torch.mm(h, w)
        enter, forget, cell, leave = torch.split(gates, hidden_size, 1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(cell)
        h = torch.sigmoid(leave) * torch.tanh(c)
        steps[t] = h
    return torch.stack(steps), h.unsqueeze(0), c.unsqueeze(0), x.new_empty([0])


def _log_of_sum(power: Any, scale: float):
    """`logaddexp`, of powers of e, or `logaddexp2`: the larger plus what the smaller adds, and NaN where there is one.

    torch-mlir takes infinity for the larger one of that and NaN in one order of them, and of powers of two adds the powers.
    """

    def decomposition(x, y):
        dtype = torch.result_type(x, y)
        if dtype not in (torch.float32, torch.float64):
            return NotImplemented
        x, y = x.to(dtype), y.to(dtype)
        added = torch.log1p(power(-torch.abs(x - y)))
        if scale != 1:
            added = added * scale
        return torch.where((torch.abs(x) == math.inf) & (x == y), x, torch.maximum(x, y) + added)

    return decomposition


def lerp(start, end, weight):
    """Single precision with one rounding after the difference, as eager PyTorch's multiply-adds have it."""
    if start.dtype != torch.float32:
        return NotImplemented
    if not isinstance(weight, torch.Tensor):
        weight = start.new_full((), weight)
    difference = (end - start).double()
    near = start.double() + weight.double() * difference
    far = end.double() - (1 - weight).double() * difference
    return torch.where(torch.abs(weight) < 0.5, near, far).to(start.dtype)


_ALONG_A_DIMENSION = (
    *(aten.amax.default, aten.amin.default, aten.argmax.default, aten.argmin.default, aten.prod.dim_int),
    *(aten.cumsum.default, aten.kthvalue.default, aten.sort.default, aten.topk.default),
    *(aten.max.dim, aten.min.dim, aten._softmax.default, aten._log_softmax.default),
)

TABLE: dict[Any, Any] = {
    aten.erfinv.default: erfinv,
    aten.lgamma.default: _in_double(aten.lgamma.default, lgamma),
    aten.digamma.default: _in_double(aten.digamma.default, digamma),
    aten.signbit.default: signbit,
    aten.copysign.Tensor: copysign,
    aten.copysign.Scalar: copysign,
    aten.fmax.default: fmax,
    aten.fmin.default: fmin,
    aten.hypot.default: hypot,
    aten.logaddexp.default: _log_of_sum(torch.exp, 1.0),
    aten.logaddexp2.default: _log_of_sum(torch.exp2, 1 / math.log(2)),
    aten.lerp.Scalar: lerp,
    aten.lerp.Tensor: lerp,
    aten.angle.default: angle,
    aten.fmod.Scalar: fmod_scalar,
    aten.take.default: take,
    aten.diagonal_scatter.default: diagonal_scatter,
    **{operator: on_one_element(operator) for operator in _ALONG_A_DIMENSION},
    aten._cdist_forward.default: cdist_forward,
    aten._cdist_backward.default: cdist_backward,
    aten.constant_pad_nd.default: constant_pad_nd,
    aten.rrelu_with_noise.default: rrelu_with_noise,
    aten.rrelu_with_noise_functional.default: rrelu,
    aten.mkldnn_rnn_layer.default: mkldnn_rnn_layer,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
