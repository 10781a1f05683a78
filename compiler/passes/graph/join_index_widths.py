"""Joins code that took an index for 32 bits with code that took it for 64.

`convert-nvgpu-to-nvvm` knows 64-bit indices only. After `convert-gpu-to-nvvm` with 32-bit ones its operands are casts
back and forth, which this pass resolves:

    %0 = builtin.unrealized_conversion_cast %i : i32 to index
    %1 = builtin.unrealized_conversion_cast %0 : index to i64
becomes `llvm.sext %i : i32 to i64`, and of a memref's two descriptors the first is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import ir, llvm, walk
from tilewright.compiler.pipeline.pass_base import Pass

_CAST = "builtin.unrealized_conversion_cast"


@dataclass(frozen=True)
class JoinIndexWidths(Pass):
    """Rewrites pairs of casts between an i32 and an i64, and extractions from descriptors that are such pairs."""

    anchor: ClassVar[str] = "any"

    def run(self, op: ir.Operation) -> None:
        casts = walk(op, _CAST)
        for cast in casts:
            source = _source(cast)
            if source is None or source.type == cast.results[0].type:
                continue
            result = cast.results[0]
            if isinstance(source.type, ir.IntegerType) and isinstance(result.type, ir.IntegerType):
                with ir.InsertionPoint(cast), cast.location:
                    result.replace_all_uses_with(_resize(source, result.type))
            elif str(source.type).startswith("!llvm.struct") and str(result.type).startswith("!llvm.struct"):
                for use in list(result.uses):
                    _extract_from(source, use.owner.operation)
        for cast in reversed(casts):
            if not any(True for result in cast.results for _ in result.uses):
                cast.erase()


def _source(cast: ir.Operation) -> ir.Value | None:
    """What a cast of a cast began with; None for any other cast."""
    if len(cast.operands) != 1 or len(cast.results) != 1:
        return None
    owner = cast.operands[0].owner
    if isinstance(owner, ir.Block) or owner.operation.name != _CAST or len(owner.operation.operands) != 1:
        return None
    return owner.operation.operands[0]


def _extract_from(source: ir.Value, use: ir.Operation) -> None:
    """Makes `llvm.extractvalue` read the descriptor of the other width, whose fields are the same."""
    if use.name != "llvm.extractvalue":
        return
    position = list(ir.DenseI64ArrayAttr(use.attributes["position"]))
    wanted = use.results[0].type
    with ir.InsertionPoint(use), use.location:
        if isinstance(wanted, ir.IntegerType):
            narrow = ir.IntegerType.get_signless(32 if wanted.width == 64 else 64)
            value = _resize(llvm.extractvalue(narrow, source, position), wanted)
        else:
            value = llvm.extractvalue(wanted, source, position)
    use.results[0].replace_all_uses_with(value)
    use.erase()


def _resize(value: ir.Value, type_: ir.IntegerType) -> ir.Value:
    if ir.IntegerType(value.type).width < type_.width:
        return llvm.sext(type_, value)
    return llvm.trunc(type_, value, [])
