"""Makes every named linalg op generic but fills, so that one reader serves contractions, convolutions and poolings.

    linalg.matmul ins(%a, %b) outs(%c)   =>   linalg.generic {indexing_maps = [...]} ins(%a, %b) outs(%c) {...}

Upstream's pass of this name takes fills too, which must stay what they are: dispatches clone them into every
group, and a generic without inputs would be a dispatch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import ir, parse, transform_interpreter, walk
from tilewright.compiler.pipeline.pass_base import Pass

_KEPT = {
    "linalg.generic",
    "linalg.fill",
    "linalg.yield",
    "linalg.index",
    "linalg.pack",
    "linalg.unpack",
    "linalg.softmax",
}


@dataclass(frozen=True)
class GeneralizeNamed(Pass):
    """Rewrites the named linalg ops of a module."""

    def run(self, op: ir.Operation) -> None:
        named = sorted({o.name for o in walk(op) if o.name.startswith("linalg.")} - _KEPT)
        if not named:
            return
        names = ", ".join(f'"{name}"' for name in named)
        script = parse(
            f"""module attributes {{transform.with_named_sequence}} {{
              transform.named_sequence @__transform_main(%root: !transform.any_op {{transform.readonly}}) {{
                %named = transform.structured.match ops{{[{names}]}} in %root : (!transform.any_op) -> !transform.any_op
                %generic = transform.structured.generalize %named : (!transform.any_op) -> !transform.any_op
                transform.yield
              }}
            }}"""
        )
        transform_interpreter.apply_named_sequence(op, script.body.operations[0].operation, script.operation)
