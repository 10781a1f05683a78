"""What lies linearly in loops as a tensor map: one dimension per dimension in memory, however many loops run along it.

    x[n, 2h + i, 2w + j, c], a box of 4 x 16 pixels and 64 channels:
    dimensions (c, w, h, n) of [C, W, H, N], strides (1, C, WC, HWC)
    box [64, 2 * 16, 2 * 4, 1], element strides (1, 2, 2, 1), start (c, 2w + j, 2h + i, n)

The driver takes dimensions that are nested: every stride is a multiple of the one before and holds all of that
dimension. A box takes every `elementStrides[i]`-th element, `ceil(boxDim[i] / elementStrides[i])` of them, from where
its start says. What lies outside of a dimension reads as zero, but past a loop's end only where no other loop shares
its dimension.
Sources: CUDA driver API, `cuTensorMapEncodeTiled`; PTX ISA 8.8, "Tiled mode" (bounding box, traversal stride).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.families.contract import Declined
from tilewright.compiler.families.contraction.problem import Contraction, Loop
from tilewright.compiler.gpu.builder import Operand, Value, i32
from tilewright.runtime.launch_rules import MAP_ALIGNMENT, MOST_DIMENSIONS, MOST_ELEMENT_STRIDE
from tilewright.runtime.program import TensorMap


class NotHopper(Declined):
    """The contraction cannot go through TMA and wgmma; the message says why."""


@dataclass(frozen=True)
class Dimension:
    """`size` elements, `stride` elements apart, of which loops reach number `first` + the sum of step times position.

    `steps` has the step of every loop that runs along it; `boxed` is the one that boxes take more than one step of.
    """

    size: int
    stride: int
    first: int
    steps: tuple[tuple[int, int], ...]
    boxed: int | None = None

    @property
    def element_stride(self) -> int:
        return dict(self.steps)[self.boxed] if self.boxed is not None else 1

    @property
    def is_shared(self) -> bool:
        """Whether several loops run along it; else what a box takes beyond its loop's end is outside."""
        return len(self.steps) > 1


@dataclass(frozen=True)
class MapPlan:
    """One operand as a tensor map: its dimensions in memory, innermost first."""

    buffer: int
    dtype: str
    item_bytes: int
    dimensions: tuple[Dimension, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dimension.size for dimension in self.dimensions)

    @property
    def strides_bytes(self) -> tuple[int, ...]:
        return tuple(dimension.stride * self.item_bytes for dimension in self.dimensions[1:])

    @property
    def element_strides(self) -> tuple[int, ...]:
        return tuple(dimension.element_stride for dimension in self.dimensions)

    def element_stride(self, loop: int) -> int:
        """Elements of its dimension that one step of a boxed loop is."""
        return self.dimension(loop).element_stride

    def dimension(self, loop: int) -> Dimension:
        """The dimension that a loop runs along."""
        return next(own for own in self.dimensions if loop in dict(own.steps))

    def over(self, sizes: Mapping[int, int], swizzle_bytes: int) -> TensorMap:
        """The tensor map whose box takes `sizes[loop]` steps of every loop, one of those not named."""
        box = [
            own.element_stride * sizes.get(own.boxed, 1) if own.boxed is not None else 1
            for own in self.dimensions
        ]
        every = self.element_strides if any(own > 1 for own in self.element_strides) else ()
        return TensorMap(
            self.buffer, self.dtype, self.shape, self.strides_bytes, tuple(box), swizzle_bytes, every
        )

    def coordinates(self, starts: Mapping[int, Operand]) -> list[Operand]:
        """Where the box at position `starts[loop]` of every loop lies, innermost first."""
        found: list[Operand] = []
        for dimension in self.dimensions:
            at: Operand = dimension.first
            for loop, step in dimension.steps:
                own = starts[loop] * step
                at = (i32(own) if isinstance(own, Value) and len(dimension.steps) > 1 else own) + at
            found.append(at)
        return found


@dataclass(frozen=True)
class Strided:
    """Elements of a buffer that lie linearly in loops, from element `offset` on; `name` is for messages."""

    name: str
    buffer: int
    alignment: int
    item_bytes: int
    offset: int

    def map(
        self, dtype: str, strides: Sequence[int], extents: Sequence[int], boxed: Sequence[int]
    ) -> MapPlan:
        """The tensor map whose boxes take steps of the loops `boxed`, innermost first; others are stood still.

        Raises NotHopper where TMA has none.
        """
        if self.alignment < MAP_ALIGNMENT:
            raise NotHopper(
                f"buffer {self.buffer} is aligned to {self.alignment} B, TMA takes {MAP_ALIGNMENT}"
            )
        if not boxed or strides[boxed[0]] != 1:
            raise NotHopper(f"{self.name} is contiguous along no loop that a row could run along")
        if self.offset < 0 or min(strides) < 0:
            raise NotHopper(f"{self.name} starts before its buffer or runs backwards")
        found = dimensions(strides, extents, self.offset)
        if len(found) > MOST_DIMENSIONS:
            raise NotHopper(f"{self.name} has {len(found)} dimensions, a tensor map {MOST_DIMENSIONS}")
        steps = [dimension.stride * self.item_bytes for dimension in found[1:]]
        if any(step % MAP_ALIGNMENT for step in steps):
            raise NotHopper(f"{self.name} has strides of {steps} B, TMA takes multiples of {MAP_ALIGNMENT}")
        order = []
        for number, dimension in enumerate(found):
            own = [loop for loop, _ in dimension.steps if loop in boxed]
            if len(own) > 1:
                raise NotHopper(f"a box of {self.name} would run along one dimension in two loops")
            order += own
            found[number] = replace(dimension, boxed=own[0] if own else None)
            if found[number].element_stride > (MOST_ELEMENT_STRIDE if number else 1):
                raise NotHopper(f"{self.name} takes every {found[number].element_stride}th element")
        if order != list(boxed):
            raise NotHopper(f"{self.name} lies in memory in another order than in boxes")
        return MapPlan(self.buffer, dtype, self.item_bytes, tuple(found))


def dimensions(strides: Sequence[int], extents: Sequence[int], offset: int) -> list[Dimension]:
    """What loops of these strides and extents run along, innermost first: nested dimensions, as many as there are.

    Loops are of one dimension where the reach of the inner ones is more than the outer ones' strides have in common.
    """
    order = sorted((loop for loop, stride in enumerate(strides) if stride), key=lambda loop: strides[loop])
    groups: list[list[int]] = [[]]
    reach = 1
    for number, loop in enumerate(order):
        groups[-1].append(loop)
        reach += (extents[loop] - 1) * strides[loop]
        outside = math.gcd(*(strides[own] for own in order[number + 1 :]))
        if outside and offset % outside + reach <= outside:
            groups.append([])
    found: list[Dimension] = []
    rest, common = offset, 0
    for group in reversed(groups):
        common = math.gcd(common, *(strides[loop] for loop in group))
        first, rest = divmod(rest, common)
        steps = tuple((loop, strides[loop] // common) for loop in group)
        size = first + 1 + sum((extents[loop] - 1) * step for loop, step in steps)
        found.insert(0, Dimension(size, common, first, steps))
    return found


def with_own_dimension(contraction: Contraction, loop: int) -> Contraction:
    """The contraction with a loop cut so that its inner part shares no dimension of the factors, where that helps.

    Window columns and channels that run through memory as one, `2w * C + jc`, are two loops again: `(2w + j) * C + c`.
    The inner part has the loop's place plus one.
    """
    for access in contraction.accesses[:2]:
        stride, extent = access.strides[loop], contraction.loops[loop].extent
        extents = [own.extent for own in contraction.loops]
        if not stride or not any(
            loop in dict(own.steps) and len(own.steps) > 1
            for own in dimensions(access.strides, extents, access.offset)
        ):
            continue
        others = (own for i, own in enumerate(access.strides) if i != loop and own >= stride)
        part = math.gcd(stride * extent, *others)
        if stride < part < stride * extent and part % stride == 0:
            return with_own_dimension(_cut(contraction, loop, part // stride), loop + 1)
    return contraction


def _cut(contraction: Contraction, loop: int, inner: int) -> Contraction:
    """A loop as two, the inner one of `inner` steps."""
    loops, whole = list(contraction.loops), contraction.loops[loop]
    loops[loop : loop + 1] = [Loop(whole.extent // inner, whole.group), Loop(inner, whole.group)]
    accesses = [
        replace(x, strides=(*x.strides[:loop], x.strides[loop] * inner, *x.strides[loop:]))
        for x in contraction.accesses
    ]
    return replace(contraction, loops=tuple(loops), accesses=tuple(accesses))
