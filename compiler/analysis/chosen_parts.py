"""Reading a gather of whole parts of a tensor, as of one expert's matrix for each of some rows, that a product multiplies by.

    linalg.generic (b, k, n) ins(%numbers : (b)) { %i = <from %numbers> ; yield tensor.extract %table[%i, k, n] }
      =>
    Chosen(table = %table, leading = 1)                // what is at [b, k, n] is at [i(b), k, n] of %table

A product that takes one such part at a time can read it where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, is_dim, map_dims
from tilewright.compiler.analysis.padding import read_place
from tilewright.compiler.analysis.structure import Structured, loop_lines, producer
from tilewright.compiler.ir import ir

_READERS = ("linalg.generic", "tensor.extract")
"""What reads a weight on the way to parts of it: a gather whose operand it is, or the body of one."""
_DEPENDENT = ("linalg.index", "affine.apply", "arith.addi", "tensor.extract", "linalg.yield")
"""What may depend on places inside of a part."""


@dataclass(frozen=True)
class Chosen:
    """Parts of `table`: the `leading` loops say which, by its first `fixed` dimensions, the others run over its last ones.

    `extract` reads an element of `table`, in the body of the gather `op`.
    """

    op: ir.Operation
    table: ir.Value
    leading: int
    fixed: int
    extract: ir.Operation

    @classmethod
    def read(cls, op: ir.Operation) -> Chosen | None:
        """The parts that a generic gathers; None for anything else."""
        extract = _extract(op)
        structured = Structured.read(op) if extract is not None else None
        if extract is None or structured is None or not structured.is_elementwise:
            return None
        body, loops = structured.body, len(structured.extents)
        in_order = all(is_dim(expr, number) for number, expr in enumerate(structured.result_map.results))
        if not in_order or len(structured.result_map.results) != loops:
            return None
        table, *places = extract.operands
        tail = _tail(places, structured)
        leading, fixed = loops - tail, len(places) - tail
        # Without a place that is computed nothing is chosen; without one that is not, no part is whole.
        if extract.block != body or table.owner == body or 0 in (tail, leading, fixed):
            return None
        inside = _inside_parts(structured, leading)
        kept = all(place not in inside for place in places[:fixed])
        return cls(op, table, leading, fixed, extract) if kept and _only_move(inside, extract) else None

    @property
    def is_one(self) -> bool:
        """Whether only one part is read."""
        return all(extent == 1 for extent in ir.ShapedType(self.op.results[0].type).shape[: self.leading])


def _extract(op: ir.Operation) -> ir.Operation | None:
    """The `tensor.extract` of the body whose element is all that a generic gives."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    block = op.regions[0].blocks[0]
    maker = producer(block.operations[len(block.operations) - 1].operation.operands[0])
    return maker if maker is not None and maker.name == "tensor.extract" else None


def chosen_parts(op: ir.Operation) -> Chosen | None:
    """The parts that `op` gathers if one product alone reads them, and takes one of them at every step of some loops."""
    chosen = Chosen.read(op)
    readers = [use.owner.operation for use in op.results[0].uses] if chosen is not None else []
    reader = Structured.read(readers[0]) if len(readers) == 1 else None
    if chosen is None or reader is None or not reader.is_contraction:
        return None
    return chosen if _loops_of(reader, chosen) is not None else None


def chosen_of(value: ir.Value) -> Chosen | None:
    """The parts that `value` is where one product alone reads them."""
    op = producer(value)
    return None if op is None else chosen_parts(op)


def with_parts(static: set[ir.Value]) -> set[ir.Value]:
    """`static` with parts that are chosen of what is in it: such a part can be stored as the whole is."""
    readers = {use.owner.operation for value in static for use in value.uses}
    gathers = {op if op.name == "linalg.generic" else op.parent for op in readers if op.name in _READERS}
    parts = (chosen_parts(op) for op in gathers if op is not None)
    return static | {c.op.results[0] for c in parts if c is not None and c.table in static and c.fixed == 1}


def walked_loops(function: ir.Operation) -> tuple[int, ...]:
    """The loops of a dispatch's sink at every step of which a product takes another part; none where no product does."""
    ops = [view.operation for view in function.regions[0].blocks[0].operations]
    if not any(chosen_parts(op) for op in ops):
        return ()
    group = [s for op in ops if (s := Structured.read(op)) is not None]
    found: set[int] = set()
    for s, line in zip(group, loop_lines(group[-1], group)):
        parted = _parted_loops(s)
        found.update(loop for loop, own in (line or {}).items() if own in parted)
    return tuple(sorted(found))


def _parted_loops(reader: Structured) -> set[int]:
    """The loops of a product each of whose steps takes other parts."""
    parts = map(chosen_of, list(reader.op.operands)[: reader.num_inputs])
    return {loop for chosen in parts if chosen is not None for loop in _loops_of(reader, chosen) or ()}


def _loops_of(reader: Structured, chosen: Chosen) -> tuple[int, ...] | None:
    """The reader's loops that say which part, where they are loops of its result, and parts have others of these.

    They are loops of its other operand too, or that has no other loops of the result: single steps would read again for
    each part what these loops reuse.
    """
    position = list(reader.op.operands).index(chosen.op.results[0])
    own = reader.maps[position].results
    found = tuple(expr.position for expr in own[: chosen.leading] if is_dim(expr))
    plain = {expr.position for expr in reader.result_map.results if is_dim(expr)}
    shared = plain & map_dims(reader.maps[1 - position])
    inside = set().union(*map(dims, own[chosen.leading :]))
    suits = set(found) <= shared or shared <= set(found)
    return (
        found if len(found) == chosen.leading and set(found) <= plain and plain & inside and suits else None
    )


def _tail(places: Sequence[ir.Value], gather: Structured) -> int:
    """How many of the last places are the last loops in their order, moved on by what the body does not compute.

    A loop of one step may go without its place.
    """
    count = 0
    for place, loop in zip(reversed(places), reversed(range(len(gather.extents)))):
        found = read_place(place, gather.body)
        if found is None or not (found.loop == loop or (found.loop is None and gather.extents[loop] == 1)):
            break
        count += 1
    return count


def _inside_parts(structured: Structured, leading: int) -> set[ir.Value]:
    """What a body computes anew for every place inside of a part."""
    tail = set(range(leading, len(structured.extents)))
    arguments = structured.body.arguments
    found = {a for a, map_ in zip(arguments, structured.maps) if map_dims(map_) & tail}
    for view in structured.body.operations:
        op = view.operation
        own = op.name == "linalg.index" and ir.IntegerAttr(op.attributes["dim"]).value in tail
        if own or any(operand in found for operand in op.operands):
            found.update(op.results)
    return found


def _only_move(inside: set[ir.Value], extract: ir.Operation) -> bool:
    """Whether what depends on places inside of parts is nothing but where `extract` reads, and what it gives."""
    for value in inside:
        for use in value.uses:
            user = use.owner.operation
            if user.name not in _DEPENDENT or (user.name == "tensor.extract" and user != extract):
                return False
    return True
