"""`Layout`: how the elements of a tensor are stored, as a sequence of ALT's layout primitives.

A primitive maps a shape to a shape and an index into the first to an index into the second. Indices are
tuples of ints, or of numpy integer arrays that stand for many indices at once.

    layout = Layout((1, 64, 56, 56)).then(Split(1, (4, 16)), Reorder((0, 1, 3, 4, 2)))
    layout.stored_shape == (1, 4, 56, 56, 16)

Source: ALT, EuroSys'23, §4.1 (Table 1 for split, reorder and fuse; §4.1.2 for unfold, pad and store_at).
"""

from __future__ import annotations

import math
import re
from dataclasses import astuple, dataclass
from typing import Any

Shape = tuple[int, ...]
Index = tuple[Any, ...]


@dataclass(frozen=True)
class Primitive:
    """Base: one step of a layout. Each refuses a shape that it does not fit with a ValueError."""

    def shape(self, shape: Shape) -> Shape:
        """The shape after this step."""
        raise NotImplementedError

    def index(self, shape: Shape, index: Index) -> Index:
        """Where the element at `index` of a tensor of `shape` is stored."""
        raise NotImplementedError

    def inverse(self, shape: Shape) -> Primitive:
        """The step that leads from `self.shape(shape)` back to `shape`."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(map(_text, astuple(self)))})"

    def _axis(self, shape: Shape, dim: int, count: int = 1) -> int:
        if not 0 <= dim <= len(shape) - count:
            raise ValueError(f"{self}: shape {list(shape)} has no {count} dimension(s) from {dim} on")
        return dim


@dataclass(frozen=True)
class Split(Primitive):
    """One dimension becomes several: extent F1*..*Fm -> F1, .., Fm."""

    dim: int
    factors: Shape

    def shape(self, shape: Shape) -> Shape:
        dim = self._axis(shape, self.dim)
        if math.prod(self.factors) != shape[dim] or min(self.factors, default=0) < 1:
            raise ValueError(f"{self}: the product must be {shape[dim]}, the extent of dimension {dim}")
        return (*shape[:dim], *self.factors, *shape[dim + 1 :])

    def index(self, shape: Shape, index: Index) -> Index:
        rest, digits = index[self.dim], []
        for factor in reversed(self.factors[1:]):
            digits.append(rest % factor)
            rest = rest // factor
        return (*index[: self.dim], rest, *reversed(digits), *index[self.dim + 1 :])

    def inverse(self, shape: Shape) -> Primitive:
        return Fuse(self.dim, len(self.factors))


@dataclass(frozen=True)
class Fuse(Primitive):
    """`count` dimensions from `dim` on become one, row-major."""

    dim: int
    count: int

    def shape(self, shape: Shape) -> Shape:
        dim, end = self._axis(shape, self.dim, max(self.count, 1)), self.dim + self.count
        if self.count < 1:
            raise ValueError(f"{self}: at least one dimension must be fused")
        return (*shape[:dim], math.prod(shape[dim:end]), *shape[end:])

    def index(self, shape: Shape, index: Index) -> Index:
        end, flat = self.dim + self.count, 0
        for extent, part in zip(shape[self.dim : end], index[self.dim : end]):
            flat = flat * extent + part
        return (*index[: self.dim], flat, *index[end:])

    def inverse(self, shape: Shape) -> Primitive:
        return Split(self.dim, shape[self.dim : self.dim + self.count])


@dataclass(frozen=True)
class Reorder(Primitive):
    """Dimension k of the result is dimension `permutation[k]` of the source, as `linalg.transpose` has it."""

    permutation: Shape

    def shape(self, shape: Shape) -> Shape:
        if sorted(self.permutation) != list(range(len(shape))):
            raise ValueError(f"{self}: not a permutation of the {len(shape)} dimensions of {list(shape)}")
        return tuple(shape[dim] for dim in self.permutation)

    def index(self, shape: Shape, index: Index) -> Index:
        return tuple(index[dim] for dim in self.permutation)

    def inverse(self, shape: Shape) -> Primitive:
        return Reorder(tuple(self.permutation.index(dim) for dim in range(len(shape))))


@dataclass(frozen=True)
class Unfold(Primitive):
    """Overlapped tiling: extent D -> ceil((D - tile) / stride) + 1 tiles of `tile` elements, `stride` apart.

    An element lies in several tiles; `index` names the last one that starts at or before it.
    """

    dim: int
    tile: int
    stride: int

    def shape(self, shape: Shape) -> Shape:
        dim = self._axis(shape, self.dim)
        if not 1 <= self.stride <= self.tile <= shape[dim]:
            raise ValueError(f"{self}: needs 1 <= stride <= tile <= {shape[dim]}, the dimension's extent")
        return (*shape[:dim], -(-(shape[dim] - self.tile) // self.stride) + 1, self.tile, *shape[dim + 1 :])

    def index(self, shape: Shape, index: Index) -> Index:
        position, last = index[self.dim], self.shape(shape)[self.dim] - 1
        tile = position // self.stride
        tile = tile - (tile - last) * (tile > last)  # the last tile also holds what follows its stride
        return (*index[: self.dim], tile, position - tile * self.stride, *index[self.dim + 1 :])

    def window(self, i: Any, r: Any, step: int, size: int) -> tuple[Any, Any]:
        """Tile and offset of the access `T[step * i + r]`, 0 <= r < size, of a sliding window.

        Right when the tiles advance by whole windows: stride = step * (floor((tile - size) / step) + 1).
        Source: ALT, EuroSys'23, equation (1).
        """
        per_tile = (self.tile - size) // step + 1
        if self.stride != step * per_tile:
            raise ValueError(
                f"{self}: {per_tile} window(s) fill a tile, the stride must be {step * per_tile}"
            )
        return i // per_tile, step * i + r - self.stride * (i // per_tile)

    def inverse(self, shape: Shape) -> Primitive:
        return Fold(self.dim, shape[self.dim], self.stride)


@dataclass(frozen=True)
class Fold(Primitive):
    """Undoes `Unfold`: (tile, offset) -> stride * tile + offset, of a dimension of `extent`.

    Slots of the last tile past the extent hold no element: their index is >= extent.
    """

    dim: int
    extent: int
    stride: int

    def shape(self, shape: Shape) -> Shape:
        dim = self._axis(shape, self.dim, 2)
        return (*shape[:dim], self.extent, *shape[dim + 2 :])

    def index(self, shape: Shape, index: Index) -> Index:
        dim = self.dim
        return (*index[:dim], self.stride * index[dim] + index[dim + 1], *index[dim + 2 :])

    def inverse(self, shape: Shape) -> Primitive:
        return Unfold(self.dim, shape[self.dim + 1], self.stride)


@dataclass(frozen=True)
class Pad(Primitive):
    """`low` and `high` zeros around one dimension."""

    dim: int
    low: int
    high: int

    def shape(self, shape: Shape) -> Shape:
        dim = self._axis(shape, self.dim)
        if min(self.low, self.high) < 0:
            raise ValueError(f"{self}: padding must not be negative; use unpad")
        return (*shape[:dim], self.low + shape[dim] + self.high, *shape[dim + 1 :])

    def index(self, shape: Shape, index: Index) -> Index:
        return (*index[: self.dim], index[self.dim] + self.low, *index[self.dim + 1 :])

    def inverse(self, shape: Shape) -> Primitive:
        return Unpad(self.dim, self.low, self.high)


@dataclass(frozen=True)
class Unpad(Primitive):
    """Undoes `Pad`: slots of the padding get indices outside the shape."""

    dim: int
    low: int
    high: int

    def shape(self, shape: Shape) -> Shape:
        dim = self._axis(shape, self.dim)
        if self.low + self.high >= shape[dim]:
            raise ValueError(f"{self}: nothing is left of dimension {dim} of {list(shape)}")
        return (*shape[:dim], shape[dim] - self.low - self.high, *shape[dim + 1 :])

    def index(self, shape: Shape, index: Index) -> Index:
        return (*index[: self.dim], index[self.dim] - self.low, *index[self.dim + 1 :])

    def inverse(self, shape: Shape) -> Primitive:
        return Pad(self.dim, self.low, self.high)


@dataclass(frozen=True)
class StoreAt(Primitive):
    """Room for a guest tensor, one slice at the end of `dim`: weight [K, N] + bias [N] -> [K + 1, N]."""

    dim: int

    def shape(self, shape: Shape) -> Shape:
        dim = self._axis(shape, self.dim)
        return (*shape[:dim], shape[dim] + 1, *shape[dim + 1 :])

    def index(self, shape: Shape, index: Index) -> Index:
        return index

    def guest_index(self, shape: Shape, index: Index) -> Index:
        """Where the guest's element at `index` is stored; the guest's shape is `shape` without `dim`."""
        return (*index[: self.dim], shape[self.dim], *index[self.dim :])

    def inverse(self, shape: Shape) -> Primitive:
        return DecoupleAt(self.dim)


@dataclass(frozen=True)
class DecoupleAt(Primitive):
    """Undoes `StoreAt`: takes the guest's slice off; the guest's slots get an index outside the shape."""

    dim: int

    def shape(self, shape: Shape) -> Shape:
        dim = self._axis(shape, self.dim)
        if shape[dim] < 2:
            raise ValueError(f"{self}: dimension {dim} of {list(shape)} holds no guest")
        return (*shape[:dim], shape[dim] - 1, *shape[dim + 1 :])

    def index(self, shape: Shape, index: Index) -> Index:
        return index

    def inverse(self, shape: Shape) -> Primitive:
        return StoreAt(self.dim)


@dataclass(frozen=True)
class Layout:
    """A tensor of `shape` stored as `primitives` say; raises ValueError when one does not fit."""

    shape: Shape
    primitives: tuple[Primitive, ...] = ()

    def __post_init__(self):
        _ = self.stored_shape

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape before the first primitive and after each."""
        shapes = [self.shape]
        for primitive in self.primitives:
            shapes.append(primitive.shape(shapes[-1]))
        return tuple(shapes)

    @property
    def stored_shape(self) -> Shape:
        return self.shapes[-1]

    def then(self, *primitives: Primitive) -> Layout:
        return Layout(self.shape, (*self.primitives, *primitives))

    def store(self, index: Index) -> Index:
        """The place of the element at `index`."""
        for shape, primitive in zip(self.shapes, self.primitives):
            index = primitive.index(shape, index)
        return index

    def load(self, place: Index) -> Index:
        """The index of the element stored at `place`; outside `shape` where the place holds none."""
        return self.inverse().store(place)

    def inverse(self) -> Layout:
        """From the stored shape back to `shape`."""
        steps = reversed(list(zip(self.shapes, self.primitives)))
        return Layout(self.stored_shape, tuple(primitive.inverse(shape) for shape, primitive in steps))

    @property
    def order(self) -> Shape | None:
        """The one permutation that all primitives amount to, or None when some are no reorders."""
        order = tuple(range(len(self.shape)))
        for primitive in self.primitives:
            if not isinstance(primitive, Reorder):
                return None
            order = primitive.shape(order)
        return order

    def __str__(self) -> str:
        return " ".join(map(str, self.primitives))

    @classmethod
    def parse(cls, shape: Shape, text: str) -> Layout:
        """Reads back `str`, e.g. `split(1, [4, 16]) reorder([0, 2, 1])`; ValueError points at the column."""
        known = {kind.__name__.lower(): kind for kind in Primitive.__subclasses__()}
        primitives, at = [], 0
        for match in re.finditer(r"\s*(\w+)\(([\d\s,\[\]-]*)\)\s*", text):
            if match.start() != at or match[1] not in known:
                break
            numbers = re.findall(r"\[[^\[\]]*\]|-?\d+", match[2])
            values = [tuple(map(int, re.findall(r"-?\d+", n))) if n[0] == "[" else int(n) for n in numbers]
            try:
                primitives.append(known[match[1]](*values))
            except TypeError:
                break
            at = match.end()
        if at != len(text):
            raise ValueError(f"layout `{text}`, column {at + 1}: expected one of {', '.join(sorted(known))}")
        return cls(shape, tuple(primitives))


def _text(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
