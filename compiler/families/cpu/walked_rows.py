"""Rows that a dispatch walks again: those of the next rTask are fetched while these are computed on.

    for j { %m = max(%m, x[i, j]) }                                      // would wait for memory
    for j { prefetch x[i + 1, j] ; %e = exp(x[i, j] - %m) ; ... }        // finds row i near, and computes

The hardware runs ahead of a stream, but only while somebody reads it: between two rTasks memory stands still.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tilewright.compiler.analysis.sink import Loops, sink_of
from tilewright.compiler.analysis.structure import maps_of
from tilewright.compiler.dialects.reduction_attribute import reductions_of
from tilewright.compiler.families.cpu.broadcast_loops import SECOND_LEVEL
from tilewright.compiler.families.cpu.loop_nest import index
from tilewright.compiler.families.cpu.panels import DISTANCES
from tilewright.compiler.families.cpu.vector_epilogue import is_plain, reads_along
from tilewright.compiler.families.cpu.vector_memory import memory_of
from tilewright.compiler.ir import arith, ir, memref
from tilewright.compiler.nouns.schedule import Reduction
from tilewright.compiler.rewriting.generics import input_count
from tilewright.compiler.targets.target import Target

ALONG = "along"
"""Loops that can fetch the next rTask's rows."""


def walked_rows(function: ir.Operation) -> dict[int, ir.Value]:
    """By number, the reductions of a dispatch that walk rows of an argument which an earlier one has walked: the argument.

    Read as it is, or by the one element-wise operation that computes what is reduced, in front of the first of its readers:
    others read what that one left.
    """
    seen: set[int] = set()
    computed: list[ir.Operation] = []
    found = {}
    for number, op in enumerate(reductions_of(function)):
        read = _rows(op, computed)
        again = next((value for value in read if ir.BlockArgument(value).arg_number in seen), None)
        if again is not None:
            found[number] = again
        seen |= {ir.BlockArgument(value).arg_number for value in read}
    return found


def rows_distance(
    function: ir.Operation, reductions: Sequence[Reduction], tile: Sequence[int], target: Target
) -> int:
    """The bytes of an rTask's rows, which is how far on the next one's lie; 0 where fetching them is of no use.

    That is where cores' own caches hold them all from the dispatch before, or not those of two rTasks and what is computed
    of them; and where a dispatch is not cut.
    """
    sink = sink_of(function) if any(tile) else None
    rows = [value for number, value in walked_rows(function).items() if reductions[number].loops == ALONG]
    if sink is None or not rows:
        return 0
    shape, extents = ir.ShapedType(rows[0].type).shape, Loops.of(sink).extents
    if len(shape) != len(extents):
        return 0
    sizes = [*tile, *[0] * (len(extents) - len(tile))]
    taken = [min(size or extent, extent) for size, extent in zip(sizes, extents)]
    if list(shape) != list(extents) or taken == list(extents):
        return 0
    item = ir.ShapedType(rows[0].type).element_type.width // 8
    own = target.own_cache.capacity_bytes
    if math.prod(shape) * item <= own * target.num_cores or 4 * math.prod(taken) * item > own:
        return 0
    last = max(loop for loop, (size, extent) in enumerate(zip(taken, extents)) if size < extent)
    distance = taken[last] * math.prod(shape[last + 1 :]) * item
    return distance if distance <= DISTANCES[-1] else 0


def fetch_row(value: ir.Value, place: Sequence[ir.Value], distance: int) -> bool:
    """Asks for the line that lies `distance` bytes behind `place` of an operand; False where rTasks take no rows of it."""
    type_ = ir.MemRefType(value.type)
    _, offset = type_.get_strides_and_offset()
    if (
        not isinstance(memory_of(value).owner, ir.Block)
        or offset != ir.ShapedType.get_dynamic_stride_or_offset()
    ):
        return False
    ahead = arith.addi(place[-1], index(distance // (type_.element_type.width // 8)))
    memref.prefetch(value, [*place[:-1], ahead], False, SECOND_LEVEL, True)
    return True


def _rows(op: ir.Operation, computed: list[ir.Operation]) -> list[ir.Value]:
    """The arguments whose rows a reduction walks, as they are or through one element-wise operation, which joins `computed`."""
    found = []
    for operand in list(op.operands)[: input_count(op)] if op.name == "linalg.generic" else []:
        sources = [operand]
        if not isinstance(operand.owner, ir.Block):
            producer = operand.owner.operation
            is_taken = producer not in computed and _is_taken_along(producer, op)
            sources = list(producer.operands)[: input_count(producer)] if is_taken else []
            computed.append(producer)
        found += [
            value for value in sources if isinstance(value.owner, ir.Block) and _is_whole(value, operand)
        ]
    return found


def _is_taken_along(producer: ir.Operation, reduction: ir.Operation) -> bool:
    """Whether loops along a reduction compute in front of it what `producer` does, as a `Prologue` of it.

    Element by element, on vectors of floats, where nothing else is computed in between.
    """
    if producer.name != "linalg.generic" or "reduction" in str(producer.attributes["iterator_types"]):
        return False
    *_, written = maps_of(producer)
    types = [operand.type for operand in producer.operands]
    if not written.is_permutation or not written.n_dims or not is_plain(producer.regions[0].blocks[0]):
        return False
    if not reads_along(maps_of(producer), types, ir.AffineDimExpr(written.results[-1]).position):
        return False
    operands = list(reduction.operands)
    if operands.count(producer.results[0]) != 1:
        return False
    read = maps_of(reduction)[operands.index(producer.results[0])]
    if not read.is_permutation:
        return False
    behind = itertools.dropwhile(lambda view: view.operation != producer, reduction.block.operations)
    between = itertools.takewhile(lambda view: view.operation != reduction, behind)
    return all(
        view.operation.name in ("linalg.fill", "tensor.empty", "tensor.collapse_shape")
        for view in list(between)[1:]
    )


def _is_whole(value: ir.Value, operand: ir.Value) -> bool:
    """Whether an argument of numbers is all that is walked, not what its rows share."""
    types = [ir.ShapedType(v.type) if isinstance(v.type, ir.ShapedType) else None for v in (value, operand)]
    if any(type_ is None or not type_.has_static_shape for type_ in types):
        return False
    argument, walked = types
    assert argument is not None and walked is not None
    return list(argument.shape) == list(walked.shape) and isinstance(argument.element_type, ir.FloatType)
