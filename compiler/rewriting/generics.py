"""Elementwise `linalg.generic` operations built from Python, and their operands dropped when nothing reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.compiler.ir import ir, linalg, static_shape, tensor


def elementwise(
    type_: ir.RankedTensorType,
    inputs: Sequence[ir.Value],
    maps: Sequence[ir.AffineMap],
    body: Callable[..., ir.Value],
    empty: ir.Value | None = None,
) -> ir.Operation:
    """A parallel generic of type `type_` at the insertion point; `body` gets one scalar per input and gives one.

    `maps[i]` reads input i; `empty`, when given, is the uninitialised tensor to write to.
    """
    rank = type_.rank
    out = empty if empty is not None else tensor.empty(static_shape(type_), type_.element_type)
    all_maps = [*maps, ir.AffineMap.get_identity(rank)]
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    generic = ir.Operation.create(
        "linalg.generic",
        results=[type_],
        operands=[*inputs, out],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in all_maps]),
            "iterator_types": ir.ArrayAttr.get([parallel] * rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
        regions=1,
    )
    elements = [_element(value.type) for value in inputs]
    block = ir.Block.create_at_start(generic.regions[0], [*elements, type_.element_type])
    with ir.InsertionPoint(block):
        linalg.YieldOp([body(*list(block.arguments)[: len(inputs)])])
    return generic


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.RankedTensorType) else type_


def body(generic: ir.Operation) -> ir.Block:
    return generic.regions[0].blocks[0]


def terminator(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """The indexing maps of a linalg op, named or generic, one per operand."""
    if op.name == "linalg.generic":
        return [ir.AffineMapAttr(attribute).value for attribute in op.attributes["indexing_maps"]]
    return [ir.AffineMapAttr(attribute).value for attribute in linalg.get_indexing_maps(op)]


def input_count(generic: ir.Operation) -> int:
    return ir.DenseI32ArrayAttr(generic.attributes["operandSegmentSizes"])[0]


def is_read(value: ir.Value) -> bool:
    return any(True for _ in value.uses)


def is_copy(op: ir.Operation) -> bool:
    """Whether `op` is a generic that writes its one input elsewhere, one loop per dimension of the result."""
    if op.name != "linalg.generic" or len(op.operands) != 2 or len(op.results) != 1:
        return False
    operations = list(body(op).operations)
    maps = indexing_maps(op)
    return (
        len(operations) == 1
        and operations[0].operation.operands[0] == body(op).arguments[0]
        and maps[1] == ir.AffineMap.get_identity(maps[1].n_dims)
    )


def drop_operands(generic: ir.Operation, keep_results: Sequence[bool]) -> ir.Operation:
    """Rebuilds `generic` with the results kept, which its terminator must already yield, and the inputs they need.

    An unused input stays when it alone gives a loop its extent.
    """
    block, maps = body(generic), indexing_maps(generic)
    keep = _needed_inputs(block, maps, input_count(generic), keep_results) + list(keep_results)
    if all(keep):
        return generic
    names = [generic.attributes[i] for i in range(len(generic.attributes))]
    attributes = {named.name: named.attr for named in names}
    attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m, k in zip(maps, keep) if k])
    segments = [sum(keep[: -len(keep_results)]), sum(keep_results)]
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments)
    with generic.location, ir.InsertionPoint(generic):
        rebuilt = ir.Operation.create(
            "linalg.generic",
            results=[result.type for result, kept in zip(generic.results, keep_results) if kept],
            operands=[operand for operand, kept in zip(generic.operands, keep) if kept],
            attributes=attributes,
            regions=1,
        )
    block.append_to(rebuilt.regions[0])
    for index in reversed(range(len(keep))):
        if not keep[index]:
            block.erase_argument(index)
    survivors = [result for result, kept in zip(generic.results, keep_results) if kept]
    for old, new in zip(survivors, rebuilt.results):
        old.replace_all_uses_with(new)
    generic.erase()
    return rebuilt


def _needed_inputs(
    block: ir.Block, maps: list[ir.AffineMap], num_ins: int, keep_results: Sequence[bool]
) -> list[bool]:
    """Which inputs stay: those the body uses, and unused ones that alone give a loop its extent."""
    keep = [is_read(block.arguments[i]) for i in range(num_ins)]

    def loops(index: int) -> set[int]:
        return {expr.position for expr in maps[index].results if isinstance(expr, ir.AffineDimExpr)}

    bound = {loop for i, kept in enumerate([*keep, *keep_results]) if kept for loop in loops(i)}
    for index in range(num_ins):
        if not keep[index] and loops(index) - bound:
            keep[index] = True
            bound |= loops(index)
    return keep
