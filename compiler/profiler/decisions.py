"""What the kernel profiler decided about a dispatch, for the rest of the compilation and for its report."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.nouns.schedule import Schedule


@dataclass(frozen=True)
class Measured:
    """One candidate: its best round and the middle of all in us, or why it has none."""

    schedule: Schedule
    time_us: float | None = None
    error: str = ""
    median_us: float | None = None


@dataclass(frozen=True)
class Decision:
    """The candidates of a dispatch in the order they were constructed, and the number of the one that is used."""

    candidates: tuple[Measured, ...]
    chosen: int

    @property
    def schedule(self) -> Schedule:
        return self.candidates[self.chosen].schedule

    def rows(self) -> list[dict]:
        """The candidates for a report: schedule as text, us or why there are none, and whether it is used."""
        return [
            {
                "schedule": c.schedule.text(),
                "time_us": c.time_us,
                "error": c.error,
                "used": number == self.chosen,
            }
            for number, c in enumerate(self.candidates)
        ]
