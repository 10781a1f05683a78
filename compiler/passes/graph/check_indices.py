"""check-indices: a place that is read from memory is inside its tensor, or the call fails.

    ^bb0(%in: i64, %out: f32):                          %ok = arith.cmpi ult, %i, 8
      %i = arith.index_cast %in                   =>    cf.assert %ok, "index out of range: ..."
      %v = tensor.extract %x[%i] : tensor<8xf32>        %v = tensor.extract %x[umin(%i, 7)]

One rule for every way in, and for reads and writes: gathers are checked where they read, scatters in a copy of their
indices. A failed check does not stop a kernel, so that places are bounded too. Those that follow from loop counters
and constants alone are inside by construction, and those that are inside by what computes them, as by a `clamp`, need no check
either; nor do numbers that are never negative need to be counted from the end where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.integer_range import Range, Ranges, range_of, ranges_in
from tilewright.compiler.analysis.line_operations import line_count
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import arith, cf, ir, linalg, static_shape, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import elementwise

FOREIGN_CHECKS = frozenset({"index must be smaller than dim size", "index must be larger or equal to 0"})
"""Messages of checks that torch-mlir makes of some gathers; ours says the same in one comparison."""


@dataclass(frozen=True)
class CheckIndices(Pass):
    """Asserts that indices from memory are in range, in bodies that gather and before every scatter.

    Negative indices are out of range: importers count those from the end where the operator does.
    """

    def run(self, op: ir.Operation) -> None:
        found: Ranges = {}
        known: dict[ir.Block, Ranges] = {}
        for extract in walk(op, "tensor.extract"):
            body = _enclosing_body(extract)
            if body is not None:
                if body not in known:
                    known[body] = _ranges(body, found)
                _check_gather(extract, body, known[body])
        for ranges in known.values():
            _take_decided(ranges)
        for scatter in walk(op, "tm_tensor.scatter"):
            if isinstance(scatter.operands[1].type, ir.RankedTensorType):
                _check_scatter(scatter, range_of(scatter.operands[1], found))


def message(extent: int) -> str:
    """What the caller reads."""
    return f"index out of range: expected 0 to {extent - 1}, as the dimension has {extent} elements"


def _enclosing_body(op: ir.Operation) -> ir.Block | None:
    """The body of the `linalg.generic` that `op` stands in."""
    while op is not None and op.parent is not None:
        if op.parent.name == "linalg.generic":
            return op.block
        op = op.parent
    return None


def _ranges(body: ir.Block, found: Ranges) -> Ranges:
    """Between which numbers those lie that a body computes."""
    generic = Structured.read(body.owner.operation)
    return ranges_in(generic, found) if generic is not None else {}


def _take_decided(known: Ranges) -> None:
    """Reads the one operand of each choice whose condition is known, as that of a number that is counted from the end."""
    for value in known:
        op = value.owner.operation if not isinstance(value.owner, ir.Block) else None
        if op is not None and op.name == "arith.select":
            condition = known.get(op.operands[0])
            if condition is not None and condition.low == condition.high:
                value.replace_all_uses_with(op.operands[1 if condition.low else 2])


def _check_gather(extract: ir.Operation, body: ir.Block, known: Ranges) -> None:
    source, *places = extract.operands
    for number, (place, extent) in enumerate(zip(places, static_shape(source.type)), 1):
        if not _is_data(place, body):
            continue
        _erase_foreign_checks(place)
        range_ = known.get(place)
        if range_ is not None and range_.low >= 0 and range_.high < extent:
            continue
        with ir.InsertionPoint(extract), extract.location:
            cf.assert_(_is_inside(_uncast(place), extent), message(extent))
            extract.operands[number] = _bounded(place, extent)


def _uncast(place: ir.Value) -> ir.Value:
    """The number that a place is a cast of: places have fewer bits on GPUs, and 2^32 would pass there for 0."""
    cast = place.owner.operation if not isinstance(place.owner, ir.Block) else None
    return cast.operands[0] if cast is not None and cast.name == "arith.index_cast" else place


def _is_inside(place: ir.Value, extent: int) -> ir.Value:
    """Whether 0 <= place < extent: negative numbers are large as unsigned ones."""
    return arith.cmpi(arith.CmpIPredicate.ult, place, arith.constant(place.type, extent))


def _bounded(place: ir.Value, extent: int) -> ir.Value:
    return arith.minui(place, arith.constant(place.type, max(extent - 1, 0)))


def _is_data(place: ir.Value, body: ir.Block) -> bool:
    """Whether a place is computed from an element of a tensor, not from loop counters alone."""
    pending, seen = [place], set()
    while pending:
        value = pending.pop()
        if isinstance(value.owner, ir.Block):
            if value.owner == body:
                return True
        elif value not in seen:
            seen.add(value)
            if value.owner.operation.name == "tensor.extract":
                return True
            pending.extend(value.owner.operation.operands)
    return False


def _erase_foreign_checks(place: ir.Value) -> None:
    """Erases torch-mlir's own checks of `place`, or of the number that it is a cast of."""
    for comparison in {use.owner.operation for value in (place, _uncast(place)) for use in value.uses}:
        if comparison.name == "arith.cmpi":
            for user in [use.owner.operation for use in comparison.results[0].uses]:
                if user.name == "cf.assert" and ir.StringAttr(user.attributes["msg"]).value in FOREIGN_CHECKS:
                    user.erase()


def _check_scatter(scatter: ir.Operation, range_: Range) -> None:
    """Has the scatter read its indices through a generic that checks each against its own dimension.

    What is inside of dimensions fits into 32 bits, where those do. Indices of a range that is inside need no check.
    """
    _, indices, target = scatter.operands
    rows, *rest = static_shape(target.type)
    shape, (_, depth) = (rows // line_count(scatter), *rest), static_shape(indices.type)
    extents = [shape[d] for d in tuple(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"]))[:depth]]

    type_ = ir.RankedTensorType(indices.type)
    kept = ir.IntegerType(type_.element_type)
    if kept.width > 32 and max(extents) < 1 << 31:
        kept = ir.IntegerType.get_signless(32)

    is_inside = range_.low >= 0 and range_.high < min(extents)
    if is_inside and kept == type_.element_type:
        return

    def checked(index: ir.Value) -> ir.Value:
        inside = index if is_inside else bounded(index)
        return inside if inside.type == kept else arith.trunci(kept, inside)

    def bounded(index: ir.Value) -> ir.Value:
        result = _bounded(index, extents[0])
        if len(set(extents)) == 1:
            cf.assert_(_is_inside(index, extents[0]), message(extents[0]))
            return result
        column = linalg.IndexOp(1).result
        for number, extent in enumerate(extents):
            of_other = arith.cmpi(arith.CmpIPredicate.ne, column, arith.constant(ir.IndexType.get(), number))
            cf.assert_(arith.ori(of_other, _is_inside(index, extent)), message(extent))
            if number:
                result = arith.select(of_other, result, _bounded(index, extent))
        return result

    with ir.InsertionPoint(scatter), scatter.location:
        type_ = ir.RankedTensorType.get(type_.shape, kept)
        copy = elementwise(type_, [indices], [ir.AffineMap.get_identity(2)], checked)
    scatter.operands[1] = copy.results[0]
