"""merge-batches: where matrices of a batch are multiplied with the same one, that one is not copied for each of them.

    %w = linalg.generic ins(%b : [K, N]) -> [B, K, N]                       // a broadcast
    %c = linalg.batch_matmul ins(%a, %w : [B, M, K], [B, K, N]) -> [B, M, N]
      =>
    %r = tensor.collapse_shape %a -> [B*M, K]
    %d = linalg.matmul ins(%r, %b) -> [B*M, N]
    %c = tensor.expand_shape %d -> [B, M, N]

PyTorch multiplies so where `nn.Linear` or `@` read a permuted tensor, torch-mlir wherever ONNX multiplies a batch with a matrix,
and language models where heads of queries share one of keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.analysis.structure import producer
from tilewright.compiler.ir import ir, linalg, static_shape, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import indexing_maps, is_copy
from tilewright.compiler.rewriting.readings import Groups, Reading, readings
from tilewright.compiler.rewriting.reshaping import reshaped


@dataclass(frozen=True)
class MergeBatches(Pass):
    """Multiplies with the matrices that were broadcast to a batch, seen through reshapes and transposes.

    Neighbours in the batch that share their right-hand side make one product of the rows of all. With a left-hand side that the
    whole batch shares, the batch stays: it is read without its loop, `linalg.batch_matmul indexing_maps = [(b, m, n, k) ->
    (m, k), ..]`. Products of other index maps, and matrices that others of the batch share, are left alone.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for product in walk(op, "linalg.batch_matmul"):
            left, right, start = product.operands
            plain = indexing_maps(product)
            if [[expr.position for expr in map_.results] for map_ in plain] != [
                [0, 1, 3],
                [0, 3, 2],
                [0, 1, 2],
            ]:
                continue
            with ir.InsertionPoint(product), product.location:
                if (shared := Shared.read(right)) is not None:
                    new = _of_all_rows(left, shared, start)
                elif (shared := Shared.read(left)) is not None and not shared.groups[0]:
                    maps = [ir.AffineMap.get(4, 0, plain[0].results[1:]), *plain[1:]]
                    new = linalg.batch_matmul(shared.matrices(), right, outs=[start], indexing_maps=maps)
                else:
                    continue
            product.results[0].replace_all_uses_with(new)
            product.erase()


@dataclass(frozen=True)
class Shared:
    """Matrices that a batch has `copies` of, one after the other: dimensions of `source` that are batch, rows and columns."""

    source: ir.Value
    groups: Groups
    copies: int

    @classmethod
    def read(cls, batched: ir.Value) -> Shared | None:
        """The matrices of `batched` [B, R, C]; None where neighbours in the batch may differ."""
        for reading in readings(batched):
            if (found := cls._of(reading)) is not None:
                return found
        return None

    @classmethod
    def _of(cls, reading: Reading) -> Shared | None:
        op = producer(reading.value)
        if op is None or not is_copy(op) or not isinstance(op.operands[0].type, ir.RankedTensorType):
            return None
        read = indexing_maps(op)[0]
        at = {expr.position: dim for dim, expr in enumerate(read.results) if is_dim(expr)}
        shape = static_shape(op.operands[0].type)
        if sorted(at.values()) != [
            dim for dim, extent in enumerate(shape) if extent != 1 or dim in at.values()
        ]:
            return None
        batch, *sides = map(reading.kept, reading.groups)
        given = [loop for loop in batch if loop in at]
        if batch[: len(given)] != given or not all(loop in at for side in sides for loop in side):
            return None
        copies = math.prod(reading.shape[loop] for loop in batch[len(given) :])
        groups = [[at[loop] for loop in loops] for loops in (given, *sides)]
        return cls(op.operands[0], groups, copies) if copies > 1 else None

    def matrices(self) -> ir.Value:
        """They themselves: [B / copies, R, C], or [R, C] of one."""
        type_, at = ir.RankedTensorType(self.source.type), ir.Location.current
        order = [dim for group in self.groups for dim in group]
        value = reshaped(self.source, [type_.shape[dim] for dim in sorted(order)], at)
        if order != sorted(order):
            empty = tensor.empty([type_.shape[dim] for dim in order], type_.element_type)
            turned = [sorted(order).index(dim) for dim in order]
            moved = linalg.transpose(value, outs=[empty], permutation=turned)
            value = moved if isinstance(moved, ir.Value) else moved.results[0]
        extents = [math.prod(type_.shape[dim] for dim in group) for group in self.groups]
        return reshaped(value, extents if self.groups[0] else extents[1:], at)


def _of_all_rows(left: ir.Value, shared: Shared, start: ir.Value) -> ir.Value:
    """[B, M, K] times matrices [K, N], onto `start` [B, M, N]."""
    (batch, rows, depth), shape = static_shape(left.type), static_shape(start.type)
    at, matrices = ir.Location.current, shared.matrices()
    outer = [batch // shared.copies] if shared.groups[0] else []
    merged = reshaped(left, [*outer, shared.copies * rows, depth], at)
    onto = reshaped(start, [*outer, shared.copies * rows, shape[2]], at)
    multiply = linalg.batch_matmul if outer else linalg.matmul
    return reshaped(multiply(merged, matrices, outs=[onto]), shape, at)
