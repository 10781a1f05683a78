"""Which ATen operators are rewritten into simpler ones while a model is traced, and into what."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from tilewright.compiler.importers import torch_special

aten = torch.ops.aten

_KEEP = (
    # torch-mlir lowers these directly, into fewer or better loops than their decompositions.
    *(aten.t, aten.transpose, aten.sigmoid, aten.unbind, aten.gelu, aten.linear, aten.mv, aten.dot),
    *(aten.baddbmm, aten.softmax, aten._softmax, aten._log_softmax, aten.einsum, aten.prelu),
    *(aten.masked_fill, aten.full, aten.arange),
)
"""Operators that torch-mlir's own table decomposes although it lowers them well as they stand."""

Table = dict[Any, Callable]


def addmm(bias, left, right, *, beta=1, alpha=1):
    """`beta * bias + alpha * (left @ right)` without multiplications by one."""
    product = torch.mm(left, right)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


def _compute_dtype(x: torch.Tensor) -> torch.dtype:
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def batch_norm_inference(x, weight, bias, mean, variance, momentum, eps):
    """`x * scale + shift`, with the [C]-sized scale and shift computed apart so that they can be folded."""
    dtype = _compute_dtype(x)
    scale = torch.rsqrt(variance.to(dtype) + eps)
    if weight is not None:
        scale = scale * weight.to(dtype)
    shift = -mean.to(dtype) * scale
    if bias is not None:
        shift = shift + bias.to(dtype)
    per_channel = [1, x.shape[1]] + [1] * (x.dim() - 2)
    y = x.to(dtype) * scale.reshape(per_channel) + shift.reshape(per_channel)
    return y.to(x.dtype), x.new_empty([0]), x.new_empty([0])


def batch_norm_training(x, weight, bias, mean, variance, training, momentum, eps):
    """Batch statistics, the normalised tensor, and the running statistics that follow from them."""
    dtype = _compute_dtype(x)
    per_channel = [1, x.shape[1]] + [1] * (x.dim() - 2)
    if not training:
        y = batch_norm_inference(x, weight, bias, mean, variance, momentum, eps)[0]
        nothing = x.new_empty([0])
        return y, nothing, nothing, mean, variance
    axes = [d for d in range(x.dim()) if d != 1]
    wide = x.to(dtype)
    batch_mean = torch.mean(wide, axes)
    centred = wide - batch_mean.reshape(per_channel)
    batch_variance = torch.mean(centred * centred, axes)
    rstd = torch.rsqrt(batch_variance + eps)
    scale = rstd if weight is None else rstd * weight.to(dtype)
    y = centred * scale.reshape(per_channel)
    if bias is not None:
        y = y + bias.to(dtype).reshape(per_channel)
    if mean is not None:
        count = x.numel() // x.shape[1]
        unbiased = batch_variance * (count / max(count - 1, 1))
        mean = (momentum * batch_mean + (1 - momentum) * mean).to(mean.dtype)
        variance = (momentum * unbiased + (1 - momentum) * variance).to(variance.dtype)
    return y.to(x.dtype), batch_mean, rstd, mean, variance


def batch_norm_without_statistics(x, weight, bias, training, momentum, eps):
    """Normalises by the batch's own statistics, keeping none."""
    return batch_norm_training(x, weight, bias, None, None, training, momentum, eps)[:3]


def native_batch_norm(x, weight, bias, mean, variance, training, momentum, eps):
    """Like `_native_batch_norm_legit` where no statistics are updated."""
    if training and mean is not None:
        return NotImplemented
    return batch_norm_training(x, weight, bias, mean, variance, training, momentum, eps)[:3]


def var_mean(x, dim=None, *, correction=None, keepdim=False):
    """Mean of the squared distances from the mean, in the tensor's own precision."""
    if x.dtype.is_complex:
        return NotImplemented
    axes = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    wide = x.to(_compute_dtype(x))
    mean = torch.mean(wide, axes, keepdim=True)
    centred = wide - mean
    count = math.prod(x.shape[d] for d in axes) if x.dim() else 1
    degrees = max(count - (1 if correction is None else correction), 0)
    squares = torch.sum(centred * centred, axes, keepdim=keepdim)
    if not keepdim:
        mean = mean.reshape(squares.shape)
    return (squares / degrees).to(x.dtype), mean.to(x.dtype)


def var(x, dim=None, *, correction=None, keepdim=False):
    """The variance of `var_mean`."""
    found = var_mean(x, dim, correction=correction, keepdim=keepdim)
    return found if found is NotImplemented else found[0]


def native_layer_norm(x, normalized_shape, weight, bias, eps):
    """Mean, centred square mean, scale: two reductions and elementwise work; returns both statistics too."""
    dtype = _compute_dtype(x)
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
    return y.to(x.dtype), mean, rstd


def native_group_norm(x, weight, bias, batch, channels, spatial, groups, eps):
    """Group norm as a layer norm over [groups, channels / groups * spatial] with per-channel scale."""
    dtype = _compute_dtype(x)
    grouped = x.to(dtype).reshape(batch, groups, -1)
    mean = torch.mean(grouped, [2], keepdim=True)
    centred = grouped - mean
    rstd = torch.rsqrt(torch.mean(centred * centred, [2], keepdim=True) + eps)
    y = (centred * rstd).reshape(x.shape)
    per_channel = [1, channels] + [1] * (x.dim() - 2)
    if weight is not None:
        y = y * weight.reshape(per_channel)
    if bias is not None:
        y = y + bias.reshape(per_channel)
    return y.to(x.dtype), mean.reshape(batch, groups), rstd.reshape(batch, groups)


def _causal_mask(rows: int, columns: int, device) -> torch.Tensor:
    return torch.arange(columns, device=device).unsqueeze(0) <= torch.arange(rows, device=device).unsqueeze(1)


def _scores(query, key, mask, is_causal, scale):
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if is_causal:
        visible = _causal_mask(query.shape[-2], key.shape[-2], query.device)
        scores = torch.where(visible, scores, float("-inf"))
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return scores


def _widened(*tensors):
    return [t.to(_compute_dtype(t)) for t in tensors]


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    """matmul(q * scale, k^T), mask, softmax, matmul; rows that see nothing give zeros, as eager's do."""
    if dropout_p:
        return NotImplemented
    attended = flash_attention_for_cpu(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)
    return attended[0]


def flash_attention_for_cpu(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    """Attention with the row-wise logsumexp that its gradient needs."""
    if dropout_p:
        return NotImplemented
    if query.dim() > 2 and key.shape[-3] != query.shape[-3] and key.shape[-3] > 1:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    q, k, v = _widened(query, key, value)
    scores = _scores(q, k, attn_mask, is_causal, scale)
    top = torch.amax(scores, -1, keepdim=True)
    if attn_mask is not None:
        top = torch.where(top == float("-inf"), 0.0, top)
    powers = torch.exp(scores - top)
    total = torch.sum(powers, -1, keepdim=True)
    weights = powers / total
    if attn_mask is not None:
        weights = torch.where(total == 0, 0.0, weights)
    out = torch.matmul(weights, v).to(query.dtype)
    if query.dim() == 4 and not query.is_contiguous() and query.transpose(1, 2).is_contiguous():
        out = (
            out.transpose(1, 2).contiguous().transpose(1, 2)
        )  # the kernel lays its result out like the query
    return out, (top + torch.log(total)).squeeze(-1)


def flash_attention_for_cpu_backward(
    grad, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    """Gradients of attention for query, key and value, recomputing the weights from the logsumexp."""
    if dropout_p:
        return NotImplemented
    dtypes = query.dtype, key.dtype, value.dtype
    grad, q, k, v, out = _widened(grad, query, key, value, out)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    weights = torch.exp(_scores(q, k, attn_mask, is_causal, scale) - logsumexp.unsqueeze(-1))
    if attn_mask is not None:
        weights = torch.where(torch.isinf(logsumexp).unsqueeze(-1), 0.0, weights)
    grad_value = torch.matmul(weights.transpose(-2, -1), grad)
    grad_weights = torch.matmul(grad, v.transpose(-2, -1))
    grad_scores = weights * (grad_weights - torch.sum(grad * out, -1, keepdim=True)) * scale
    grad_query = torch.matmul(grad_scores, k)
    grad_key = torch.matmul(grad_scores.transpose(-2, -1), q)
    return grad_query.to(dtypes[0]), grad_key.to(dtypes[1]), grad_value.to(dtypes[2])


_OURS: Table = {
    aten.addmm.default: addmm,
    aten._native_batch_norm_legit_no_training.default: batch_norm_inference,
    aten._native_batch_norm_legit_functional.default: batch_norm_training,
    aten._native_batch_norm_legit.no_stats: batch_norm_without_statistics,
    aten.native_batch_norm.default: native_batch_norm,
    aten.var_mean.correction: var_mean,
    aten.var.correction: var,
    aten.native_layer_norm.default: native_layer_norm,
    aten.native_group_norm.default: native_group_norm,
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: flash_attention_for_cpu_backward,
}


@cache
def decomposition_table() -> Table:
    """The table for tracing: torch-mlir's, less what it lowers better whole, plus ours."""
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    keep = set(_KEEP)
    table = {op: how for op, how in get_decomposition_table().items() if _packet(op) not in keep}
    table.update(_OURS)
    table.update(torch_special.TABLE)
    return table


def _packet(op: Any) -> Any:
    return getattr(op, "_overloadpacket", op)
