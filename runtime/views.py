"""Views of arguments that are returned: found over the strides of the example, applied to the actual argument."""

from __future__ import annotations

from tilewright.runtime.signature import Output


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements, as torch counts them (an extent of 0 steps as 1)."""
    strides, step = [0] * len(shape), 1
    for d in reversed(range(len(shape))):
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def rebased(
    output: Output, shape: tuple[int, ...], actual: tuple[int, ...]
) -> tuple[tuple[int, ...], int] | None:
    """Strides and offset of `output`, a view of a tensor of `shape`, over one with strides `actual`.

    A step of the view is a step of the source's coordinates, as long as it carries from none into another;
    dimensions that lie evenly behind each other in memory count as one, so that a view may run over them.
    None where it carries: no strides can say this view.
    """
    strides = dense_strides(output.shape) if output.strides is None else output.strides
    if 0 in output.shape:
        return strides, 0
    known = dense_strides(shape) if output.base is None else output.base
    if all(a == k or n == 1 for a, k, n in zip(actual, known, shape)):
        return strides, output.offset
    runs = _runs(shape, known, actual)
    start = _coordinates(output.offset, runs)
    lowest, highest, found = list(start), list(start), []
    for extent, step in zip(output.shape, strides):
        if extent == 1 or step == 0:
            found.append(step)
            continue
        jump = [to - at for to, at in zip(_coordinates(output.offset + step, runs), start)]
        for d, moved in enumerate(jump):
            bound = lowest if moved < 0 else highest
            bound[d] += moved * (extent - 1)
        found.append(sum(moved * by for moved, (_, _, by) in zip(jump, runs)))
    # No two elements share a place, so that coordinates which add up to it are the coordinates of a place.
    inside = all(low >= 0 and high < n for low, high, (n, _, _) in zip(lowest, highest, runs))
    return (tuple(found), sum(at * by for at, (_, _, by) in zip(start, runs))) if inside else None


def over_a_copy(output: Output, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Where `output` lies in a dense copy of its source: the copy's order of dimensions, strides and offset."""
    order = tuple(_memory_order(dense_strides(shape) if output.base is None else output.base))
    steps = dense_strides(tuple(shape[d] for d in order))
    found = rebased(output, shape, tuple(steps[order.index(d)] for d in range(len(shape))))
    assert found is not None  # whatever lies evenly in the source does so without gaps
    return order, *found


def is_injective(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True when each element of a tensor has a place of its own, dimension behind dimension."""
    if 0 in shape:
        return True
    reach = 0
    for step, extent in sorted(zip(strides, shape)):
        if extent > 1:
            if step <= reach:
                return False
            reach += step * (extent - 1)
    return True


def _memory_order(strides: tuple[int, ...]) -> list[int]:
    """Dimensions as they lie in memory, outermost first."""
    return sorted(range(len(strides)), key=lambda d: -strides[d])


def _runs(
    shape: tuple[int, ...], known: tuple[int, ...], actual: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """(extent, known stride, actual stride), outermost first: dimensions, joined where they lie evenly in both."""
    found: list[tuple[int, int, int]] = []
    for d in _memory_order(known):
        extent, step, by = shape[d], known[d], actual[d]
        if extent == 1:
            continue
        if found and found[-1][1:] == (extent * step, extent * by):
            found[-1] = (found[-1][0] * extent, step, by)
        else:
            found.append((extent, step, by))
    return found


def _coordinates(position: int, runs: list[tuple[int, int, int]]) -> list[int]:
    """The coordinates of the element at `position`."""
    found = []
    for _, step, _ in runs:
        digit, position = divmod(position, step)
        found.append(digit)
    return found
