"""Gathers of whole parts of a tensor, made of another tensor that stores the same parts otherwise, and as slices."""

from __future__ import annotations

from tilewright.compiler.analysis.chosen_parts import Chosen
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import arith, ir, linalg, tensor
from tilewright.compiler.rewriting.generics import elementwise


def parts_of(table: ir.Value, chosen: Chosen, reader: ir.Operation) -> ir.Value:
    """The parts of `table`, which has as many as that of `chosen`, by the same numbers; for `reader`, before it."""
    given = ir.RankedTensorType(chosen.op.results[0].type)
    shape = [*given.shape[: chosen.leading], *ir.RankedTensorType(table.type).shape[chosen.fixed :]]
    structured = Structured.read(chosen.op)
    assert structured is not None
    inputs = list(chosen.op.operands)[: structured.num_inputs]
    maps = [ir.AffineMap.get(len(shape), 0, list(m.results)) for m in structured.maps[: len(inputs)]]

    def body(*elements: ir.Value) -> ir.Value:
        known = dict(zip(structured.body.arguments, elements))
        which = places(chosen, known)[: chosen.fixed]
        inside = [linalg.IndexOp(d).result for d in range(chosen.leading, len(shape))]
        return tensor.extract(table, [*which, *inside])

    with ir.InsertionPoint(reader), chosen.op.location:
        type_ = ir.RankedTensorType.get(shape, given.element_type)
        return elementwise(type_, inputs, maps, body).results[0]


def read_in_place(chosen: Chosen) -> None:
    """Makes a gather of one part a slice of its tensor."""
    op = chosen.op
    structured = Structured.read(op)
    assert structured is not None and chosen.is_one
    with ir.InsertionPoint(op), op.location:
        zero = arith.constant(ir.IndexType.get(), 0)
        known: dict[ir.Value, ir.Value] = {}
        for argument, operand in zip(structured.body.arguments, list(op.operands)[: structured.num_inputs]):
            shaped = isinstance(operand.type, ir.RankedTensorType)
            known[argument] = tensor.extract(operand, [zero] * operand.type.rank) if shaped else operand
        for view in structured.body.operations:
            if view.operation.name == "linalg.index":
                known[view.operation.results[0]] = zero
        type_ = ir.RankedTensorType(op.results[0].type)
        shape, dynamic = list(type_.shape), ir.ShapedType.get_dynamic_stride_or_offset()
        sizes = [*[1] * chosen.fixed, *shape[chosen.leading :]]
        offsets, steps = [dynamic] * len(sizes), [1] * len(sizes)
        alike = chosen.fixed == chosen.leading
        sliced = ir.RankedTensorType.get(sizes if alike else shape[chosen.leading :], type_.element_type)
        part = tensor.extract_slice(
            sliced, chosen.table, places(chosen, known), [], [], offsets, sizes, steps
        )
        if not alike:
            groups = [[*range(chosen.leading + 1)], *([d] for d in range(chosen.leading + 1, len(shape)))]
            part = tensor.expand_shape(type_, part, groups, [], shape)
    op.results[0].replace_all_uses_with(part)
    op.erase()


def places(chosen: Chosen, known: dict[ir.Value, ir.Value]) -> list[ir.Value]:
    """Where the gather's body reads its tensor, computed anew at the insertion point, its checks included, from what is `known`."""
    for view in chosen.op.regions[0].blocks[0].operations:
        op = view.operation
        if op == chosen.extract:
            break
        if any(result in known for result in op.results):
            continue
        clone = op.clone().operation
        for number, value in enumerate(clone.operands):
            clone.operands[number] = known.get(value, value)
        known.update(zip(op.results, clone.results))
    _, *read = chosen.extract.operands
    return [known.get(place, place) for place in read]
