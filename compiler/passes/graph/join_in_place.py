"""Paddings and concatenations of @main become insertions that move nothing: what is inserted is computed in place.

    %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] { yield %zero }
      =>
    %f = linalg.fill ins(%zero) outs(tensor.empty() : tensor<1x58x58x64xf32>)
    %p = tensor.insert_slice %x into %f[0, 1, 1, 0] [1, 56, 56, 64] [1, 1, 1, 1] {tilewright.in_place}

    %c = tensor.concat dim(1) %a, %b
      =>
    %1 = tensor.insert_slice %a into %empty[0, 0] [8, 2] [1, 1] {tilewright.in_place}
    %c = tensor.insert_slice %b into %1[0, 2] [8, 3] [1, 1] {tilewright.in_place}

A slice that takes whole boxes is read where it lies. A tensor that is padded by several amounts with one constant is padded once, by the most; the others are slices of
that, read where they lie. `place-inserts` says later where everything lies.

What is given from outside nobody can compute in place. With `under_windows`, where one depthwise convolution or pooling
alone reads it padded, it is gathered, transposed or not, and every rTask of that pads its own part:

    %p = tensor.pad %x low[0, 1, 1, 0] ...    =>    %p = linalg.generic { yield select(%in, tensor.extract %x[..], %zero) }
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.padding import is_slid_over
from tilewright.compiler.analysis.placement import IN_PLACE, is_static_box, shape_of
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.views import root_of
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.ir import functions, ir, linalg, tensor
from tilewright.compiler.passes.graph.generalize_pads import gathered
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.layout_rules import transposed_by


@dataclass(frozen=True)
class JoinInPlace(Pass):
    """Rewrites the top level of @main.

    Left alone: what weights alone decide, what is returned padded (its border would have to be written at every
    call), pads by negative or dynamic amounts or by something that is no constant, pads that only element-wise
    operations read (they pad as they read), and anything without elements.
    """

    under_windows: bool = False

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            if ir.StringAttr(function.attributes["sym_name"]).value == "main":
                _join(function, self.under_windows)


def _join(main: ir.Operation, under_windows: bool) -> None:
    blocks = main.regions[0].blocks
    if len(blocks) != 1 or "arg_attrs" not in main.attributes:
        return
    *ops, terminator = (view.operation for view in blocks[0].operations)
    fixed = WeightFlow.of(main, argument_roles(main)).values
    returned = {root_of(value) for value in terminator.operands}
    pads: dict[tuple[ir.Value, ir.Value], list[ir.Operation]] = defaultdict(list)
    for op in ops:
        if not len(op.results) or op.results[0] in fixed:
            continue
        if op.name == "tensor.extract_slice" and is_static_box(op) and _has_elements([op.results[0]]):
            op.attributes[IN_PLACE] = ir.UnitAttr.get()
        elif op.name == "tensor.concat" and _has_elements([*op.operands, *op.results]):
            _insert_parts(op)
        elif op.name == "tensor.pad" and op.results[0] not in returned:
            value = padding_value(op)
            if value is not None and not all(map(_is_elementwise, _users(op))):
                pads[op.operands[0], value].append(op)
    for (_, value), group in pads.items():
        if under_windows and len(group) == 1 and _is_given_to_windows(group[0]):
            _gather_padded(group[0], value)
            continue
        # The source is read now: where it was a pad itself, its own rewrite has replaced it.
        _insert_padded(group[0].operands[0], value, group)


def padding_value(pad: ir.Operation) -> ir.Value | None:
    """The constant that a static pad by nonnegative amounts pads with; None for other pads."""
    if not _has_elements([pad.operands[0], pad.results[0]]) or len(pad.operands) != 1:
        return None
    amounts = [*pad.attributes["static_low"], *pad.attributes["static_high"]]
    *_, terminator = pad.regions[0].blocks[0].operations
    value = terminator.operation.operands[0]
    if min(amounts) < 0 or isinstance(value.owner, ir.Block) or value.owner.name != "arith.constant":
        return None
    return value if value.owner.operation.block != pad.regions[0].blocks[0] else None


def _has_elements(values: Sequence[ir.Value]) -> bool:
    return all(
        isinstance(v.type, ir.RankedTensorType)
        and v.type.has_static_shape
        and v.type.rank > 0
        and 0 not in v.type.shape
        for v in values
    )


def _users(op: ir.Operation) -> list[ir.Operation]:
    return [use.owner.operation for use in op.results[0].uses]


def _is_elementwise(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and "reduction" not in str(op.attributes["iterator_types"])


def _insert_parts(concat: ir.Operation) -> None:
    """Rewrites a concatenation as insertions of its operands, one after the other."""
    type_ = ir.RankedTensorType(concat.results[0].type)
    dim = ir.IntegerAttr(concat.attributes["dim"]).value
    at = [0] * type_.rank
    with ir.InsertionPoint(concat), concat.location:
        whole = tensor.empty(list(type_.shape), type_.element_type)
        for part in concat.operands:
            whole = insert(part, whole, at)
            at[dim] += shape_of(part)[dim]
    concat.results[0].replace_all_uses_with(whole)
    concat.erase()


def _is_given_to_windows(pad: ir.Operation) -> bool:
    """Whether windows of one operation slide over what `pad` makes of an argument, transposed or not."""
    readers = _users(pad)
    structured = Structured.read(readers[0]) if len(readers) == 1 else None
    if structured is None or not is_slid_over(structured, pad.results[0]):
        return False
    return isinstance(root_of(_untransposed(pad.operands[0])[0]).owner, ir.Block)


def _untransposed(value: ir.Value) -> tuple[ir.Value, Sequence[int] | None]:
    """What `value` is a transposed copy of that nothing else reads, and the order of its dimensions."""
    if isinstance(value.owner, ir.Block) or len(list(value.uses)) != 1:
        return value, None
    order = transposed_by(value.owner.operation)
    return (value, None) if order is None else (value.owner.operation.operands[0], order)


def _gather_padded(pad: ir.Operation, value: ir.Value) -> None:
    source, order = _untransposed(pad.operands[0])
    with ir.InsertionPoint(pad), pad.location:
        shape, low = list(shape_of(pad.results[0])), list(pad.attributes["static_low"])
        pad.results[0].replace_all_uses_with(gathered(source, shape, low, value, order))
    pad.erase()


def _insert_padded(source: ir.Value, value: ir.Value, pads: list[ir.Operation]) -> None:
    """Pads `source` once, by the most that any of `pads` does, at the first of them."""
    lows = [list(pad.attributes["static_low"]) for pad in pads]
    highs = [list(pad.attributes["static_high"]) for pad in pads]
    low, high = ([max(amounts) for amounts in zip(*several)] for several in (lows, highs))
    shape = [a + n + b for a, n, b in zip(low, shape_of(source), high)]
    with ir.InsertionPoint(pads[0]), pads[0].location:
        empty = tensor.empty(shape, ir.RankedTensorType(source.type).element_type)
        whole = insert(source, linalg.fill(value, outs=[empty]), low)
    for pad, own in zip(pads, lows):
        padded = whole
        if list(shape_of(pad.results[0])) != shape:
            with ir.InsertionPoint(pad), pad.location:
                padded = _slice(whole, [a - b for a, b in zip(low, own)], pad.results[0].type)
        pad.results[0].replace_all_uses_with(padded)
    for pad in pads:
        pad.erase()


def insert(source: ir.Value, destination: ir.Value, at: Sequence[int]) -> ir.Value:
    """`source` inserted in place at offsets `at`."""
    rank = len(at)
    inserted = tensor.insert_slice(
        source, destination, [], [], [], list(at), list(shape_of(source)), [1] * rank
    )
    inserted.owner.operation.attributes[IN_PLACE] = ir.UnitAttr.get()
    return inserted


def _slice(whole: ir.Value, at: Sequence[int], type_: ir.Type) -> ir.Value:
    shape = list(ir.RankedTensorType(type_).shape)
    part = tensor.extract_slice(type_, whole, [], [], [], list(at), shape, [1] * len(shape))
    part.owner.operation.attributes[IN_PLACE] = ir.UnitAttr.get()
    return part
