"""What the kernel profiler decided, on disk: one JSON file per dispatch, so that nothing is measured twice."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilewright.compiler import debug
from tilewright.compiler.schedule import Schedule
from tilewright.compiler.settings import settings

_VERSION = 1


@dataclass(frozen=True)
class Measured:
    """One candidate: its time in us, or why it has none."""

    schedule: Schedule
    time_us: float | None = None
    error: str = ""


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

    def to_json(self) -> dict:
        rows = [
            {"schedule": c.schedule.as_dict(), "time_us": c.time_us, "error": c.error}
            for c in self.candidates
        ]
        return {"version": _VERSION, "chosen": self.chosen, "candidates": rows}

    @classmethod
    def from_json(cls, data: dict) -> Decision:
        """The inverse of `to_json`; raises ValueError for anything else."""
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            raise ValueError(f"expected a decision of version {_VERSION}")
        try:
            rows = tuple(
                Measured(
                    Schedule.from_dict(row["schedule"]),
                    None if row["time_us"] is None else float(row["time_us"]),
                    str(row["error"]),
                )
                for row in data["candidates"]
            )
            chosen = data["chosen"]
            if not isinstance(chosen, int) or not 0 <= chosen < len(rows):
                raise ValueError(f"chosen: expected one of {len(rows)} candidates, found {chosen}")
        except (KeyError, TypeError) as error:
            raise ValueError(f"no decision: {error!r}") from None
        return cls(rows, chosen)


@dataclass(frozen=True)
class DecisionStore:
    """A folder of decisions by key."""

    folder: Path

    @classmethod
    def open(cls) -> DecisionStore:
        return cls(settings().cache_dir / "decisions")

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def find(self, key: str) -> Decision | None:
        """The decision stored under `key`; None if there is none, or with a word in the debug log if it is damaged."""
        try:
            return Decision.from_json(json.loads(self._path(key).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            debug.log(1, f"decision {key[:12]}: {error}; measured anew")
            return None

    def store(self, key: str, decision: Decision) -> None:
        """Writes a decision; a folder that cannot be written only costs the next process the measurement."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
                json.dump(decision.to_json(), file, sort_keys=True)
            os.replace(file.name, path)
        except OSError as error:
            debug.log(1, f"decision {key[:12]}: not stored: {error}")
