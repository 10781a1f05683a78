"""The element-wise operation before a row's reduction, computed on vectors as the reduction meets them: one walk, not two.

linalg.generic  // %e = exp(%x - %max)              scf.for %j step 16 { %v = exp(vector.load %x[%i, %j] - %max)
linalg.generic  // %s += %e                 =>        vector.store %v, %e[%i, %j] ; %sum += %v }
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, map_dims
from tilewright.compiler.dialects.reduction_attribute import STREAM
from tilewright.compiler.families.cpu.reduction import Structure, vectorize_body
from tilewright.compiler.families.cpu.vector_epilogue import (
    IN_BETWEEN,
    address_at,
    is_plain,
    reads_along,
    values_at,
)
from tilewright.compiler.families.cpu.vector_memory import memory_of
from tilewright.compiler.families.cpu.walked_rows import fetch_row
from tilewright.compiler.ir import ir, vector
from tilewright.compiler.rewriting.generics import input_count


@dataclass(frozen=True)
class Prologue:
    """An element-wise generic on memrefs that writes what a reduction reads next, each element once.

    `operand` is which of the reduction's it writes; `loops[i]` is its loop that dimension i of that follows.
    """

    op: ir.Operation
    operand: int
    loops: tuple[int, ...]

    @classmethod
    def before(cls, reduction: Structure, inner: int) -> Prologue | None:
        """The prologue of a reduction whose vectors run along loop `inner`; None where what precedes it is none."""
        op = _previous(reduction.op)
        if op is None or op.name != "linalg.generic" or len(op.results) or STREAM in op.attributes:
            return None
        *inputs, result = list(op.operands)
        if len(inputs) != input_count(op):
            return None
        operands = list(reduction.op.operands)[:-1]
        if operands.count(result) != 1:
            return None
        operand = operands.index(result)
        read = reduction.maps[operand]
        loops = [loop for loop, extent in enumerate(reduction.extents) if extent > 1]
        if (
            not read.is_projected_permutation
            or not read.results
            or not is_dim(read.results[-1], inner)
            or set(loops) - map_dims(read)
        ):
            return None
        maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        written, body = maps[-1], op.regions[0].blocks[0]
        if not written.is_permutation or "reduction" in str(op.attributes["iterator_types"]):
            return None
        own = tuple(ir.AffineDimExpr(e).position for e in written.results)
        # What a last vector that overlaps the one before computes twice must be the same twice.
        alone = all(memory_of(value) != memory_of(result) for value in inputs)
        steps = {loop: e.position for loop, e in zip(own, map(ir.AffineDimExpr, read.results))}
        if any(_is_overwritten(value, map_, steps, reduction) for value, map_ in zip(inputs, maps)):
            return None
        if not alone or list(body.arguments[len(inputs)].uses) or not is_plain(body):
            return None
        along = reads_along(maps, [operand.type for operand in op.operands], own[-1])
        return cls(op, operand, own) if along else None

    def fetch(self, place: list[ir.Value], distance: int) -> bool:
        """Asks for what lies `distance` bytes behind the rows that `load` reads; False where rTasks take no rows of any."""
        at = dict(zip(self.loops, place))
        maps = [ir.AffineMapAttr(a).value for a in self.op.attributes["indexing_maps"]]
        along = [i for i, map_ in enumerate(maps[:-1]) if self.loops[-1] in map_dims(map_)]
        fetched = [fetch_row(self.op.operands[i], address_at(maps[i], at), distance) for i in along]
        return any(fetched)

    def load(self, place: list[ir.Value], lanes: int) -> ir.Value:
        """A vector along the last dimension of the result at `place`, computed and stored there."""
        body, at = self.op.regions[0].blocks[0], dict(zip(self.loops, place))
        values = values_at(self.op, at, self.loops[-1], lanes)
        (result,) = vectorize_body(body, values, lanes)
        vector.store(result, self.op.operands[len(self.op.operands) - 1], place)
        return result


def _is_overwritten(value: ir.Value, map_: ir.AffineMap, steps: dict[int, int], reduction: Structure) -> bool:
    """Whether an operation whose loop l is loop `steps[l]` of the reduction finds results of that in `value`, which it reads by
    `map_`: memory that both have, but for the very element that is stored once all that is read of it has been."""
    *_, result = reduction.op.operands
    if memory_of(value) != memory_of(result):
        return False
    read = [steps.get(ir.AffineDimExpr(e).position) if is_dim(e) else None for e in map_.results]
    written = [ir.AffineDimExpr(e).position if is_dim(e) else -1 for e in reduction.maps[-1].results]
    return value != result or read != written


def _previous(reduction: ir.Operation) -> ir.Operation | None:
    """The last operation before `reduction` that touches memory, beside the fill of its result."""
    result = reduction.operands[len(reduction.operands) - 1]
    found = None
    for view in reduction.block.operations:
        op = view.operation
        if op == reduction:
            return found
        fills = op.name == "linalg.fill" and op.operands[1] == result
        if not op.name.startswith(IN_BETWEEN) and not fills:
            found = op
    return None
