"""Counts the dispatches of a module, by operator: {conv = 20, matmul = 1} in the attribute `example.dispatches`.

module { func private @matmul_0(...) {tilewright.operator = "matmul"} }
  =>
module attributes {example.dispatches = {matmul = 1 : i64}} { ... }
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.compiler.ir import functions, ir
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class CountDispatches(Pass):
    """Those of fewer than `least` calls of an operator are left out."""

    least: int = 1

    def run(self, op: ir.Operation) -> None:
        named = (
            f.attributes["tilewright.operator"]
            for f in functions(op.opview)
            if "tilewright.operator" in f.attributes
        )
        counts = Counter(ir.StringAttr(name).value for name in named)
        i64 = ir.IntegerType.get_signless(64)
        op.attributes["example.dispatches"] = ir.DictAttr.get(
            {
                name: ir.IntegerAttr.get(i64, count)
                for name, count in sorted(counts.items())
                if count >= self.least
            }
        )
