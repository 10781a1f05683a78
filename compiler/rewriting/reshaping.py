"""Gives a tensor another shape over the same bytes by `tensor.collapse_shape` and `tensor.expand_shape`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.compiler.ir import ir
from tilewright.compiler.rewriting import storage_order


def reshaped(value: ir.Value, shape: Sequence[int], loc: ir.Location) -> ir.Value:
    """`value` as a tensor of `shape` with the same bytes; inserts at most a collapse and an expand."""
    type_ = ir.RankedTensorType(value.type)
    if list(type_.shape) == list(shape):
        return value
    pairs = storage_order.reshape(type_.shape, shape)
    middle = [math.prod(type_.shape[dim] for dim in source) for source, _ in pairs]
    if len(middle) < type_.rank:
        value = _regroup("tensor.collapse_shape", value, middle, [source for source, _ in pairs], loc)
    if len(middle) < len(shape):
        value = _regroup("tensor.expand_shape", value, shape, [target for _, target in pairs], loc)
    return value


def _regroup(
    name: str, value: ir.Value, shape: Sequence[int], groups: list[list[int]], loc: ir.Location
) -> ir.Value:
    index = ir.IntegerType.get_signless(64)
    listed = [ir.ArrayAttr.get([ir.IntegerAttr.get(index, dim) for dim in group]) for group in groups]
    attributes: dict[str, ir.Attribute] = {"reassociation": ir.ArrayAttr.get(listed)}
    if name == "tensor.expand_shape":
        attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(shape))
    type_ = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)
    return ir.Operation.create(name, [type_], [value], attributes, loc=loc).results[0]
