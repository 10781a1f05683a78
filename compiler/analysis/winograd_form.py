"""What a convolution by Winograd's algorithm looks like as a generic, and reading one."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, loop_extents
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.winograd_transforms import Transforms, supported, transforms

ATTRIBUTE = "tilewright.winograd"
"""On a convolution whose filter is stored with its transforms: the outputs m of F(m, r), an integer."""


@dataclass(frozen=True)
class Convolution2d:
    """A stride-1 convolution on channels-last data, as a generic on tensors or memrefs.

    Loops are n, h, w, f (parallel) and r, s, c (reduction), numbered as `loops` says. `extents` follow the same
    order. `block` is how many output channels one block of the filter holds, all of them where it is not packed.
    """

    op: ir.Operation
    loops: tuple[int, ...]
    extents: tuple[int, ...]
    block: int
    packed: bool

    @classmethod
    def read(cls, op: ir.Operation, block: int = 0) -> Convolution2d | None:
        """The convolution that `op` is: x[n, h + r, w + s, c] times a filter, summed onto y[n, h, w, f].

        The filter is stored [r, s, c, f] or [f floordiv B, r, s, c, f mod B]; where it carries transforms, in front of
        r stands a dimension of which the convolution itself reads index 0. None for anything else. With `block` it is
        the convolution that it will be when its filter, in whatever order it is stored now, is packed in such blocks.
        """
        if op.name != "linalg.generic" or len(op.operands) != 3:
            return None
        types = [operand.type for operand in op.operands]
        if not all(isinstance(t, ir.ShapedType) and ir.ShapedType(t).has_static_shape for t in types):
            return None
        maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        data, weight, output = (list(m.results) for m in maps)
        if len(data) != 4 or len(output) != 4 or maps[0].n_dims != 7 or not _multiplies(op):
            return None
        if not all(is_dim(e) for e in output) or not is_dim(data[0], output[0].position):
            return None
        n, h, w, f = (e.position for e in output)
        r, s = _tap(data[1], h), _tap(data[2], w)
        if r is None or s is None or not is_dim(data[3]):
            return None
        loops = (n, h, w, f, r, s, data[3].position)
        if set(loops) != set(range(7)):
            return None
        shapes = [tuple(ir.ShapedType(t).shape) for t in types]
        known = loop_extents(maps, shapes)
        extents = tuple(known[i] for i in loops)
        if block:
            plain = {e.position for e in weight if is_dim(e)} == {f, *loops[4:]} and len(weight) == 4
            # Packing orders what is summed over as the loops are.
            return cls(op, loops, extents, block, True) if plain and r < s < loops[6] else None
        stored = _filter_block(weight, loops, known[f], ATTRIBUTE in op.attributes)
        return cls(op, loops, extents, stored, not is_dim(weight[-1])) if stored is not None else None

    @property
    def element_type(self) -> ir.Type:
        return ir.ShapedType(self.op.operands[2].type).element_type

    @property
    def outputs(self) -> int | None:
        """The m of F(m, r) that the filter is stored for, None where it is a plain filter."""
        if ATTRIBUTE not in self.op.attributes:
            return None
        return ir.IntegerAttr(self.op.attributes[ATTRIBUTE]).value

    @property
    def transforms(self) -> Transforms | None:
        outputs = self.outputs
        if outputs is None or not supported(outputs, self.extents[4]):
            return None
        return transforms(outputs, self.extents[4])

    def refuses(self, outputs: int) -> str | None:
        """Why the convolution cannot be computed by F(outputs, r), None where it can be."""
        height, width, taps = self.extents[1], self.extents[2], self.extents[4:6]
        if not isinstance(self.element_type, ir.F32Type):
            return f"the transforms are of f32, and it computes in {self.element_type}"
        if taps[0] != taps[1] or not supported(outputs, taps[0]):
            return f"F({outputs}, r) is not known for a filter of {taps[0]} x {taps[1]}"
        if min(height, width) < outputs:
            return f"its image of {height} x {width} holds no tile of {outputs} x {outputs}"
        return None


def share_of_direct(op: ir.Operation) -> float:
    """Products that `op` takes per product of the direct computation: 36 / 144 for F(4, 3), 1 for all but convolutions
    whose filters carry transforms. Tiles that stick out are not counted."""
    if op.name != "linalg.generic" or ATTRIBUTE not in op.attributes:
        return 1.0
    convolution = Convolution2d.read(op)
    matrices = convolution.transforms if convolution is not None else None
    return matrices.points**2 / (matrices.outputs * matrices.taps) ** 2 if matrices is not None else 1.0


def _filter_block(
    weight: list[ir.AffineExpr], loops: tuple[int, ...], filters: int, transformed: bool
) -> int | None:
    """Output channels per block of the filter; None when it is stored in another way than `read` tells."""
    *_, f, r, s, c = loops
    d = ir.AffineExpr.get_dim
    inner = [*([ir.AffineExpr.get_constant(0)] if transformed else []), d(r), d(s), d(c)]
    if weight == [*inner, d(f)]:
        return filters
    if not weight or not isinstance(weight[0], ir.AffineFloorDivExpr):
        return None
    block = ir.AffineConstantExpr(weight[0].rhs).value
    number, inside = ir.AffineExpr.get_floor_div(d(f), block), ir.AffineExpr.get_mod(d(f), block)
    return block if weight == [number, *inner, inside] else None


def _tap(expr: ir.AffineExpr, output: int) -> int | None:
    """The window's loop of `output + tap`."""
    if not isinstance(expr, ir.AffineAddExpr) or not is_dim(expr.lhs) or not is_dim(expr.rhs):
        return None
    positions = [expr.lhs.position, expr.rhs.position]
    if output not in positions:
        return None
    positions.remove(output)
    return positions[0]


def _multiplies(op: ir.Operation) -> bool:
    """Whether the body is `out + x * w` in floating point."""
    block = op.regions[0].blocks[0]
    ops = [view.operation for view in block.operations]
    if [o.name for o in ops] != ["arith.mulf", "arith.addf", "linalg.yield"]:
        return False
    product, total, end = ops
    arguments = list(block.arguments)
    return (
        set(product.operands) == set(arguments[:2])
        and set(total.operands) == {product.results[0], arguments[2]}
        and end.operands[0] == total.results[0]
    )
