"""Reads elements through fills, reshapes, slices, insertions, concatenations and paddings of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.analysis.placement import groups_of, is_static_box
from tilewright.compiler.families.elementwise.elements import Element, Elements, reads
from tilewright.compiler.families.elementwise.positions import Position
from tilewright.compiler.families.elementwise.scalars import Unwritable
from tilewright.compiler.ir import arith, ir, static_shape
from tilewright.compiler.nouns.quasi_affine import QuasiAffine

Index = tuple[Position, ...]


@reads("linalg.fill")
def read_fill(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """Every element of a fill is its scalar."""
    return elements.outside(op.operands[0])


@reads("arith.constant")
def read_constant(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """Every element of a splat is its number."""
    value = op.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr) or not value.is_splat:
        raise Unwritable("a constant of many numbers")
    number = value.get_splat_value()
    if isinstance(number, ir.IntegerAttr):
        own = number.value
        return QuasiAffine((), int(bool(own)) if ir.IntegerType(number.type).width == 1 else own)
    return elements.remembered(("splat", op), lambda: [arith.constant(number.type, number)])


@reads("tensor.empty")
def read_empty(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """An element that nothing was written to may be anything: 0."""
    type_ = ir.RankedTensorType(op.results[0].type).element_type
    if isinstance(type_, ir.FloatType):
        return [elements.constant(type_, 0.0)]
    if not isinstance(type_, (ir.IntegerType, ir.IndexType)):
        raise Unwritable(f"elements of type {type_}")
    return QuasiAffine()


@reads("tensor.cast")
def read_cast(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """A cast between static types moves nothing."""
    return elements.of(op.operands[0], index)


@reads("tensor.expand_shape")
def read_expanded(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """The source's dimensions are row-major numbers in groups of the result's."""
    shape = static_shape(op.results[0].type)
    found = []
    for group in groups_of(op):
        total = QuasiAffine()
        for dim in group:
            total = total.scaled(shape[dim]) + index[dim]
        found.append(total)
    return elements.of(op.operands[0], found)


@reads("tensor.collapse_shape")
def read_collapsed(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """The source's dimensions are digits of the result's."""
    shape = static_shape(op.operands[0].type)
    found: list[Position] = []
    for group, position in zip(groups_of(op), index):
        own: list[Position] = []
        for dim in reversed(group[1:]):
            position, digit = elements.divided(position, shape[dim])
            own.append(digit)
        found += [position, *reversed(own)] if group else []
    return elements.of(op.operands[0], found)


@reads("tensor.extract_slice")
def read_slice(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """A slice's element is its source's, offset and scaled."""
    offsets, sizes, strides = _box(op)
    large = _with_unit_dims(index, sizes, static_shape(op.results[0].type))
    return elements.of(
        op.operands[0], [p.scaled(stride).shifted(o) for p, stride, o in zip(large, strides, offsets)]
    )


@reads("tensor.insert_slice")
def read_inserted(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """An element of an insertion is the inserted tensor's inside of the box, else its destination's."""
    source, destination = op.operands[0], op.operands[1]
    if not is_static_box(op):
        raise Unwritable("an insertion with steps or at a place known at run time")
    offsets, sizes, _ = _box(op)
    inner = [p.shifted(-offset) for p, offset in zip(index, offsets)]
    kept = _without_unit_dims(inner, sizes, static_shape(source.type))
    box = [(p, offset, offset + size) for p, offset, size in zip(index, offsets, sizes)]
    found = elements.inside(
        box,
        ir.RankedTensorType(source.type).element_type,
        lambda: elements.of(source, kept),
        lambda: elements.of(destination, index),
    )
    return found if found is not None else elements.lane_by_lane(op.results[0], index)


@reads("tensor.concat")
def read_concatenated(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """An element of a concatenation is that of the tensor that holds its place."""
    elements.differs_by_lane = True
    dim = ir.IntegerAttr(op.attributes["dim"]).value
    type_ = ir.RankedTensorType(op.results[0].type).element_type
    operands = list(op.operands)

    def among(number: int, start: int) -> Element | None:
        own = (*index[:dim], index[dim].shifted(-start), *index[dim + 1 :])
        if number == len(operands) - 1:
            return elements.of(operands[number], own)
        end = start + static_shape(operands[number].type)[dim]
        return elements.inside(
            [(index[dim], start, end)],
            type_,
            lambda: elements.of(operands[number], own),
            lambda: _found(among(number + 1, end)),
        )

    found = among(0, 0)
    return found if found is not None else elements.lane_by_lane(op.results[0], index)


@reads("tensor.pad")
def read_padded(elements: Elements, op: ir.Operation, index: Index) -> Element:
    """An element of a padded tensor is the source's inside, else what the padding's body yields."""
    low = list(op.attributes["static_low"])
    dynamic = ir.ShapedType.get_dynamic_size()
    (yielded,) = op.regions[0].blocks[0].operations[len(op.regions[0].blocks[0].operations) - 1].operands
    if (
        dynamic in low
        or isinstance(yielded.owner, ir.Block)
        or yielded.owner.block == op.regions[0].blocks[0]
    ):
        raise Unwritable("a padding whose width or value is computed")
    source = op.operands[0]
    shape = static_shape(source.type)
    found = elements.inside(
        [(p, before, before + size) for p, before, size in zip(index, low, shape)],
        ir.RankedTensorType(source.type).element_type,
        lambda: elements.of(source, [p.shifted(-before) for p, before in zip(index, low)]),
        lambda: elements.outside(yielded),
    )
    return found if found is not None else elements.lane_by_lane(op.results[0], index)


def _found(element: Element | None) -> Element:
    if element is None:
        raise Unwritable("a concatenation whose lanes lie in several tensors")
    return element


def _box(op: ir.Operation) -> tuple[list[int], list[int], list[int]]:
    fields = [list(op.attributes[name]) for name in ("static_offsets", "static_sizes", "static_strides")]
    dynamic = ir.ShapedType.get_dynamic_size()
    if any(dynamic in values for values in fields):
        raise Unwritable("a slice at a place known at run time")
    return fields[0], fields[1], fields[2]


def _with_unit_dims(index: Index, sizes: Sequence[int], shape: Sequence[int]) -> list[Position]:
    """Positions in a box of `sizes`, from those in a tensor of `shape` that lacks some of its unit dimensions."""
    pending = list(zip(index, shape))
    found = []
    for size in sizes:
        kept = bool(pending) and pending[0][1] == size
        found.append(pending.pop(0)[0] if kept else QuasiAffine())
    if pending:
        raise Unwritable("a slice that drops dimensions out of order")
    return found


def _without_unit_dims(
    inner: Sequence[Position], sizes: Sequence[int], shape: Sequence[int]
) -> list[Position]:
    """The inverse of `_with_unit_dims`."""
    found: list[Position] = []
    for position, size in zip(inner, sizes):
        if len(found) < len(shape) and shape[len(found)] == size:
            found.append(position)
    if len(found) != len(shape):
        raise Unwritable("an insertion that drops dimensions out of order")
    return found
