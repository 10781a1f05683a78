"""Scans, sorts, scatters and Fourier transforms as schedules see them: the loops around their lines, and which of these are independent.

    tm_tensor.scan dimension(1)   64 x 300               loops  d0: 64 parallel, d1: 300, one step after the other
    tm_tensor.scatter dimension_map = [0]                       d0: 20, chosen by the data, d1: 64 parallel
        updates 900 x 1 x 64, numbers 900 x 1 -> 20 x 64
    tm_tensor.scatter dimension_map = [0], tilewright.lines = 8 d0: 8 parallel, d1: 256, chosen by the data
        updates 24, numbers 24 x 1 -> 2048

A line is what one step of every parallel loop leaves: a row that is scanned, sorted or transformed, a column that updates go into. A scatter
into several lines has all of one before those of the next, in its target, its updates and its numbers; numbers count from
where their own line begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.dialects.fourier import FOURIER, Fourier
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir, static_shape
from tilewright.compiler.nouns.workload import Kind

SCAN, SORT, TOPK, SCATTER = (f"tm_tensor.{name}" for name in ("scan", "sort", "topk", "scatter"))
LINE_OPERATIONS = (SCAN, SORT, TOPK, SCATTER, FOURIER)

LINES = "tilewright.lines"
"""On a scatter: how many lines of as many slices each its target consists of; one where it does not say."""

SORT_CYCLES = 25
"""Of an element of a line that is sorted: six exchanges and three merges, or so. Measured on Zen 4, 256 to 2048 elements."""


def selects(kept: int, length: int) -> bool:
    """Whether the first elements of a line are kept in order while it is gone along, rather than all of it sorted.

    Of elements in any order, kept * (1 + ln(length / kept)) are ever among them, each of which moves half of those.
    """
    inserted = kept * (1 + math.log(max(1.0, length / max(1, kept))))
    return inserted * (15 + 0.75 * kept) <= SORT_CYCLES * length


@dataclass(frozen=True)
class Lines:
    """One such operation on tensors or buffers of static shape.

    `extents` are those of its loops, the dimensions of its first result, the first of which is two loops where there are
    several lines. `loops[n]` are, for every dimension of operand `n`, the loops that go through it, of which it is cut along
    with the first; none where it stays whole. The last `results` operands are where results go.
    """

    op: ir.Operation
    extents: tuple[int, ...]
    parallel: tuple[int, ...]
    loops: tuple[tuple[tuple[int, ...], ...], ...]
    results: int

    @classmethod
    def read(cls, op: ir.Operation) -> Lines | None:
        """The operation's loops; None for any other operation, and for shapes that are not static."""
        if op.name not in LINE_OPERATIONS or not all(_is_static(value.type) for value in op.operands):
            return None
        shapes = [static_shape(value.type) for value in op.operands]
        if op.name == SCATTER:
            return cls._of_scatter(op, shapes)
        if op.name == FOURIER:
            return cls._of_fourier(Fourier.read(op))
        results = len(shapes) if op.name == SORT else 2
        extents = shapes[len(shapes) - results]
        dim = ir.IntegerAttr(op.attributes["dimension"]).value
        parallel = tuple(loop for loop in range(len(extents)) if loop != dim)
        whole = tuple((loop,) if loop != dim else () for loop in range(len(extents)))
        loops = [
            whole if len(shape) == len(extents) else tuple((loop,) for loop in parallel) for shape in shapes
        ]
        return cls(op, extents, parallel, tuple(loops), results)

    @classmethod
    def _of_scatter(cls, op: ir.Operation, shapes: list[tuple[int, ...]]) -> Lines:
        updates, numbers, target = shapes
        window, count = updates[1:], line_count(op)
        extents = target if count == 1 else (count, target[0] // count, *target[1:])
        line: tuple[int, ...] = () if count == 1 else (0,)
        numbered = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
        beside: list[tuple[int, ...]] = [()] * len(window)
        if len(window) == len(target):
            for d, (own, extent) in enumerate(zip(window, target)):
                if own == extent and d not in numbered:
                    beside[d] = (d + len(line),)
        of_updates = (line, *beside)
        of_numbers = (line, *[()] * (len(numbers) - 1))
        of_target = tuple(beside) if len(window) == len(target) else ((),) * len(target)
        if count > 1:
            of_target = ((0, 1), *of_target[1:])
        parallel = (*line, *(loop for loops in beside for loop in loops))
        return cls(op, extents, parallel, (of_updates, of_numbers, of_target), 1)

    @classmethod
    def _of_fourier(cls, fourier: Fourier) -> Lines:
        extents = static_shape(fourier.places[0].type)
        parallel = tuple(loop for loop in range(len(extents)) if loop != fourier.dimension)
        whole = tuple((loop,) if loop in parallel else () for loop in range(len(extents)))
        sources, places = [whole] * len(fourier.sources), [whole] * len(fourier.places)
        return cls(fourier.op, extents, parallel, (*sources, ((), ()), *places), len(places))

    @property
    def destinations(self) -> tuple[int, ...]:
        """The numbers of the operands that results go into."""
        return tuple(range(len(self.op.operands) - self.results, len(self.op.operands)))

    def gone_through(self) -> dict[ir.Value, tuple[tuple[int, ...], ...]]:
        """Per operand and result, the loops that go through its dimensions."""
        results = zip(self.op.results, (self.loops[number] for number in self.destinations))
        return {**dict(zip(self.op.operands, self.loops)), **dict(results)}

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Per loop, as workloads call them."""
        return tuple(
            "parallel" if loop in self.parallel else "sequential" for loop in range(len(self.extents))
        )

    @property
    def operations(self) -> float:
        """What all of it computes: of an update, or an element that is scanned or passed over, one; of what is sorted or transformed more."""
        if self.op.name == FOURIER:
            return Fourier.read(self.op).cycles
        elements = math.prod(static_shape(self.op.operands[0].type))
        if self.op.name not in (SORT, TOPK):
            return float(elements)
        dim = ir.IntegerAttr(self.op.attributes["dimension"]).value
        length = static_shape(self.op.operands[0].type)[dim]
        return elements * (1.0 if selects(self.extents[dim], length) else SORT_CYCLES)

    @property
    def accumulates(self) -> bool:
        """Whether results are read back while they are made, which nobody else may write meanwhile."""
        return self.op.name in (SORT, SCATTER) or (self.op.name == SCAN and not carries(self.op))


def line_count(scatter: ir.Operation) -> int:
    """How many lines the target of a scatter consists of; raises PassError where operands do not have as many equal parts."""
    if LINES not in scatter.attributes:
        return 1
    said = scatter.attributes[LINES]
    count = ir.IntegerAttr(said).value if isinstance(said, ir.IntegerAttr) else 0
    rows = [static_shape(operand.type)[0] for operand in scatter.operands]
    numbered = list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"]))
    if count < 1 or any(n % count for n in rows) or numbered != [0]:
        raise PassError(
            f"`{LINES}` of a scatter: expected a divisor of {', '.join(map(str, rows))}, what its operands have along their first "
            f"dimension, which it numbers, found {said} and dimension_map = {numbered}",
            scatter.location,
        )
    return count


_COMBINING = (
    *("arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf"),
    *("arith.addi", "arith.muli", "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui"),
)


def carries(scan: ir.Operation) -> bool:
    """Whether a scan is inclusive and of one operation on both: its loops carry what they have and only write results."""
    body = scan.regions[0].blocks[0]
    first, *others = (view.operation for view in body.operations)
    return (
        ir.BoolAttr(scan.attributes["inclusive"]).value
        and first.name in _COMBINING
        and set(first.operands) == set(body.arguments)
        and len(others) == 1
        and others[0].operands[0] == first.results[0]
    )


def lines_of(function: ir.Operation) -> Lines | None:
    """The operation that a dispatch consists of, beside constants and what its results begin with; None for any other."""
    *ops, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
    found = [op for op in ops if op.name in LINE_OPERATIONS]
    beside = ("arith.constant", "tensor.empty", "linalg.fill")
    if len(found) != 1 or any(op.name not in beside for op in ops if op not in found):
        return None
    if not found[0].results or list(terminator.operands) != list(found[0].results):
        return None
    return Lines.read(found[0])


def _is_static(type_: ir.Type) -> bool:
    return isinstance(type_, (ir.RankedTensorType, ir.MemRefType)) and ir.ShapedType(type_).has_static_shape
