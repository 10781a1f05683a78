"""Gives every returned tensor a buffer of its own: arguments, constants, slices and duplicates are copied.

func @main(%x) { return %x, %x }   =>   %0 = linalg.generic // copy of %x ; %1 = ... ; return %0, %1

Fills that are inserted in place are copied as well: a fill is cloned into the dispatches that read it, and an
insertion in place is none. This comes right before the dispatches because `canonicalize` removes copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.placement import is_inserted
from tilewright.compiler.analysis.views import element_count, is_view
from tilewright.compiler.ir import functions, ir, linalg, static_shape, tensor
from tilewright.compiler.pipeline.pass_base import Pass

_CLONED = ("linalg.fill", "tensor.empty")


@dataclass(frozen=True)
class MaterializeReturns(Pass):
    """Rewrites the returns of all public functions; reshapes of a whole computed value stay views."""

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            *ops, terminator = function.regions[0].blocks[0].operations
            for view in ops:
                _materialize_inserted(view.operation)
            claimed: set[ir.Value] = set()
            for i, value in enumerate(terminator.operation.operands):
                if not isinstance(value.type, ir.RankedTensorType):
                    continue
                if not ir.ShapedType(value.type).has_static_shape:
                    raise self.refusal(
                        terminator.operation, f"result {i}: expected a static shape, found {value.type}"
                    )
                root = _root(value)
                owned = not isinstance(root.owner, ir.Block) and root.owner.name not in (
                    "arith.constant",
                    *_CLONED,
                )
                if owned and root not in claimed and element_count(root.type) == element_count(value.type):
                    claimed.add(root)
                    continue
                with ir.InsertionPoint(terminator), terminator.operation.location:
                    terminator.operation.operands[i] = copy_of(value)


def _materialize_inserted(op: ir.Operation) -> None:
    if is_inserted(op):
        root = _root(op.operands[0])
        if not isinstance(root.owner, ir.Block) and root.owner.name in _CLONED:
            with ir.InsertionPoint(op), op.location:
                op.operands[0] = copy_of(op.operands[0])


def _root(value: ir.Value) -> ir.Value:
    while not isinstance(value.owner, ir.Block) and is_view(value.owner.operation):
        value = value.owner.operands[0]
    return value


def copy_of(value: ir.Value) -> ir.Value:
    """A new tensor with the elements of `value`, by an element-wise identity at the insertion point."""
    shape, element = static_shape(value.type), ir.RankedTensorType(value.type).element_type
    empty = tensor.empty(list(shape), element)
    identity = ir.AffineMap.get_identity(len(shape))
    maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(identity)] * 2)
    kinds = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * len(shape))
    generic = linalg.GenericOp([value.type], [value], [empty], maps, kinds)
    block = generic.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        linalg.YieldOp([block.arguments[0]])
    return generic.results[0]
