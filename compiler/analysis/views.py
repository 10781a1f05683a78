"""Operations on tensors that move no data: reshapes and contiguous slices, as byte offsets into a buffer."""

from __future__ import annotations

import math

from tilewright.compiler.analysis.placement import IN_PLACE
from tilewright.compiler.ir import ir

_RESHAPES = {"tensor.expand_shape", "tensor.collapse_shape", "tensor.cast"}


def is_view(op: ir.Operation) -> bool:
    """Whether the result of `op` is the operand's memory, or one contiguous piece of it, or one marked to be read there."""
    if op.name == "tensor.extract_slice":
        return IN_PLACE in op.attributes or slice_offset(op) is not None
    return op.name in _RESHAPES


def root_of(value: ir.Value) -> ir.Value:
    """The tensor that `value` is a view of."""
    while not isinstance(value.owner, ir.Block) and is_view(value.owner.operation):
        value = value.owner.operands[0]
    return value


def slice_offset(op: ir.Operation) -> int | None:
    """Element offset of a static, contiguous `tensor.extract_slice`; None if it is neither."""
    offsets, sizes, strides = (
        list(op.attributes[name]) for name in ("static_offsets", "static_sizes", "static_strides")
    )
    shape = list(ir.ShapedType(op.operands[0].type).shape)
    dynamic = ir.ShapedType.get_dynamic_size()
    if dynamic in offsets or dynamic in sizes or dynamic in shape or any(s != 1 for s in strides):
        return None
    # Contiguous: whole trailing dimensions, at most one partial one, and single elements before it.
    partial = next((i for i in range(len(shape)) if sizes[i] != 1), len(shape))
    if any(sizes[i] != shape[i] for i in range(partial + 1, len(shape))):
        return None
    return sum(offset * math.prod(shape[i + 1 :]) for i, offset in enumerate(offsets))


def element_count(type_: ir.Type) -> int:
    """The number of elements of a static tensor type."""
    return math.prod(ir.ShapedType(type_).shape)
