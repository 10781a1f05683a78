"""Writes constant padding as an element-wise gather, which tiles, fuses with its consumers and vectorises.

    %p = tensor.pad %x low[0, 1] high[0, 1] { yield %c } : tensor<4x6xf32> to tensor<4x8xf32>
      =>
    %p = linalg.generic outs(%e : tensor<4x8xf32>) {
      %in = 0 <= %j - 1 < 6 ; %v = tensor.extract %x[%i, clamp(%j - 1)] ; yield select(%in, %v, %c)
    }

The clamp keeps the access inside, so that the load needs no branch; a negative pad is a crop. Upstream's tiling
of `tensor.pad` produces tiles of dynamic size behind an `scf.if`, which neither vectorise nor fuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.ir import arith, ir, linalg, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class GeneralizePads(Pass):
    """Rewrites static `tensor.pad` ops that yield a constant of their surroundings; others stay."""

    def run(self, op: ir.Operation) -> None:
        for pad in walk(op, "tensor.pad"):
            source, result = pad.operands[0].type, pad.results[0].type
            static = all(ir.ShapedType(t).has_static_shape for t in (source, result))
            body = pad.regions[0].blocks[0]
            *_, terminator = body.operations
            value = terminator.operation.operands[0]
            inner = not isinstance(value.owner, ir.Block) and value.owner.operation.block == body
            fixed = ir.ShapedType.get_dynamic_size() not in list(pad.attributes["static_low"])
            if (
                not static
                or not fixed
                or inner
                or value in list(body.arguments)
                or 0 in ir.ShapedType(source).shape
            ):
                continue
            with ir.InsertionPoint(pad), pad.location:
                pad.results[0].replace_all_uses_with(_gather(pad, value))
            pad.erase()


def _gather(pad: ir.Operation, value: ir.Value) -> ir.Value:
    shape = list(ir.RankedTensorType(pad.results[0].type).shape)
    return gathered(pad.operands[0], shape, list(pad.attributes["static_low"]), value)


def gathered(
    tensor_: ir.Value,
    shape: Sequence[int],
    low: Sequence[int],
    value: ir.Value,
    order: Sequence[int] | None = None,
) -> ir.Value:
    """A tensor of `shape` with `tensor_` from `low` on and `value` elsewhere; its dimension d is number `order[d]` of
    `tensor_`, d itself where there is no `order`."""
    source, rank = list(ir.ShapedType(tensor_.type).shape), len(shape)
    dims = list(order or range(rank))
    element = ir.RankedTensorType(tensor_.type).element_type
    empty = tensor.empty(list(shape), element)
    maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))])
    kinds = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank)
    generic = linalg.GenericOp([ir.RankedTensorType.get(list(shape), element)], [], [empty], maps, kinds)
    block = generic.regions[0].blocks.append(element)
    index = ir.IndexType.get()
    with ir.InsertionPoint(block):
        zero = arith.constant(index, 0)
        place, inside = [zero] * rank, None
        for d, own in enumerate(dims):
            at = linalg.IndexOp(d).result
            if low[d]:
                at = arith.subi(at, arith.constant(index, low[d]))
            if low[d] or source[own] != shape[d]:
                last = arith.constant(index, source[own] - 1)
                clamped = arith.maxsi(zero, arith.minsi(at, last))
                here = arith.cmpi(arith.CmpIPredicate.eq, clamped, at)
                inside = here if inside is None else arith.andi(inside, here)
                at = clamped
            place[own] = at
        loaded = tensor.extract(tensor_, place)
        linalg.YieldOp([loaded if inside is None else arith.select(inside, loaded, value)])
    return generic.results[0]
