"""What tuners that are killed, run side by side, or find the disk full leave behind: a valid store, and all that was said."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from faulty_task import recorded

from tilewright.compiler.tuning.record_store import RecordStore

HERE = Path(__file__).parent
COUNT = 24


@pytest.fixture
def store(tmp_path) -> Path:
    return tmp_path / "records.sqlite"


def tuner(store: Path, *arguments: int, count: int = COUNT) -> subprocess.Popen:
    paths = [str(HERE), str(HERE.parent / "schedule"), *sys.path]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TILEWRIGHT_CACHE_DIR": str(store.parent / "cache"),
    }
    return subprocess.Popen(
        [sys.executable, str(HERE / "tuner_process.py"), str(store), *map(str, (count, *arguments))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def said(process: subprocess.Popen) -> tuple[list[str], str]:
    """The objects that a process gave outcomes of, and its errors; waits for its end."""
    out, errors = process.communicate(timeout=300)
    return [line.split()[0] for line in out.splitlines() if len(line.split()) == 2], errors


def check(store: Path) -> list[str]:
    """The objects on record, each as often as it was measured; the store must be whole."""
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return [record.object for record in recorded(store) if record.rounds_us]


def test_a_tuner_that_is_killed_loses_what_is_in_flight_and_no_more(store):
    """Killed again and again, wherever it is; then the rest is measured, and nothing that was."""
    rng = np.random.default_rng(0)
    outcomes: set[str] = set()
    for _ in range(3):
        process = tuner(store)
        assert process.stdout is not None
        began = (
            process.stdout.readline().split()
        )  # outcomes come from now on: before, there is little to lose
        outcomes |= set(began[:1])
        time.sleep(float(rng.uniform(0, 0.6)))
        process.kill()
        objects, _ = said(process)
        outcomes |= set(objects)
        assert outcomes <= set(check(store))
    process = tuner(store)
    objects, errors = said(process)
    assert process.returncode == 0, errors
    assert len(set(objects)) == COUNT
    kept = check(store)
    assert sorted(kept) == sorted(set(kept)) == sorted(objects)


def test_a_killed_tuner_takes_what_it_started_along(store):
    process = tuner(store, count=200)
    assert process.stdout is not None
    process.stdout.readline()
    children = _descendants(process.pid)
    assert children
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(map(_is_alive, children)):
        time.sleep(0.05)
    assert not [pid for pid in children if _is_alive(pid)]


def test_two_tuners_share_a_store(store):
    """Neither waits for the other to end, and both are told of every candidate."""
    processes = [tuner(store), tuner(store)]
    found = [said(process) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], found
    assert set(found[0][0]) == set(found[1][0])
    kept = check(store)
    assert set(kept) == set(found[0][0]) and len(set(kept)) == COUNT
    # What both had in flight at once is measured twice, and nothing else.
    assert len(kept) < 2 * COUNT


def test_a_full_disk_costs_nothing_once_there_is_room(store):
    RecordStore(store).close()
    process = tuner(store, COUNT - 4)
    objects, errors = said(process)
    assert process.returncode == 0, errors
    assert len(objects) == COUNT
    assert "is in memory, and written as soon as it can be" in errors
    assert "could not be written" not in errors
    kept = check(store)
    assert sorted(kept) == sorted(objects)


def test_a_disk_that_stays_full_is_told_of_and_stops_nothing(store):
    RecordStore(store).close()
    process = tuner(store, COUNT + 1)
    objects, errors = said(process)
    assert process.returncode == 0, errors
    assert len(objects) == COUNT
    assert "could not be written" in errors
    assert set(check(store)) < set(objects)


def _descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    found, parents = [], {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    pending = [pid]
    while pending:
        children = parents.get(pending.pop(), [])
        found += children
        pending += children
    return found


def _is_alive(pid: int) -> bool:
    return (_stat(pid) or ["Z"])[0] != "Z"


def _stat(pid: int) -> list[str]:
    """State, parent and what follows of a process; nothing for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
