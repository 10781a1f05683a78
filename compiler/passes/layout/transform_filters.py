"""Stores the filters of convolutions with their Winograd transforms, where the convolution says so.

    %c = linalg.generic {tilewright.choice = {algorithm = "winograd4"}}
         ins(%x, %w : tensor<1x58x58x64xf32>, tensor<1x3x3x64x64xf32>)     // w: (f/64, r, s, c, f%64)
      =>
    %p = linalg.generic ins(%k, %w) outs(tensor<1x5x3x3x64x64xf32>)   // %p[., q, a, b, c, f] = sum K[q, a, b, r, s] w
    %c = linalg.generic {tilewright.winograd = 4} ins(%x, %p)         // p: (f/64, 0, r, s, c, f%64)

The first nine planes of %p are the filter itself, which is what the convolution's index map reads; so it is the same
convolution to every other pass, to be tiled, fused and costed as ever. The other planes, row by row, are G g G^T, from
which `lower-winograd` computes. K is a constant, so %p depends on weights alone and is computed once, in @prepack.

Source: Lavin & Gray, CVPR'16, §4.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.weight_flow import static_values
from tilewright.compiler.analysis.winograd_form import ATTRIBUTE, Convolution2d
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.dialects.choice_attribute import DIRECT, WINOGRAD
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import arith, functions, ir, linalg, tensor
from tilewright.compiler.nouns.winograd_transforms import Transforms, transforms
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class TransformFilters(Pass):
    """Carries out `algorithm` of `tilewright.choice`; refuses Winograd's where the convolution does not allow it."""

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            static: set[ir.Value] | None = None
            stored: dict[tuple[ir.Value, int], ir.Value] = {}
            for view in list(function.regions[0].blocks[0].operations):
                algorithm = choice_attribute.read(view.operation).get("algorithm")
                if algorithm is None:
                    continue
                static = static_values(function) if static is None else static
                convolution = Convolution2d.read(view.operation)
                if algorithm != DIRECT:
                    outputs = int(str(algorithm).removeprefix(WINOGRAD))
                    if convolution is None or (convolution.outputs or outputs) != outputs:
                        raise self.refused(view.operation, _why_none(view.operation))
                    if convolution.op.operands[1] not in static:
                        rule = "its filter is no weight, and would be transformed at every call"
                        raise self.refused(view.operation, rule)
                    rule = convolution.refuses(outputs)
                    if rule is not None:
                        raise self.refused(view.operation, rule)
                    if convolution.outputs is None:
                        _store_planes(convolution, transforms(outputs, convolution.extents[4]), stored)
                choice_attribute.drop(view.operation, "algorithm")

    def refused(self, op: ir.Operation, rule: str) -> PassError:
        """The error for the algorithm of an operation."""
        return self.refusal(op, choice_attribute.refused(op, "algorithm", f"{rule}; choose {DIRECT}"))


def _why_none(op: ir.Operation) -> str:
    """Which rule of `Convolution2d.read` an operation breaks, the one that users meet first."""
    structured = Structured.read(op)
    if structured is None or not structured.is_contraction:
        return "it is no convolution"
    scaled = (e for e in structured.maps[0].results if "* " in str(e))
    if any(True for _ in scaled):
        return "its stride or its dilation is not 1"
    return "it has groups, other dimensions than two, or a filter that is not stored r, s, c, f"


def _store_planes(
    convolution: Convolution2d, matrices: Transforms, stored: dict[tuple[ir.Value, int], ir.Value]
) -> None:
    op, weight = convolution.op, convolution.op.operands[1]
    key = (weight, matrices.outputs)
    if key not in stored:
        with ir.InsertionPoint(op), op.location:
            stored[key] = _planes(weight, convolution, matrices)
    op.operands[1] = stored[key]
    maps = list(ir.ArrayAttr(op.attributes["indexing_maps"]))
    map_ = ir.AffineMapAttr(maps[1]).value
    results = list(map_.results)
    results.insert(int(convolution.packed), ir.AffineExpr.get_constant(0))
    maps[1] = ir.AffineMapAttr.get(ir.AffineMap.get(map_.n_dims, 0, results))
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)
    op.attributes[ATTRIBUTE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), matrices.outputs)


def _planes(weight: ir.Value, convolution: Convolution2d, matrices: Transforms) -> ir.Value:
    """[blocks, q, r, s, c, f] from [blocks, r, s, c, f]: the filter at q = 0, then its transforms; the rest is zero."""
    taps = matrices.taps
    type_ = ir.RankedTensorType(weight.type)
    steps = 1 + -(-(matrices.points**2) // taps**2)
    blocks = list(type_.shape[:1]) if convolution.packed else []
    shape = [*blocks, steps, *type_.shape[len(blocks) :]]
    result = ir.RankedTensorType.get(shape, type_.element_type)
    constant = _constant(matrices, [steps, taps, taps, taps, taps])
    start = linalg.fill(
        arith.constant(type_.element_type, 0.0), outs=[tensor.empty(shape, type_.element_type)]
    )
    # Loops: block, q, a, b (which plane), c, f, then the taps r, s.
    rank = len(shape) + 2
    d = [ir.AffineExpr.get_dim(i) for i in range(rank)]
    lead, (q, a, b, c, f, r, s) = d[: len(blocks)], d[len(blocks) :]
    maps = [
        ir.AffineMap.get(rank, 0, results)
        for results in ([q, a, b, r, s], [*lead, r, s, c, f], [*lead, q, a, b, c, f])
    ]
    kinds = ["parallel"] * len(shape) + ["reduction"] * 2
    generic = linalg.GenericOp(
        [result],
        [constant, weight],
        [start],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
    )
    body = generic.regions[0].blocks.append(*[type_.element_type] * 3)
    with ir.InsertionPoint(body):
        factor, value, total = body.arguments
        linalg.YieldOp([arith.addf(total, arith.mulf(factor, value))])
    return generic.results[0]


def _constant(matrices: Transforms, shape: list[int]) -> ir.Value:
    """The identity on the filter's taps, then G on both sides of it, then zeros, as f32."""
    taps = matrices.taps**2
    rows = [[float(i == k) for k in range(taps)] for i in range(taps)]
    rows += [list(row) for row in matrices.planes]
    rows += [[0.0] * taps] * (shape[0] * taps - len(rows))
    data = array("f", [value for row in rows for value in row])
    type_ = ir.RankedTensorType.get(shape, ir.F32Type.get())
    return arith.constant(type_, ir.DenseElementsAttr.get(data, type=ir.F32Type.get(), shape=shape))
