"""What `tilewright explain` says of schedules: tiles at each memory level, what bounds them, candidates, and fallbacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True)
class Choice:
    """One candidate that was measured, in us, or dropped, with the reason; `used` marks the one in the program."""

    schedule: str
    time_us: float | None
    error: str
    used: bool


@dataclass(frozen=True)
class ScheduleReport:
    """How a dispatch's schedule came about.

    `levels` are the tiles that memory levels hold, over the loops of the dispatch's sink and then its reductions;
    `waits_for` is what the model expects to be slowest, compute or a memory level; `proposer` constructed it.
    `unscheduled` says why there is no schedule.
    """

    levels: Mapping[str, Sequence[int]]
    waits_for: str = ""
    candidates: tuple[Choice, ...] = ()
    unscheduled: str = ""
    proposer: str = ""

    @classmethod
    def of(cls, note: Mapping) -> ScheduleReport:
        """Reads what the compiler noted of a dispatch; packages of earlier versions note less."""
        return cls(
            levels={str(name): [int(s) for s in tile] for name, tile in (note.get("levels") or {}).items()},
            waits_for=str(note.get("bound") or ""),
            candidates=tuple(
                Choice(
                    str(row.get("schedule") or ""), row.get("time_us"), str(row.get("error") or ""),
                    bool(row.get("used")),
                )
                for row in note.get("candidates") or ()
            ),
            unscheduled=str(note.get("unscheduled") or ""),
            proposer=str(note.get("proposer") or ""),
        )  # fmt: skip


def tiles_table(
    rows: Sequence[tuple[int, str, ScheduleReport]], predicted: Mapping[int, str]
) -> Table | None:
    """Per dispatch, as (number, operator, schedule): the tile at each memory level; None where there are none."""
    rows = [row for row in rows if row[2].levels]
    if not rows:
        return None
    names = dict.fromkeys(name for _, _, schedule in rows for name in schedule.levels)
    ordered = sorted(names, key=lambda name: (name != "registers", name))
    table = Table(
        title="tiles by memory level: the sink's loops, then reductions (of products on GPUs: batch, M, N, K)"
    )
    table.add_column("#", justify="right")
    table.add_column("operator")
    for name in ordered:
        table.add_column(name, overflow="fold")
    table.add_column("predicted", justify="right", no_wrap=True)
    table.add_column("waits for")
    table.add_column("by")
    for number, operator, schedule in rows:
        tiles = ("x".join(map(str, schedule.levels.get(name, ()))) for name in ordered)
        table.add_row(str(number), operator, *tiles, predicted[number], schedule.waits_for, schedule.proposer)
    return table


def candidates_table(rows: Sequence[tuple[int, str, ScheduleReport]]) -> Table | None:
    """The measured candidates of every dispatch, fastest first; None where nothing was measured."""
    rows = [row for row in rows if row[2].candidates]
    if not rows:
        return None
    table = Table(title="measured candidates, fastest first; * is used")
    for column in ("#", "operator", "candidate"):
        table.add_column(column, justify="right" if column == "#" else "left", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    for number, operator, schedule in rows:
        ranked = sorted(schedule.candidates, key=lambda c: (c.time_us is None, c.time_us or 0.0))
        for place, choice in enumerate(ranked):
            time = f"{choice.time_us:.1f} us" if choice.time_us is not None else choice.error or "not timed"
            label = (str(number), operator) if place == 0 else ("", "")
            table.add_row(*label, f"{'* ' if choice.used else '  '}{choice.schedule}", time)
        table.add_section()
    return table


def remarks(rows: Sequence[tuple[int, str, ScheduleReport]]) -> list[str]:
    """One line per dispatch that has no constructed schedule."""
    lines = []
    for number, operator, schedule in rows:
        if schedule.unscheduled:
            lines.append(f"#{number} {operator} has no constructed schedule: {schedule.unscheduled}")
    return lines
