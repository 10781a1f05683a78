"""Searches of what is on record: only recorded candidates, their rounds and failures, and a pass that replays a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bowl_task import BowlTask

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import PassError, RecordError
from tilewright.compiler.families.tasks.dispatch_task import dispatch_tasks
from tilewright.compiler.ir import functions, parse
from tilewright.compiler.nouns.record import Record, key_of, schedule_text, target_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search.replay import RecordedTask, ReplayDevice, recorded_outcomes
from tilewright.compiler.tuning.search.search_task import Outcome
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice
from tilewright.compiler.tuning.search.tuner import tune

AT = "2026-01-31T23:59:59.000000+00:00"
KEY = key_of("work")


class BlocksTask(BowlTask):
    """A bowl whose candidates are all blocks, which schedules are read back to."""

    def __init__(self) -> None:
        super().__init__(KEY)


def record(
    schedule: Schedule, *rounds: float, error: str = "", key: str = KEY, target: str = "cpu"
) -> Record:
    digest = key_of(schedule_text(schedule))
    return Record(
        *(key, key_of(target_text(resolve(target))), "a device", 1, ("",), schedule_text(schedule)),
        *("" if error else digest, rounds, error, "test", "here", AT),
    )


def blocks(m: int, n: int, unroll: int = 4) -> Schedule:
    return Schedule(tile=(m, n), unroll=unroll)


RECORDS = [
    record(blocks(32, 16), 12.0, 11.0),
    record(blocks(32, 16), 10.5),
    record(blocks(8, 8), 30.0),
    record(blocks(4, 4), error="crashed"),
    record(blocks(128, 128), 1.0),  # illegal in this space
    record(blocks(3, 3), 1.0),  # no tile of this space
]


def test_records_are_outcomes_of_the_space():
    found = recorded_outcomes(BlocksTask(), RECORDS)
    assert [(o.point, o.rounds_us, o.error) for o in found] == [
        ((5, 4, 2, 2), (12.0, 11.0), ""),
        ((5, 4, 2, 2), (10.5,), ""),
        ((3, 3, 2, 2), (30.0,), ""),
        ((2, 2, 2, 2), (), "crashed"),
    ]


def test_records_of_other_work_are_refused():
    with pytest.raises(RecordError, match="expected records of"):
        recorded_outcomes(BlocksTask(), [record(blocks(8, 8), 1.0, key=key_of("other"))])


def test_a_search_goes_on_from_records():
    task = BlocksTask()

    device = SimulatedDevice(lambda task, points: task.us(points))
    known = {task.key: recorded_outcomes(task, RECORDS)}
    (found,) = tune([task], device, "random", trials=19, records=known).tasks
    assert device.measured == 16 and found.outcomes[0].rounds_us == (12.0, 11.0, 10.5)


def test_nothing_but_what_is_on_record_is_replayed():
    task = RecordedTask(BlocksTask(), recorded_outcomes(BlocksTask(), RECORDS))
    (found,) = tune([task], ReplayDevice(), "random", trials=100).tasks
    assert found.stopped == "exhausted"
    assert {(task.space.schedule(np.asarray(o.point)).tile, o.us) for o in found.outcomes} == {
        ((32, 16), 10.5),
        ((8, 8), 30.0),
        ((4, 4), float("inf")),
    }
    assert found.chosen is not None
    assert task.space.schedule(np.asarray(found.chosen.point)) == blocks(32, 16)


def test_a_recorded_task_has_the_features_and_seeds_of_its_candidates():
    bowl = BlocksTask()
    outcomes = [Outcome(KEY, (4, 4, 2, 0), (9.0,)), Outcome(KEY, (5, 4, 2, 2), (8.0,))]
    task = RecordedTask(bowl, outcomes)
    points = np.asarray([[1], [0]])
    expected = bowl.features(np.asarray([[5, 4, 2, 2], [4, 4, 2, 0]]), frozenset({"statement"}))
    found = task.features(points, frozenset({"statement"}))
    assert (found["statement"].matrix == expected["statement"].matrix).all()
    assert task.seeds(9).tolist() == [[0]]


def test_what_is_not_on_record_cannot_be_replayed():
    with pytest.raises(RecordError, match="nothing is on record of"):
        RecordedTask(BlocksTask(), [])
    with pytest.raises(RecordError, match="is no task of what is on record"):
        ReplayDevice().submit(BlocksTask(), [])


LIT = Path(__file__).parents[2] / "lit/passes/search-schedules.mlir"


class TestThePass:
    """`search-schedules{device=replay}` takes the fastest schedule of a store."""

    @pytest.fixture
    def dispatch(self):

        module = parse(LIT.read_text())
        run_pipeline(module.operation, "builtin.module(construct-schedules{target=x86-64-v4})")
        (task,) = dispatch_tasks(module, resolve("x86-64-v4"))
        return task

    def searched(self, store: Path) -> str:
        module = parse(LIT.read_text())
        passes = f"construct-schedules{{target=x86-64-v4}},search-schedules{{target=x86-64-v4 device=replay records={store}}}"
        run_pipeline(module.operation, f"builtin.module({passes})")
        return str(module)

    def test_takes_the_fastest_on_record(self, dispatch, tmp_path):
        points = dispatch.space.sample(5, np.random.default_rng(0))
        schedules = [dispatch.space.schedule(point) for point in points]
        with RecordStore(tmp_path / "r.sqlite") as store:
            store.append(
                record(s, 10.0 - n, key=dispatch.key, target="x86-64-v4") for n, s in enumerate(schedules)
            )
        module = parse(self.searched(tmp_path / "r.sqlite"))

        found = [
            schedule_attribute.read(f) for f in functions(module) if "matmul" in str(f.attributes["sym_name"])
        ]
        assert found == [schedules[4]]

    def test_records_of_two_devices_are_refused(self, dispatch, tmp_path):

        one = record(dispatch.constructed, 1.0, key=dispatch.key, target="x86-64-v4")
        with RecordStore(tmp_path / "r.sqlite") as store:
            store.append([one, replace(one, device="another")])
        with pytest.raises(PassError, match="was measured by a device, 1 threads; another, 1 threads"):
            self.searched(tmp_path / "r.sqlite")

    def test_a_store_without_the_dispatch_is_refused(self, tmp_path):

        RecordStore(tmp_path / "r.sqlite").close()
        with pytest.raises(PassError, match="nothing is on record of `matmul`"):
            self.searched(tmp_path / "r.sqlite")
