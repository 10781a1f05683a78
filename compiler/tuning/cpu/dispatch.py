"""A dispatch on a CPU as proposers see it: its space, its workload, what can be cut of it and what its registers hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.compiler.nouns.cut_space import CutSpace
from tilewright.compiler.nouns.schedule import LOOPS, Reduction, Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Others
from tilewright.compiler.tuning.cpu.register_layers import RegisterLayer
from tilewright.compiler.tuning.cpu.rtask_tiles import CpuModel
from tilewright.compiler.tuning.model.rates import TASK_US

Tile = tuple[int, ...]


@dataclass(frozen=True)
class RegisterSizes:
    """The loops that compute the reduction which does the work, and what their sizes are of.

    It has the entry `number` of a schedule's `reductions`. `loops` are the sink's that each size steps along, None for
    one that is no loop of it; a step of a size is `units` steps of its loop.
    """

    number: int
    kind: str
    loops: tuple[int | None, ...]
    units: tuple[int, ...]
    layer: RegisterLayer

    @property
    def knobs(self) -> tuple[str, ...]:
        """The knobs of a space that the sizes are."""
        return tuple(f"reductions[{self.number}].{self.kind}.{size}" for size in LOOPS[self.kind])

    def reduction(self, sizes: tuple[int, ...]) -> Reduction:
        """The entry of a schedule."""
        return Reduction(self.kind, sizes)


@dataclass(frozen=True)
class CpuDispatch:
    """What is known of one dispatch on a CPU, without its IR.

    `read_space` is asked when it is needed; `read_registers(tile)` says what the registers of an rTask hold, None where
    sizes say nothing of that. `complete` fills in what a schedule leaves open, and raises ScheduleError for one that no kernel has;
    `others` lists what its reductions can be beside the best under a tile, `describe` gives the workload with its body.
    """

    workload: Workload
    target: Target
    cuts: CutSpace
    read_space: Callable[[], Space]
    read_registers: Callable[[Tile], RegisterSizes | None]
    complete: Callable[[Schedule], Schedule]
    others: Others
    describe: Callable[[], Workload]
    task_us: float = TASK_US

    @cached_property
    def described(self) -> Workload:
        """The workload with what it computes."""
        return self.describe()

    @cached_property
    def space(self) -> Space:
        return self.read_space()

    @cached_property
    def registers(self) -> RegisterSizes | None:
        """What registers hold where nothing is cut."""
        return self.read_registers(())

    def cut(self, sizes: Tile) -> Tile:
        """Sizes of all of the sink's loops as a schedule's `tile`, where 0 leaves a loop whole."""
        return tuple(0 if size == extent else size for size, extent in zip(sizes, self.cuts.extents))

    def predicted(self, schedule: Schedule) -> tuple[float, str]:
        """Microseconds by the model of rTasks, and what bounds it."""
        model = CpuModel(self.workload, self.cuts, self.target, self.task_us)
        extents = self.cuts.extents
        tile = [*schedule.tile, *[0] * (len(extents) - len(schedule.tile))]
        whole = [size or extent for size, extent in zip(tile, extents)]
        us, bounds, _ = model.predict(np.asarray([whole], dtype=np.int64).reshape(1, len(extents)))
        return round(float(us[0]), 3), bounds[0]
