"""A local device measures what it is asked for, whatever the candidates do, and nothing twice."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from faulty_task import FaultyTask, faulty_task, quick, recorded

from tilewright.compiler.codegen.lower_cpu import compiler_version
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.nouns.record import key_of, target_text
from tilewright.compiler.profiler.local_device import LocalCpuDevice
from tilewright.compiler.profiler.turns import Cores
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search.replay import outcomes_on_record
from tilewright.compiler.tuning.search.search_task import Outcome
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice
from tilewright.compiler.tuning.search.tuner import tune
from tilewright.runtime.settings import physical_cores

WRONG = {
    "crash": "died of signal 11",
    "hang": "no answer within 2 s",
    "wrong": "wrong result: an element is off by",
    "part": "wrong result: other elements are infinite or not a number",
    "outside": "it wrote outside of its buffers",
    "changes its operand": "it changed what it reads",
    "compiler dies": "died of signal 6",
    "compiler refuses": "no such tile",
}
DISTINCT = "distinct_candidates:compile_candidate"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.fixture
def store(tmp_path) -> Path:
    return tmp_path / "records.sqlite"


@pytest.fixture
def task() -> FaultyTask:
    return faulty_task()


def measured(task: FaultyTask, store: Path, *deeds: str | int, **changed) -> dict[str | int, Outcome]:
    """The outcome of each deed, asked for at once."""
    with LocalCpuDevice(resolve("cpu"), quick(**changed), store) as device:
        return asked(device, task, *deeds)


def asked(device: LocalCpuDevice, task: FaultyTask, *deeds: str | int) -> dict[str | int, Outcome]:
    points = [task.deed(deed) for deed in deeds]
    device.submit(task, points)
    found = {outcome.point: outcome for outcome in device.outcomes()}
    assert len(found) == len(set(deeds))
    return {deed: found[tuple(point)] for deed, point in zip(deeds, points)}


def test_every_fault_is_data_and_the_rest_is_measured(task, store):
    found = measured(task, store, *WRONG, "fine")
    for deed, why in WRONG.items():
        assert why in found[deed].error
        assert found[deed].is_final and not found[deed].rounds_us
        assert found[deed].us == np.inf
    assert found["fine"].rounds_us and not found["fine"].error
    errors = [record.error for record in recorded(store) if record.error]
    assert sorted(errors) == sorted(found[deed].error for deed in WRONG)


def test_nothing_on_record_is_compiled_or_measured_again(task, store):
    first = measured(task, store, "fine", "wrong", "compiler refuses")
    kept = recorded(store)
    again = measured(
        task, store, "fine", "wrong", "compiler refuses", measuring="no.such.module", compiling="no.such:one"
    )
    for deed, outcome in first.items():
        assert (again[deed].rounds_us, again[deed].error) == (outcome.rounds_us, outcome.error)
    assert recorded(store) == kept


def test_a_search_goes_on_from_what_it_recorded(task, store):
    """Nothing of it is measured again, but what another version of the compiler, or another device, measured is not known."""
    target = key_of(target_text(resolve("cpu")))
    with LocalCpuDevice(resolve("cpu"), quick(compiling=DISTINCT), store) as device:
        (first,) = tune([task], device, "random", trials=12, seed=1).tasks
        with RecordStore(store) as records:
            known = outcomes_on_record([task], records, target, device.name, 1, compiler_version())
            assert outcomes_on_record([task], records, target, device.name, 1, "another") == {task.key: []}
            assert outcomes_on_record([task], records, target, device.name, 2, compiler_version()) == {
                task.key: []
            }
    raced = {outcome.point for outcome in first.raced}
    assert {o.point for o in first.outcomes} <= {o.point for o in known[task.key]}
    assert {o.point for o in known[task.key]} <= {o.point for o in first.outcomes} | raced
    simulated = SimulatedDevice(lambda task, points: np.ones(len(points)))
    trials = len({o.point for o in known[task.key]})
    (again,) = tune([task], simulated, "random", trials=trials, records=known).tasks
    assert simulated.measured == 0 and again.trials == trials
    rounds = {o.point: set(o.rounds_us) for o in again.outcomes}
    assert all(rounds[o.point] >= set(o.rounds_us) for o in first.outcomes)


def test_equal_objects_are_measured_once(task, store):
    """Numbers that stand for no deed all give the first kernel."""
    found = measured(task, store, 2000, 2001, 2002)
    assert len({outcome.object for outcome in found.values()}) == 1
    assert len({outcome.rounds_us for outcome in found.values()}) == 1
    assert len(recorded(store)) == 1


def test_a_candidate_far_behind_the_best_is_stopped(task, store):
    """Three thousand times the work: one round, where the fine one has all."""
    with LocalCpuDevice(resolve("cpu"), quick(seconds=5.0), store) as device:
        fine = asked(device, task, "fine")["fine"]
        slow = asked(device, task, "slow")["slow"]
    assert len(fine.rounds_us) == quick().rounds
    assert len(slow.rounds_us) == 1 and slow.us > 3 * fine.us and not slow.error


def test_a_measuring_process_that_does_not_start_is_no_candidates_failure(task, store):
    outcome = measured(task, store, "fine", measuring="no.such.module")["fine"]
    assert "No module named" in outcome.error
    assert not outcome.is_final
    assert recorded(store) == []
    assert measured(task, store, "fine")["fine"].rounds_us


def test_a_measuring_process_that_somebody_kills_costs_nothing(task, store):
    """Killed while a candidate hangs, it is started again, and the others are measured."""
    with LocalCpuDevice(resolve("cpu"), quick(run_timeout_s=20.0), store) as device:
        device.submit(task, [task.deed("hang"), task.deed("fine")])
        killed = 0
        deadline = time.monotonic() + 60
        while killed < 2 and time.monotonic() < deadline:
            child = device._benches[0]._child._child
            if child is not None and device._benches[0]._set_up:
                time.sleep(0.5)
                os.kill(child._process.pid, signal.SIGKILL)
                killed += 1
                while device._benches[0]._child._child is child:
                    time.sleep(0.01)
            time.sleep(0.01)
        hang, fine = sorted(device.outcomes(), key=lambda outcome: bool(outcome.rounds_us))
    assert "signal 9" in hang.error and not hang.is_final
    assert fine.rounds_us
    assert not any(record.error for record in recorded(store))


def test_a_process_that_compares_with_something_else_by_now_is_given_up(task, store, monkeypatch, tmp_path):
    """What wrote where nobody looks may have changed the first one's result: the next process measures the candidate."""
    monkeypatch.setenv("FORGETFUL_ONCE", str(tmp_path / "once"))
    found = measured(task, store, "fine", 2000, measuring="forgetful_measuring")
    assert (tmp_path / "once").exists()
    assert all(outcome.rounds_us and not outcome.error for outcome in found.values())
    assert not any(record.error for record in recorded(store))


def test_a_first_schedule_that_fails_leaves_nothing_to_trust(task, store):
    from tilewright.compiler.nouns.schedule import Schedule
    from tilewright.compiler.nouns.space import Space

    space = task.space
    task.space = Space(space.knobs, (), space.write, space.read, Schedule(unroll=901))
    found = measured(task, store, "fine", 2000)
    for outcome in found.values():
        assert outcome.error.startswith("the first schedule, which results are compared with: died of signal")
        assert not outcome.rounds_us and outcome.is_final
    assert recorded(store) == []


@pytest.mark.parametrize("threads", [1, physical_cores()])
def test_closing_ends_what_is_in_flight(task, store, threads):
    device = LocalCpuDevice(resolve("cpu"), quick(run_timeout_s=60.0, threads=threads), store)
    device.submit(task, [task.deed("fine"), task.deed("hang"), *(task.deed(n) for n in range(2000, 2020))])
    outcome = next(device.outcomes())
    assert outcome.rounds_us
    started = time.monotonic()
    device.close()
    assert time.monotonic() - started < 10
    deadline = time.monotonic() + 30  # a candidate that is being compiled is compiled to its end
    names = ("measuring on", "compiling for")
    while any(t.name.startswith(names) for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(t.name.startswith(names) for t in threading.enumerate())
    with pytest.raises(TilewrightError, match="is closed"):
        device.submit(task, [task.deed("fine")])
    assert {record.object for record in recorded(store)} == {outcome.object}


def test_a_race_takes_turns_and_leaves_out_what_fails(task, store):
    with LocalCpuDevice(resolve("cpu"), quick(), store) as device:
        points = [task.deed(name) for name in ("slow", "crash", "fine", "compiler refuses")]
        slow, crash, fine, refused = device.race(task, points, rounds=5)
    assert slow.us > fine.us
    assert [len(outcome.rounds_us) for outcome in (slow, crash, fine, refused)] == [5, 0, 5, 0]
    assert "died of signal 11" in crash.error and "no such tile" in refused.error
    moments = [record.at for record in recorded(store) if record.rounds_us]
    assert len(moments) == 2 and len(set(moments)) == 1


def test_a_candidate_of_another_dispatch_is_compared_with_its_own_first(task, store):
    from profiled_dispatch import MODEL

    other = faulty_task(MODEL.replace("arith.addf %in, %in", "arith.mulf %in, %in"))
    with LocalCpuDevice(resolve("cpu"), quick(), store) as device:
        device.submit(task, [task.deed("fine")])
        device.submit(other, [other.deed("fine"), other.deed("wrong")])
        device.submit(task, [task.deed("wrong")])
        found = list(device.outcomes())
    assert sorted((outcome.task == task.key, bool(outcome.rounds_us)) for outcome in found) == [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ]


def test_what_needs_all_cores_is_not_measured_while_others_compile():
    """Two threads compile, one measures: never at once, and who compiles waits for who measures."""
    waiting = threading.Event()
    cores, said = Cores(waiting.is_set), []

    def compile_once() -> None:
        with cores.compiling():
            said.append("compiling")
            time.sleep(0.02)
            said.append("compiled")

    with cores.measuring():
        threads = [threading.Thread(target=compile_once) for _ in range(2)]
        waiting.set()
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        said.append("measured")
    time.sleep(0.05)
    assert said == ["measured"]
    with cores.measuring():
        said.append("measured")
        waiting.clear()
    for thread in threads:
        thread.join(10)
    assert said == ["measured"] * 2 + ["compiling", "compiled"] * 2


def test_candidates_are_measured_where_no_core_is_to_spare(task, store):
    found = measured(task, store, "fine", "wrong", 2000, threads=physical_cores())
    assert [bool(outcome.rounds_us) for outcome in found.values()] == [True, False, True]
    assert {record.threads for record in recorded(store)} == {physical_cores()}
