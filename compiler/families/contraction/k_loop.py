"""The loop over K of a block: tiles of both factors are fetched some steps before they are multiplied.

    fetch tiles 0 .. stages - 2
    for t:
        wait for tile t; barrier                   everybody has multiplied tile t - 1
        fetch tile t + stages - 1 into its slot
        multiply tile t

Asynchronous copies fetch while earlier tiles are multiplied; others are loaded into registers before tile t is
multiplied and stored to shared memory behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.compiler.families.contraction.addresses import Position
from tilewright.compiler.families.contraction.operand_copies import Copier
from tilewright.compiler.gpu.builder import Value, barrier, constant, for_, minimum, select
from tilewright.compiler.gpu.primitives import uniform
from tilewright.compiler.ir import ir, nvgpu

Multiply = Callable[[Value, list[Value]], Sequence[Value]]
"""Takes the slot of a tile and the sums, gives the new sums."""


def over_k(
    copiers: Sequence[Copier],
    first: Position,
    steps: Position,
    stages: int,
    sums: Sequence[Value],
    multiply: Multiply,
) -> list[Value]:
    """Multiplies `steps` tiles from step `first` of K on, counted in tiles; gives the sums."""
    if isinstance(steps, int):
        stages = min(stages, max(2, steps + 1))
    deferred = [c for c in copiers if c.plan.deferred]
    direct = [c for c in copiers if not c.plan.deferred]
    deep = copiers[0].plan.deep
    group = None

    def at(step: Position) -> Position:
        return (step + first) * deep

    def start(step: Position, slot: Position) -> ir.Value:
        """Starts the copies of one tile, as one group; behind the last tile there is nothing to read."""
        wanted = step < steps
        tokens = [token for copier in deferred for token in copier.issue(at(step), slot, wanted)]
        return nvgpu.device_async_create_group(tokens)

    for stage in range(stages - 1):
        if deferred:
            group = start(stage, stage)
        for copier in direct:
            copier.put(copier.fetch(at(_clamped(stage, steps))), stage)

    def only(_: Value, *sums: Value) -> Sequence[Value]:
        if group is not None:
            nvgpu.device_async_wait(group, num_groups=0)
        barrier()
        return multiply(_index(0), list(sums))

    if isinstance(steps, int) and steps == 1:
        # A loop all the same, whose single trip the compiler does not know: it would sink products past all loads,
        # to where results are stored.
        return for_(0, uniform(1).to(ir.IndexType.get()), 1, sums, only)

    def step(t: Value, slot: Value, *sums: Value) -> list[Value]:
        if group is not None:
            nvgpu.device_async_wait(group, num_groups=stages - 2)
        barrier()
        ahead = t + (stages - 1)
        free = select(slot.equals(0), _index(stages - 1), slot - 1)
        if deferred:
            start(ahead, free)
        fetched = [copier.fetch(at(_clamped(ahead, steps))) for copier in direct]
        following = multiply(slot, list(sums))
        for copier, values in zip(direct, fetched):
            copier.put(values, free)
        return [select(slot.equals(stages - 1), _index(0), slot + 1), *following]

    _, *total = for_(0, steps, 1, [_index(0), *sums], step)
    if group is not None:
        nvgpu.device_async_wait(group, num_groups=0)
    return total


def _clamped(step: Position, steps: Position) -> Position:
    """The last step in place of those behind it, whose tiles nobody reads."""
    return minimum(step, steps - 1)


def _index(number: int) -> Value:
    return constant(ir.IndexType.get(), number)
