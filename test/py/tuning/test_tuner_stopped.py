"""A tuner that is killed or interrupted at random points: what is on record is all but what was in flight, and it goes on."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from recording_tuner import COMPILER, TARGET, TASKS

from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search.replay import outcomes_on_record

HERE = Path(__file__).parent
KILLS, INTERRUPTS = 100, 25
EACH = 10
"""Kills of tuners on one store, the first of which may hit it while it is made."""
MANY = 100_000
LINES = 40
"""A tuner is stopped behind at most so many of its lines."""

Tried = tuple[str, tuple[int, ...]]
"""A task's key, and a point of its space."""


class Tuners:
    """Tuners that are run one after another by a process of their own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "recording_tuner.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        )

    def run(self, store: Path, trials: int = MANY, **given) -> list[list]:
        """What a tuner said until it ended, or was stopped."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"store": str(store), "trials": trials, **given}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def tuners() -> Iterator[Tuners]:
    with closing(Tuners()) as found:
        yield found


def on_record(path: Path) -> list[Tried]:
    """All that is on record, each as often as it was measured; the store must be whole."""
    with RecordStore(path) as store:
        known = outcomes_on_record(TASKS, store, TARGET, "simulated", 1, COMPILER)
        assert sum(map(len, known.values())) == len(store.find())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return [(outcome.task, outcome.point) for outcomes in known.values() for outcome in outcomes]


def said(lines: list[list], word: str) -> list[Tried]:
    return [(key, tuple(point)) for first, key, point in (line for line in lines if line[0] == word)]


def results(lines: list[list]) -> list[list]:
    """The key of every task, why its search stopped, what is chosen, and the points that were tried."""
    return [rest for word, *rest in lines if word == "found"]


def test_a_tuner_that_is_killed_anywhere_loses_what_is_in_flight(tuners, tmp_path) -> None:
    """Each goes on from what those before it left, and measures nothing of it again."""
    rng = np.random.default_rng(0)
    in_flight = 0
    for number in range(KILLS):
        path = tmp_path / f"{number // EACH}.sqlite"
        before = on_record(path) if number % EACH else []
        wait, after = float(rng.uniform(0, 0.005)), int(rng.integers(LINES))
        lines = tuners.run(path, signal="SIGKILL", wait=wait, after=after)
        began, kept = said(lines, "began"), said(lines, "kept")
        assert not lines or lines[-1][0] not in ("ended", "failed")
        found = on_record(path)
        assert len(set(found)) == len(found)
        assert {*before, *kept} <= set(found) <= {*before, *began}
        assert not set(before) & set(began)
        gone = set(began) - set(found) - set(said(lines, "lost"))
        assert gone <= set(began[-1:])
        in_flight += len(gone)
    assert 0 < in_flight < KILLS
    known = on_record(tmp_path / "0.sqlite")
    lines = tuners.run(tmp_path / "0.sqlite", trials=len(known) + 64)
    assert lines[-1] == ["ended", False] and not set(known) & set(said(lines, "began"))
    assert all(chosen for _, _, chosen, _ in results(lines))


def test_a_tuner_that_is_interrupted_anywhere_says_what_it_has(tuners, tmp_path) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "records.sqlite"
    for _ in range(INTERRUPTS):
        wait, after = float(rng.uniform(0, 0.005)), 1 + int(rng.integers(LINES))
        lines = tuners.run(path, signal="SIGINT", wait=wait, after=after)
        assert lines[-1] == ["ended", True]
        assert [stopped for _, stopped, _, _ in results(lines)] == ["interrupted"] * len(TASKS)
        told = {(key, tuple(point)) for key, _, _, points in results(lines) for point in points}
        found = on_record(path)
        assert len(set(found)) == len(found)
        # The outcome that was just handed over may be on record alone.
        assert told <= set(found) and len(set(found) - told) <= 1
