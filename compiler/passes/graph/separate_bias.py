"""separate-bias: every contraction accumulates from zero, and what it started from is added after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import arith, ir, linalg, static_shape, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import elementwise, indexing_maps

_CONTRACTIONS = ("matmul", "matvec", "vecmat", "dot", "batch_", "mmt4d", "contract", "quantized_")


@dataclass(frozen=True)
class SeparateBias(Pass):
    """Gives contractions and convolutions a zero fill as their start, the former start added behind.

    Before, as torch-mlir gives a convolution with bias `%b : tensor<[O]>`:

        %init = linalg.broadcast ins(%b) outs(%e : tensor<[N, O, H, W]>) dimensions = [0, 2, 3]
        %r = linalg.conv_2d_nchw_fchw ins(%x, %w) outs(%init)

    After, so that a bias is an epilogue like any other elementwise consumer:

        %z = linalg.fill ins(%zero) outs(%e)
        %c = linalg.conv_2d_nchw_fchw ins(%x, %w) outs(%z)
        %r = linalg.generic ins(%c, %b) outs(%e) { addf }

    A broadcast start is read through its own indexing map; any other start is added element by element: a sum
    of floats takes its start last instead of first. Contractions that start from a fill, and types other than
    floats and integers, are left alone.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for contraction in walk(op):
            if is_contraction(contraction):
                _separate(contraction)


def is_contraction(op: ir.Operation) -> bool:
    """Whether `op` is a linalg op on tensors that adds products onto its one output, named or generic."""
    dialect, _, name = op.name.partition(".")
    if dialect != "linalg" or len(op.results) != 1:
        return False
    if name.startswith(("conv_", "depthwise_conv_")):
        return True
    if name != "generic":
        return name.startswith(_CONTRACTIONS)
    sums = ("arith.addf", "arith.addi")
    return linalg.isa_contraction_op(op) and any(o.operation.name in sums for o in op.regions[0].blocks[0])


def _separate(op: ir.Operation) -> None:
    init = op.operands[len(op.operands) - 1]
    type_ = ir.RankedTensorType(init.type)
    element = type_.element_type
    if not isinstance(element, (ir.FloatType, ir.IntegerType)) or not type_.has_static_shape:
        return
    producer = None if isinstance(init.owner, ir.Block) else init.owner
    if producer is not None and producer.name == "linalg.fill":
        return
    identity = ir.AffineMap.get_identity(type_.rank)
    bias, bias_map = _broadcast_source(producer) or (init, identity)
    with op.location:
        with ir.InsertionPoint(op):
            empty = tensor.empty(static_shape(type_), element)
            zero = arith.constant(element, 0.0 if isinstance(element, ir.FloatType) else 0)
            start = linalg.fill(zero, outs=[empty])
        op.operands[len(op.operands) - 1] = start
        if _is_zero(producer):
            return
        with ir.InsertionPoint.after(op):
            added = _add(op.results[0], bias, bias_map, empty)
    op.results[0].replace_all_uses_except(added.results[0], added)


def _is_zero(producer: ir.Operation | None) -> bool:
    if producer is None or producer.name != "arith.constant":
        return False
    value = producer.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and value.is_splat and not value.get_splat_value().value


def _broadcast_source(producer: ir.Operation | None) -> tuple[ir.Value, ir.AffineMap] | None:
    """What a pure broadcast reads and through which map; None when `producer` is not one."""
    if producer is None:
        return None
    if producer.name == "tensor.expand_shape":
        return _expanded_broadcast(producer)
    if producer.name == "linalg.broadcast":
        added = set(ir.DenseI64ArrayAttr(producer.attributes["dimensions"]))
        rank = ir.RankedTensorType(producer.results[0].type).rank
        kept = [ir.AffineDimExpr.get(i) for i in range(rank) if i not in added]
        return producer.operands[0], ir.AffineMap.get(rank, 0, kept)
    if producer.name != "linalg.generic" or len(producer.operands) != 2 or len(producer.results) != 1:
        return None
    operations = producer.regions[0].blocks[0].operations
    maps = indexing_maps(producer)
    if len(operations) != 1 or len(maps) != 2 or maps[1] != ir.AffineMap.get_identity(maps[1].n_dims):
        return None
    yielded = operations[0].operation.operands[0]
    if not isinstance(yielded.owner, ir.Block) or ir.BlockArgument(yielded).arg_number != 0:
        return None
    return (producer.operands[0], maps[0]) if yielded.owner == producer.regions[0].blocks[0] else None


def _expanded_broadcast(expand: ir.Operation) -> tuple[ir.Value, ir.AffineMap] | None:
    """The same for an `expand_shape` of a broadcast, whose source is expanded instead: `[O]` to `[G, O/G]`."""
    source = expand.operands[0]
    if isinstance(source.owner, ir.Block):
        return None
    found = _broadcast_source(source.owner.operation)
    if found is None or not all(isinstance(expr, ir.AffineDimExpr) for expr in found[1].results):
        return None
    value, map_ = found
    groups = [[ir.IntegerAttr(i).value for i in group] for group in expand.attributes["reassociation"]]
    type_ = ir.RankedTensorType(expand.results[0].type)
    loops = [groups[expr.position] for expr in map_.results]
    flat = [loop for group in loops for loop in group]
    bounds = [sum(map(len, loops[:i])) for i in range(len(loops) + 1)]
    shape = [type_.shape[loop] for loop in flat]
    with expand.location, ir.InsertionPoint(expand):
        expanded = tensor.expand_shape(
            ir.RankedTensorType.get(shape, type_.element_type),
            value,
            [list(range(bounds[i], bounds[i + 1])) for i in range(len(loops))],
            output_shape=[],
            static_output_shape=shape,
        )
    return expanded, ir.AffineMap.get(type_.rank, 0, [ir.AffineDimExpr.get(loop) for loop in flat])


def _add(sum_: ir.Value, bias: ir.Value, bias_map: ir.AffineMap, empty: ir.Value) -> ir.Operation:
    """`sum_ + bias`, the bias read through `bias_map`, as an elementwise generic."""
    type_ = ir.RankedTensorType(sum_.type)
    add = arith.addf if isinstance(type_.element_type, ir.FloatType) else arith.addi
    return elementwise(type_, [sum_, bias], [ir.AffineMap.get_identity(type_.rank), bias_map], add, empty)
