"""fold-shape-casts: concatenations keep the static shapes that their operands have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import ir, static_shape, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class FoldShapeCasts(Pass):
    """Takes `tensor.cast` away between a static tensor and a `tensor.concat` of dynamic shape.

    Before, as torch-mlir gives `roll`:

        %c = tensor.cast %s : tensor<8x3xf32> to tensor<8x?xf32>
        %r = tensor.concat dim(1) %c, %d : (tensor<8x?xf32>, tensor<8x?xf32>) -> tensor<8x?xf32>

    After, with a cast behind it where the result was dynamic:

        %r = tensor.concat dim(1) %s, %t : (tensor<8x3xf32>, tensor<8x5xf32>) -> tensor<8x8xf32>

    Concatenations with an operand of unknown shape are left alone.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for concat in walk(op, "tensor.concat"):
            sources = [_static_source(value) for value in concat.operands]
            types = [ir.RankedTensorType(value.type) for value in sources]
            result = concat.results[0].type
            if not all(type_.has_static_shape for type_ in types):
                continue
            if sources == list(concat.operands) and result.has_static_shape:
                continue
            dim = ir.IntegerAttr(concat.attributes["dim"]).value
            shape = list(static_shape(types[0]))
            shape[dim] = sum(type_.shape[dim] for type_ in types)
            with concat.location, ir.InsertionPoint(concat):
                static = ir.RankedTensorType.get(shape, result.element_type)
                replacement = tensor.concat(static, dim, sources)
                if static != result:
                    replacement = tensor.cast(result, replacement)
            concat.results[0].replace_all_uses_with(replacement)
            concat.erase()


def _static_source(value: ir.Value) -> ir.Value:
    """What a chain of casts started from, or the last value in it whose shape is static."""
    while not ir.RankedTensorType(value.type).has_static_shape:
        if isinstance(value.owner, ir.Block) or value.owner.operation.name != "tensor.cast":
            return value
        value = value.owner.operation.operands[0]
    return value
