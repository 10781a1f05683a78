"""A ring of buffers in shared memory between asynchronous copies and warpgroups that multiply, with two barriers each.

    producer                                  consumer
    wait until stage s is empty               wait until stage s is full
    expect bytes, start copies into it        multiply
    next stage                                say that it is empty, next stage

A barrier's phases alternate in parity. Both sides carry (stage, parity) and flip the parity at each turn of the ring,
over all the tiles that a block works on.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.gpu import primitives
from tilewright.compiler.gpu.builder import Operand, Value, both, constant, i32, if_, select, shared
from tilewright.compiler.gpu.primitives import Shared
from tilewright.compiler.ir import ir

BARRIER_BYTES = 8


@dataclass(frozen=True)
class Turn:
    """Where one side of a pipeline stands: the number of its stage and the parity of its phase, both i32."""

    stage: Value
    parity: Value

    @classmethod
    def first(cls) -> Turn:
        return cls(i32(0), i32(0))

    @classmethod
    def of(cls, carried: list[Value]) -> Turn:
        """The turn among the values that a loop carries."""
        return cls(carried[0], carried[1])

    def carried(self) -> list[Value]:
        return [self.stage, self.parity]


@dataclass(frozen=True)
class Pipeline:
    """Barriers of `stages` buffers: one for full, one for empty. `readers` is how many arrivals empty a stage."""

    barriers: ir.Value
    stages: int
    readers: int

    @classmethod
    def allocate(cls, stages: int, readers: int) -> Pipeline:
        """The barriers' memory; allocate before branching, and `initialise` once."""
        memory = shared([2 * stages * BARRIER_BYTES], ir.IntegerType.get_signless(8), BARRIER_BYTES)
        return cls(memory, stages, readers)

    def initialise(self) -> None:
        """For one thread of the block; a fence and a barrier of the block or cluster must follow."""
        for stage in range(self.stages):
            primitives.mbarrier_init(self.full(stage), 1)
            primitives.mbarrier_init(self.empty(stage), self.readers)

    def full(self, stage: Operand) -> Shared:
        return Shared(self.barriers, stage * BARRIER_BYTES)

    def empty(self, stage: Operand) -> Shared:
        return Shared(self.barriers, stage * BARRIER_BYTES + self.stages * BARRIER_BYTES)

    def next(self, turn: Turn) -> Turn:
        last = turn.stage.equals(self.stages - 1)
        stage = select(last, 0, turn.stage + 1)
        parity = select(last, turn.parity ^ 1, turn.parity)
        assert isinstance(stage, Value) and isinstance(parity, Value)
        return Turn(stage, parity)

    def wait_empty(self, turn: Turn) -> None:
        """For the producer: until the readers are through with what the stage held a turn ago; at once at first."""
        primitives.mbarrier_wait(self.empty(turn.stage), turn.parity ^ 1)

    def wait_full(self, turn: Turn) -> None:
        """For consumers: until all bytes of the stage have come."""
        primitives.mbarrier_wait(self.full(turn.stage), turn.parity)

    def release(self, stage: Value, thread: Value, cluster: int = 1) -> None:
        """One reader is through with a stage: told to the producers of all blocks that write to it.

        Called by all threads of a warpgroup, whose number in it is `thread`.
        """
        if cluster == 1:
            with if_(thread.equals(0)):
                primitives.mbarrier_arrive(self.empty(stage))
        else:
            with if_(thread < cluster):
                primitives.mbarrier_arrive_cluster(self.empty(stage), thread)

    def release_before(self, turn: Turn, thread: Value, condition: Operand, cluster: int = 1) -> None:
        """`release` of the stage before this turn's, where the condition holds."""
        before = select(turn.stage.equals(0), self.stages - 1, turn.stage - 1)
        assert isinstance(before, Value)
        if cluster == 1:
            with if_(both(condition, thread.equals(0))):
                primitives.mbarrier_arrive(self.empty(before))
        else:
            with if_(both(condition, thread < cluster)):
                primitives.mbarrier_arrive_cluster(self.empty(before), thread)


def zeros(count: int, type_: ir.Type) -> list[Value]:
    """Accumulators to begin with; the first product overwrites them."""
    return [constant(type_, 0)] * count
