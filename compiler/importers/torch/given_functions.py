"""Operators that are given functions: loops of a known number of steps, and attention, written out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import _math_attention_inner
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch.utils import _pytree as pytree

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
    return pytree.tree_map(lambda *parts: _stacked(parts), *results)


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
    top = scores.detach().amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, 0.0, top)
    powers = torch.exp(scores - top)
    total = powers.sum(-1, keepdim=True)
    # Not quotients that are replaced: the gradient of 0 / 0 is NaN.
    divisor = torch.where(total == 0, 1.0, total)
    sums = torch.where(total == 0, -math.inf, top + torch.log(divisor))
    weights = powers / divisor
    found = weights.to(query.dtype) @ value.to(query.dtype)
    return found, sums.squeeze(-1) / math.log(2), scores.amax(-1) / math.log(2)


FUNCTIONS: dict[Any, Any] = {
    map_impl: mapped,
    scan_op: scanned,
    torch.ops.higher_order.flex_attention: flex_attention,
}
"""Operators -> our forms of them."""

BY_VALUES = {torch.ops.higher_order.cond, torch.ops.higher_order.while_loop}
"""Operators that call their functions as values say."""
