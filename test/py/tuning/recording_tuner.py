"""A tuner on a simulated device that records as real ones do, to be stopped by a signal wherever it is.

    python recording_tuner.py          // reads requests, one JSON object a line, and answers each with the lines of a tuner

A request names the `store`, the `trials` in all, and the `signal` that the tuner gets `wait` seconds behind its line number
`after`; without a signal it ends by itself. Tuners are forked: starting a hundred of them takes no longer than one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
from bowl_task import BowlTask

from tilewright.compiler.nouns.record import Record, key_of, schedule_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Knob, Space
from tilewright.compiler.profiler.recording import now
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search.replay import outcomes_on_record
from tilewright.compiler.tuning.search.search_task import Outcome, SearchTask
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice
from tilewright.compiler.tuning.search.tuner import tune

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # those started in the background inherit that it is ignored
TARGET, COMPILER = key_of("target"), "test"
MEASURING_S = 2e-4
"""What a measurement takes, so that a tuner may be stopped within one."""
SIDE = tuple(range(1, 65))

Say = Callable[..., None]


class TilesTask(BowlTask):
    """A bowl of two tiles: every schedule is of one candidate, and read back to it."""

    def __init__(self, name: str, calls: int = 1):
        super().__init__(key_of(name), calls=calls)

    @cached_property
    def space(self) -> Space:
        return Space(
            (Knob("m", SIDE), Knob("n", SIDE)),
            (),
            lambda values: Schedule(tile=(int(values["m"]), int(values["n"]))),
            lambda schedule: {"m": schedule.tile[0], "n": schedule.tile[1]},
            Schedule(tile=(8, 8)),
        )

    def us(self, points: np.ndarray) -> np.ndarray:
        return 10.0 + 0.1 * (points[:, 0] - 40.0) ** 2 + 0.2 * (points[:, 1] - 20.0) ** 2

    def seeds(self, count: int) -> np.ndarray:
        return np.asarray([[7, 7]], dtype=np.int64)[:count]


TASKS = (TilesTask("often", calls=3), TilesTask("seldom"))


class RecordingDevice(SimulatedDevice):
    """Says of every candidate when it begins to measure it, and when it is on record, or was lost."""

    def __init__(self, store: RecordStore, say: Say, **given):
        super().__init__(lambda task, points: task.us(points), **given)
        self._store, self._say = store, say

    def _outcome(self, task: SearchTask, point: np.ndarray) -> Outcome:
        self._say("began", task.key, point.tolist())
        outcome = super()._outcome(task, point)
        time.sleep(MEASURING_S)
        if outcome.is_final:
            self._store.append([record_of(task, outcome)])
        self._say("kept" if outcome.is_final else "lost", task.key, point.tolist())
        return outcome


def record_of(task: SearchTask, outcome: Outcome) -> Record:
    schedule = schedule_text(task.space.schedule(np.asarray(outcome.point)))
    rounds, error = outcome.rounds_us, outcome.error
    return Record(
        *(
            task.key,
            TARGET,
            "simulated",
            1,
            (),
            schedule,
            outcome.object,
            rounds,
            error,
            COMPILER,
            "here",
            now(),
        )
    )


def search(path: Path, trials: int, say: Say) -> None:
    """One tuner: goes on from what is on record, and says what it found."""
    with RecordStore(path) as store:
        known = outcomes_on_record(TASKS, store, TARGET, "simulated", 1, COMPILER)
        device = RecordingDevice(store, say, noise=0.02, crashes=0.1, is_lost=0.1)
        result = tune(TASKS, device, "genetic", trials=trials, records=known)
        for found in result.tasks:
            final = sorted({outcome.point for outcome in found.outcomes if outcome.is_final})
            say("found", found.task.key, found.stopped, found.chosen and found.chosen.point, final)
        say("ended", result.is_interrupted)


def run(request: dict) -> list[list]:
    """The lines of one tuner, which is stopped as the request says."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)

        def say(*words) -> None:
            os.write(writing, json.dumps(words).encode() + b"\n")

        try:
            search(Path(request["store"]), request["trials"], say)
        except BaseException:
            say("failed", traceback.format_exc())
        finally:
            os._exit(0)
    os.close(writing)
    data = b""
    while data.count(b"\n") < request.get("after", 0) and (more := os.read(reading, 4096)):
        data += more
    if "signal" in request:
        time.sleep(request["wait"])
        os.kill(child, signal.Signals[request["signal"]])
    while True:
        if "signal" in request and not select.select([reading], [], [], 5.0)[0]:
            os.kill(
                child, signal.Signals[request["signal"]]
            )  # the first one came while Python could not take it
        if not (more := os.read(reading, 65536)):
            break
        data += more
    os.close(reading)
    os.waitpid(child, 0)
    *lines, _torn = data.split(b"\n")
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    # Those started in the background inherit that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
