"""number-lines: a scatter into several lines as a scatter into one, whose numbers count from where the first line begins.

    tm_tensor.scatter {tilewright.lines = 8} ins(%u, %at : tensor<24xf32>, tensor<24x1xi64>) outs(%x : tensor<2048xf32>)
      =>
    %all = linalg.generic // %at + 256 * (i floordiv 3)
    tm_tensor.scatter ins(%u, %all) outs(%x)

For lowerings that know nothing of lines: upstream's, and that of GPUs' fallback.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.line_operations import LINES, SCATTER, line_count
from tilewright.compiler.ir import arith, ir, linalg, static_shape, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import elementwise


@dataclass(frozen=True)
class NumberLines(Pass):
    """Rewrites scatters on tensors of static shape; others have no lines."""

    def run(self, op: ir.Operation) -> None:
        for scatter in walk(op, SCATTER):
            if LINES in scatter.attributes and isinstance(scatter.operands[1].type, ir.RankedTensorType):
                if line_count(scatter) > 1:
                    _count_from_the_first(scatter)
                del scatter.attributes[LINES]


def _count_from_the_first(scatter: ir.Operation) -> None:
    _, numbers, target = scatter.operands
    count = line_count(scatter)
    each, slices = (static_shape(value.type)[0] // count for value in (numbers, target))
    type_ = ir.RankedTensorType(numbers.type)

    def counted(number: ir.Value) -> ir.Value:
        update = linalg.IndexOp(0).result
        line = arith.divui(update, arith.constant(update.type, each))
        first = arith.muli(line, arith.constant(update.type, slices))
        return arith.addi(number, arith.index_cast(type_.element_type, first))

    with ir.InsertionPoint(scatter), scatter.location:
        found = elementwise(type_, [numbers], [ir.AffineMap.get_identity(2)], counted)
    scatter.operands[1] = found.results[0]
