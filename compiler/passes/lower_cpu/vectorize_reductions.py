"""Turns reductions over tiles in memory into register-tiled vector loops.

    linalg.generic (m, n, k) {tilewright.loops = {products = [12, 32]}}
        C[m, n] += A[m, k] * B[k, n]                                  // memrefs, static extents

becomes, for this register tile of 12 x 32,

    scf.for n0 step 32 { scf.for m0 step 12 {
      %acc:12 = scf.for k iter_args(12 x vector<32xf32>) {
        %b = vector.load B[k, n0]
        %acc_t += broadcast(A[m0 + t, k]) * %b                   // t = 0 .. 11
      }
      vector.store %acc_t, C[m0 + t, n0]
    } }

The vector dimension is the innermost loop of the output; every input must move along it with unit stride or
not at all, so one rule covers matmul, direct convolution on channels-last data with packed weights, depthwise
convolution, pooling and column sums. Any arith/math body vectorises. Remainders get their own static copies.

Upstream's linalg vectoriser accepts only projected permutations, which strided windows and packed weights
(`n floordiv 32, k, n mod 32`) are not, and its accumulators reach registers only after several rounds of
patterns (60 ms for one matmul against 2 ms here), hence this rewrite.

A short element-wise operation behind the reduction (a bias, a relu, a sum with a shortcut) is computed on the
accumulators before they are stored, see `vector_epilogue.py`.

Where the reduction itself is contiguous (row sums, products with the rows of a matrix), vectors run along it and
hold partial results, see `contiguous_loops.py`; terms are then regrouped, as `docs/numerics.md` allows.

Convolutions of few channels per group, whose weights `pack-contractions` stored for it, fill vectors with several
groups, see `grouped_loops.py`.

Reductions that are marked `scalar` (booleans, index bodies), or not at all, are left to scalar loops, marked so that
LLVM may reassociate and vectorise them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.dialects import reduction_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.broadcast_loops import Broadcast, BroadcastLoops
from tilewright.compiler.families.cpu.contiguous_loops import Contiguous, ContiguousLoops
from tilewright.compiler.families.cpu.grouped_loops import Grouped, GroupedLoops
from tilewright.compiler.families.cpu.reduction import Structure, allow_reassociation, take_fill
from tilewright.compiler.families.cpu.vector_epilogue import Epilogue
from tilewright.compiler.families.cpu.vector_prologue import Prologue
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.register_tiles import DotTile
from tilewright.compiler.nouns.schedule import Reduction
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class VectorizeReductions(Pass):
    """Register-tiles and vectorises reductions on memrefs that are marked `products`, `along` or `groups`.

    `vector_bits` and `registers` describe the target. Raises ScheduleError for a reduction that has no such loops, or
    no such tile, and for what is still marked otherwise.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512
    registers: int = 32

    def run(self, op: ir.Operation) -> None:
        # Read before the first is rewritten, which takes the operation behind it along.
        found = [
            (generic, reduction_attribute.read(generic), Structure.read(generic))
            for generic in walk(op, "linalg.generic")
        ]
        for generic, said, reduction in found:
            if said is not None and said.loops in ("products", "along", "groups"):
                self.emit(generic, said.loops, reduction)
            elif said is not None and said.loops != "scalar":
                reduction_attribute.check(generic, None, self.registers)
            elif reduction is not None and reduction.reduction:
                allow_reassociation(generic)

    def emit(self, op: ir.Operation, loops: str, reduction: Structure | None) -> None:
        """Writes the loops of this kind in place of the reduction."""
        kind = {"products": Broadcast, "along": Contiguous, "groups": Grouped}[loops]
        plan = kind.read(reduction, self.vector_bits) if reduction is not None else None
        said = reduction_attribute.check(op, plan, self.registers)
        assert reduction is not None
        if isinstance(plan, Broadcast):
            _emit(reduction, plan, said)
            return
        with ir.InsertionPoint(op), op.location:
            if isinstance(plan, Grouped):
                GroupedLoops(reduction, plan, said.sizes[0], take_fill(op)).emit()
            elif isinstance(plan, Contiguous):
                _emit_along(reduction, plan, DotTile(*said.sizes))
        op.erase()


def _emit_along(reduction: Structure, plan: Contiguous, tile: DotTile) -> None:
    """Writes the loops in front of the reduction, in place of what computes its rows element by element."""
    prologue = Prologue.before(reduction, plan.inner)
    prefetch = reduction_attribute.read_prefetch(reduction.op)
    loops = ContiguousLoops(reduction, plan, tile, take_fill(reduction.op), prologue, prefetch)
    loops.emit()
    if prefetch and not loops.fetches:
        raise ScheduleError(
            f"illegal schedule: prefetch is {prefetch}, but rTasks take no rows of what this reduction walks; leave it out",
            reduction.op.location,
        )
    if prologue is not None:
        prologue.op.erase()


def _emit(reduction: Structure, plan: Broadcast, said: Reduction) -> None:
    """Writes the loops in place of the reduction, and of what follows it element by element."""
    epilogue = Epilogue.after(reduction.op)
    if epilogue is not None and not epilogue.is_short:
        epilogue = None
    last = epilogue.op if epilogue else reduction.op
    with ir.InsertionPoint(last), last.location:
        store = epilogue.store if epilogue else None
        prefetch = reduction_attribute.read_prefetch(reduction.op)
        BroadcastLoops(reduction, plan, said, take_fill(reduction.op), store, prefetch).emit()
    if epilogue:
        epilogue.op.erase()
    reduction.op.erase()
