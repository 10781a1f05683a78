"""Where a thread's elements lie: positions along the axes, addresses of operands, and loads of neighbours at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, evaluate
from tilewright.compiler.gpu.builder import (
    Operand,
    Value,
    from_elements,
    index,
    load,
    load_vector,
    store,
    store_vector,
)
from tilewright.compiler.ir import ir

Positions = Mapping[int, Operand]
"""The position along every axis; a Python number where it is known."""


def affine_value(expr: ir.AffineExpr, loops: Callable[[int], Operand]) -> Operand:
    """The value of an index expression of non-negative value at `loops`."""
    if isinstance(expr, ir.AffineDimExpr):
        return loops(expr.position)
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    left, right = affine_value(expr.lhs, loops), affine_value(expr.rhs, loops)
    if isinstance(expr, ir.AffineAddExpr):
        return _folded(left, right, lambda a, b: a + b)
    if isinstance(expr, ir.AffineMulExpr):
        return 0 if 0 in (left, right) and _is_zero(left, right) else _folded(left, right, lambda a, b: a * b)
    if isinstance(expr, ir.AffineModExpr):
        return _folded(left, right, lambda a, b: a % b)
    if isinstance(expr, ir.AffineFloorDivExpr):
        return _folded(left, right, lambda a, b: a // b)
    return (
        -(-left // right)
        if isinstance(left, int) and isinstance(right, int)
        else (left + (right - 1)) // right
    )


def _is_zero(*operands: Operand) -> bool:
    return any(isinstance(operand, int) and operand == 0 for operand in operands)


def _folded(left: Operand, right: Operand, combine: Callable) -> Operand:
    if isinstance(left, int) and isinstance(right, Value):
        left = index(left)
    return combine(left, right)


def delinearized(number: Operand, extents: Sequence[int]) -> list[Operand]:
    """The position in a row-major box of its point `number`; numbers past the end go on along the first dimension."""
    found: list[Operand] = []
    for place in reversed(range(len(extents))):
        if place == 0:
            found.append(number)
        elif extents[place] == 1:
            found.append(0)
        else:
            found.append(number % extents[place])
            number = number // extents[place]
    return found[::-1]


def is_linear(expr: ir.AffineExpr) -> bool:
    """Whether an index expression is a sum of loops times numbers."""
    if isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr)):
        return True
    return (
        isinstance(expr, (ir.AffineAddExpr, ir.AffineMulExpr)) and is_linear(expr.lhs) and is_linear(expr.rhs)
    )


@dataclass(frozen=True, eq=False)
class Access:
    """An operand or result of a step in a buffer of `type` that starts at a multiple of `alignment` bytes.

    `axes` are those of the map's loops. The `buffer` itself is there when code is written, not when it is planned.
    """

    type: ir.MemRefType
    map: ir.AffineMap
    axes: tuple[int, ...]
    alignment: int
    buffer: ir.Value | None = None

    @property
    def element(self) -> ir.Type:
        return self.type.element_type

    @property
    def memory(self) -> ir.Value:
        assert self.buffer is not None, "an access that is only planned"
        return self.buffer

    @property
    def bytes(self) -> int:
        element = self.element
        return element.width // 8 if isinstance(element, (ir.FloatType, ir.IntegerType)) else 0

    def strides(self) -> dict[int, int] | None:
        """Elements that one step along each axis moves by, the constant offset under -1; None if not linear."""
        if not all(is_linear(expr) for expr in self.map.results):
            return None
        sizes, offset = self.type.get_strides_and_offset()
        zero = [0] * self.map.n_dims
        start = sum(evaluate(e, zero) * s for e, s in zip(self.map.results, sizes))
        found = {-1: start + offset}
        for loop, axis in enumerate(self.axes):
            at = [int(i == loop) for i in range(self.map.n_dims)]
            moved = sum(evaluate(e, at) * s for e, s in zip(self.map.results, sizes)) - start
            if axis >= 0:
                found[axis] = found.get(axis, 0) + moved
        return found

    def vector(self, fast: int, extent: int) -> int:
        """The most neighbours along axis `fast`, of `extent`, that one aligned access of up to 16 bytes takes."""
        strides = self.strides()
        if strides is None or strides.get(fast) != 1 or self.bytes == 0 or not self.is_last(fast):
            return 1
        lanes = math.gcd(min(16, self.alignment) // self.bytes, extent)
        for axis, stride in strides.items():
            if axis != fast:
                lanes = math.gcd(lanes, stride)
        return max(1, lanes & -lanes)

    def is_last(self, axis: int) -> bool:
        """Whether neighbours along an axis are neighbours in the buffer's last dimension, as vectors must be."""
        loops = {loop for loop, own in enumerate(self.axes) if own == axis}
        return bool(self.map.results) and bool(dims(self.map.results[-1]) & loops)

    def depends(self) -> set[int]:
        """Axes along which the address changes."""
        strides = self.strides()
        if strides is None:
            return {axis for axis in self.axes if axis >= 0}
        return {axis for axis, stride in strides.items() if axis >= 0 and stride}

    def place(self, at: Positions) -> list[Operand]:
        """Indices into the buffer."""

        def loop(number: int) -> Operand:
            axis = self.axes[number]
            return 0 if axis < 0 else at[axis]

        return [affine_value(expr, loop) for expr in self.map.results]

    def load(self, at: Positions) -> Value:
        return load(self.memory, *self.place(at))

    def load_neighbours(self, at: Positions, lanes: int) -> list[Value]:
        """`lanes` elements from `at` on, of which one aligned vector is loaded."""
        found = load_vector(self.memory, self.place(at), lanes, lanes * self.bytes)
        return [found[lane] for lane in range(lanes)]

    def store(self, value: Value, at: Positions) -> None:
        store(value, self.memory, *self.place(at))

    def store_neighbours(self, values: Sequence[Value], at: Positions) -> None:
        """Stores neighbours from `at` on as one aligned vector."""
        store_vector(from_elements(values), self.memory, self.place(at), len(values) * self.bytes)
