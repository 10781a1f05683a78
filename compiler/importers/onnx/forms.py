"""Small graph forms that rules build from: slices, reshapes, arithmetic with Python numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.values import Value


def reshape(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` with exactly these extents (no -1 or 0 in ONNX's sense)."""
    shape = tuple(int(d) for d in shape)
    if shape == x.shape:
        return x
    return b.op("Reshape", x, b.ints(*shape), allowzero=1 if 0 in shape else None)


def transpose(b: Builder, x: Value, perm: Sequence[int]) -> Value:
    """`x` with its axes in the order `perm`."""
    return x if list(perm) == list(range(x.rank)) else b.op("Transpose", x, perm=[int(p) for p in perm])


def slice_axis(b: Builder, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """`x[start:end:step]` along one axis."""
    if start == 0 and end == x.shape[axis] and step == 1:
        return x
    return b.op("Slice", x, b.ints(start), b.ints(end), b.ints(axis), b.ints(step))


def pick(b: Builder, x: Value, axis: int, index: int) -> Value:
    """`x[index]` along one axis, the axis gone."""
    axis %= x.rank
    part = slice_axis(b, x, axis, index, index + 1)
    return reshape(b, part, part.shape[:axis] + part.shape[axis + 1 :])


def reverse(b: Builder, x: Value, axis: int) -> Value:
    """`x` read backwards along one axis."""
    index = b.const(np.arange(x.shape[axis] - 1, -1, -1, dtype=np.int64))
    return b.op("Gather", x, index, axis=axis)


def concat(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """The parts one after another along an existing axis."""
    return parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=axis)


def stack(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """The parts one after another along a new axis."""
    rank = parts[0].rank + 1
    axis %= rank
    return concat(b, [reshape(b, p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in parts], axis)


def cast(b: Builder, x: Value, dtype: int) -> Value:
    """`x` with another element type."""
    return x if x.dtype == dtype else b.op("Cast", x, to=int(dtype))


def expand(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` broadcast to a shape."""
    return x if tuple(shape) == x.shape else b.op("Expand", x, b.ints(*shape))


def full(b: Builder, number, dtype: int, shape: Sequence[int]) -> Value:
    """A tensor of one repeated number."""
    return expand(b, b.const(np.array(number), dtype), shape)


def binary(b: Builder, op: str, x, y) -> Value:
    """A binary operator where either side may be a Python number."""
    if not isinstance(x, Value):
        x = b.scalar(x, y)
    if not isinstance(y, Value):
        y = b.scalar(y, x)
    return b.op(op, x, y)


def add(b: Builder, x, y) -> Value:
    return binary(b, "Add", x, y)


def sub(b: Builder, x, y) -> Value:
    return binary(b, "Sub", x, y)


def mul(b: Builder, x, y) -> Value:
    return binary(b, "Mul", x, y)


def div(b: Builder, x, y) -> Value:
    return binary(b, "Div", x, y)


def clamp(b: Builder, x: Value, least, most) -> Value:
    """`x` moved between two numbers, to `least` where it is NaN: what is cast to an integer next must be a number."""
    return b.kept("Clip", x, b.scalar(least, x), b.scalar(most, x))


def unsqueeze(b: Builder, x: Value, *axes: int) -> Value:
    """`x` with new axes of extent 1 at these places of the result."""
    rank = x.rank + len(axes)
    places = {axis % rank for axis in axes}
    extents = iter(x.shape)
    return reshape(b, x, [1 if i in places else next(extents) for i in range(rank)])


def reduce(b: Builder, op: str, x: Value, axes: Sequence[int], keep: bool = True) -> Value:
    """A reduction over `axes`."""
    return b.op(op, x, b.ints(*(a % max(x.rank, 1) for a in axes)), keepdims=int(keep))
