"""What is on record of a task: outcomes that a search continues from, and a task whose candidates are the recorded ones alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from tilewright.compiler.errors import RecordError, ScheduleError
from tilewright.compiler.nouns.record import Record
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT, Knob, Space
from tilewright.compiler.tuning.features.feature_set import Features
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search.search_task import Outcome, SearchTask


def recorded_outcomes(task: SearchTask, records: Iterable[Record]) -> list[Outcome]:
    """What became of candidates of the task's space, one outcome for each record of one, oldest first.

    The records are of the task's work, and of one device. Those of schedules that the space lacks, as other versions of the
    compiler may have measured, are of no candidate and left out.
    """
    found = []
    for record in records:
        if record.workload != task.key:
            raise RecordError(f"expected records of {task.key:.12}, found one of {record.workload:.12}")
        try:
            point = task.space.point(record.read_schedule())
        except (RecordError, ScheduleError):
            continue
        if task.space.legal(point[None])[0] == KEPT:
            key = tuple(map(int, point))
            found.append(Outcome(task.key, key, record.rounds_us, record.error, record.object))
    return found


def outcomes_on_record(
    tasks: Iterable[SearchTask], store: RecordStore, target: str, device: str, threads: int, compiler: str
) -> dict[str, list[Outcome]]:
    """What a device measured of tasks on a target, by their keys: the `records` that `tune` goes on from.

    `target` is the target's key. What another version of the `compiler` measured may be of other machine code, and what
    was measured with arguments in other memory took other times: neither is an outcome of this search. Raises
    RecordError for malformed rows.
    """
    return {
        task.key: recorded_outcomes(
            task,
            store.find(
                *(task.key, target, device, threads),
                residence=getattr(task, "residence", None),
                compiler=compiler,
            ),
        )
        for task in tasks
    }


class RecordedTask:
    """A task whose candidates are those on record: its space has one knob, the number of the candidate.

    Raises RecordError where there are none.
    """

    def __init__(self, task: SearchTask, outcomes: Sequence[Outcome]):
        by_point: dict[tuple[int, ...], list[Outcome]] = {}
        for outcome in outcomes:
            by_point.setdefault(outcome.point, []).append(outcome)
        if not by_point:
            raise RecordError(f"nothing is on record of `{task.name}`; measure it first, or simulate it")
        self.task, self.key, self.name, self.calls = task, task.key, task.name, task.calls
        self.limit_us = task.limit_us
        self._points = np.asarray(sorted(by_point), dtype=np.int64)
        self._outcomes = [by_point[point] for point in sorted(by_point)]

    @cached_property
    def space(self) -> Space:
        schedules = [self.task.space.schedule(point) for point in self._points]

        def read(schedule: Schedule) -> dict[str, int]:
            if schedule not in schedules:
                raise ScheduleError("the schedule is not on record")
            return {"number": schedules.index(schedule)}

        return Space(
            (Knob("number", tuple(range(len(schedules)))),),
            (),
            lambda values: schedules[int(values["number"])],
            read,
            self.task.space.default(),
        )

    def features(self, points: np.ndarray, sets: frozenset[str]) -> Features:
        return self.task.features(self._points[points[:, 0]], sets)

    def seeds(self, count: int) -> np.ndarray:
        """Those of the task's that are on record."""
        numbers = {tuple(point): number for number, point in enumerate(self._points.tolist())}
        found = [numbers[p] for p in map(tuple, self.task.seeds(count).tolist()) if p in numbers]
        return np.asarray(found, dtype=np.int64)[:, None]

    def outcome(self, point: np.ndarray) -> Outcome:
        """All rounds of a candidate, or the reason of its failure, which is not forgiven."""
        known, number = self._outcomes[int(point[0])], (int(point[0]),)
        error = next((outcome.error for outcome in known if outcome.error), "")
        rounds = () if error else tuple(us for outcome in known for us in outcome.rounds_us)
        return Outcome(self.key, number, rounds, error, next((o.object for o in known if o.object), ""))


class ReplayDevice:
    """Answers for the candidates of a `RecordedTask` with what is on record."""

    name = "replay"

    def __init__(self) -> None:
        self._asked: list[Outcome] = []

    def submit(self, task: SearchTask, points: Sequence[np.ndarray]) -> None:
        if not isinstance(task, RecordedTask):
            raise RecordError(f"`{task.name}` is no task of what is on record; nothing of it can be replayed")
        self._asked += [task.outcome(point) for point in points]

    def outcomes(self) -> Iterator[Outcome]:
        while self._asked:
            yield self._asked.pop(0)

    def close(self) -> None:
        self._asked.clear()
