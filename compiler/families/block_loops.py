"""Writes one operation's loops on buffers so that the threads of a block share them.

Points of the parallel loops are numbered, the loop that runs fastest along the result last, and dealt out in turns:

    linalg.generic (i, j parallel, k reduction)
      =>
    for n = thread to M * N step threads { i = n / N; j = n mod N; for k { ... in registers ... } ; store }
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, is_dim, loop_extents
from tilewright.compiler.ir import affine, arith, ir, memref, scf, static_shape, walk

Position = list[ir.Value]
Extent = int | ir.Value
"""How long a loop is: a number, or a value where only the run tells."""


@dataclass(frozen=True)
class Threads:
    """The threads of a block: how many they are, and the number of the one that runs."""

    count: int
    id: ir.Value


def index(number: int) -> ir.Value:
    """A constant of type index."""
    return arith.constant(ir.IndexType.get(), number)


def when(condition: ir.Value, body: Callable[[], None]) -> None:
    """What `body` writes runs where the condition holds."""
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        body()
        scf.yield_([])


def below(left: ir.Value, right: ir.Value) -> ir.Value:
    """`left < right` on positions, which are never negative."""
    return arith.cmpi(arith.CmpIPredicate.ult, left, right)


def deal(threads: Threads, extents: Sequence[Extent], body: Callable[[Position], None]) -> None:
    """`body(position)` for every point of a box, points dealt out to the threads in turns, the last extent fastest."""
    total = product(extents)
    if isinstance(total, int) and total < threads.count:
        when(below(threads.id, index(total)), lambda: body(unravel(threads.id, extents)))
        return
    if total == threads.count:
        body(unravel(threads.id, extents))
        return
    loop = scf.ForOp(threads.id, bound(total), index(threads.count))
    with ir.InsertionPoint(loop.body):
        body(unravel(loop.induction_variable, extents))
        scf.yield_([])


def bound(extent: Extent) -> ir.Value:
    """An extent as a value of type index."""
    return index(extent) if isinstance(extent, int) else extent


def product(extents: Sequence[Extent]) -> Extent:
    """How many points a box has."""
    total: Extent = math.prod(extent for extent in extents if isinstance(extent, int))
    for extent in extents:
        if not isinstance(extent, int):
            total = arith.muli(bound(total), extent)
    return total


def unravel(number: ir.Value, extents: Sequence[Extent]) -> Position:
    """The position in a row-major box of its point `number`."""
    found: Position = []
    for place, extent in reversed(list(enumerate(extents))):
        if isinstance(extent, int) and extent == 1:
            found.append(index(0))
        elif all(isinstance(outer, int) and outer == 1 for outer in extents[:place]):
            found.append(number)
        else:
            found.append(arith.remui(number, bound(extent)))
            number = arith.divui(number, bound(extent))
    return found[::-1]


def sequence(
    extents: Sequence[Extent],
    start: Sequence[ir.Value],
    body: Callable[[Position, list[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """`body(position, carried)` for every point of a box, one after the other in one thread; gives what was carried last."""

    def nest(position: Position, carried: list[ir.Value]) -> Sequence[ir.Value]:
        if len(position) == len(extents):
            return body(position, carried)
        extent = extents[len(position)]
        if isinstance(extent, int) and extent == 1:
            return nest([*position, index(0)], carried)
        loop = scf.ForOp(index(0), bound(extent), index(1), carried)
        with ir.InsertionPoint(loop.body):
            inner = nest([*position, loop.induction_variable], list(loop.inner_iter_args))
            scf.yield_(list(inner))
        return list(loop.results)

    return list(nest([], list(start)))


@dataclass(frozen=True)
class Generic:
    """A `linalg.generic` on buffers: its loops, and the parallel ones in the order that threads take them."""

    op: ir.Operation
    maps: tuple[ir.AffineMap, ...]
    extents: tuple[Extent, ...]
    order: tuple[int, ...]
    reductions: tuple[int, ...]
    outputs: int

    @classmethod
    def read(cls, op: ir.Operation) -> Generic:
        """Reads a generic on buffers; extents that only the run tells are read before it."""
        maps = tuple(ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"])
        kinds = [
            "reduction" if "reduction" in str(k) else "parallel" for k in op.attributes["iterator_types"]
        ]
        with ir.InsertionPoint(op):
            extents = _extents(op, maps) if kinds else ()
        outputs = list(op.attributes["operandSegmentSizes"])[1]
        parallel = {i for i, kind in enumerate(kinds) if kind == "parallel"}
        order: list[int] = []
        for map_ in maps[len(maps) - outputs :]:
            for expr in map_.results:
                order += sorted(d for d in dims(expr) if d in parallel and d not in order)
        rest = [i for i in sorted(parallel) if i not in order]
        reductions = tuple(i for i, kind in enumerate(kinds) if kind != "parallel")
        return cls(op, maps, extents, (*rest, *order), reductions, outputs)

    @property
    def box(self) -> list[Extent]:
        """Extents of the parallel loops, as threads take them."""
        return [self.extents[i] for i in self.order]

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def num_inputs(self) -> int:
        return self.first_output

    @property
    def first_output(self) -> int:
        return len(self.maps) - self.outputs

    def reads(self, operand: int) -> bool:
        """Whether the body reads the operand."""
        return any(True for _ in self.body.arguments[operand].uses)

    def place(self, operand: int) -> str | None:
        """Which thread accesses which element of an operand, as text that is equal where both are; None if several do."""
        map_ = self.maps[operand]
        if not all(isinstance(extent, int) for extent in self.box):
            return None
        if not all(is_dim(expr) and expr.position in self.order for expr in map_.results):
            return None
        places = [self.order.index(expr.position) for expr in map_.results]
        whole = {p for p in range(len(self.order)) if self.extents[self.order[p]] != 1}
        return f"{self.box} {places}" if whole <= set(places) else None

    def write(self, threads: Threads) -> None:
        """Writes the loops at the insertion point and takes the body apart."""
        if any(isinstance(extent, int) and extent == 0 for extent in self.box):
            return
        deal(threads, self.box, self._point)

    def _point(self, position: Position) -> None:
        ivs = dict(zip(self.order, position))
        operands, first = list(self.op.operands), self.first_output
        read = [self.reads(number) for number in range(len(operands))]
        places = [address(map_, ivs) for map_ in self.maps[first:]]
        kept = [i for i in range(self.outputs) if read[first + i]]

        def step(inner: Position, carried: list[ir.Value]) -> list[ir.Value]:
            ivs.update(zip(self.reductions, inner))
            values: list[ir.Value | None] = [None] * len(operands)
            for number in range(first):
                if not isinstance(operands[number].type, ir.MemRefType):
                    values[number] = operands[number]
                elif read[number]:
                    values[number] = memref.load(operands[number], address(self.maps[number], ivs))
            for i, value in zip(kept, carried):
                values[first + i] = value
            results = self.inline(ivs, values)
            for i in range(self.outputs):
                if i not in kept:
                    memref.store(results[i], operands[first + i], places[i])
            return [results[i] for i in kept]

        start = [memref.load(operands[first + i], places[i]) for i in kept]
        results = sequence([self.extents[i] for i in self.reductions], start, step)
        for i, value in zip(kept, results):
            memref.store(value, operands[first + i], places[i])

    def inline(self, ivs: Mapping[int, ir.Value], values: Sequence[ir.Value | None]) -> list[ir.Value]:
        """Moves the body to the insertion point; gives what it yields."""
        for argument, value in zip(self.body.arguments, values):
            if value is not None:
                argument.replace_all_uses_with(value)
        anchor = index(0).owner.operation
        *ops, terminator = [view.operation for view in self.body.operations]
        for op in ops:
            op.move_before(anchor)
        for op in ops:
            for found in walk(op, "linalg.index"):
                found.results[0].replace_all_uses_with(ivs[ir.IntegerAttr(found.attributes["dim"]).value])
                found.erase()
        anchor.erase()
        return list(terminator.operands)


def _extents(op: ir.Operation, maps: Sequence[ir.AffineMap]) -> tuple[Extent, ...]:
    buffers = [(o, m) for o, m in zip(op.operands, maps) if isinstance(o.type, ir.MemRefType)]
    if all(ir.ShapedType(operand.type).has_static_shape for operand, _ in buffers):
        return tuple(loop_extents([m for _, m in buffers], [static_shape(o.type) for o, _ in buffers]))
    found: dict[int, Extent] = {}
    for operand, map_ in buffers:
        type_ = ir.MemRefType(operand.type)
        for place, expr in enumerate(map_.results):
            if is_dim(expr):
                fixed = not type_.is_dynamic_dim(place)
                loop = expr.position
                if fixed or loop not in found:
                    found[loop] = type_.get_dim_size(place) if fixed else memref.dim(operand, index(place))
    return tuple(found[loop] for loop in range(maps[0].n_dims))


def address(map_: ir.AffineMap, ivs: Mapping[int, ir.Value]) -> Position:
    """Where an operand with this index map is accessed; loops that are not open count as 0."""
    found = []
    for expr in map_.results:
        if isinstance(expr, ir.AffineDimExpr):
            found.append(ivs[expr.position])
        elif isinstance(expr, ir.AffineConstantExpr):
            found.append(index(expr.value))
        else:
            used = sorted(dims(expr))
            compact = [ir.AffineExpr.get_dim(used.index(i) if i in used else 0) for i in range(map_.n_dims)]
            composed = expr.compose(ir.AffineMap.get(len(used), 0, compact))
            found.append(affine.apply(ir.AffineMap.get(len(used), 0, [composed]), [ivs[i] for i in used]))
    return found


def apply_region(block: ir.Block, values: Sequence[ir.Value]) -> list[ir.Value]:
    """Clones a region of one block to the insertion point, given its arguments; gives what it yields."""
    known = dict(zip(block.arguments, values))
    *body, terminator = [view.operation for view in block.operations]
    for op in body:
        clone = op.clone().operation
        for inner in walk(clone):
            for number, operand in enumerate(inner.operands):
                if operand in known:
                    inner.operands[number] = known[operand]
        known.update(zip(op.results, clone.results))
    return [known.get(value, value) for value in terminator.operands]
