"""Constants of one value become fills, so that no kernel needs constant data beside its code.

%c = arith.constant dense<0.0> : tensor<5x9xf32>
  =>
%c = linalg.fill ins(%zero) outs(tensor.empty() : tensor<5x9xf32>)
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.dense_constants import is_splat
from tilewright.compiler.ir import arith, ir, linalg, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class FillSplats(Pass):
    """Rewrites every constant tensor of one value; those of several values stay."""

    def run(self, op: ir.Operation) -> None:
        for constant in walk(op, "arith.constant"):
            type_ = constant.results[0].type
            if not isinstance(type_, ir.RankedTensorType) or not is_splat(constant):
                continue
            value = constant.attributes["value"]
            if not isinstance(value, ir.DenseElementsAttr):
                continue
            with ir.InsertionPoint(constant), constant.location:
                scalar = arith.constant(type_.element_type, value.get_splat_value())
                empty = tensor.empty(list(type_.shape), type_.element_type)
                filled = linalg.fill(scalar, outs=[empty])
            constant.results[0].replace_all_uses_with(filled)
            constant.erase()
