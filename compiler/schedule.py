"""A `Schedule` says how one dispatch is cut: rTask tile, register tile; it applies nothing itself.

In the IR it is the attribute `tilewright.schedule` on the dispatch's function, a dictionary that prints as

    tilewright.schedule = {tile = [1, 4, 0, 64], unroll = 14, vector = 32}
"""

from __future__ import annotations

from dataclasses import dataclass

ATTRIBUTE = "tilewright.schedule"


@dataclass(frozen=True)
class Schedule:
    """Tile sizes of one dispatch.

    `tile[i]` is the extent that one rTask takes of loop `i` of the dispatch's sink, the operation whose result
    is returned; 0 leaves the loop whole. `unroll` x `vector` is the register tile of its reductions, 0 lets the
    lowering choose.
    """

    tile: tuple[int, ...] = ()
    unroll: int = 0
    vector: int = 0

    def num_tasks(self, extents: tuple[int, ...]) -> int:
        """The number of rTasks for a sink with loop `extents`."""
        count = 1
        for size, extent in zip(self.tile, extents):
            if size:
                count *= -(-extent // size)
        return count

    def as_dict(self) -> dict[str, int | list[int]]:
        return {"tile": list(self.tile), "unroll": self.unroll, "vector": self.vector}

    @classmethod
    def from_dict(cls, values: dict) -> Schedule:
        """The inverse of `as_dict`; raises ValueError that names an unknown or ill-typed field."""
        unknown = sorted(set(values) - {"tile", "unroll", "vector"})
        if unknown:
            raise ValueError(f"unknown field `{unknown[0]}`; a schedule has tile, unroll and vector")
        tile, unroll, vector = (values.get("tile", []), values.get("unroll", 0), values.get("vector", 0))
        if not isinstance(tile, list) or not all(map(_is_size, tile)):
            raise ValueError(f"tile is a list of integers >= 0, found {tile}")
        for name, size in (("unroll", unroll), ("vector", vector)):
            if not _is_size(size):
                raise ValueError(f"{name} is an integer >= 0, found {size}")
        return cls(tuple(tile), unroll, vector)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
