"""number-sorts: sorts that carry along where elements are from find that out themselves, and give what is read of them alone.

    %i = linalg.generic { linalg.index 1 }                           // 0, 1, 2, ... along every line
    %s:2 = tm_tensor.sort {tilewright.first = 5} dimension(1) outs(%v, %i : tensor<64x4096xf32>, tensor<64x4096xi64>)
    %t = tensor.extract_slice %s#1[0, 0] [64, 5] [1, 1]
      =>
    %t:2 = tm_tensor.topk dimension(1) ins(%v : tensor<64x4096xf32>) outs(.. : tensor<64x5xf32>, tensor<64x5xi64>)

Equal elements keep their order in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.line_operations import SORT, TOPK
from tilewright.compiler.analysis.sort_order import FIRST, Order
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.ir import ir, static_shape, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class NumberSorts(Pass):
    """Replaces `tm_tensor.sort` of elements and their places along a line by `tm_tensor.topk`; run `limit-sorts` first."""

    def run(self, op: ir.Operation) -> None:
        for sort in walk(op, SORT):
            dim = ir.IntegerAttr(sort.attributes["dimension"]).value
            values, *others = sort.operands
            if len(others) == 1 and Order.of(sort) is not None and _counts(others[0], dim):
                with ir.InsertionPoint(sort), sort.location:
                    _replace(sort, values, dim)


def _counts(value: ir.Value, dim: int) -> bool:
    """Whether the elements of a tensor are their places along a dimension."""
    op = producer(value)
    structured = Structured.read(op) if op is not None else None
    if structured is None or structured.num_inputs or len(structured.op.results) != 1:
        return False
    along = structured.result_map.results[dim]
    index, *rest = (view.operation for view in structured.body.operations)
    if index.name != "linalg.index" or [op.name for op in rest] != ["arith.index_cast", "linalg.yield"]:
        return False
    if rest[0].operands[0] != index.results[0] or rest[1].operands[0] != rest[0].results[0]:
        return False
    return along == ir.AffineExpr.get_dim(ir.IntegerAttr(index.attributes["dim"]).value)


def _replace(sort: ir.Operation, values: ir.Value, dim: int) -> None:
    shape = list(static_shape(values.type))
    kept = ir.IntegerAttr(sort.attributes[FIRST]).value if FIRST in sort.attributes else shape[dim]
    results = [_kept(result, dim, kept) for result in sort.results]
    starts = [tensor.empty(list(type_.shape), type_.element_type) for type_ in results]
    attributes = {name: sort.attributes[name] for name in sort.attributes if name != FIRST}
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 2])
    first = ir.Operation.create(TOPK, results, [values, *starts], attributes, regions=1)
    old, element = sort.regions[0].blocks[0], ir.RankedTensorType(values.type).element_type
    block = first.regions[0].blocks.append(element, element)
    for before, after in zip(old.arguments, block.arguments):
        before.replace_all_uses_with(after)
    for view in list(old.operations):
        view.operation.detach_from_parent()
        block.append(view.operation)
    for before, after in zip(sort.results, first.results):
        if FIRST not in sort.attributes:
            before.replace_all_uses_with(after)
            continue
        for reader in [use.owner.operation for use in before.uses]:
            _read_part(reader, after)
    sort.erase()


def _kept(result: ir.Value, dim: int, kept: int) -> ir.RankedTensorType:
    shape = list(static_shape(result.type))
    shape[dim] = kept
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(result.type).element_type)


def _read_part(reader: ir.Operation, value: ir.Value) -> None:
    """Lets a slice that reads the first elements read them of `value`, which has no others."""
    sizes: Sequence[int] = list(reader.attributes["static_sizes"])
    if list(sizes) == list(static_shape(value.type)):
        reader.results[0].replace_all_uses_with(value)
        reader.erase()
    else:
        reader.operands[0] = value
