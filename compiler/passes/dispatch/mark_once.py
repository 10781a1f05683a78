"""Marks dispatches that run once, when weights are bound: their code need not be the fastest.

func @prepack(%w) { %p = call @elementwise_64x32(%w) ... }
  =>
func.func private @elementwise_64x32(...) attributes {tilewright.once}
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.dialects.kernel_form import ONCE
from tilewright.compiler.ir import functions, ir, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class MarkOnce(Pass):
    """Marks element-wise dispatches that only @prepack calls: most are transposes of weights."""

    def run(self, op: ir.Operation) -> None:
        called: dict[str, set[str]] = {}
        named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(op.opview)}
        for caller, function in named.items():
            for call in walk(function, "func.call"):
                called.setdefault(ir.FlatSymbolRefAttr(call.attributes["callee"]).value, set()).add(caller)
        for name, callers in called.items():
            if callers == {"prepack"} and name in named and _is_elementwise(named[name]):
                named[name].attributes[ONCE] = ir.UnitAttr.get()


def _is_elementwise(function: ir.Operation) -> bool:
    operator = "tilewright.operator"
    return (
        operator in function.attributes
        and ir.StringAttr(function.attributes[operator]).value == "elementwise"
    )
