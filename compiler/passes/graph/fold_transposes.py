"""fold-transposes: contractions read and write activations where they lie, instead of behind transposed copies.

Attention in PyTorch splits heads by a view and a transpose, and multiplies what came of it:

    %q = linalg.transpose ins(%x : [B, T, H, D]) -> [B, H, T, D]
    %c = tensor.collapse_shape %q -> [B*H, T, D]
    %s = linalg.batch_matmul ins(%c, %k : [B*H, D, T]) -> [B*H, T, T]
      =>
    %k1 = tensor.expand_shape %k -> [B, H, D, T]
    %s1 = linalg.generic (b, h, m, n, k) ins(%x at (b, m, h, k), %k1 at (b, h, k, n)) -> [B, H, T, T]
    %s = tensor.collapse_shape %s1 -> [B*H, T, T]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.ir import functions, ir, linalg, static_shape, tensor
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting import layout_rules
from tilewright.compiler.rewriting.layout_rules import STRIDED_READ_FRACTION, transposed_by
from tilewright.compiler.rewriting.readings import Groups, Reading, permuted, readings, reassociation
from tilewright.compiler.rewriting.reshaping import reshaped
from tilewright.compiler.rewriting.storage_order import inverted


@dataclass(frozen=True)
class FoldTransposes(Pass):
    """Folds transposes of activations into the indexing maps of the contractions that read or are read by them.

    Only transposes that keep the innermost dimension innermost: the others gather, and a copy that is read many
    times beats many gathers. But where both operands then lie along the reduction, vectors can run along it. That
    costs an addition of lanes per result and spares a copied element: measured, it pays while the reduction is
    `depth_per_read` times as long as the operand is read often. Reshapes between contraction and transpose split the loops. A transpose in front of
    an elementwise operation moves behind it when a contraction that can fold it follows. Transposes of weights
    stay, to be done once in @prepack.
    """

    anchor: ClassVar[str] = "builtin.module"
    depth_per_read: int = 3

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            if len(function.regions[0].blocks) != 1:
                continue
            block = function.regions[0].blocks[0]
            roles = argument_roles(function)
            given = {argument for argument, role in zip(block.arguments, roles) if role == "weight"}
            transposes = [
                op for op in _operations(block) if len(op.results) and transposed_by(op) is not None
            ]
            if all(op.operands[0] in given for op in transposes):
                continue
            weights = WeightFlow.of(function, roles).values
            for transpose in transposes:
                _sink(transpose, weights)
            for contraction in [
                found for op in _operations(block) if (found := _contraction(op)) is not None
            ]:
                _fold(contraction, weights, self.depth_per_read)


def _operations(block: ir.Block) -> list[ir.Operation]:
    return [view.operation for view in block.operations]


def _contraction(op: ir.Operation) -> Structured | None:
    """The structure of a generic contraction; None for anything else."""
    structured = Structured.read(op)
    return structured if structured is not None and structured.is_contraction else None


# Operands and results as other tensors.


def _source(operand: ir.Value, contiguous: Callable[[Reading], bool]) -> Reading | None:
    """The farthest tensor that `operand` is a foldable transposed view of; None when there is none."""
    found = None
    for reading in readings(operand):
        if not reading.steps or transposed_by(reading.steps[0]) is None:
            continue
        if reading.keeps_innermost or contiguous(reading):
            found = reading
    return found


def _destination(result: ir.Value) -> Reading | None:
    """The transposed view of `result` that its only reader makes; None when there is none that can be folded."""
    groups: Groups = [[dim] for dim in range(len(static_shape(result.type)))]
    steps, value = [], result
    while (op := _only_reader(value)) is not None and op.operands[0] == value:
        steps.append(op)
        if (permutation := transposed_by(op)) is not None:
            places = inverted(permutation)
            reading = Reading(op.results[0], permuted(groups, places), steps)
            return reading if reading.keeps_innermost else None
        if op.name != "tensor.expand_shape":
            return None
        pieces = reassociation(op)
        groups = [[piece for dim in group for piece in pieces[dim]] for group in groups]
        value = op.results[0]
    return None


def _only_reader(value: ir.Value) -> ir.Operation | None:
    uses = list(value.uses)
    return uses[0].owner.operation if len(uses) == 1 else None


# Contractions.


def _fold(contraction: Structured, weights: set[ir.Value], depth_per_read: int) -> None:
    op, maps = contraction.op, contraction.maps
    if not all(is_dim(expr) for map_ in maps for expr in map_.results):
        return
    loops = [[ir.AffineDimExpr(expr).position for expr in map_.results] for map_ in maps]
    splits: dict[int, list[int]] = {}
    readings: list[Reading | None] = []
    for number, operand in enumerate(op.operands):
        reading = None
        if number == 2:
            reading = _destination(op.results[0]) if _is_fill(operand) else None
        elif operand not in weights:
            reading = _source(operand, partial(_is_read_along, contraction, number, depth_per_read))
        readings.append(reading if reading is not None and _agree(reading, loops[number], splits) else None)
    if any(reading is not None for reading in readings):
        _rebuild(contraction, loops, splits, readings)


def _is_read_along(contraction: Structured, number: int, depth_per_read: int, reading: Reading) -> bool:
    """Whether both operands lie along one reduction loop, if `number` is read as `reading`, and that pays."""
    loops = [[expr.position for expr in map_.results] for map_ in contraction.maps]
    output, own, other = loops[2], loops[number], loops[1 - number]
    reads = math.prod(contraction.extents[loop] for loop in output if loop not in own)
    depth = math.prod(contraction.extents[loop] for loop in own if loop not in output)
    innermost = max((max(reading.kept(group), default=-1), loop) for loop, group in zip(own, reading.groups))[
        1
    ]
    return other[-1:] == [innermost] and innermost not in output and depth >= depth_per_read * reads


def _agree(reading: Reading, loops: list[int], splits: dict[int, list[int]]) -> bool:
    """Adds the splits that `reading` needs, unless others need the same loops split differently."""
    wanted: dict[int, list[int]] = {}
    for loop, group in zip(loops, reading.groups):
        extents = [reading.shape[dim] for dim in reading.kept(group)]
        if wanted.setdefault(loop, extents) != extents or splits.get(loop, extents) != extents:
            return False
    splits.update(wanted)
    return True


def _rebuild(
    contraction: Structured,
    loops: list[list[int]],
    splits: dict[int, list[int]],
    readings: list[Reading | None],
) -> None:
    op = contraction.op
    extents = [splits.get(loop, [extent]) for loop, extent in enumerate(contraction.extents)]
    first = [sum(len(part) for part in extents[:loop]) for loop in range(len(extents))]
    count = sum(map(len, extents))
    parts = [[first[loop] + i for i in range(len(part))] for loop, part in enumerate(extents)]
    sizes = [extent for part in extents for extent in part]
    kinds = [kind for kind, part in zip(op.attributes["iterator_types"], extents) for _ in part]
    values, exprs = [], []
    with ir.InsertionPoint(op), op.location:
        for number, (operand, reading) in enumerate(zip(op.operands, readings)):
            at = [part for loop in loops[number] for part in parts[loop]]
            if reading is not None:
                at = _placed(reading, [parts[loop] for loop in loops[number]])
            shape = [sizes[loop] for loop in at]
            if number == 2:
                operand = _start(operand, shape)
            elif reading is not None:
                operand = reading.value
            values.append(reshaped(operand, shape, op.location))
            exprs.append(at)
        maps = [ir.AffineMap.get(count, 0, [ir.AffineDimExpr.get(loop) for loop in at]) for at in exprs]
        generic = ir.Operation.create(
            "linalg.generic",
            results=[values[2].type],
            operands=values,
            attributes={
                **layout_rules.discardable(op),
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
                "iterator_types": ir.ArrayAttr.get(kinds),
                "operandSegmentSizes": op.attributes["operandSegmentSizes"],
            },
            regions=1,
        )
        op.regions[0].blocks[0].append_to(generic.regions[0])
        written = readings[2]
        replaced = op.results[0] if written is None else written.value
        new = reshaped(generic.results[0], static_shape(replaced.type), op.location)
    replaced.replace_all_uses_with(new)
    for step in reversed([] if written is None else written.steps):
        step.erase()
    read = list(dict.fromkeys(op.operands))
    op.erase()
    for operand in read:
        _erase_unread(operand, read)


def _erase_unread(value: ir.Value, kept: list[ir.Value]) -> None:
    """Erases the views and transposes that led to `value`, up to the first that is read elsewhere or is one of `kept`.

    One operand may be a transpose of another, which has its own turn.
    """
    first = value
    while (op := producer(value)) is not None and next(iter(value.uses), None) is None:
        if value != first and value in kept:
            return
        if op.name not in ("tensor.collapse_shape", "tensor.expand_shape") and transposed_by(op) is None:
            return
        value = op.operands[0]
        op.erase()


def _placed(reading: Reading, parts: list[list[int]]) -> list[int]:
    """The loop of each dimension of `reading.value` that is more than one element, in its order."""
    at = {
        dim: loop
        for group, part in zip(reading.groups, parts)
        for dim, loop in zip(reading.kept(group), part)
    }
    return [at[dim] for dim in sorted(at)]


def _start(init: ir.Value, shape: list[int]) -> ir.Value:
    """What a result of `shape` accumulates onto: the same fill, or the same values when it is no fill."""
    if not _is_fill(init):
        return init
    element = ir.RankedTensorType(init.type).element_type
    return linalg.fill(init.owner.operands[0], outs=[tensor.empty(shape, element)])


def _is_fill(init: ir.Value) -> bool:
    op = producer(init)
    return op is not None and op.name == "linalg.fill"


# Elementwise operations between transpose and contraction.


def _sink(op: ir.Operation, weights: set[ir.Value]) -> None:
    """Moves a transpose behind the elementwise operations that follow it, if a contraction then folds it."""
    permutation = transposed_by(op)
    if permutation is None or op.results[0] in weights:
        return
    chain, value = [], op.results[0]
    while (reader := _only_reader(value)) is not None and _passes(reader, value):
        chain.append(reader)
        value = reader.results[0]
    if not chain or not _is_folded(value, op, chain):
        return
    source, old = op.operands[0], op.results[0]
    for elementwise in chain:
        source, old = _untransposed(elementwise, old, source, permutation), elementwise.results[0]
    type_ = ir.RankedTensorType(value.type)
    with ir.InsertionPoint(chain[-1]), chain[-1].location:
        empty = tensor.empty(list(type_.shape), type_.element_type)
        moved = linalg.transpose(source, outs=[empty], permutation=list(permutation))
    value.replace_all_uses_with(moved if isinstance(moved, ir.Value) else moved.results[0])
    for dead in (*reversed(chain), op):
        dead.erase()


def _passes(reader: ir.Operation, value: ir.Value) -> bool:
    """Whether `reader` is elementwise over `value`, with nothing else of its size to read."""
    structured = Structured.read(reader)
    if structured is None or not structured.is_elementwise or len(reader.results) != 1:
        return False
    if transposed_by(reader) is not None or structured.has_index or structured.accumulates:
        return False
    if layout_rules.extracts_from_outside(reader):
        return False
    identity = ir.AffineMap.get_identity(len(structured.extents))
    full = math.prod(structured.extents)
    for number, (operand, map_) in enumerate(zip(reader.operands, structured.maps)):
        if number == structured.num_inputs or operand == value:
            if map_ != identity:
                return False
        elif isinstance(operand.type, ir.RankedTensorType) and (
            math.prod(static_shape(operand.type)) * STRIDED_READ_FRACTION >= full
        ):
            return False
    return True


def _is_folded(value: ir.Value, transpose: ir.Operation, chain: list[ir.Operation]) -> bool:
    """Whether all that reads `value`, through reshapes, is contractions that fold `transpose` once it is there."""
    permutation = transposed_by(transpose)
    assert permutation is not None
    pending = [value]
    while pending:
        view = pending.pop()
        for use in view.uses:
            reader = use.owner.operation
            if reader.name in ("tensor.collapse_shape", "tensor.expand_shape"):
                pending.append(reader.results[0])
                continue
            if _contraction(reader) is None or use.operand_number > 1:
                return False
            seen = next((reading for reading in readings(view) if reading.value == value), None)
            if seen is None:
                return False
            if not Reading(transpose.operands[0], permuted(seen.groups, permutation)).keeps_innermost:
                return False
    return True


def _untransposed(
    elementwise: ir.Operation, old: ir.Value, source: ir.Value, permutation: Sequence[int]
) -> ir.Value:
    """`elementwise` computed over `source`, whose transpose `old` it reads."""
    structured = Structured.read(elementwise)
    assert structured is not None
    shape = static_shape(source.type)
    identity = ir.AffineMap.get_identity(len(shape))
    renamed = ir.AffineMap.get(len(shape), 0, [ir.AffineDimExpr.get(dim) for dim in permutation])
    element = ir.RankedTensorType(elementwise.results[0].type).element_type
    operands, maps = [], []
    with ir.InsertionPoint(elementwise), elementwise.location:
        for number, (operand, map_) in enumerate(zip(elementwise.operands, structured.maps)):
            if number == structured.num_inputs:
                operands.append(tensor.empty(shape, element))
                maps.append(identity)
            elif operand == old:
                operands.append(source)
                maps.append(identity)
            else:
                operands.append(operand)
                exprs = [expr.compose(renamed) for expr in map_.results]
                maps.append(ir.AffineMap.get(len(shape), 0, exprs))
        generic = ir.Operation.create(
            "linalg.generic",
            results=[operands[-1].type],
            operands=operands,
            attributes={
                **layout_rules.discardable(elementwise),
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
                "iterator_types": elementwise.attributes["iterator_types"],
                "operandSegmentSizes": elementwise.attributes["operandSegmentSizes"],
            },
            regions=1,
        )
    elementwise.regions[0].blocks[0].append_to(generic.regions[0])
    return generic.results[0]
