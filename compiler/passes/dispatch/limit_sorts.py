"""limit-sorts: a sort of which only the first elements are read says so, and need not order the others."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.placement import is_static_box
from tilewright.compiler.analysis.sort_order import FIRST
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class LimitSorts(Pass):
    """Marks sorts whose results are only read by slices that begin at the first element, as `topk` does.

    Before: %s:2 = tm_tensor.sort dimension(1) outs(%v, %i : tensor<64x4096xf32>, tensor<64x4096xi64>) {...}
            %t = tensor.extract_slice %s#0[0, 0] [64, 5] [1, 1]
    After:  %s:2 = tm_tensor.sort {tilewright.first = 5 : i64} dimension(1) ...

    A sort of which another reader sees all stays as it is. `lower-sorts` obeys.
    """

    def run(self, op: ir.Operation) -> None:
        for sort in walk(op, "tm_tensor.sort"):
            first = self.first(sort)
            if first is not None:
                sort.attributes[FIRST] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), first)

    def first(self, sort: ir.Operation) -> int | None:
        """How many elements along the dimension are read; None where some reader is no slice from the start."""
        dim = ir.IntegerAttr(sort.attributes["dimension"]).value
        most = 0
        for result in sort.results:
            for use in result.uses:
                reader = use.owner.operation
                if reader.name != "tensor.extract_slice" or not is_static_box(reader):
                    return None
                if list(reader.attributes["static_offsets"])[dim]:
                    return None
                most = max(most, list(reader.attributes["static_sizes"])[dim])
        return most or None
