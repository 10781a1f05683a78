"""Operators that TorchDynamo gives functions to: loops of a known number of steps, and attention, written out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import _math_attention_inner
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op

REASON = (
    "calls functions that it is given, by values that only a call knows; of such operators, `map`, `scan` and "
    "`flex_attention` are compiled, and so is a choice of values by torch.where"
)


def mapped(body, tensors, others):
    """`body` on every slice of `tensors` along their first dimension; its results stacked."""
    steps = tensors[0].shape[0]
    if not steps:
        return map_impl(body, tensors, others)
    results = [body(*(x.select(0, step) for x in tensors), *others) for step in range(steps)]
    return tuple(_stacked(parts) for parts in zip(*results))


def scanned(body, carried, tensors, others):
    """`body` on what it carried on and on every slice in turn; what is carried last, then its other results stacked."""
    steps = tensors[0].shape[0] if tensors else 0
    if not steps:
        return scan_op(body, carried, tensors, others)
    number, results = len(carried), []
    for step in range(steps):
        found = body(*carried, *(x.select(0, step) for x in tensors), *others)
        carried = found[:number]
        results.append(found[number:])
    # What is carried shares no memory with what the loop was given.
    return (*(x.clone() for x in carried), *(_stacked(parts) for parts in zip(*results)))


def _stacked(parts: tuple[Any, ...]) -> Any:
    """Results of all steps in one tensor; None where a body has none."""
    return None if parts[0] is None else torch.stack(parts)


def flex_attention(
    query, key, value, score_mod, block_mask, scale, options, score_buffers=(), mask_buffers=()
):
    """Attention whose scores go through functions: values, log2 of the sums of powers, and largest scores.

    Rows without any key have no weights, and gradients of 0.
    """
    groups = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (key, value))
    key, value = (x.expand(query.size(0), *x.shape[1:]) for x in (key, value))
    _, scores = _math_attention_inner(
        query, key, value, score_mod, block_mask, scale, options, score_buffers, mask_buffers
    )
    is_empty = (scores == -math.inf).all(-1, keepdim=True)
    finite = torch.where(is_empty, 0.0, scores)
    weights = torch.where(is_empty, 0.0, finite.softmax(-1))
    sums = torch.where(is_empty.squeeze(-1), -math.inf, finite.logsumexp(-1))
    found = weights.to(query.dtype) @ value.to(query.dtype)
    return found, sums / math.log(2), scores.amax(-1) / math.log(2)


FUNCTIONS: dict[Any, Any] = {
    map_impl: mapped,
    scan_op: scanned,
    torch.ops.higher_order.flex_attention: flex_attention,
}
"""Operators -> our forms of them, in graphs that TorchDynamo captured."""
