"""Rules and spaces of GPU kernels: fields of `GpuTile` as columns of numbers, for emitters one schedule, for spaces many.

A family says once what its schedules keep to, as `Constraint`s over the fields by name: `block[0]`, `stages`. The emitter
holds the schedule that it is given against them (`refuse_broken`); the space of the family's kernel has them as its
constraints (`tile_space`), so that both refuse the same field for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import inexact
from tilewright.compiler.nouns.schedule import BLOCK_THREADS, WARP, GpuTile, Schedule
from tilewright.compiler.nouns.space import KEPT, Columns, Constraint, Knob, Space, Value, first_broken, rule

Said = Mapping[str, Value]
"""Sizes by the names of fields."""


def sizes_of(tile: GpuTile) -> dict[str, Value]:
    """All that a schedule says by the names of fields, elements of tuples each on their own; 0 or "" for what is open."""
    found: dict[str, Value] = {}
    for field in fields(GpuTile):
        value = getattr(tile, field.name)
        if isinstance(value, tuple):
            found |= {f"{field.name}[{i}]": size for i, size in enumerate(value)}
        else:
            found[field.name] = value
    return found


def tile_from(sizes: Said) -> GpuTile:
    """The inverse of `sizes_of`."""
    found: dict[str, Any] = {}
    for name, value in sizes.items():
        field, _, number = name.partition("[")
        found[field] = (*found.get(field, ()), value) if number else value
    return GpuTile(**found)


def refuse_broken(constraints: Sequence[Constraint], said: GpuTile, who: str) -> None:
    """Raises ScheduleError for the first rule that a schedule breaks, with the field and what it says."""
    (number,) = broken_rules(constraints, [said])
    if number != KEPT:
        broken = [rule for constraint in constraints for rule in constraint.rules][number]
        found = sizes_of(said)[broken.field]
        raise ScheduleError(f"{who}: [{said.text()}]: gpu.{broken.field} is {found}: {broken.text}")


def broken_rules(constraints: Sequence[Constraint], tiles: Sequence[GpuTile]) -> np.ndarray:
    """The number of the first rule that each schedule breaks, `KEPT` where it keeps all: [n]."""
    said = [sizes_of(tile) for tile in tiles]
    columns = {name: np.asarray([sizes[name] for sizes in said]) for name in (said[0] if said else ())}
    return first_broken(constraints, columns, len(said))


def tile_space(
    domains: Mapping[str, Iterable[Value]],
    constraints: Sequence[Constraint],
    constructed: Schedule,
    complete: Callable[[dict[str, Value]], Mapping[str, Value]],
) -> Space:
    """The schedules of one kernel: `domains` by field, and what `constructed` says of them.

    `complete` gives the fields that follow from those with domains. All others are as `constructed` has them.
    """
    usual = sizes_of(constructed.gpu or GpuTile())
    knobs = []
    for name, domain in domains.items():
        values = tuple(sorted({*domain, usual[name]}))  # type: ignore[type-var]
        knobs.append(Knob(name, values, usual=values.index(usual[name])))

    def write(values: Mapping[str, Value]) -> Schedule:
        sizes = {**usual, **values}
        return Schedule(gpu=tile_from({**sizes, **complete(sizes)}))

    def read(schedule: Schedule) -> Mapping[str, Value]:
        own = sizes_of(schedule.gpu or GpuTile())
        if own["kernel"] != usual["kernel"]:
            raise ScheduleError(f"gpu.kernel is {own['kernel']}, not {usual['kernel']}")
        found = {name: own.get(name, 0) for name in domains}
        for knob in knobs:
            if found[knob.name] not in knob.domain:
                return found
        if (broken := inexact(schedule, write(found))) is not None:
            raise ScheduleError(broken)
        return found

    return Space(tuple(knobs), tuple(constraints), write, read, constructed)


def up_to(extent: int, sizes: Iterable[int]) -> list[int]:
    """The sizes that are smaller than an extent, and the next one."""
    ordered = sorted(sizes)
    return [size for at, size in enumerate(ordered) if not at or ordered[at - 1] < extent]


def whole_warps(field: str, threads: Callable[[Columns], np.ndarray]) -> tuple[Constraint, ...]:
    """The rules for how many threads a block has, which follow from the field among others."""
    return (
        rule(
            field,
            f"with the other sizes, a block has more than {BLOCK_THREADS} threads",
            lambda c: threads(c) > BLOCK_THREADS,
        ),
        rule(
            field,
            f"with the other sizes, threads are no multiple of {WARP}",
            lambda c: (threads(c) % WARP != 0) | (threads(c) < WARP),
        ),
    )
