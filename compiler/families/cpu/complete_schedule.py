"""Completes a CPU's schedules: how each reduction of a dispatch is computed, decided on what one rTask will have of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.analysis.line_operations import lines_of
from tilewright.compiler.analysis.placement import REPLACES
from tilewright.compiler.analysis.sink import outside
from tilewright.compiler.dialects.reduction_attribute import Sized, broken
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.cut_reductions import CutReduction, Cuts
from tilewright.compiler.families.cpu.kinds import KINDS
from tilewright.compiler.families.cpu.panels import chosen_prefetch
from tilewright.compiler.families.cpu.streamed_loops import Streamed
from tilewright.compiler.families.cpu.walked_rows import rows_distance
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import LOOPS, Reduction, Schedule
from tilewright.compiler.targets.target import Target

REGISTER_TILED = ("products", "dots", "winograd")
"""Loops whose sizes are `unroll` and `vector`."""


@dataclass(frozen=True)
class Choice:
    """The loops that compute one reduction best, and their sizes, best first; `loops` is None for those without sizes."""

    kind: str
    loops: Sized | None = None
    ranked: tuple[tuple[int, ...], ...] = ((),)

    def reduction(self, rank: int = 0) -> Reduction:
        """With the sizes of a rank, the last there are where there are fewer."""
        return Reduction(self.kind, self.ranked[min(rank, len(self.ranked) - 1)])


def complete(function: ir.Operation, schedule: Schedule, target: Target) -> Schedule:
    """The schedule with everything that the dispatch's kernel is made of on a CPU.

    `unroll` and `vector`, where they are not 0, become the sizes of its register tiles. Raises ScheduleError where it
    has none, or none of these sizes, for a tile of what cannot be cut, and for what only kernels of GPUs have.
    """
    name = ir.StringAttr(function.attributes["sym_name"]).value
    if schedule.gpu is not None:
        raise ScheduleError(
            f"dispatch @{name}: illegal schedule: gpu says how a kernel of a GPU is built, the target `{target.name}` is a "
            "CPU; leave gpu out",
            function.location,
        )
    left = outside(function) if any(schedule.tile) and lines_of(function) is None else None
    if left is not None:
        raise ScheduleError(
            f"dispatch @{name}: illegal schedule: tile is {list(schedule.tile)}, but `{left.name}` would stand outside of "
            "the grid of rTasks; use tile = []",
            left.location,
        )
    if schedule.reductions:
        return schedule
    choices = choose(function, schedule.tile, target)
    if schedule.unroll or schedule.vector:
        rule = _broken_wish(schedule, choices, target)
        if rule is not None:
            raise ScheduleError(f"dispatch @{name}: illegal schedule: {rule}", function.location)
    found = tuple(_asked(choice.reduction(), schedule) for choice in choices)
    distance = schedule.prefetch or chosen_prefetch(function, found, target)
    distance = distance or rows_distance(function, found, schedule.tile, target)
    return replace(schedule, unroll=0, vector=0, reductions=found, prefetch=distance)


def can_stream(function: ir.Operation, schedule: Schedule, target: Target) -> bool:
    """Whether the result can be stored past the caches without taking an epilogue out of a reduction's registers."""
    if REPLACES in function.attributes or any(
        reduction.loops not in ("along", "scalar") for reduction in schedule.reductions
    ):
        return False
    with function.context, function.location:
        sink = Cuts(function).sink_under(schedule.tile)
        return sink is not None and Streamed.read(sink, target.vector_bits) is not None


def others(
    function: ir.Operation, tile: tuple[int, ...], target: Target
) -> Iterator[tuple[Reduction, ...]] | None:
    """What else the reductions of a dispatch can be, best first; None where `unroll` and `vector` say it all."""
    choices = choose(function, tile, target)
    if any(choice.kind in REGISTER_TILED for choice in choices):
        return None
    count = max((len(choice.ranked) for choice in choices), default=0)
    return (tuple(choice.reduction(rank) for choice in choices) for rank in range(1, count))


def choose(function: ir.Operation, tile: tuple[int, ...], target: Target) -> list[Choice]:
    """The loops of every reduction of a dispatch that is cut into tiles of its sink's loops."""
    with function.context, function.location:
        return [choose_loops(cut, target) for cut in Cuts(function).under(tile)]


def choose_loops(cut: CutReduction, target: Target) -> Choice:
    """The loops of one reduction as it is cut: the first kind that has any, its sizes best first."""
    for kind in KINDS:
        loops = kind.read(cut, target)
        if loops is not None:
            return Choice(
                kind.name, loops if LOOPS[kind.name] else None, tuple(kind.ranked(cut, loops, target))
            )
    raise AssertionError("scalar loops compute every reduction")


def _asked(reduction: Reduction, schedule: Schedule) -> Reduction:
    """A register tile with what `unroll` and `vector` say instead of its own sizes; others as they are."""
    if reduction.loops not in REGISTER_TILED:
        return reduction
    asked = zip((schedule.unroll, schedule.vector), reduction.sizes)
    return replace(reduction, sizes=tuple(own or size for own, size in asked))


def _broken_wish(schedule: Schedule, choices: Sequence[Choice], target: Target) -> str | None:
    """The first rule that `unroll` and `vector` break; None where they keep all."""
    tiled = [choice for choice in choices if choice.kind in REGISTER_TILED]
    if not tiled:
        field, size = ("unroll", schedule.unroll) if schedule.unroll else ("vector", schedule.vector)
        return f"{field} is {size}, but nothing in it has a register tile to choose; use 0"
    for choice in tiled:
        assert choice.loops is not None and LOOPS[choice.kind] == ("unroll", "vector")
        rule = broken(_asked(choice.reduction(), schedule), choice.loops, target.registers_per_thread)
        if rule is not None:
            return rule
    return None
