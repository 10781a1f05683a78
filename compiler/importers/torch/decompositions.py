"""Which ATen operators are rewritten into simpler ones while a model is traced, and into what."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from tilewright.compiler.importers.torch import attention as torch_attention
from tilewright.compiler.importers.torch import bags as torch_bags
from tilewright.compiler.importers.torch import bessel as torch_bessel
from tilewright.compiler.importers.torch import bits as torch_bits
from tilewright.compiler.importers.torch import blocks as torch_blocks
from tilewright.compiler.importers.torch import borders as torch_borders
from tilewright.compiler.importers.torch import complex as torch_complex
from tilewright.compiler.importers.torch import determinants as torch_determinants
from tilewright.compiler.importers.torch import exactness as torch_exactness
from tilewright.compiler.importers.torch import foreach as torch_foreach
from tilewright.compiler.importers.torch import fourier as torch_fourier
from tilewright.compiler.importers.torch import gamma as torch_gamma
from tilewright.compiler.importers.torch import gradients as torch_gradients
from tilewright.compiler.importers.torch import grouped_products as torch_grouped_products
from tilewright.compiler.importers.torch import indexing as torch_indexing
from tilewright.compiler.importers.torch import known_sums as torch_known_sums
from tilewright.compiler.importers.torch import known_values as torch_known_values
from tilewright.compiler.importers.torch import linear_systems as torch_linear_systems
from tilewright.compiler.importers.torch import losses as torch_losses
from tilewright.compiler.importers.torch import order as torch_order
from tilewright.compiler.importers.torch import products as torch_products
from tilewright.compiler.importers.torch import promotion as torch_promotion
from tilewright.compiler.importers.torch import quantizing as torch_quantizing
from tilewright.compiler.importers.torch import sampling as torch_sampling
from tilewright.compiler.importers.torch import scattering as torch_scattering
from tilewright.compiler.importers.torch import special as torch_special
from tilewright.compiler.importers.torch import volumes as torch_volumes
from tilewright.compiler.importers.torch import windows as torch_windows
from tilewright.compiler.importers.torch.result_memory import placed_as_in_eager
from tilewright.compiler.importers.torch.types import compute_dtype

aten = torch.ops.aten

_KEEP = (
    # torch-mlir lowers these directly, into fewer or better loops than their decompositions.
    *(aten.t, aten.transpose, aten.sigmoid, aten.gelu, aten.linear, aten.mv, aten.dot),
    *(aten.baddbmm, aten.softmax, aten._softmax, aten._log_softmax, aten.einsum, aten.prelu),
    *(aten.masked_fill, aten.full, aten.arange),
)
"""Operators that torch-mlir's own table decomposes although it lowers them well as they stand."""

_DRAWS = (aten.bernoulli, aten.rrelu, aten.rrelu_with_noise, aten.rrelu_with_noise_functional)
"""Operators that the table rewrites into ones which draw other random numbers from the same seed."""

Table = dict[Any, Callable]


def batch_norm_inference(x, weight, bias, mean, variance, momentum, eps):
    """`x * scale + shift`, with the [C]-sized scale and shift computed apart so that they can be folded."""
    dtype = compute_dtype(x)
    scale = torch.rsqrt(variance.to(dtype) + eps)
    if weight is not None:
        scale = scale * weight.to(dtype)
    shift = -mean.to(dtype) * scale
    if bias is not None:
        shift = shift + bias.to(dtype)
    per_channel = [1, x.shape[1]] + [1] * (x.dim() - 2)
    y = x.to(dtype) * scale.reshape(per_channel) + shift.reshape(per_channel)
    return y.to(x.dtype), x.new_empty([0]), x.new_empty([0])


def _saved(x, *parameters) -> torch.dtype:
    """The dtype of statistics that a normalisation returns: that of its parameters, or of `x` without any."""
    return next((parameter.dtype for parameter in parameters if parameter is not None), x.dtype)


def _mean(x, axes, keepdim=False):
    """The mean, whose sum does not overflow single precision."""
    if x.dtype != torch.float32:
        return torch.mean(x, axes, keepdim=keepdim)
    return torch.mean(x, axes, keepdim=keepdim, dtype=torch.float64).to(torch.float32)


def _is_packed(x) -> bool:
    """Whether elements lie side by side in an order that PyTorch has a name for."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim(), torch.contiguous_format)
    return x.is_contiguous() or x.is_contiguous(memory_format=last)


def batch_norm_training(x, weight, bias, mean, variance, training, momentum, eps):
    """Batch statistics, the normalised tensor, and the running statistics that follow from them."""
    dtype = compute_dtype(x)
    per_channel = [1, x.shape[1]] + [1] * (x.dim() - 2)
    if not training:
        y = batch_norm_inference(x, weight, bias, mean, variance, momentum, eps)[0]
        nothing = x.new_empty([0])
        return y, nothing, nothing, mean, variance
    axes = [d for d in range(x.dim()) if d != 1]
    saved = _saved(x, weight, bias, mean, variance)
    wide = x.to(dtype)
    # Eager adds up in double precision, and squares in it too where it does not know the tensor's strides.
    precise = wide if _is_packed(x) or dtype != torch.float32 else x.to(torch.float64)
    batch_mean = _mean(precise, axes)
    centred = precise - batch_mean.reshape(per_channel)
    batch_variance = torch.mean(centred * centred, axes)
    saved_mean, saved_rstd = batch_mean.to(saved), torch.rsqrt(batch_variance + eps).to(saved)
    # Eager normalises by what it saves. Halves have a finite difference where numbers have none.
    centred = wide * 0.5 - saved_mean.to(dtype).reshape(per_channel) * 0.5
    scale = saved_rstd.to(dtype) * 2
    scale = scale if weight is None else scale * weight.to(dtype)
    y = centred * scale.reshape(per_channel)
    if bias is not None:
        y = y + bias.to(dtype).reshape(per_channel)
    if mean is not None:
        count = x.numel() // x.shape[1]
        unbiased = batch_variance * (count / max(count - 1, 1))
        mean = (momentum * batch_mean + (1 - momentum) * mean).to(mean.dtype)
        variance = (momentum * unbiased + (1 - momentum) * variance).to(variance.dtype)
    return y.to(x.dtype), saved_mean, saved_rstd, mean, variance


def batch_norm_without_statistics(x, weight, bias, training, momentum, eps):
    """Normalises by the batch's own statistics, keeping none."""
    return batch_norm_training(x, weight, bias, None, None, training, momentum, eps)[:3]


def native_batch_norm(x, weight, bias, mean, variance, training, momentum, eps):
    """Like `_native_batch_norm_legit` where no statistics are updated."""
    if training and mean is not None:
        return NotImplemented
    return batch_norm_training(x, weight, bias, mean, variance, training, momentum, eps)[:3]


def var_mean(x, dim=None, *, correction=None, keepdim=False):
    """Mean of the squared distances from the mean; of f32 in double precision, as in eager PyTorch.

    A mean rounded to f32 adds the square of its error, which is most of the variance of numbers that are nearly equal.
    """
    if x.dtype.is_complex:
        return NotImplemented
    axes = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    wide = x.to(torch.float64 if x.dtype == torch.float32 else compute_dtype(x))
    mean = torch.mean(wide, axes, keepdim=True)
    centred = wide - mean
    count = math.prod(x.shape[d] for d in axes) if x.dim() else 1
    degrees = max(count - (1 if correction is None else correction), 0)
    squares = torch.sum(centred * centred, axes, keepdim=keepdim)
    mean = mean + _of_others(wide, [d for d in axes if x.dim()])
    if not keepdim:
        mean = mean.reshape(squares.shape)
    return (squares / degrees).to(x.dtype), mean.to(x.dtype)


def _of_others(x, axes):
    """0, but NaN where there is an infinity before the last element: eager updates a mean element by element."""
    found = 0.0
    if not x.numel():
        return found
    for d in axes:
        if x.shape[d] > 1:
            others = x.narrow(d, 0, x.shape[d] - 1)
            found = found + torch.sum(others * 0, axes, keepdim=True)
        x = x.narrow(d, x.shape[d] - 1, 1)
    return found


def var(x, dim=None, *, correction=None, keepdim=False):
    """The variance of `var_mean`."""
    found = var_mean(x, dim, correction=correction, keepdim=keepdim)
    return found if found is NotImplemented else found[0]


def std(x, dim=None, *, correction=None, keepdim=False):
    """The square root of the variance, whose squares eager PyTorch adds up in double precision."""
    if x.dtype != torch.float32:
        return NotImplemented
    return torch.sqrt(var(x.to(torch.float64), dim, correction=correction, keepdim=keepdim)).to(x.dtype)


def std_mean(x, dim=None, *, correction=None, keepdim=False):
    """`std` beside the mean of `var_mean`."""
    if x.dtype != torch.float32:
        return NotImplemented
    variance, mean = var_mean(x.to(torch.float64), dim, correction=correction, keepdim=keepdim)
    return torch.sqrt(variance).to(x.dtype), mean.to(x.dtype)


def native_layer_norm(x, normalized_shape, weight, bias, eps):
    """Mean, centred square mean, scale: two reductions and elementwise work; returns both statistics too."""
    dtype = compute_dtype(x)
    axes = list(range(x.dim() - len(normalized_shape), x.dim()))
    wide = x.to(dtype)
    mean = torch.mean(wide, axes, keepdim=True)
    centred = wide - mean
    rstd = torch.rsqrt(torch.mean(centred * centred, axes, keepdim=True) + eps)
    y = centred * rstd
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    saved = _saved(x, weight, bias)
    return y.to(x.dtype), _with_nan(mean, rstd).to(saved), rstd.to(saved)


def native_group_norm(x, weight, bias, batch, channels, spatial, groups, eps):
    """Group norm as a layer norm over [groups, channels / groups * spatial] with per-channel scale."""
    dtype = compute_dtype(x)
    grouped = x.to(dtype).reshape(batch, groups, channels // groups * spatial)
    mean = torch.mean(grouped, [2], keepdim=True)
    centred = grouped - mean
    rstd = torch.rsqrt(torch.mean(centred * centred, [2], keepdim=True) + eps)
    y = (centred * rstd).reshape(x.shape)
    per_channel = [1, channels] + [1] * (x.dim() - 2)
    if weight is not None:
        y = y * weight.reshape(per_channel)
    if bias is not None:
        y = y + bias.reshape(per_channel)
    saved = _saved(x, weight, bias)
    mean, rstd = (s.reshape(batch, groups).to(saved) for s in (_with_nan(mean, rstd), rstd))
    return y.to(x.dtype), mean, rstd


def weight_norm_backward(grad, direction, magnitude, norms, dim):
    """Gradients of `magnitude * direction / norms`, whose norms are over all dimensions but one."""
    others = [d for d in range(direction.dim()) if d != dim]
    shape = [n if d == dim else 1 for d, n in enumerate(direction.shape)]
    norms, scale = norms.reshape(shape), magnitude.reshape(shape)
    along = torch.sum(direction * grad, others, keepdim=True) if others else direction * grad
    of_direction = scale / norms * (grad - direction * (along / (norms * norms)))
    return of_direction.to(direction.dtype), (along / norms).reshape(magnitude.shape).to(magnitude.dtype)


def _with_nan(mean, rstd):
    """The mean, NaN where the deviation is: eager's is updated by differences, and that of infinities is NaN."""
    return torch.where(rstd.isnan(), math.nan, mean)


def native_dropout(x, p, train):
    """`x` times a mask that is drawn as `torch.dropout` draws it on CPUs, divided by `1 - p` in `x`'s own type."""
    if x.device.type != "cpu" or not x.dtype.is_floating_point:
        return NotImplemented
    if train is False or x.numel() == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return x * 0, torch.zeros_like(x, dtype=torch.bool)
    mask = aten.bernoulli.p(torch.empty_like(x, dtype=torch.bool), 1 - p)
    with no_dispatch():
        scale = torch.ones((), dtype=x.dtype).div_(1 - p).item()
    return x * (mask.to(x.dtype) * scale), mask


_OURS: Table = {
    aten.native_dropout.default: native_dropout,
    aten._native_batch_norm_legit_no_training.default: batch_norm_inference,
    aten._native_batch_norm_legit_functional.default: batch_norm_training,
    aten._native_batch_norm_legit.no_stats: batch_norm_without_statistics,
    aten.native_batch_norm.default: native_batch_norm,
    aten.var_mean.correction: var_mean,
    aten.var.correction: var,
    aten.std.correction: std,
    aten.std_mean.correction: std_mean,
    aten.native_layer_norm.default: native_layer_norm,
    aten.native_group_norm.default: native_group_norm,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
}


def fma(x, y, z):
    """`x * y + z`: Dynamo writes `addcmul_` and `addcdiv_` with a factor so, as an operator of Inductor's."""
    return x * y + z


_OF_LIBRARIES: dict[tuple[str, str], Callable] = {
    ("prims", "fma"): fma,
    # What Hugging Face's mixtures of experts call while they are exported in place of PyTorch's own.
    ("transformers", "grouped_mm_fallback"): torch_grouped_products.of_rows,
}
"""Operators that exist from when a library first registers them, by namespace and name."""


def decomposition_table() -> Table:
    """The table for tracing: torch-mlir's, less what it lowers better whole, plus ours."""
    registered = {name: getattr(getattr(torch.ops, name[0]), name[1], None) for name in _OF_LIBRARIES}
    return _table(tuple((op, _OF_LIBRARIES[name]) for name, op in registered.items() if op is not None))


@cache
def _table(of_libraries: tuple[tuple[Any, Callable], ...]) -> Table:
    """The table with operators of libraries."""
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    keep = {*_KEEP, *_DRAWS}
    table = {op: how for op, how in get_decomposition_table().items() if _packet(op) not in keep}
    tables = (
        *(torch_attention, torch_gradients, torch_special, torch_bags, torch_gamma, torch_bits, torch_order),
        *(torch_exactness, torch_sampling, torch_volumes, torch_windows, torch_indexing),
        *(torch_promotion, torch_complex, torch_determinants, torch_products, torch_foreach),
        *(torch_bessel, torch_blocks, torch_borders, torch_fourier, torch_quantizing, torch_grouped_products),
        *(torch_scattering, torch_losses, torch_linear_systems, torch_known_values, torch_known_sums),
    )
    late = {op.default: how for op, how in of_libraries}
    for ours in (_OURS, late, *(module.TABLE for module in tables)):
        for operator, how in ours.items():
            table[operator] = _first_that_applies(how, table.get(operator))
    return placed_as_in_eager(table)


def _first_that_applies(first: Callable, second: Callable | None) -> Callable:
    """`first`, then `second` for what the first does not cover."""

    def decomposition(*args, **kwargs):
        found = first(*args, **kwargs)
        return second(*args, **kwargs) if found is NotImplemented and second is not None else found

    return decomposition


def _packet(op: Any) -> Any:
    return getattr(op, "_overloadpacket", op)
