"""Views of arguments that are returned: strides found at compile time, applied to the actual argument."""

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
    """Strides and offset of `output`, a view of a dense tensor of `shape`, over one with strides `actual`.

    None when some dimension of the view runs over several of the base, so that no strides can say it.
    """
    strides = dense_strides(output.shape) if output.strides is None else output.strides
    dense = dense_strides(shape)
    if actual == dense or all(a == d or n == 1 for a, d, n in zip(actual, dense, shape)):
        return strides, output.offset
    start, position = [], output.offset
    for extent, step in zip(shape, dense):
        start.append(min(position // step, max(extent - 1, 0)))
        position -= start[-1] * step
    found = []
    for extent, step in zip(output.shape, strides):
        if extent == 1 or step == 0:
            found.append(0 if step == 0 else step)
            continue
        for d, (size, base) in enumerate(zip(shape, dense)):
            jump, rest = divmod(step, base)
            if rest == 0 and jump > 0 and start[d] + (extent - 1) * jump < size:
                found.append(jump * actual[d])
                break
        else:
            return None
    return tuple(found), sum(at * step for at, step in zip(start, actual))
