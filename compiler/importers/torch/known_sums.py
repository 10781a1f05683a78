"""Sums at places that are known while a model is traced: every place reads what is meant for it, and nothing is scattered.

    zeros [8, 3].index_put([None, [0, 0, 1, 2, 2]], values [8, 5], accumulate=True)
      =>
    values[:, [0, 2, 3]] + where([True, False, True], values[:, [1, 2, 4]], 0)

Gradients of images that are resized, and of columns that are chosen by a list, are such sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from tilewright.compiler.importers.torch.known_values import of_value

aten = torch.ops.aten

_MOST_TERMS = 32
"""Values that may be meant for one place: all of them are written into one loop."""
_MOST_READS = 4
"""How often every value may be read, on average: where few places have most of the values, reading is more work than writing."""


def index_put(x, indices, values, accumulate=False):
    """An `index_put` that adds floats where numbers known to tracing say, each list of them along an axis of its own."""
    found = [number for number, index in enumerate(indices) if index is not None]
    is_one_run = found and found == list(range(found[0], found[0] + len(found)))
    if not accumulate or not x.dtype.is_floating_point or not x.numel() or not is_one_run:
        return NotImplemented
    lists = [indices[d] for d in found]
    if any(index.dtype not in (torch.int32, torch.int64) or not index.numel() for index in lists):
        return NotImplemented
    shape = torch.broadcast_shapes(*(index.shape for index in lists))
    lines = _along_own_axes(lists, shape, [x.shape[d] for d in found])
    if lines is None:
        return NotImplemented
    first, behind = found[0], x.shape[found[-1] + 1 :]
    # Axes of the places come in the order of the dimensions that they number; those of one element vanish.
    order = [axis for axis, _ in lines]
    order += [axis for axis in range(len(shape)) if axis not in order]
    values = values.to(x.dtype).expand([*x.shape[:first], *shape, *behind])
    last = range(first + len(shape), values.dim())
    values = values.permute([*range(first), *(first + axis for axis in order), *last])
    values = values.reshape([*x.shape[:first], *(len(numbers) for _, numbers in lines), *behind])
    for d, (_, numbers) in reversed(list(zip(found, lines))):
        meant: list[list[int]] = [[] for _ in range(x.shape[d])]
        for place, number in enumerate(numbers):
            meant[number].append(place)
        values = sums_at(values, d, meant)
    return x + values


def _along_own_axes(
    lists: Sequence[torch.Tensor], shape: Sequence[int], extents: Sequence[int]
) -> list[tuple[int, list[int]]] | None:
    """The axis of `shape` along which each tensor of numbers varies, one for each, and these numbers; None where they are unknown.

    Numbers count from the front; those of which one is out of range are left to what fails the call.
    """
    lines: list[tuple[int, list[int]]] = []
    for index, extent in zip(lists, extents):
        axes = [len(shape) - index.dim() + axis for axis, n in enumerate(index.shape) if n > 1]
        given = of_value(lambda known: known.reshape(-1).tolist(), index) if len(axes) == 1 else None
        if given is None:
            return None
        numbers = [number + extent if number < 0 else number for number in given]
        most = max(Counter(numbers).values())
        is_little = most <= _MOST_TERMS and most * extent <= _MOST_READS * len(numbers)
        if min(numbers) < 0 or max(numbers) >= extent or not is_little:
            return None
        lines.append((axes[0], numbers))
    return lines if len({axis for axis, _ in lines}) == len(lines) else None


def sums_at(values, dim: int, meant: Sequence[Sequence[int]]):
    """For each list in `meant` the sum of those slices of `values` along `dim` that it numbers: [.., n, ..] -> [.., len(meant), ..].

    A slice that a list does not number is no part of its sum: it may be infinite.
    """
    longest = max(map(len, meant))
    every = [place for places in meant for place in places]
    if every == list(range(values.shape[dim])) and len(every) == len(meant) * longest:
        return torch.sum(values.unflatten(dim, [len(meant), longest]), dim + 1)
    if len(meant) < longest and all(_is_run(places) for places in meant):
        parts = [values.narrow(dim, places[0], len(places)) for places in meant]
        return torch.cat([torch.sum(part, dim, keepdim=True) for part in parts], dim)
    total = None
    for k in range(longest):
        read = [places[min(k, len(places) - 1)] if places else 0 for places in meant]
        term = values.index_select(dim, torch.tensor(read, device=values.device))
        if not all(len(places) > k for places in meant):
            is_meant = torch.tensor([len(places) > k for places in meant], device=values.device)
            term = torch.where(is_meant.reshape([-1, *[1] * (values.dim() - 1 - dim)]), term, 0)
        total = term if total is None else total + term
    return total


def _is_run(places: Sequence[int]) -> bool:
    """Whether numbers follow on each other."""
    return len(places) > 0 and list(places) == list(range(places[0], places[0] + len(places)))


TABLE: dict[Any, Any] = {
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
