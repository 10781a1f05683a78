"""Actors of a cluster measure as this machine does, and one that is killed costs nothing but time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_task import FaultyTask, faulty_task, quick, recorded

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.profiler.ray_device import RayDevice
from tilewright.compiler.targets.host import processor
from tilewright.compiler.targets.target import resolve

ray: Any = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory) -> Iterator[None]:
    here = Path(__file__).parent
    paths = [str(here), str(here.parent / "schedule"), *sys.path]
    variables = {
        "PYTHONPATH": os.pathsep.join(paths),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
    }
    ray.init(
        num_cpus=4,
        resources={"board": 2},
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80_000_000,
        runtime_env={"env_vars": variables},
    )
    yield
    ray.shutdown()


@pytest.fixture
def task() -> FaultyTask:
    return faulty_task()


def test_two_actors_measure_what_others_compile(task, tmp_path):
    """All faults at once, equal objects, and an actor of each kind that is killed in between."""
    store = tmp_path / "records.sqlite"
    options = quick()
    with RayDevice(
        resolve("cpu"), options, store, compilers=1, measurers=2, resources={"board": 1}
    ) as device:
        assert device.name == processor()
        asked = ["hang", "fine", "wrong", "crash", "compiler refuses", "slow", 2000, 2001]
        device.submit(task, [task.deed(deed) for deed in asked])
        outcomes = device.outcomes()
        found = [next(outcomes)]
        killed = [bench.actor.handle for bench in device._benches] + [device._compiling[0].handle]
        for handle in killed:
            ray.kill(handle)
        found += outcomes
        assert any(bench.actor.handle not in killed for bench in device._benches)
    by_deed = {deed: next(o for o in found if o.point == tuple(task.deed(deed))) for deed in asked}
    assert len(found) == len(asked)
    assert "no answer within 2 s" in by_deed["hang"].error
    assert "wrong result" in by_deed["wrong"].error
    assert "died of signal 11" in by_deed["crash"].error
    assert "no such tile" in by_deed["compiler refuses"].error
    assert all(by_deed[deed].rounds_us for deed in ("fine", "slow", 2000, 2001))
    assert by_deed[2000].rounds_us == by_deed[2001].rounds_us
    assert all(outcome.is_final for outcome in found)
    assert len(recorded(store)) == len(asked) - 1


def test_an_actor_that_is_lost_again_and_again_is_no_candidates_failure(task, tmp_path):
    store = tmp_path / "records.sqlite"
    with RayDevice(resolve("cpu"), quick(run_timeout_s=60.0), store) as device:
        device.submit(task, [task.deed("hang")])
        (bench,) = device._benches
        for _ in range(2):
            handle = bench.actor.handle
            time.sleep(2.0)  # it has the candidate by now, or gets it when it is up again
            ray.kill(handle)
            deadline = time.monotonic() + 60
            while bench.actor.handle is handle and device._done.empty() and time.monotonic() < deadline:
                time.sleep(0.05)
        (outcome,) = device.outcomes()
        assert "an actor was lost" in outcome.error and not outcome.is_final
        assert recorded(store) == []


def test_actors_need_their_cpus(task):
    with pytest.raises(TilewrightError, match="take 9 CPUs, the cluster has 4; ask for fewer"):
        RayDevice(resolve("cpu"), quick(threads=4), compilers=1, measurers=2)
    assert ray.is_initialized()
