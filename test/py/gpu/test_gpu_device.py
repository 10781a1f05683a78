"""A GPU as a device of a search, here with the mock driver: measured like a CPU's candidates, and as safely."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tuning"))

from faulty_task import FaultyTask, faulty_task, recorded

from tilewright.compiler.profiler.candidate_bench import MeasureOptions
from tilewright.compiler.profiler.local_device import LocalGpuDevice
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.search.search_task import Outcome
from tilewright.runtime.errors import DeviceError

TARGET = "cuda:sm_90a"
FAULTS = {
    3: "wrong result: an element is off by",
    4: "CUDA_ERROR_ILLEGAL_ADDRESS",
    5: "no answer within 4 s",
    6: "died of signal 6",
    7: "it wrote outside of its buffers",
    9: "it needs 400000 B of shared memory, this device has 232448 B",
}
"""What the numbers of the mock's candidates do; 0 takes 50 us, 1 takes 10 us and 2 takes 30 us."""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


@pytest.fixture
def task() -> FaultyTask:
    made = faulty_task(target=TARGET)
    made.numbers = tuple(range(10))
    return made


def measured(
    task: FaultyTask, store: Path, *numbers: int, seconds: float = 0.05, run_timeout_s: float = 4.0
) -> dict[int, Outcome]:
    options = MeasureOptions(
        compiling="mock_candidates:compile_candidate", run_timeout_s=run_timeout_s, seconds=seconds
    )
    with LocalGpuDevice(resolve(TARGET), options, store) as device:
        device.submit(task, [task.deed(number) for number in numbers])
        return {task.space.schedule(o.point).unroll: o for o in device.outcomes()}


def test_faults_are_data_and_the_rest_is_measured(mock, task, tmp_path):
    store = tmp_path / "records.sqlite"
    found = measured(task, store, *FAULTS, 0, 1, 2)
    for number, why in FAULTS.items():
        assert why in found[number].error and found[number].is_final
    assert [round(found[number].us) for number in (0, 1, 2)] == [50, 10, 30]
    kept = recorded(store)
    assert len(kept) == len(FAULTS) + 3
    assert {record.device for record in kept} == {"Mock GPU, driver for CUDA 12.8"}
    assert measured(task, store, 4, 1)[1].rounds_us == found[1].rounds_us
    assert recorded(store) == kept


def test_one_that_is_far_behind_is_stopped(mock, task, tmp_path):
    store = tmp_path / "records.sqlite"
    # Rounds end it, here and below, not the time that they take on a busy machine.
    measured(task, store, 1, seconds=300.0, run_timeout_s=300.0)
    found = measured(task, store, 0, 1, seconds=300.0, run_timeout_s=300.0)
    assert [len(found[number].rounds_us) for number in (0, 1)] == [1, MeasureOptions().rounds]


def test_a_device_needs_a_gpu(mock):
    mock.device(major=7, minor=0)
    with pytest.raises(DeviceError, match="no GPU here runs sm_90a"):
        LocalGpuDevice(resolve(TARGET))
    with pytest.raises(DeviceError, match="emulator's times are not a GPU's"):
        LocalGpuDevice(resolve("emulate:sm_90a"))
