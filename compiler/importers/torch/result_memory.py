"""Where eager PyTorch puts the elements of results, for operators whose decompositions leave them elsewhere.

A view of a result is taken of its memory: `layer_norm(x.t()).view(-1)` is legal, since that result is dense.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.utils import _pytree as pytree

aten = torch.ops.aten

_DENSE = (
    *(aten.native_layer_norm.default, aten.layer_norm.default),
    *(aten.index_add.default, aten.index_copy.default, aten.scatter_add.default),
    *(aten.scatter.src, aten.scatter.value, aten.scatter_reduce.two),
    *(aten.cummax.default, aten.cummin.default, aten.logcumsumexp.default, aten.kthvalue.default),
    *(aten.log_sigmoid.default, aten.log_sigmoid_forward.default),
)
"""Operators whose results are row-major, whatever their operands are."""

_AS_IMAGES = (
    *(aten.native_group_norm.default, aten.group_norm.default, aten.instance_norm.default),
    *(aten.native_batch_norm.default, aten._native_batch_norm_legit.default),
    *(aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_no_training.default),
    aten._native_batch_norm_legit_functional.default,
    *(aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default, aten.adaptive_max_pool2d.default),
    *(aten._adaptive_avg_pool3d.default, aten.adaptive_max_pool3d.default),
    *(aten.upsample_bilinear2d.vec, aten.upsample_bicubic2d.vec),
    *(aten.pixel_shuffle.default, aten.native_channel_shuffle.default, aten.channel_shuffle.default),
    aten.convolution.default,
)
"""Operators whose results are row-major, or channels-last where their first operand is."""


def placed_as_in_eager(table: dict[Any, Callable]) -> dict[Any, Callable]:
    """`table` with results that lie in memory as eager PyTorch's do."""
    placed = {operator: _placed(table[operator], False) for operator in _DENSE if operator in table}
    placed |= {operator: _placed(table[operator], True) for operator in _AS_IMAGES if operator in table}
    return {**table, **placed}


def like_image(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """`result` channels-last where `x`, of the same rank, is, else row-major."""
    return result.contiguous(memory_format=suggest_memory_format(x))


def laid_out_as(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """`result` with its dimensions in memory in the order of those of `x`, of the same shape."""
    order = sorted(range(x.dim()), key=lambda d: -x.stride(d))
    back = sorted(range(x.dim()), key=order.__getitem__)
    return result.permute(order).contiguous().permute(back)


def _placed(decompose: Callable, as_image: bool) -> Callable:
    def decomposition(*args: Any, **kwargs: Any) -> Any:
        found = decompose(*args, **kwargs)

        def place(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            is_image = as_image and value.dim() == args[0].dim()
            value = like_image(value, args[0]) if is_image else value.contiguous()
            is_part = value.untyped_storage().nbytes() != value.numel() * value.element_size()
            return value.clone() if is_part else value

        return found if found is NotImplemented else pytree.tree_map(place, found)

    return decomposition
