"""`x[n]` and `x[n] = v` with numbers that are tensors, which PyTorch reads while it traces, looked up at every call."""

from __future__ import annotations

import operator
from typing import Any

import torch

_PLAIN = (int, slice, type(None), type(Ellipsis))


def getitem(x, index):
    """`x[index]` with numbers that are tensors looked up, before all else, as eager PyTorch selects by them."""
    places = numbered(x, index)
    if places is None:
        return operator.getitem(x, index)
    rest, numbers = places
    for dim, number in reversed(numbers):
        x = _looked_up(x, dim, number).squeeze(dim)
    # A mode that turns `x[index]` into a gather, as attention's functions run in, refuses an index of nothing.
    return operator.getitem(x, rest) if rest else x


def setitem(x, index, value):
    """`x[index] = value` with numbers that are tensors: the part that they name is written, then put back by number."""
    places = numbered(x, index)
    if places is None:
        x[index] = value
        return
    rest, numbers = places
    parts = [x]
    for dim, number in reversed(numbers):
        parts.append(_looked_up(parts[-1], dim, number).squeeze(dim))
    part = parts.pop()
    part[rest] = value
    for dim, number in numbers:
        whole = parts.pop()
        part = whole.index_copy_(dim, _from_front(whole, dim, number), part.unsqueeze(dim))


def _looked_up(x, dim: int, number):
    return x.index_select(dim, _from_front(x, dim, number))


def _from_front(x, dim: int, number):
    return torch.where(number < 0, number + x.shape[dim], number).reshape(1).to(torch.int64)


def numbered(x, index) -> tuple[tuple, list[tuple[int, torch.Tensor]]] | None:
    """`index` without the numbers that are tensors, and (dimension of `x`, number) for each of them.

    Whole dimensions stand for an ellipsis. None where there are no such numbers, where there is what this does not
    know, and where `x` has fewer dimensions.
    """
    elements = index if isinstance(index, tuple) else (index,)
    if not isinstance(x, torch.Tensor) or not any(map(is_number, elements)):
        return None
    taken = [_taken(element) for element in elements]
    counted = sum(count or 0 for count in taken)
    if None in taken or counted > x.dim() or sum(element is Ellipsis for element in elements) > 1:
        return None
    rest, numbers, dim = [], [], 0
    for element, count in zip(elements, taken):
        if is_number(element):
            numbers.append((dim, element))
        elif element is Ellipsis:
            count = x.dim() - counted
            rest += [slice(None)] * count
        else:
            rest.append(element)
        dim += count or 0
    return tuple(rest), numbers


def copies(index) -> bool:
    """Whether eager PyTorch has a copy, where none of the numbers of `index` is a tensor: there are positions, or a mask."""
    elements = index if isinstance(index, tuple) else (index,)
    return any(not is_number(element) and not isinstance(element, _PLAIN) for element in elements)


def _taken(element: Any) -> int | None:
    """How many dimensions an element of an index stands for, an ellipsis for none; None where that is not known."""
    if element is None or element is Ellipsis or isinstance(element, bool):
        return 0
    if isinstance(element, (int, slice)):
        return 1
    if isinstance(element, torch.Tensor):
        return element.dim() if element.dtype in (torch.bool, torch.uint8) else 1
    is_list = isinstance(element, (list, range)) and all(type(number) is int for number in element)
    return 1 if is_list else None


def is_number(element: Any) -> bool:
    """Whether an element of an index is a tensor of one integer."""
    return (
        isinstance(element, torch.Tensor)
        and element.dim() == 0
        and element.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    )
