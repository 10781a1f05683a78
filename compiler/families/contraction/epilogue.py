"""Writes a contraction's results: what lies behind the sum is computed on values in registers, then stored.

epilogue = Epilogue(addresses, tile.batch)
row, column = epilogue.row(m), epilogue.column(n)
epilogue.write(sums, row, column)          # sums of neighbouring columns n, n + 1, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.families.contraction.addresses import Addresses, Position
from tilewright.compiler.families.contraction.element_values import (
    Applied,
    Element,
    Loaded,
    Place,
    Scalar,
    Summed,
)
from tilewright.compiler.families.contraction.element_values import accesses as accesses_of
from tilewright.compiler.families.contraction.problem import element_bytes
from tilewright.compiler.gpu.builder import (
    Value,
    both,
    constant,
    from_elements,
    if_,
    load,
    load_vector,
    store,
    store_vector,
)
from tilewright.compiler.ir import arith, ir

_CONTRACTED = ("arith.addf", "arith.subf", "arith.mulf")


@dataclass(frozen=True)
class Line:
    """A row or a column of the product: what it adds to every access of the epilogue, and whether it is there at all."""

    position: Value
    offsets: dict[int, Position]
    valid: Value | bool


class Epilogue:
    """The results of one block's tile. Rows and columns are made before branches, and used inside of them."""

    def __init__(self, addresses: Addresses, batch: Position):
        self.addresses = addresses
        self.contraction = contraction = addresses.contraction
        self.numbers = sorted(
            {store.access for store in contraction.stores}.union(
                *(accesses_of(store.element) for store in contraction.stores)
            )
        )
        steps = addresses.steps("batch", batch)
        self.base = {i: addresses.offset(i, steps) + addresses.start(i) for i in self.numbers}
        columns = contraction.group("n")
        self.inner = columns[-1] if columns else None
        self.lanes = self._lanes()

    def _lanes(self) -> int:
        """Neighbouring columns, at most 16 of them and from a multiple on, that are neighbours in the innermost loop."""
        lanes = 16 if self.inner is not None else 1
        while lanes > 1 and self.contraction.loops[self.inner].extent % lanes:
            lanes //= 2
        return lanes

    @property
    def store_lanes(self) -> int:
        """Neighbouring columns that every store takes at once, 1 where a result is not contiguous along columns."""
        return min(self.vector(s.access) for s in self.contraction.stores)

    def vector(self, access: int) -> int:
        """Neighbouring columns that one access of a buffer takes."""
        return self.contraction.vector(access, self.inner)

    def row(self, m: Value, valid: Value | bool = True) -> Line:
        return self._line("m", m, valid)

    def column(self, n: Value, valid: Value | bool = True) -> Line:
        """Column n; `valid` is not needed where `write` checks columns itself."""
        return self._line("n", n, valid)

    def _line(self, group: str, position: Value, valid: Value | bool) -> Line:
        steps = self.addresses.steps(group, position)
        return Line(position, {i: self.addresses.offset(i, steps) for i in self.numbers}, valid)

    def columns(self, n: Value, count: int, check: bool) -> list[tuple[int, int, Line]]:
        """(first, how many, line) of the pieces that `count` columns from n on, a multiple of `count`, are written in.

        `check` tells whether columns may lie outside of the product.
        """
        width = min(count, self.lanes)
        end = self.contraction.extent("n")
        found = []
        for first in range(0, count, width):
            at = n + first
            valid = True if not check else at < end
            found.append((first, width, self.column(at, valid)))
        return found

    def write(self, sums: Sequence[Value], row: Line, column: Line) -> None:
        """Stores the results of neighbouring columns, whose sums are given in the type that is summed in."""
        with if_(both(row.valid, column.valid)):
            self.piece(sums, row, column).write()

    def piece(self, sums: Sequence[Value], row: Line, column: Line) -> Piece:
        """Neighbouring columns of a row, to compute with outside of `write`: nothing checks that they are there."""
        return Piece(self, sums, row, column)


class Piece:
    """Neighbouring columns of one row: values are computed when asked for, each once."""

    def __init__(self, epilogue: Epilogue, sums: Sequence[Value], row: Line, column: Line):
        self.epilogue, self.row, self.column = epilogue, row, column
        self.contraction = epilogue.contraction
        self.at = {i: epilogue.base[i] + row.offsets[i] + column.offsets[i] for i in epilogue.numbers}
        self.known: dict[tuple[Element, int], Value] = {}
        self.varying: dict[Element, bool] = {}
        self.loads: dict[int, list[Value]] = {}
        sum_type = ir.Type.parse(self.contraction.sum_dtype)
        self.sums = [total.to(sum_type) for total in sums]

    def write(self) -> None:
        computed = [
            [self.value(s.element, lane) for lane in range(len(self.sums))] for s in self.contraction.stores
        ]
        for found, values in zip(self.contraction.stores, computed):
            self.store(found.access, values)

    def store(self, access: int, values: list[Value]) -> None:
        buffer = self.epilogue.addresses.buffer(access)
        width = min(self.epilogue.vector(access), len(values))
        stride = self.stride(access)
        for first in range(0, len(values), width):
            place = self.at[access] + first * stride
            if width == 1:
                store(values[first], buffer, place)
            else:
                vector = from_elements(values[first : first + width])
                store_vector(vector, buffer, [place], self.alignment(access, width))

    def value(self, element: Element, lane: int) -> Value:
        """The value of a tree in one lane; what all lanes share is computed once."""
        key = (element, lane if self.varies(element) else 0)
        if key not in self.known:
            self.known[key] = self.compute(element, key[1])
        return self.known[key]

    def varies(self, element: Element) -> bool:
        if element not in self.varying:
            self.varying[element] = self.find_varying(element)
        return self.varying[element]

    def find_varying(self, element: Element) -> bool:
        if isinstance(element, Applied):
            return any(map(self.varies, element.operands))
        if isinstance(element, (Loaded, Place)):
            return self.stride(element.access) != 0
        return isinstance(element, Summed)

    def compute(self, element: Element, lane: int) -> Value:
        if isinstance(element, Summed):
            return self.sums[lane]
        if isinstance(element, Scalar):
            return scalar_value(element)
        if isinstance(element, Loaded):
            if element.access not in self.loads:
                self.loads[element.access] = self.load(element.access)
            return self.loads[element.access][lane]
        if isinstance(element, Place):
            at = self.at[element.access] + lane * self.stride(element.access)
            return at if isinstance(at, Value) else constant(ir.IndexType.get(), at)
        return apply(element.op, [self.value(operand, lane) for operand in element.operands])

    def load(self, access: int) -> list[Value]:
        """The elements of all lanes; of the first one alone where they are the same."""
        buffer, stride = self.epilogue.addresses.buffer(access), self.stride(access)
        if stride == 0:
            return [load(buffer, self.at[access])]
        width = min(self.epilogue.vector(access), len(self.sums))
        found: list[Value] = []
        for first in range(0, len(self.sums), width):
            place = self.at[access] + first * stride
            if width == 1:
                found.append(load(buffer, place))
            else:
                vector = load_vector(buffer, [place], width, self.alignment(access, width))
                found += [vector[lane] for lane in range(width)]
        return found

    def stride(self, access: int) -> int:
        inner = self.epilogue.inner
        return 0 if inner is None else self.contraction.accesses[access].strides[inner]

    def alignment(self, access: int, width: int) -> int:
        return width * element_bytes(self.contraction.buffers[self.contraction.accesses[access].buffer].dtype)


def apply(op: ir.Operation, operands: Sequence[Value]) -> Value:
    """A copy of a scalar operation on other operands; sums and products of floats may contract to one rounding."""
    clone = op.clone().operation
    for i, operand in enumerate(operands):
        clone.operands[i] = operand.value
    if clone.name in _CONTRACTED:
        clone.attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<contract>")
    return Value(clone.results[0])


def scalar_value(element: Scalar) -> Value:
    attribute = element.attribute
    assert isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr))
    return Value(arith.constant(attribute.type, attribute))


def converted(element: Element | None, loaded: Value, dtype: str) -> Value:
    """What is multiplied in place of an element of a factor: a tree over it, or itself, widened exactly to `dtype`."""
    if element is None:
        return widened(loaded, dtype)

    known: dict[Element, Value] = {}

    def value(node: Element) -> Value:
        if node not in known:
            known[node] = compute(node)
        return known[node]

    def compute(node: Element) -> Value:
        if isinstance(node, Summed):
            return loaded
        if isinstance(node, Scalar):
            return scalar_value(node)
        assert isinstance(node, Applied)
        return apply(node.op, [value(operand) for operand in node.operands])

    return widened(value(element), dtype)


def widened(value: Value, dtype: str) -> Value:
    """The value in a type that holds it exactly; integers are signed."""
    type_ = ir.Type.parse(dtype)
    if value.type == type_:
        return value
    return Value((arith.extf if value.is_float else arith.extsi)(type_, value.value))
