"""A `Schedule` says how one dispatch is cut: rTask tile, register tile, tiles of memory levels; it applies nothing itself.

In the IR it is the attribute `tilewright.schedule` on the dispatch's function, a dictionary that prints as

    tilewright.schedule = {levels = {L1 = [14, 64, 64], L2 = [112, 64, 256]}, tile = [1, 4, 0, 64], unroll = 14, vector = 32}
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

ATTRIBUTE = "tilewright.schedule"
PREDICTED = "tilewright.predicted"
"""Beside the schedule: what the micro-performance model says of it, `{bound = "L2", us = 12.5}`."""
UNSCHEDULED = "tilewright.unscheduled"
"""Why a dispatch was given an empty schedule."""

Value = int | list[int] | dict[str, list[int]]


@dataclass(frozen=True)
class Schedule:
    """Tile sizes of one dispatch.

    `tile[i]` is the extent that one rTask takes of loop `i` of the dispatch's sink, the operation whose result
    is returned; 0 leaves the loop whole. `unroll` x `vector` is the register tile of its reductions, 0 lets the
    lowering choose. `levels` are (memory level, tile over the axes of the dispatch's workload) by name: what
    each level of memory holds of the iteration space while it is worked on. Targets that code is generated for
    read the other fields, which follow from the levels.
    """

    tile: tuple[int, ...] = ()
    unroll: int = 0
    vector: int = 0
    levels: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(sorted(self.levels)))

    def num_tasks(self, extents: tuple[int, ...]) -> int:
        """The number of rTasks for a sink with loop `extents`."""
        count = 1
        for size, extent in zip(self.tile, extents):
            if size:
                count *= -(-extent // size)
        return count

    def as_dict(self) -> dict[str, Value]:
        """Lists and integers; `levels` only where there are any."""
        values: dict[str, Value] = {"tile": list(self.tile), "unroll": self.unroll, "vector": self.vector}
        if self.levels:
            values["levels"] = {name: list(tile) for name, tile in self.levels}
        return values

    def text(self) -> str:
        """The fields that code generation reads, in one line: `tile [0, 7, 0, 64], unroll 4, vector 64`."""
        parts = [f"tile {list(self.tile)}"] if any(self.tile) else ["whole"]
        parts += [
            f"{name} {size}" for name, size in (("unroll", self.unroll), ("vector", self.vector)) if size
        ]
        return ", ".join(parts)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schedule:
        """The inverse of `as_dict`; raises ValueError that names an unknown or ill-typed field."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            listing = f"{', '.join(known[:-1])} and {known[-1]}"
            raise ValueError(f"unknown field `{unknown[0]}`; a schedule has {listing}")
        tile, unroll, vector = (values.get("tile", []), values.get("unroll", 0), values.get("vector", 0))
        if not isinstance(tile, list) or not all(map(_is_size, tile)):
            raise ValueError(f"tile is a list of integers >= 0, found {tile}")
        for name, size in (("unroll", unroll), ("vector", vector)):
            if not _is_size(size):
                raise ValueError(f"{name} is an integer >= 0, found {size}")
        return cls(tuple(tile), unroll, vector, _levels(values.get("levels", {})))


def _levels(value: object) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if not isinstance(value, dict):
        raise ValueError(f"levels is a dictionary of tiles by memory level, found {value}")
    for name, tile in value.items():
        if not isinstance(tile, list) or not all(_is_size(size) and size for size in tile):
            raise ValueError(f"the tile of level {name} is a list of integers >= 1, found {tile}")
    if len({len(tile) for tile in value.values()}) > 1:
        raise ValueError(f"tiles of levels have one size per axis of the dispatch, found {value}")
    return tuple((str(name), tuple(tile)) for name, tile in value.items())


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
