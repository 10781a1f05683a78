"""Puts the dispatch calls of @main in an order in which what they read is still in a near cache.

    for every step t:                              for every layer l:
      for every layer l:                             for every step t:
        %h[l] = call @cell(%x, %h[l], %w[l])   =>      %h[t] = call @cell(%x[t], %h[t - 1], %w[l])

Which order that is follows from what calls read and write and from the target's caches (`tuning/dispatch_order.py`).
Results are the same to the bit. Views and constants move to the first call that needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler import debug
from tilewright.compiler.analysis.call_accesses import failing_dispatches, read_calls
from tilewright.compiler.analysis.placement import is_inserted
from tilewright.compiler.analysis.views import is_view
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.package.plan import plan_arena
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.block_order import put_in_order
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.dispatch_order import Cache, caches, decide

_PLACED = ("func.call", "arith.constant", "tensor.empty", "linalg.fill")


@dataclass(frozen=True)
class OrderDispatches(Pass):
    """Moves calls of @main; does nothing where no other order is better.

    `capacities` are the bytes that each level of memory holds, outermost first, and `gbps` what is read from it.
    Refuses a level that lacks one of the two, and a @main that computes outside of dispatches.
    """

    capacities: tuple[int, ...] = ()
    gbps: tuple[float, ...] = ()

    @classmethod
    def for_target(cls, target: Target) -> OrderDispatches:
        """The pass with a target's caches."""
        levels = caches(target)
        return cls(tuple(level.capacity_bytes for level in levels), tuple(level.gbps for level in levels))

    def run(self, op: ir.Operation) -> None:
        if len(self.capacities) != len(self.gbps) or min((*self.capacities, *self.gbps), default=1) <= 0:
            found = f"found capacities of {list(self.capacities)} and rates of {list(self.gbps)}"
            raise self.refusal(
                op, f"expected a capacity and a rate above 0 for every level, {found}; write both"
            )
        levels = [Cache(*level) for level in zip(self.capacities, self.gbps)]
        mains = [f for f in functions(op.opview) if ir.StringAttr(f.attributes["sym_name"]).value == "main"]
        if len(levels) < 2 or not mains:
            return
        main = mains[0]
        for view in list(main.regions[0].blocks[0].operations)[:-1]:
            if not _is_placed(view.operation):
                found = f"expected calls of dispatches, found `{view.operation.name}`"
                raise self.refusal(view.operation, f"{found}; run outline-dispatches first")
        calls = read_calls(main, failing_dispatches(op.opview))

        def arena_bytes(order: Sequence[int]) -> int:
            return plan_arena([calls.steps[i] for i in order], calls.memories)[1]

        decision = decide(calls.steps, calls.memories, levels, arena_bytes)
        debug.log(
            1,
            f"order-dispatches: {decision.read_us:.1f} us of reads in windows of {decision.window} of "
            f"{len(calls.steps)} dispatches, {decision.given_us:.1f} us as given",
        )
        if decision.window:
            put_in_order(main, [calls.ops[i] for i in decision.order])


def _is_placed(op: ir.Operation) -> bool:
    """Whether `op` is a call, or says no more than where tensors lie and what their borders are."""
    return op.name in _PLACED or is_view(op) or is_inserted(op)
