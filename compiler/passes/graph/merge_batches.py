"""merge-batches: where every matrix of a batch is multiplied with the same one, that one is not copied for each of them.

    %w = linalg.generic ins(%b : [K, N]) -> [B, K, N]                       // a broadcast
    %c = linalg.batch_matmul ins(%a, %w : [B, M, K], [B, K, N]) -> [B, M, N]
      =>
    %r = tensor.collapse_shape %a -> [B*M, K]
    %d = linalg.matmul ins(%r, %b) -> [B*M, N]
    %c = tensor.expand_shape %d -> [B, M, N]

PyTorch multiplies so where `nn.Linear` or `@` read a permuted tensor, and torch-mlir wherever ONNX multiplies a batch with a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.analysis.structure import producer
from tilewright.compiler.ir import ir, linalg, static_shape, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import indexing_maps, is_copy
from tilewright.compiler.rewriting.reshaping import reshaped


@dataclass(frozen=True)
class MergeBatches(Pass):
    """Multiplies with the matrix that was broadcast to a batch.

    A right-hand side of all matrices makes one product of their rows. With a left-hand side of all, the batch stays: it is read
    without its loop, `linalg.batch_matmul indexing_maps = [(b, m, n, k) -> (m, k), ..]`. Products of other index maps, and
    matrices that only part of a batch shares, are left alone.
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
                if (matrix := _shared(right)) is not None:
                    new = _of_all_rows(left, matrix, start)
                elif (matrix := _shared(left)) is not None:
                    shared = ir.AffineMap.get(4, 0, plain[0].results[1:])
                    new = linalg.batch_matmul(matrix, right, outs=[start], indexing_maps=[shared, *plain[1:]])
                else:
                    continue
            product.results[0].replace_all_uses_with(new)
            product.erase()


def _of_all_rows(left: ir.Value, matrix: ir.Value, start: ir.Value) -> ir.Value:
    """[B, M, K] times [K, N], onto `start` [B, M, N]."""
    (batch, rows, depth), shape = static_shape(left.type), static_shape(start.type)
    at = ir.Location.current
    merged = reshaped(left, [batch * rows, depth], at)
    onto = reshaped(start, [batch * rows, shape[2]], at)
    return reshaped(linalg.matmul(merged, matrix, outs=[onto]), shape, at)


def _shared(batched: ir.Value) -> ir.Value | None:
    """The matrix [R, C] that is broadcast to `batched` [B, R, C]; None where its matrices may differ."""
    shape = static_shape(batched.type)
    op = producer(batched)
    if op is not None and op.name == "tensor.collapse_shape":
        *_, rows, columns = [len(group) for group in op.attributes["reassociation"]]
        if (rows, columns) != (1, 1):
            return None
        op = producer(op.operands[0])
    if op is None or not is_copy(op):
        return None
    source, read = op.operands[0], indexing_maps(op)[0]
    kept = [expr.position for expr in read.results if is_dim(expr)]
    if not isinstance(source.type, ir.RankedTensorType) or kept != [read.n_dims - 2, read.n_dims - 1]:
        return None
    if not all(is_dim(expr) or isinstance(expr, ir.AffineConstantExpr) for expr in read.results):
        return None
    return reshaped(source, shape[1:], ir.Location.current)
