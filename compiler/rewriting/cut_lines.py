"""Cuts scans, sorts, scatters and Fourier transforms into rTasks along the loops that their lines lie beside each other in.

    %0 = tensor.empty() : tensor<4096x8xf32>, ...
    %2:2 = tm_tensor.topk dimension(1) ins(%x) outs(%0, %1)
      =>
    scf.forall (%i) = (0) to (4096) step (64) shared_outs(%o = %0, %p = %1) {
      tm_tensor.topk dimension(1) ins(%x[%i, 0] [64, 1024]) outs(%o[%i, 0] [64, 8], %p[%i, 0] [64, 8])
    }

Upstream's tiling asks an operation for its tiles, which torch-mlir's do not give. A last rTask that is ragged is moved back to
overlap its neighbour; what is read back while it is made, two rTasks that overlap make in memory of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.analysis.dense_constants import is_splat
from tilewright.compiler.analysis.line_operations import LINES, Lines
from tilewright.compiler.ir import affine, arith, ir, linalg, scf, static_shape, tensor


def cut_lines(lines: Lines, tile: Sequence[int], in_place: bool) -> None:
    """Replaces the operation by a grid of rTasks that take `tile` of its loops each, 0 for all.

    What results begin with is copied there, or filled, by every rTask for itself; it is there already where `in_place`.
    """
    op = lines.op
    sizes = [size or extent for size, extent in zip([*tile, *[0] * len(lines.extents)], lines.extents)]
    with ir.InsertionPoint(op), op.location:
        starts = [op.operands[number] for number in lines.destinations]
        shared = starts if in_place else [_empty(value) for value in starts]
        grid = scf.ForallOp([0] * len(sizes), list(lines.extents), sizes, shared)
        with ir.InsertionPoint(grid.body):
            _rtask(lines, sizes, grid, in_place)
    for result, new in zip(op.results, grid.results):
        result.replace_all_uses_with(new)
    op.erase()


def _rtask(lines: Lines, sizes: Sequence[int], grid: scf.ForallOp, in_place: bool) -> None:
    op, loops = lines.op, len(sizes)
    arguments = list(grid.body.arguments)
    overlaps = any(extent % size for extent, size in zip(lines.extents, sizes))
    has_own_memory = overlaps and lines.accumulates
    places = [
        _start(argument, extent, size)
        for argument, extent, size in zip(arguments[:loops], lines.extents, sizes)
    ]

    def part(value: ir.Value, through: Sequence[tuple[int, ...]]) -> _Part:
        offsets: list[ir.Value | int] = []
        taken = []
        for elements, loops in zip(static_shape(value.type), through):
            each = elements // max(1, lines.extents[loops[0]]) if loops else elements
            offsets.append(_times(places[loops[0]], each) if loops else 0)
            taken.append(sizes[loops[0]] * each if loops else elements)
        return _Part(offsets, taken)

    inputs = [
        part(op.operands[number], lines.loops[number]).of(op.operands[number])
        for number in range(len(op.operands) - lines.results)
    ]
    begun, parts = [], []
    for number, whole in zip(lines.destinations, arguments[loops:]):
        own = part(whole, lines.loops[number])
        place = own.of(whole)
        parts.append(own)
        if has_own_memory:
            place = _empty(place)
        begun.append(place if in_place else _begun(op.operands[number], own, place))
    attributes = {name: op.attributes[name] for name in op.attributes}
    if LINES in attributes:
        attributes[LINES] = ir.IntegerAttr.get(attributes[LINES].type, sizes[0])
    new = ir.Operation.create(
        op.name, [value.type for value in begun], [*inputs, *begun], attributes, regions=len(op.regions)
    )
    for own, region in zip(op.regions, new.regions):
        own.blocks[0].append_to(region)
    results = [
        linalg.copy(result, outs=[own.of(whole)]) if has_own_memory else result
        for result, own, whole in zip(new.results, parts, arguments[loops:])
    ]
    terminator = scf.InParallelOp()
    with ir.InsertionPoint(terminator.region.blocks[0]):
        for result, own, whole in zip(results, parts, arguments[loops:]):
            own.insert(result, whole)


class _Part:
    """A box of a tensor, at offsets that are known or not."""

    def __init__(self, offsets: Sequence[ir.Value | int], sizes: Sequence[int]):
        self.sizes = list(sizes)
        self.dynamic = [offset for offset in offsets if isinstance(offset, ir.Value)]
        self.static = [
            ir.ShapedType.get_dynamic_stride_or_offset() if isinstance(o, ir.Value) else o for o in offsets
        ]

    def of(self, value: ir.Value) -> ir.Value:
        """This part of a tensor."""
        if self.sizes == list(static_shape(value.type)):
            return value
        type_ = ir.RankedTensorType.get(self.sizes, ir.RankedTensorType(value.type).element_type)
        steps = [1] * len(self.sizes)
        return tensor.extract_slice(type_, value, self.dynamic, [], [], self.static, self.sizes, steps)

    def insert(self, value: ir.Value, whole: ir.Value) -> None:
        """Says that this part of `whole` becomes `value`."""
        steps = [1] * len(self.sizes)
        tensor.parallel_insert_slice(value, whole, self.dynamic, [], [], self.static, self.sizes, steps)


def _start(place: ir.Value, extent: int, size: int) -> ir.Value | int:
    """Where an rTask starts along a loop: `place`, the last one where all of it is inside."""
    if size == extent:
        return 0
    if extent % size == 0:
        return place
    d0 = ir.AffineExpr.get_dim(0)
    map_ = ir.AffineMap.get(1, 0, [d0, ir.AffineExpr.get_constant(extent - size)])
    return affine.AffineMinOp(map_, [place]).result


def _times(place: ir.Value | int, factor: int) -> ir.Value | int:
    """A place counted in parts of one."""
    if isinstance(place, int):
        return place * factor
    map_ = ir.AffineMap.get(1, 0, [ir.AffineExpr.get_dim(0) * factor])
    return place if factor == 1 else affine.AffineApplyOp(map_, [place]).result


def _begun(start: ir.Value, part: _Part, place: ir.Value) -> ir.Value:
    """`place` with what the result begins with there."""
    owner = None if isinstance(start.owner, ir.Block) else start.owner.operation
    if owner is not None and owner.name == "tensor.empty":
        return place
    if owner is not None and owner.name == "linalg.fill":
        return linalg.fill(owner.operands[0], outs=[place])
    if owner is not None and owner.name == "arith.constant" and is_splat(owner):
        element = ir.RankedTensorType(start.type).element_type
        return linalg.fill(arith.constant(element, owner.attributes["value"].get_splat_value()), outs=[place])
    return linalg.copy(part.of(start), outs=[place])


def _empty(value: ir.Value) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    return tensor.empty(list(type_.shape), type_.element_type)
