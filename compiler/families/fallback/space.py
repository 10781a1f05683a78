"""The space of schedules of the fallback: tiles of the loops along which all of a dispatch can be cut, and threads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import inexact
from tilewright.compiler.families.fallback.family import THREADS, UNCUT, Prepared, can_be_cut, loops_of
from tilewright.compiler.nouns.register_tiles import divisors
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import Columns, Knob, Space, Value, by_values, rule
from tilewright.compiler.targets.target import Target

_THREADS = (32, 64, 128, 256, 512, 1024)


def space(problem: Prepared, constructed: Schedule, target: Target) -> Space:
    """The schedules of the dispatch; the constructed one is among them. Sizes divide their loops."""
    extents, loops = loops_of(problem.function)
    said = constructed.gpu or GpuTile("fallback", _THREADS[0])
    usual = dict(enumerate(constructed.tile))
    cut = [loop for loop in range(len(extents)) if loop in loops or usual.get(loop)]
    names = {loop: f"tile[{loop}]" for loop in cut}
    knobs = [
        Knob(names[loop], tuple(sorted({*divisors(extents[loop]), usual.get(loop) or extents[loop]})))
        for loop in cut
    ]
    knobs.append(Knob("threads", tuple(sorted({*_THREADS, said.threads}))))

    def tile_of(sizes: Mapping[int, int]) -> tuple[int, ...]:
        own = [sizes.get(loop, extent) for loop, extent in enumerate(extents)]
        tile = tuple(0 if size == extent else size for size, extent in zip(own, extents))
        return tile if any(tile) else ()

    def write(values: Mapping[str, Value]) -> Schedule:
        tile = tile_of({loop: int(values[name]) for loop, name in names.items()})
        return Schedule(tile, gpu=GpuTile("fallback", int(values["threads"])))

    def read(schedule: Schedule) -> Mapping[str, Value]:
        sizes = dict(enumerate(schedule.tile))
        found: dict[str, Value] = {name: sizes.get(loop) or extents[loop] for loop, name in names.items()}
        found["threads"] = schedule.gpu.threads if schedule.gpu is not None else 0
        if (broken := inexact(schedule, write(found))) is not None:
            raise ScheduleError(broken)
        return found

    known: dict[tuple[bool, ...], bool] = {}

    def suits(*sizes: int) -> bool:
        """Divisors of the same loops cut a dispatch all alike."""
        which = tuple(size < extents[loop] for loop, size in zip(cut, sizes))
        if which not in known:
            with problem.function.context, problem.function.location:
                known[which] = can_be_cut(problem, tile_of(dict(zip(cut, sizes))))
        return known[which]

    def uncut(c: Columns) -> np.ndarray:
        return by_values(suits, *(c[name] for name in names.values())) == 0

    first = [rule(next(iter(names.values())), UNCUT, uncut)] if names else []
    return Space(tuple(knobs), (*THREADS, *first), write, read, constructed)
