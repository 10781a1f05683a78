"""assign-layouts: every convolution asks for the storage of its operands that its kernel likes best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import dims, is_dim
from tilewright.compiler.analysis.structure import maps_of, producer
from tilewright.compiler.ir import functions, ir, linalg, static_shape
from tilewright.compiler.nouns.layout import Layout, Reorder
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.layout_rules import ATTRIBUTE, transposed_by

_FEWEST_CHANNELS = 4
"""Of a depthwise convolution whose vectors run along channels; its kernel is scalar below."""


@dataclass(frozen=True)
class AssignLayouts(Pass):
    """Writes `tilewright.layouts` on convolutions of any rank: channels last, output channel innermost.

    Before, and after:

        linalg.conv_2d_nchw_fchw ins(%x, %w) outs(%init)
        linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])",
                                                        "reorder([0, 2, 3, 1])"]} ins(%x, %w) outs(%init)

    | operand | ungrouped  | grouped       | depthwise |
    | ------- | ---------- | ------------- | --------- |
    | input   | N, H, W, I | N, H, W, G, I | N, H, W, C |
    | kernel  | R, S, I, O | G, R, S, I, O | R, S, C   |
    | output  | N, H, W, O | N, H, W, G, O | N, H, W, C |

    Depthwise convolutions of fewer than four channels, as filters of an image's colours are, have no vector of those: where
    rows of their results are longer, they keep channels first, N, C, H, W and C, R, S.

    Gradients of kernels are convolutions of images whose batch and channels were exchanged, and sum over the former
    batch. Their input stays as it is, I, H, W, N, and so does their kernel, I, R, S, O: both are channels last for those
    who exchange nothing.

    The vectors of a CPU kernel run over the innermost output dimension, so it must be one that the kernel and
    the output store contiguously. Convolutions that carry the attribute already, and those whose operands are
    stored this way already, are left alone.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            for block in function.regions[0].blocks:
                for view in block.operations:
                    _assign(view.operation)


def _assign(op: ir.Operation) -> None:
    if not op.name.startswith("linalg.") or ATTRIBUTE in op.attributes:
        return
    orders = channels_last(op)
    if orders is None or all(order == tuple(range(len(order))) for order in orders):
        return
    shapes = [static_shape(operand.type) for operand in op.operands]
    layouts = [Layout(shape, (Reorder(order),)) for shape, order in zip(shapes, orders)]
    op.attributes[ATTRIBUTE] = ir.ArrayAttr.get([ir.StringAttr.get(str(layout)) for layout in layouts])


def channels_last(op: ir.Operation) -> list[tuple[int, ...]] | None:
    """The storage order of each operand of a convolution with static shapes; None when `op` is none."""
    if not _may_convolve(op):
        return None
    found = linalg.infer_convolution_dimensions(op)
    if found is None or not found.output_image:
        return None
    image, channels, depth = list(found.output_image), list(found.output_channel), list(found.depth)
    data = [*found.batch, *image, *depth, *found.input_channel, *channels]
    window = [*found.filter_loop, *found.input_channel]
    kernel = [*depth, *window, *channels] if channels else [*window, *depth]
    sequences = [data, kernel, data]
    maps = maps_of(op)
    inputs, batch = list(found.input_channel), list(found.batch)
    if depth and not channels and not inputs and _is_narrow(op, maps[-1], depth[-1], image[-1]):
        planes = [*batch, *depth, *image]
        sequences = [planes, [*depth, *window], planes]
    elif (
        not depth
        and len(inputs) == len(batch) == 1
        and _is_exchanged(op.operands[0], maps[0], inputs[0], batch[0])
    ):
        sequences = [[*inputs, *image, *batch], [*inputs, *found.filter_loop, *channels], data]
    orders = []
    for sequence, map_ in zip(sequences, maps):
        loops = [_loop(expr, sequence) for expr in map_.results]
        if None in loops or len(set(loops)) != len(loops):
            return None
        orders.append(tuple(sorted(range(len(loops)), key=lambda dim: sequence.index(loops[dim]))))
    return orders


def _is_narrow(op: ir.Operation, map_: ir.AffineMap, channel: int, column: int) -> bool:
    """Whether there are too few channels for a vector, and more columns."""
    extents = {e.position: n for e, n in zip(map_.results, static_shape(op.results[0].type)) if is_dim(e)}
    return channel in extents and extents[channel] < min(_FEWEST_CHANNELS, extents.get(column, 0))


def _is_exchanged(image: ir.Value, map_: ir.AffineMap, channel: int, batch: int) -> bool:
    """Whether the loop over channels comes before that over the batch in the tensor that `image` was made of."""
    found = _source_dims(image)
    place = {loop: dim for loop in (channel, batch) for dim, e in zip(found, map_.results) if is_dim(e, loop)}
    return len(place) == 2 and place[channel] < place[batch]


def _source_dims(value: ir.Value) -> list[int]:
    """Per dimension, which one it is of the tensor that transpositions and pads made `value` of."""
    dims_, op = list(range(value.type.rank)), producer(value)
    while op is not None:
        permutation = transposed_by(op)
        if permutation is not None:
            dims_ = [permutation[dim] for dim in dims_]
        elif op.name != "tensor.pad":
            break
        op = producer(op.operands[0])
    return dims_


def _may_convolve(op: ir.Operation) -> bool:
    """The cheap tests: two tensor inputs and one result, all static, windows, and a product in the body."""
    if len(op.results) != 1 or len(op.operands) != 3:
        return False
    types = [operand.type for operand in op.operands]
    if not all(isinstance(t, ir.RankedTensorType) and t.has_static_shape for t in types):
        return False
    name = op.name.removeprefix("linalg.")
    if name != "generic":
        return name.startswith(("conv_", "depthwise_conv_"))
    exprs = list(ir.AffineMapAttr(op.attributes["indexing_maps"][0]).value.results)
    slides = any(not is_dim(expr) and dims(expr) for expr in exprs)
    # What one loop moves along two dimensions is no convolution, and upstream's reader ends the process over it.
    if sum(len(dims(expr)) for expr in exprs) != len(set().union(*map(dims, exprs))):
        return False
    body = op.regions[0].blocks[0].operations
    return slides and any(o.operation.name in ("arith.mulf", "arith.muli", "complex.mul") for o in body)


def _loop(expr: ir.AffineExpr, sequence: list[int]) -> int | None:
    """The one loop of `sequence` that moves along this dimension."""
    moving = [loop for loop in sequence if loop in dims(expr)]
    return moving[0] if moving else None
