"""Orders in which a tensor's dimensions are stored: how they compose, survive reshapes, and when two are one.

An order is a tuple `p`: dimension k of the stored tensor is dimension `p[k]` of the tensor the program means,
so NHWC storage of an NCHW tensor is (0, 2, 3, 1). It is the permutation of `linalg.transpose` and of ALT's
reorder (EuroSys'23, §4.1). Extents of one never matter: orders that differ only in them store the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Order = tuple[int, ...]
Groups = Sequence[Sequence[int]]


def identity(rank: int) -> Order:
    return tuple(range(rank))


def permuted(values: Sequence, order: Order) -> tuple:
    """`values`, one per dimension, in stored order."""
    return tuple(values[dim] for dim in order)


def inverted(order: Order) -> Order:
    """Where each dimension is stored."""
    places = [0] * len(order)
    for place, dim in enumerate(order):
        places[dim] = place
    return tuple(places)


def conversion(source: Order, target: Order) -> Order:
    """The permutation that takes a tensor stored as `source` to one stored as `target`."""
    places = inverted(source)
    return tuple(places[dim] for dim in target)


def same_bytes(one: Order, other: Order, shape: Sequence[int]) -> bool:
    """Whether tensors of `shape` in these two orders are equal in memory."""
    return one == other or [d for d in one if shape[d] != 1] == [d for d in other if shape[d] != 1]


def after_transpose(source: Order, permutation: Order) -> Order:
    """The order of `transpose(x, permutation)` when it shares the bytes of `x` stored as `source`."""
    places = inverted(permutation)
    return tuple(places[dim] for dim in source)


def before_transpose(result: Order, permutation: Order) -> Order:
    """The order of `x` in which its bytes are those of `transpose(x, permutation)` stored as `result`."""
    return tuple(permutation[dim] for dim in result)


def after_expand(source: Order, groups: Groups) -> Order:
    """The order of `expand_shape(x, groups)` when it shares the bytes of `x` stored as `source`."""
    return tuple(dim for group in source for dim in groups[group])


def collapsible(source: Order, groups: Groups, shape: Sequence[int]) -> tuple[Order, Order]:
    """The order nearest to `source` in which `collapse_shape(x, groups)` moves no bytes, and the result's.

    A group's dimensions gather, in their own order, where its innermost one was: (0, 3, 4, 2, 1) collapsed by
    [[0], [1, 2], [3], [4]] needs (0, 3, 4, 1, 2). `shape` is that of `x`.
    """
    places = inverted(source)

    def innermost(group: int) -> int:
        return max([places[d] for d in groups[group] if shape[d] != 1] or [places[groups[group][0]]])

    result = tuple(sorted(range(len(groups)), key=innermost))
    nearest = after_expand(result, groups)
    return (source if same_bytes(nearest, source, shape) else nearest), result


def before_expand(result: Order, groups: Groups, shape: Sequence[int]) -> Order | None:
    """The order of `x` that gives `expand_shape(x, groups)`, of `shape`, the order `result`, if there is one."""
    reachable, source = collapsible(result, groups, shape)
    return source if same_bytes(reachable, result, shape) else None


def without(order: Order, dropped: set[int]) -> Order:
    """`order` of the tensor that lost the `dropped` dimensions."""
    kept = [dim for dim in range(len(order)) if dim not in dropped]
    return tuple(kept.index(dim) for dim in order if dim not in dropped)


def reshape(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Pairs (dims of `source`, dims of `target`) of equal products that cover both row-major shapes in order.

    Every pair has at least one dimension on either side, so a scalar gives none. Raises ValueError when the
    element counts differ.
    """
    if math.prod(source) != math.prod(target):
        raise ValueError(f"shapes {list(source)} and {list(target)} hold different numbers of elements")
    if not source or not target:
        return []
    if 0 in source:
        return [(list(range(len(source))), list(range(len(target))))]
    pairs, i, j = [], 0, 0
    while i < len(source) and j < len(target):
        left, right = [i], [j]
        have, want = source[i], target[j]
        i, j = i + 1, j + 1
        while have != want:
            if have < want:
                have *= source[i]
                left.append(i)
                i += 1
            else:
                want *= target[j]
                right.append(j)
                j += 1
        pairs.append((left, right))
    pairs[-1][0].extend(range(i, len(source)))
    pairs[-1][1].extend(range(j, len(target)))
    return pairs


def merged(preferred: Sequence[int], count: int) -> Order:
    """0..count-1 with the members of `preferred` in its order, the others behind their predecessors.

    merged([0, 2, 1], 5) == (0, 2, 3, 4, 1): 3 and 4 follow 2.
    """
    behind: dict[int, list[int]] = {}
    anchor = -1
    chosen = set(preferred)
    for item in range(count):
        if item in chosen:
            anchor = item
        else:
            behind.setdefault(anchor, []).append(item)
    order = list(behind.get(-1, ()))
    for item in preferred:
        order += [item, *behind.get(item, ())]
    return tuple(order)
