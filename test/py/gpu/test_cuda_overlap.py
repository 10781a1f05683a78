"""Launches that start before the kernel before them has ended: which are, and what a driver that refuses them costs."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mock_cuda_driver import ADD, COPY, DOUBLE, kernel, package, step, vector

from tilewright.runtime import settings
from tilewright.runtime.cuda import CudaExecutable, DeviceArray
from tilewright.runtime.errors import DeviceError, PackageError, SettingError
from tilewright.runtime.program import Constant

X = np.linspace(-3, 5, 1000, dtype=np.float32)
IN_CAPTURES, ALWAYS = 1, 2


def model(*overlaps: bool):
    """y = 32 x in five steps by two kernels, which overlap or do not."""
    kernels = [
        kernel(name, DOUBLE, cluster=cluster, overlaps=flag)
        for name, cluster, flag in (("first", 1, overlaps[0]), ("second", 2, overlaps[-1]))
    ]
    places = ["input:0", "arena", "arena+4096", "arena", "arena+4096", "output:0"]
    steps = [step(i % 2, a, b) for i, (a, b) in enumerate(itertools.pairwise(places))]
    return package(kernels, steps, arena_bytes=8192)


def early(lines: list[str]) -> list[bool]:
    """Of every launch, whether it may start early."""
    return [line.endswith(" early") for line in lines if line.startswith("launch ")]


def calls(mock, executable: CudaExecutable, count: int = 1) -> list[bool]:
    """Of every launch of some calls, each right, whether it may start early."""
    mock.taken()
    for i in range(count):
        np.testing.assert_array_equal(executable((i + 1) * X)[0], 32 * (i + 1) * X)
    return early(mock.log)


def test_all_but_a_call_s_first_kernel_start_early(mock):
    executable = CudaExecutable(model(True), cuda_graph=False)
    assert calls(mock, executable, 2) == [False, True, True, True, True] * 2
    assert executable.overlap_error == ""


def test_only_kernels_that_say_so(mock):
    executable = CudaExecutable(model(False, True), cuda_graph=False)
    assert calls(mock, executable) == [False, True, False, True, False]
    executable = CudaExecutable(model(False), cuda_graph=False)
    assert calls(mock, executable) == [False] * 5


def test_other_attributes_stay(mock):
    executable = CudaExecutable(model(True), cuda_graph=False)
    mock.taken()
    executable(X)
    assert "launch second_symbol grid 4 block 128 shared 0 cluster 2 early" in mock.log


def test_a_step_of_no_blocks_is_no_kernel_before(mock):
    kernels = [kernel("empty", COPY, grid=0, overlaps=True), kernel("double", DOUBLE, overlaps=True)]
    steps = [
        step(0, "input:0", "arena", tasks=0),
        step(1, "input:0", "arena"),
        step(0, "input:0", "arena", tasks=0),
        step(1, "arena", "output:0"),
    ]
    executable = CudaExecutable(package(kernels, steps, arena_bytes=4096), cuda_graph=False)
    mock.taken()
    np.testing.assert_array_equal(executable(X)[0], 4 * X)
    assert early(mock.log) == [False, True]


@pytest.mark.parametrize("graph", [True, False])
def test_older_devices_start_none_early(mock, graph):
    mock.device(major=8, minor=0)
    code = model(True)
    kernels = tuple(
        replace(own, object=own.object.replace(b"MOCK sm_90a", b"MOCK sm_80")) for own in code.kernels
    )
    executable = CudaExecutable(replace(code, target="cuda:sm_80", kernels=kernels), cuda_graph=graph)
    assert calls(mock, executable) == [False] * 5
    assert executable.overlap_error == ""


@pytest.mark.parametrize("variable", ["TILEWRIGHT_CUDA_OVERLAP", "TILEWRIGHT_CUDA_SYNC"])
def test_settings_turn_it_off(mock, monkeypatch, variable):
    monkeypatch.setenv(variable, "1" if variable.endswith("SYNC") else "0")
    executable = CudaExecutable(model(True))
    assert calls(mock, executable, 4)[:5] == [False] * 5
    assert not any(early(mock.log))
    monkeypatch.setenv("TILEWRIGHT_CUDA_OVERLAP", "2")
    with pytest.raises(
        SettingError, match="TILEWRIGHT_CUDA_OVERLAP: expected an integer from 0 to 1, found `2`"
    ):
        settings.cuda_overlap()


def test_times_of_single_steps_are_of_whole_kernels(mock):
    executable = CudaExecutable(model(True))
    mock.taken()
    executable.profile(repeats=1)
    assert not any(early(mock.log))


def test_prepack_runs_kernel_by_kernel(mock):
    kernels = [kernel("double", DOUBLE, overlaps=True), kernel("add", ADD, overlaps=True)]
    code = package(
        kernels,
        [step(1, "input:0", "packed", "arena"), step(0, "arena", "output:0")],
        constants=[Constant(vector("c"), X.tobytes())],
        prepack=[step(0, "constant:0", "arena"), step(0, "arena", "packed")],
        packed_bytes=4000,
        arena_bytes=4096,
        prepack_arena_bytes=4096,
    )
    executable = CudaExecutable(code, cuda_graph=False)
    assert early(mock.log) == [False, False]
    np.testing.assert_array_equal(executable(X)[0], 10 * X)
    assert early(mock.log) == [False, False, False, True]


def test_graphs_are_captured_so_and_changed_as_ever(mock):
    executable = CudaExecutable(model(True), cuda_graph=True)
    assert calls(mock, executable, 3) == [False, True, True, True, True]
    mock.taken()
    x, y = DeviceArray(4000), DeviceArray(4000)
    x.write(X)
    stream = mock.lib.mock_stream()
    executable.launch([x.address], [y.address], stream)
    mock.lib.mock_drain(stream)
    np.testing.assert_array_equal(y.read().view(np.float32), 32 * X)
    assert [line for line in mock.log if line.startswith("changed")] == ["changed node 0", "changed node 4"]
    assert early(mock.log) == []
    mock.lib.mock_end_stream(stream)


def test_timed_launches_overlap_within_each(mock):
    executable = CudaExecutable(model(True))
    x, y = DeviceArray(4000), DeviceArray(4000)
    mock.taken()
    executable.time([[x.address]], [y.address], launches=2, rounds=1)
    assert early(mock.log) == [False, True, True, True, True] * 2


def callers_capture(mock, executable) -> list[bool]:
    x, y = DeviceArray(4000), DeviceArray(4000)
    stream = mock.lib.mock_stream()
    mock.lib.mock_capture(stream, 1)
    mock.taken()
    executable.launch([x.address], [y.address], stream)
    found = early(mock.log)
    mock.lib.mock_capture(stream, 0)
    mock.lib.mock_end_stream(stream)
    return found


def test_a_caller_s_capture_has_them_from_cuda_12_3_on(mock):
    executable = CudaExecutable(model(True))
    assert callers_capture(mock, executable) == [False, True, True, True, True]


def test_captures_for_older_drivers_have_none(mock):
    """In a process of its own: a driver that was loaded once is not asked again."""
    code = """
import sys
from pathlib import Path
from mock_cuda_driver import MockDriver
from test_cuda_overlap import CudaExecutable, callers_capture, calls, model

mock = MockDriver(Path(sys.argv[1]))
mock.lib.mock_driver_version(12020)
executable = CudaExecutable(model(True), cuda_graph=False)
print(calls(mock, executable), callers_capture(mock, executable))
executable.cuda_graph = True
print(calls(mock, executable), executable.overlap_error, mock.problems)
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(mock.path)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout.splitlines() == [
        f"{[False, True, True, True, True]} {[False] * 5}",
        f"{[False] * 5}  []",
    ], run.stderr


@pytest.mark.parametrize("mode", [True, "auto"])
def test_a_driver_that_refuses_it_in_captures_costs_no_graph(mock, mode):
    mock.lib.mock_refuse_early(IN_CAPTURES)
    executable = CudaExecutable(model(True), cuda_graph=mode)
    calls(mock, executable, 4)
    assert "captured 5 nodes" in mock.log
    assert "launched a graph of 5 nodes" in mock.log
    assert executable.overlap_error == "launching it: CUDA_ERROR_801 (mock failure)"
    assert executable.graph_error == ""
    assert calls(mock, executable, 2) == []
    del executable
    assert mock.live == []


def test_a_driver_that_refuses_it_costs_the_overlap_only(mock):
    mock.lib.mock_refuse_early(ALWAYS)
    executable = CudaExecutable(model(True), cuda_graph=False)
    assert calls(mock, executable) == [False, True, False, False, False, False]
    assert executable.overlap_error == "launching it: CUDA_ERROR_801 (mock failure)"
    assert calls(mock, executable) == [False] * 5


def test_a_launch_that_fails_either_way_is_an_error(mock):
    mock.lib.mock_refuse_early(ALWAYS)
    found = []
    for number in range(1, 15):
        executable = CudaExecutable(model(True), cuda_graph=False)
        mock.taken()
        mock.fail(number)
        try:
            executable(X)
        except DeviceError as error:
            found.append((early(mock.log), str(error)))
    # What fails in one of these is the second try, without the attribute.
    ((_, message),) = [one for one in found if one[0] == [False, True]]
    assert message.startswith("launching it: CUDA_ERROR_999")
    assert "main step 1, kernel `second`" in message


def test_cooperative_kernels_never_overlap(mock):
    both = package(
        [kernel("double", DOUBLE, overlaps=True, cooperative=True)], [step(0, "input:0", "output:0")]
    )
    with pytest.raises(PackageError, match="overlaps: expected false of a cooperative kernel"):
        CudaExecutable(both)
