"""Reading constant padding that is written as a gather: where its source lies in it, and what is around.

    linalg.generic (i, j) -> %p[i, j]                         Padding(source = %x, value = %c,
      %at = j - 1 ; %near = clamp(%at, 0, 5)             =>     along = (Along(0), Along(1, start = -1, bounded)))
      yield select(%near == %at, %x[i, %near], %c)

The same on memory, where a cut moves the gather's loops on by what its rTask begins at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.compiler.analysis.affine_access import is_dim, map_dims, terms
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir

_LOADS = ("tensor.extract", "memref.load")


@dataclass(frozen=True)
class Moved:
    """What an affine map gives of values; None among them stands for zero."""

    map: ir.AffineMap
    operands: tuple[ir.Value | None, ...]


@dataclass(frozen=True)
class Along:
    """One dimension of the source: read at loop `loop` (None: at one place) plus `start` plus `moved`, if all is inside."""

    loop: int | None
    start: int = 0
    moved: tuple[Moved, ...] = ()
    bounded: bool = False


@dataclass(frozen=True)
class Padding:
    """A tensor or memory of constants, `value`, in which `source` lies, one `Along` per dimension of it."""

    source: ir.Value
    value: ir.Value
    along: tuple[Along, ...]

    @classmethod
    def read(cls, op: ir.Operation) -> Padding | None:
        """The padding that a generic without inputs writes; None for anything else."""
        if op.name != "linalg.generic" or list(op.attributes["operandSegmentSizes"]) != [0, 1]:
            return None
        body, kinds = op.regions[0].blocks[0], op.attributes["iterator_types"]
        map_ = ir.AffineMapAttr(op.attributes["indexing_maps"][0]).value
        in_order = all(is_dim(expr, number) for number, expr in enumerate(map_.results))
        if "reduction" in str(kinds) or not in_order or len(map_.results) != map_.n_dims:
            return None
        *_, terminator = body.operations
        chosen = _made_by(terminator.operation.operands[0], "arith.select", body)
        if chosen is None:
            return None
        condition, inside, value = chosen.operands
        load = next((found for name in _LOADS if (found := _made_by(inside, name, body))), None)
        if load is None or _is_in(value, body) or _is_in(load.operands[0], body):
            return None
        source, *places = load.operands
        compared = _compared(condition, body)
        extents = list(ir.ShapedType(source.type).shape)
        with op.context:
            along = [_along(place, extent, compared, body) for place, extent in zip(places, extents)]
        found = tuple(a for a in along if a is not None)
        loops = [a.loop for a in found if a.loop is not None]
        shape = list(ir.ShapedType(op.operands[0].type).shape)
        whole = all(extent == 1 or loop in loops for loop, extent in enumerate(shape))
        checked = sum(a.bounded for a in found)
        if len(found) != len(along) or len(set(loops)) != len(loops) or not whole:
            return None
        return cls(source, value, found) if checked == len(compared) > 0 else None

    @property
    def bounded_loops(self) -> list[int]:
        """The loops along which there is padding, outer first."""
        return sorted(a.loop for a in self.along if a.bounded and a.loop is not None)


def is_slid_over(reader: Structured, value: ir.Value) -> bool:
    """Whether windows slide over `value` so that nothing but their overlap reads it twice, as in depthwise
    convolutions and poolings."""
    if reader.is_elementwise or len(reader.op.results) != 1:
        return False
    maps = [m for operand, m in zip(reader.op.operands, reader.maps) if operand == value]
    loops = {i for i, kind in enumerate(reader.kinds) if kind == "parallel" and reader.extents[i] > 1}
    return len(maps) == 1 and not maps[0].is_projected_permutation and loops <= map_dims(maps[0])


def slid_padding(op: ir.Operation) -> Padding | None:
    """The padding that `op` is if windows alone read it, which then need no other memory for it than an rTask's own."""
    padding = Padding.read(op)
    if padding is None or len(op.results) != 1:
        return None
    readers = [use.owner.operation for use in op.results[0].uses]
    structured = Structured.read(readers[0]) if len(readers) == 1 else None
    return padding if structured is not None and is_slid_over(structured, op.results[0]) else None


def _is_in(value: ir.Value, body: ir.Block) -> bool:
    return value.owner == body if isinstance(value.owner, ir.Block) else value.owner.operation.block == body


def _made_by(value: ir.Value, name: str, body: ir.Block) -> ir.Operation | None:
    """The operation `name` of the body that computes `value`, None where another one does."""
    if isinstance(value.owner, ir.Block) or not _is_in(value, body):
        return None
    op = value.owner.operation
    return op if op.name == name else None


def _compared(condition: ir.Value, body: ir.Block) -> list[tuple[ir.Value, ir.Value]]:
    """What is compared for equality in a conjunction; an empty list where it is no such conjunction."""
    both = _made_by(condition, "arith.andi", body)
    if both is not None:
        left, right = (_compared(operand, body) for operand in both.operands)
        return [*left, *right] if left and right else []
    equal = _made_by(condition, "arith.cmpi", body)
    if equal is None or ir.IntegerAttr(equal.attributes["predicate"]).value != 0:
        return []
    left, right = equal.operands
    return [(left, right)]


def _along(
    place: ir.Value, extent: int, compared: list[tuple[ir.Value, ir.Value]], body: ir.Block
) -> Along | None:
    """How one dimension of the source is read; None where that is neither a loop nor one place."""
    at = _clamped(place, extent, body)
    if at is None:
        return read_place(place, body)
    found = read_place(at, body)
    checked = any({place, at} == {left, right} for left, right in compared)
    return replace(found, bounded=True) if found is not None and found.loop is not None and checked else None


def _clamped(value: ir.Value, extent: int, body: ir.Block) -> ir.Value | None:
    """What is clamped to the places of a dimension, None where nothing is."""
    for outer, inner, bounds in (
        ("arith.maxsi", "arith.minsi", (0, extent - 1)),
        ("arith.minsi", "arith.maxsi", (extent - 1, 0)),
    ):
        for bound, between in _either(_made_by(value, outer, body)):
            for other, at in _either(_made_by(between, inner, body)):
                if (_constant(bound), _constant(other)) == bounds:
                    return at
    return None


def _either(op: ir.Operation | None) -> list[tuple[ir.Value, ir.Value]]:
    """The operands of an operation in both orders."""
    return [] if op is None else [(op.operands[0], op.operands[1]), (op.operands[1], op.operands[0])]


def _constant(value: ir.Value) -> int | None:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    return ir.IntegerAttr(value.owner.operation.attributes["value"]).value


def read_place(value: ir.Value, body: ir.Block) -> Along | None:
    """A loop of the generic, moved on by what its body does not compute; None for anything else."""
    known = _constant(value)
    if known is not None:
        return Along(None, known)
    if not _is_in(value, body):
        d0 = ir.AffineExpr.get_dim(0)
        return Along(None, 0, (Moved(ir.AffineMap.get(1, 0, [d0]), (value,)),))
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    if op.name == "linalg.index":
        return Along(ir.IntegerAttr(op.attributes["dim"]).value)
    if op.name in ("arith.addi", "arith.subi"):
        sign = 1 if op.name == "arith.addi" else -1
        by, other = _constant(op.operands[1]), read_place(op.operands[0], body)
        return replace(other, start=other.start + sign * by) if by is not None and other is not None else None
    if op.name == "affine.apply":
        return _applied(ir.AffineMapAttr(op.attributes["map"]).value, list(op.operands), body)
    return None


def _applied(map_: ir.AffineMap, operands: list[ir.Value], body: ir.Block) -> Along | None:
    """The sum of one loop and of what the other operands give."""
    inner = [number for number, operand in enumerate(operands) if _is_in(operand, body)]
    if len(inner) != 1:
        return None
    (own,), found = inner, read_place(operands[inner[0]], body)
    if found is None or found.loop is None:
        return None
    position = (
        ir.AffineExpr.get_dim(own) if own < map_.n_dims else ir.AffineExpr.get_symbol(own - map_.n_dims)
    )

    def at(number: int) -> ir.AffineMap:
        return map_.replace(position, ir.AffineExpr.get_constant(number), map_.n_dims, map_.n_symbols)

    plain = [term for term in terms(map_.results[0]) if term == position]
    if len(plain) != 1 or not _moves_by_one(at(0), at(1)):
        return None
    rest = at(0)
    if isinstance(rest.results[0], ir.AffineConstantExpr):
        return replace(found, start=found.start + rest.results[0].value)
    given = tuple(None if number == own else operand for number, operand in enumerate(operands))
    return replace(found, moved=(*found.moved, Moved(rest, given)))


def _moves_by_one(here: ir.AffineMap, there: ir.AffineMap) -> bool:
    shifted = ir.AffineExpr.simplify_affine_expr(here.results[0] + 1, here.n_dims, here.n_symbols)
    own = ir.AffineExpr.simplify_affine_expr(there.results[0], here.n_dims, here.n_symbols)
    return shifted == own
