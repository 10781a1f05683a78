"""A `Program` is what construction yields: an rTile per memory layer, what it should take, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.compiler.nouns.workload import Workload


@dataclass(frozen=True)
class Program:
    """An rProgram (Roller, OSDI'22, §3.2): tiles from the fastest layer down, for one workload on one target.

    `levels` are (layer, tile over `workload.axes`); the last is the tile that one execution unit takes, so it cuts the
    dispatch into rTasks. `canonical` and `canonical_levels` say the same after axis fusion. `staged` tells whether
    inputs are copied into the middle layers or read in place; `storage_padding` is that of the staged input tiles.
    `times_us` says how long each layer and the arithmetic alone would take, `predicted_us` all of it together, `bound`
    which of them it waits for.
    """

    workload: Workload
    target: str
    levels: tuple[tuple[str, tuple[int, ...]], ...]
    predicted_us: float
    bound: str
    times_us: dict[str, float] = field(hash=False)
    canonical: Workload
    canonical_levels: tuple[tuple[str, tuple[int, ...]], ...]
    storage_padding: tuple[tuple[int, ...], ...] = ()
    staged: bool = True
    epsilon: float = 0.0

    def tile(self, layer: str) -> tuple[int, ...]:
        """The tile at the layer of that name; raises KeyError with those there are."""
        for name, tile in self.levels:
            if name == layer:
                return tile
        raise KeyError(f"the program has no layer `{layer}`; it has {', '.join(n for n, _ in self.levels)}")

    @property
    def task(self) -> tuple[int, ...]:
        """The tile of one execution unit: what the program is scaled out by."""
        return self.levels[-1][1]

    def explain(self) -> str:
        """One line per layer: the tile, and how long the layer takes; the one that bounds the program is marked."""
        lines = [f"{self.workload.op} on {self.target}: {self.predicted_us:.1f} us, bound by {self.bound}"]
        axes = ", ".join(axis.name for axis in self.workload.axes)
        for name, tile in self.levels:
            lines.append(f"  {name:12} [{axes}] = {list(tile)}")
        for name, time_us in self.times_us.items():
            lines.append(f"  {name:12} {time_us:10.1f} us{'  <- bound' if name == self.bound else ''}")
        return "\n".join(lines)
