"""Attention and transformer layers as plain matrix products, masks and softmax, with their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from tilewright.compiler.importers.torch.types import compute_dtype

aten = torch.ops.aten


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
    return [t.to(compute_dtype(t)) for t in tensors]


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    """matmul(q * scale, k^T), mask, softmax, matmul; rows whose scores are all -inf give zeros, as eager's do."""
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
    top = torch.where(top == float("-inf"), 0.0, top)
    powers = torch.exp(scores - top)
    total = torch.sum(powers, -1, keepdim=True)
    weights = torch.where(total == 0, 0.0, powers / total)
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
    heads = key.shape[1] if key.dim() == 4 and key.shape[1] != query.shape[1] else 0
    dtypes = query.dtype, key.dtype, value.dtype
    if heads:
        repeats = query.shape[1] // heads
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    grad, q, k, v, out = _widened(grad, query, key, value, out)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    weights = torch.exp(_scores(q, k, attn_mask, is_causal, scale) - logsumexp.unsqueeze(-1))
    weights = torch.where((logsumexp == float("-inf")).unsqueeze(-1), 0.0, weights)
    grad_value = torch.matmul(weights.transpose(-2, -1), grad)
    grad_weights = torch.matmul(grad, v.transpose(-2, -1))
    grad_scores = weights * (grad_weights - torch.sum(grad * out, -1, keepdim=True)) * scale
    grad_query = torch.matmul(grad_scores, k)
    grad_key = torch.matmul(grad_scores.transpose(-2, -1), q)
    if heads:  # each head of key and value served several of the query
        grad_key = torch.sum(grad_key.unflatten(1, (heads, -1)), 2)
        grad_value = torch.sum(grad_value.unflatten(1, (heads, -1)), 2)
    return grad_query.to(dtypes[0]), grad_key.to(dtypes[1]), grad_value.to(dtypes[2])


def native_multi_head_attention(
    query,
    key,
    value,
    size,
    heads,
    w_qkv,
    b_qkv,
    w_out,
    b_out,
    mask=None,
    need_weights=True,
    average=True,
    kind=None,
):
    """Projections, attention over `heads`, projection; `mask` is True where nothing is seen, or is added."""
    parts = zip((query, key, value), torch.chunk(w_qkv, 3), torch.chunk(b_qkv, 3))
    q, k, v = (
        F.linear(x, w, b).reshape(x.shape[0], x.shape[1], heads, size // heads).transpose(1, 2)
        for x, w, b in parts
    )
    scores = _scores(q, k, None, False, None)
    if mask is not None:
        if kind == 1:
            mask = mask.reshape(mask.shape[0], 1, 1, mask.shape[1])
        scores = torch.where(mask, float("-inf"), scores) if mask.dtype == torch.bool else scores + mask
    weights = torch.softmax(scores, -1)
    out = torch.matmul(weights, v).transpose(1, 2).reshape(query.shape[0], query.shape[1], size)
    out = F.linear(out, w_out, b_out)
    if not need_weights:
        return out, out.new_empty([0])
    return out, torch.mean(weights, 1) if average else weights


def transformer_encoder_layer(
    x, size, heads, w_qkv, b_qkv, w_out, b_out, gelu, norm_first, eps,
    w_norm1, b_norm1, w_norm2, b_norm2, w_ffn1, b_ffn1, w_ffn2, b_ffn2, mask=None, kind=None,
):  # fmt: skip
    """The layer that PyTorch runs as one kernel in evaluation mode."""

    def attend(y):
        return native_multi_head_attention(
            y, y, y, size, heads, w_qkv, b_qkv, w_out, b_out, mask, need_weights=False, kind=kind
        )[0]

    def feed(y):
        y = F.linear(y, w_ffn1, b_ffn1)
        return F.linear(F.gelu(y) if gelu else torch.relu(y), w_ffn2, b_ffn2)

    if norm_first:
        x = x + attend(F.layer_norm(x, (size,), w_norm1, b_norm1, eps))
        return x + feed(F.layer_norm(x, (size,), w_norm2, b_norm2, eps))
    x = F.layer_norm(x + attend(x), (size,), w_norm1, b_norm1, eps)
    return F.layer_norm(x + feed(x), (size,), w_norm2, b_norm2, eps)


TABLE: dict[Any, Any] = {
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: flash_attention_for_cpu_backward,
    aten._native_multi_head_attention.default: native_multi_head_attention,
    aten._transformer_encoder_layer_fwd.default: transformer_encoder_layer,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
