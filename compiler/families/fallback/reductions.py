"""Reductions to few results by all threads of a block: each takes every so many points, then partial results combine.

linalg.generic (r reduction)            =>   for n = thread to R step threads { fold } ; shuffles within warps
  outs(%total : memref<f32>)                 barrier ; the first thread folds the warps' results onto %total
"""

from __future__ import annotations

from tilewright.compiler.families.block_loops import (
    Generic,
    Position,
    Threads,
    address,
    bound,
    index,
    product,
    sequence,
    unravel,
    when,
)
from tilewright.compiler.families.rows.combine import Combination, read_combinations
from tilewright.compiler.families.rows.exchange import folding, shuffled
from tilewright.compiler.gpu.builder import Value
from tilewright.compiler.ir import arith, gpu, ir, memref, scf
from tilewright.compiler.nouns.schedule import WARP

_IDLE = 8
"""How many times more threads there must be than results for all of them to take part in each result."""
_LONG = 64
"""Points of a reduction from which sharing it pays for a barrier."""


def combinations_of(generic: Generic, threads: int) -> tuple[Combination, ...] | None:
    """How the results of a reduction combine that is worth sharing among so many threads; None for any other."""
    if threads % WARP or not all(isinstance(extent, int) for extent in generic.extents):
        return None
    results, points = product(generic.box), product([generic.extents[i] for i in generic.reductions])
    assert isinstance(results, int)
    assert isinstance(points, int)
    if not generic.reductions or not 0 < results * _IDLE <= threads or points < _LONG:
        return None
    return read_combinations(generic)


def write_reduction(
    generic: Generic, combinations: tuple[Combination, ...], threads: Threads, partial: list[ir.Value]
) -> None:
    """One result after the other; `partial` are buffers of one element per warp, one for each output."""
    results = product(generic.box)
    assert isinstance(results, int)
    operands, first = list(generic.op.operands), generic.first_output
    read = [generic.reads(number) for number in range(first)]
    lane = arith.remui(threads.id, index(WARP))
    warp = arith.divui(threads.id, index(WARP))
    zero = index(0)

    def one(position: Position) -> None:
        ivs = dict(zip(generic.order, position))
        places = [address(map_, ivs) for map_ in generic.maps[first:]]
        kept = [memref.load(operands[first + i], places[i]) for i in range(generic.outputs)]
        starts = list(kept)
        for combination in combinations:
            neutral = combination.start([kept[o].type for o in combination.outputs])
            for o, value in zip(combination.outputs, neutral or []):
                starts[o] = value

        extents = [generic.extents[i] for i in generic.reductions]
        loop = scf.ForOp(threads.id, bound(product(extents)), index(threads.count), starts)
        with ir.InsertionPoint(loop.body):
            ivs.update(zip(generic.reductions, unravel(loop.induction_variable, extents)))
            values: list[ir.Value | None] = [
                None
                if not read[number]
                else memref.load(operands[number], address(generic.maps[number], ivs))
                if isinstance(operands[number].type, ir.MemRefType)
                else operands[number]
                for number in range(first)
            ]
            scf.yield_(generic.inline(ivs, [*values, *loop.inner_iter_args]))
        for combination in combinations:
            own = [Value(loop.results[o]) for o in combination.outputs]
            found = shuffled(own, WARP, combination)

            def put(found: list[Value] = found, combination: Combination = combination) -> None:
                for o, value in zip(combination.outputs, found):
                    memref.store(value.value, partial[o], [warp])

            when(arith.cmpi(arith.CmpIPredicate.eq, lane, zero), put)
        gpu.barrier()
        when(arith.cmpi(arith.CmpIPredicate.eq, threads.id, zero), lambda: total(kept, places))

    def total(kept: list[ir.Value], places: list[Position]) -> None:
        for combination in combinations:
            fold = folding(combination)
            start = [kept[o] for o in combination.outputs]

            def step(at: Position, carried: list[ir.Value], c=combination, fold=fold) -> list[ir.Value]:
                own = [Value(memref.load(partial[o], at)) for o in c.outputs]
                return [v.value for v in fold([Value(v) for v in carried], own)]

            found = sequence([threads.count // WARP], start, step)
            for o, value in zip(combination.outputs, found):
                memref.store(value, operands[first + o], places[o])

    if results == 1:
        one([zero] * len(generic.order))
        return
    loop = scf.ForOp(zero, index(results), index(1))
    with ir.InsertionPoint(loop.body):
        one(unravel(loop.induction_variable, generic.box))
        gpu.barrier()
        scf.yield_([])
