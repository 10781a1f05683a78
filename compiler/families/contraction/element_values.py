"""What elements of a dispatch's results are computed from, as trees over positions in its buffers.

    result[m, n] = relu(sum[m, n] + bias[n])   =>   maximumf(addf(Summed, Loaded(access 0)), Scalar(0))

Every element-wise operation behind a contraction is read into such a tree, whatever index maps lie in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import composed
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.quasi_affine import NotQuasiAffine, QuasiAffine


@dataclass(frozen=True, eq=False)
class Summed:
    """The element that the contraction summed up, of the type of its result."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """The element of a buffer at access number `access`."""

    access: int


@dataclass(frozen=True, eq=False)
class Place:
    """The position that access number `access` says, an `index`."""

    access: int


@dataclass(frozen=True, eq=False)
class Scalar:
    """A constant."""

    attribute: ir.Attribute


@dataclass(frozen=True, eq=False)
class Applied:
    """A scalar operation of one result."""

    op: ir.Operation
    operands: tuple[Element, ...]


Element = Summed | Loaded | Place | Scalar | Applied


class Unreadable(Exception):
    """An element is computed in a way that trees do not describe; the message says which."""


@dataclass
class Values:
    """Reads trees; `source` gives the tree of an element of a tensor that is not element-wise, None for others."""

    source: Callable[[ir.Value, tuple[QuasiAffine[int], ...]], Element | None]
    position: Callable[[QuasiAffine[int]], Element]

    def __post_init__(self) -> None:
        self._known: dict[tuple, Element] = {}

    def of(self, value: ir.Value, index: Sequence[QuasiAffine[int]]) -> Element:
        """The tree of `value[index]`."""
        key = (value, tuple(index))
        if key not in self._known:
            self._known[key] = self._read(value, tuple(index))
        return self._known[key]

    def _read(self, value: ir.Value, index: tuple[QuasiAffine[int], ...]) -> Element:
        found = self.source(value, index)
        if found is not None:
            return found
        op = producer(value)
        constant = None if op is None else _uniform(op)
        if constant is not None:
            return constant
        structured = None if op is None else Structured.read(op)
        if structured is None or not structured.is_elementwise:
            raise Unreadable(f"{'an argument' if op is None else op.name} where elements are computed")
        return self._computed(structured, value, index)

    def _computed(
        self, structured: Structured, value: ir.Value, index: tuple[QuasiAffine[int], ...]
    ) -> Element:
        number = list(structured.op.results).index(value)
        written = structured.maps[structured.num_inputs + number]
        if not written.is_permutation:
            raise Unreadable("an element-wise operation that writes out of order")
        loops = [QuasiAffine()] * written.n_dims
        for expr, position in zip(written.results, index):
            loops[ir.AffineDimExpr(expr).position] = position
        arguments: dict[ir.Value, Callable[[], Element]] = {}
        for argument, operand, map_ in zip(
            structured.body.arguments, structured.op.operands, structured.maps
        ):
            arguments[argument] = lambda operand=operand, map_=map_: self._operand(operand, map_, loops)
        return self._body(structured.body, arguments, loops, number)

    def _operand(self, operand: ir.Value, map_: ir.AffineMap, loops: list[QuasiAffine[int]]) -> Element:
        if not isinstance(operand.type, ir.RankedTensorType):
            return scalar(operand)
        try:
            return self.of(operand, [composed(expr, loops) for expr in map_.results])
        except NotQuasiAffine as error:
            raise Unreadable(str(error)) from None

    def _body(
        self,
        body: ir.Block,
        arguments: dict[ir.Value, Callable[[], Element]],
        loops: list[QuasiAffine[int]],
        number: int,
    ) -> Element:
        """The tree of what a body yields as its result `number`; operands that it does not use are not read."""
        known: dict[ir.Value, Element] = {}

        def of(value: ir.Value) -> Element:
            if value not in known:
                known[value] = compute(value)
            return known[value]

        def compute(value: ir.Value) -> Element:
            if value in arguments:
                return arguments[value]()
            op = producer(value)
            if op is None or op.block != body:
                return scalar(value)
            if op.name == "linalg.index":
                return self.position(loops[ir.IntegerAttr(op.attributes["dim"]).value])
            if op.name == "arith.constant":
                return scalar(value)
            check_scalar(op)
            return applied(op, [of(operand) for operand in op.operands])

        *_, terminator = body.operations
        if any(view.operation.name == "cf.assert" for view in body.operations):
            raise Unreadable("a run-time check")
        return of(terminator.operation.operands[number])


def check_scalar(op: ir.Operation) -> None:
    """Raises Unreadable for an operation that does more than compute a number."""
    if op.name.split(".")[0] not in ("arith", "math") or len(op.results) != 1:
        raise Unreadable(f"{op.name} in an element's computation")


def applied(op: ir.Operation, operands: Sequence[Element]) -> Applied:
    """A scalar operation applied; raises Unreadable for one that does more than compute a number."""
    check_scalar(op)
    return Applied(op, tuple(operands))


def scalar(value: ir.Value) -> Scalar:
    """The constant that a scalar value is; raises Unreadable for any other."""
    op = producer(value)
    if op is None or op.name != "arith.constant":
        raise Unreadable("a scalar that is no constant")
    attribute = op.attributes["value"]
    if not isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr)):
        raise Unreadable(f"a constant of type {value.type}")
    return Scalar(attribute)


def _uniform(op: ir.Operation) -> Scalar | None:
    """The number that all elements of a fill or a splat are, seen through reshapes; None for other operations."""
    if op.name in ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast"):
        source = producer(op.operands[0])
        return None if source is None else _uniform(source)
    if op.name == "linalg.fill":
        return scalar(op.operands[0])
    if op.name == "arith.constant":
        dense = op.attributes["value"]
        if isinstance(dense, ir.DenseElementsAttr) and dense.is_splat:
            return Scalar(dense.get_splat_value())
    return None


def is_number(element: Element, number: float) -> bool:
    """Whether the element is this constant."""
    if not isinstance(element, Scalar) or not isinstance(element.attribute, (ir.FloatAttr, ir.IntegerAttr)):
        return False
    return element.attribute.value == number


def parts(element: Element) -> list[Element]:
    """Every element of a tree once, whatever number of others it is an operand of."""
    found: dict[Element, None] = {}

    def visit(part: Element) -> None:
        if part in found:
            return
        found[part] = None
        if isinstance(part, Applied):
            for operand in part.operands:
                visit(operand)

    visit(element)
    return list(found)


def accesses(element: Element) -> set[int]:
    """Numbers of the accesses in a tree."""
    return {part.access for part in parts(element) if isinstance(part, (Loaded, Place))}


def reads_sum(element: Element) -> bool:
    """Whether the tree contains the sum."""
    return any(isinstance(part, Summed) for part in parts(element))
