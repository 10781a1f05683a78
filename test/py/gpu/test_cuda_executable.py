"""CudaExecutable on the mock driver: data flow over every space, graphs, streams, tensor maps, checks, profiles."""

from __future__ import annotations

import ctypes
import itertools
import threading
from dataclasses import replace

import numpy as np
import pytest
from mock_cuda_driver import (
    ADD,
    COPY,
    DOUBLE,
    ROW_MAP,
    kernel,
    package,
    step,
    vector,
    whole_model,
)

from tilewright.runtime import cuda_native
from tilewright.runtime.cuda import CudaExecutable, DeviceArray
from tilewright.runtime.errors import ArgumentError, KernelAssertError, PackageError
from tilewright.runtime.program import TensorSpec

X = np.linspace(-3, 5, 1000, dtype=np.float32)
W = np.sin(np.arange(1000, dtype=np.float32))


def expected(x: np.ndarray = X, w: np.ndarray = W) -> np.ndarray:
    return 2 * (x + 2 * w) + np.arange(1000, dtype=np.float32) + 1


def chain(count: int) -> list:
    """`count` doublings from input to output."""
    places = ["input:0", *(f"arena+{4096 * (i % 2)}" for i in range(count - 1)), "output:0"]
    return [step(0, a, b) for a, b in itertools.pairwise(places)]


def doublings(count: int) -> CudaExecutable:
    return CudaExecutable(package([kernel("double", DOUBLE)], chain(count), arena_bytes=8192))


@pytest.mark.parametrize("graph", [True, False, "auto"])
def test_data_flows_through_every_space(mock, graph):
    executable = CudaExecutable(whole_model(), [W], cuda_graph=graph)
    for x in (X, -X, 3 * X, X + 1):
        y, z = executable(x)
        np.testing.assert_allclose(y, expected(x), rtol=1e-6)
        np.testing.assert_array_equal(z, y)
    executable.rebind([2 * W])
    np.testing.assert_allclose(executable(X)[0], expected(X, 2 * W), rtol=1e-6)
    (weight,) = executable.weight_storages
    np.testing.assert_array_equal(np.frombuffer(weight.view(), np.float32), 2 * W)
    del executable, weight
    assert mock.live == []


def test_launches_carry_what_the_kernel_asks_for(mock):
    executable = CudaExecutable(whole_model(), [W], cuda_graph=False)
    assert "set attribute 8 of add_symbol to 100000" in mock.log
    mock.taken()
    executable(X)
    launches = [line for line in mock.log if line.startswith("launch ")]
    assert launches == [
        "launch add_symbol grid 4 block 128 shared 100000 cluster 2",
        "launch double_symbol grid 4 block 128 shared 0 cluster 1",
        "launch add_symbol grid 4 block 128 shared 100000 cluster 2",
        "launch counting_symbol grid 4 block 128 shared 0 cluster 1 cooperative",
        "launch through_map_symbol grid 4 block 128 shared 0 cluster 1",
        "launch checking_symbol grid 4 block 128 shared 0 cluster 1",
    ]


def test_large_clusters_are_asked_for(mock):
    wide = kernel("copy", COPY, grid=32, cluster=16)
    executable = CudaExecutable(package([wide], [step(0, "input:0", "output:0", tasks=32)]))
    np.testing.assert_array_equal(executable(X)[0], X)
    assert "set attribute 14 of copy_symbol to 1" in mock.log


def test_a_graph_is_captured_once_and_told_of_new_addresses_only(mock):
    executable = CudaExecutable(
        package([kernel("double", DOUBLE)], chain(5), arena_bytes=8192), cuda_graph=True
    )
    arrays = [DeviceArray(4000) for _ in range(4)]
    arrays[0].write(X)
    arrays[1].write(-X)
    stream = mock.lib.mock_stream()
    mock.taken()
    executable.launch([arrays[0].address], [arrays[2].address], stream)
    log = mock.taken()
    assert log.count("captured 5 nodes") == log.count("instantiated a graph") == 1
    executable.launch([arrays[0].address], [arrays[2].address], stream)
    assert mock.taken() == ["wait for an event", "launched a graph of 5 nodes"]
    executable.launch([arrays[1].address], [arrays[3].address], stream)
    assert mock.taken()[1:] == ["changed node 0", "changed node 4", "launched a graph of 5 nodes"]
    executable.launch([arrays[1].address], [arrays[2].address], stream)
    assert mock.taken()[1:] == ["changed node 4", "launched a graph of 5 nodes"]
    executable.synchronize()
    np.testing.assert_array_equal(arrays[2].read().view(np.float32), -32 * X)
    np.testing.assert_array_equal(arrays[3].read().view(np.float32), -32 * X)
    executable.rebind([])
    mock.taken()
    executable.launch([arrays[0].address], [arrays[3].address], stream)
    assert "instantiated a graph" in mock.log
    executable.synchronize()
    np.testing.assert_array_equal(arrays[3].read().view(np.float32), 32 * X)
    mock.lib.mock_end_stream(stream)


def test_auto_waits_until_a_graph_pays(mock):
    long, short = doublings(4), doublings(3)
    assert long.cuda_graph == short.cuda_graph == "auto"
    for executable, is_worth_it in ((long, True), (short, False)):
        for call in range(4):
            mock.taken()
            np.testing.assert_array_equal(executable(X)[0], (16 if is_worth_it else 8) * X)
            assert any("launched a graph" in line for line in mock.log) == (is_worth_it and call >= 2)


@pytest.mark.parametrize("call", range(1, 12))
def test_a_graph_that_nobody_asked_for_may_fail(mock, call):
    """Making one takes eleven calls of the driver: four launches with a look at their nodes, and three around them."""
    executable = doublings(4)
    executable(X)
    executable(X)
    mock.fail(call + 4)  # after the context is made current, two waits and a copy
    np.testing.assert_array_equal(executable(-X)[0], -16 * X)
    assert "CUDA_ERROR_999" in executable.graph_error
    mock.taken()
    np.testing.assert_array_equal(executable(X)[0], 16 * X)
    assert mock.log.count("launch double_symbol grid 4 block 128 shared 0 cluster 1") == 4
    executable.cuda_graph = True
    np.testing.assert_array_equal(executable(X)[0], 16 * X)
    assert "launched a graph of 4 nodes" in mock.log
    assert doublings(4).graph_error == ""


def test_settings_decide_unless_the_caller_does(mock, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CUDA_GRAPH", "1")
    assert doublings(1).cuda_graph is True
    monkeypatch.setenv("TILEWRIGHT_CUDA_SYNC", "1")
    executable = doublings(4)
    mock.taken()
    np.testing.assert_array_equal(executable(X)[0], 16 * X)
    log = mock.log
    assert "launched a graph of 4 nodes" not in log
    assert [line.split()[0] for line in log if line.split()[0] in ("launch", "ran")] == ["launch", "ran"] * 4
    with pytest.raises(PackageError, match="cuda_graph: expected True, False or 'auto', found 'yes'"):
        CudaExecutable(whole_model(), [W], cuda_graph="yes")


def test_a_caller_that_captures_gets_plain_launches(mock):
    executable = CudaExecutable(
        package([kernel("double", DOUBLE)], chain(5), arena_bytes=8192), cuda_graph=True
    )
    source, target = DeviceArray(4000), DeviceArray(4000)
    stream = mock.lib.mock_stream()
    executable(X)
    mock.lib.mock_capture(stream, 1)
    mock.taken()
    executable.launch([source.address], [target.address], stream)
    mock.lib.mock_capture(stream, 0)
    log = mock.log
    assert log[-1] == "caller captured 5 nodes"
    assert all(line.startswith(("launch double", "caller")) for line in log)
    mock.lib.mock_end_stream(stream)


def test_calls_follow_one_another_whatever_their_stream(mock):
    executable = doublings(3)
    source, first, second = (DeviceArray(4000) for _ in range(3))
    source.write(X)
    one, other = mock.lib.mock_stream(), mock.lib.mock_stream()
    executable.launch([source.address], [first.address], one)
    executable.launch([first.address], [second.address], other)
    assert "ran double_symbol" not in mock.log
    mock.lib.mock_drain(other)  # which needs the work of the first stream
    assert mock.log.count("ran double_symbol") == 6
    np.testing.assert_array_equal(second.read().view(np.float32), 64 * X)
    executable.launch([source.address], [second.address], 0)
    np.testing.assert_array_equal(executable(X)[0], 8 * X)
    executable.synchronize()
    np.testing.assert_array_equal(second.read().view(np.float32), 8 * X)
    for stream in (one, other):
        mock.lib.mock_end_stream(stream)


def test_memory_outlives_the_calls_that_use_it(mock):
    executable = doublings(2)
    source, target = DeviceArray(4000), DeviceArray(4000)
    source.write(X)
    executable.launch([source.address], [target.address], 0)
    del executable
    assert "1 modules" not in mock.live
    np.testing.assert_array_equal(target.read().view(np.float32), 4 * X)
    del source, target
    assert mock.live == []


def test_tensor_maps_are_encoded_once_per_address(mock):
    through = kernel("through_map", "map ppm n=1000", tensor_maps=(replace(ROW_MAP, dtype="tf32"),))
    executable = CudaExecutable(package([through], [step(0, "input:0", "output:0")]), cuda_graph=False)
    arrays = [DeviceArray(4000) for _ in range(3)]
    for array, values in zip(arrays, (X, -X)):
        array.write(values)
    mock.taken()
    for turn in (0, 1, 0, 1, 1):
        executable.launch([arrays[turn].address], [arrays[2].address])
        executable.synchronize()
        np.testing.assert_array_equal(arrays[2].read().view(np.float32), (-1) ** turn * X)
    assert [line for line in mock.log if line.startswith("tensor map")] == [
        "tensor map of rank 2 type 11 swizzle 0 box 4 every 1,1"
    ] * 2


def test_element_strides_reach_the_driver(mock):
    every_other = replace(ROW_MAP, box=(4, 16), element_strides=(1, 2))
    through = kernel("through_map", "map ppm n=1000", tensor_maps=(every_other,))
    executable = CudaExecutable(package([through], [step(0, "input:0", "output:0")]), cuda_graph=False)
    arrays = [DeviceArray(4000) for _ in range(2)]
    executable.launch([arrays[0].address], [arrays[1].address])
    executable.synchronize()
    (line,) = (line for line in mock.log if line.startswith("tensor map"))
    assert line.endswith("every 1,2")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"shape": (20, 5, 3), "strides_bytes": (160, 80), "box": (4, 1, 1)}, "strides that are not nested"),
        ({"strides_bytes": (64,)}, "strides that are not nested"),
        ({"element_strides": (1, 9)}, "element strides"),
        ({"element_strides": (2, 1)}, "element strides"),
    ],
)
def test_maps_that_break_the_rules_end_at_the_driver(mock, monkeypatch, fields, problem):
    """Were they not refused before: the mock driver is as strict as the driver's documentation."""
    through = kernel("through_map", "map ppm n=1000", tensor_maps=(replace(ROW_MAP, **fields),))
    made = package([through], [step(0, "input:0", "output:0")])
    with pytest.raises(PackageError, match="strides"):
        CudaExecutable(made)
    monkeypatch.setattr(cuda_native, "broken_rule", lambda launch: None)
    executable = CudaExecutable(made, cuda_graph=False)
    arrays = [DeviceArray(4000) for _ in range(2)]
    with pytest.raises(Exception, match="encoding a tensor map"):
        executable.launch([arrays[0].address], [arrays[1].address])
    assert mock.problems == [f"tensor map: {problem}"]
    del executable, arrays
    mock.reset()


def test_a_failed_map_leaves_no_stale_one(mock):
    through = kernel("through_map", "map ppm n=1000", tensor_maps=(ROW_MAP,))
    executable = CudaExecutable(package([through], [step(0, "input:0", "output:0")]), cuda_graph=False)
    arrays = [DeviceArray(4000) for _ in range(2)]
    arrays[0].write(X)
    mock.fail(2)  # the context is made current, then the map is encoded
    with pytest.raises(Exception, match=r"encoding a tensor map.*\(main step 0, kernel `through_map`\)"):
        executable.launch([arrays[0].address], [arrays[1].address])
    executable.launch([arrays[0].address], [arrays[1].address])
    executable.synchronize()
    np.testing.assert_array_equal(arrays[1].read().view(np.float32), X)


def test_steps_of_no_blocks_are_left_out(mock):
    nothing = kernel("nothing", COPY, grid=0)
    steps = [step(0, "input:0", "output:0", tasks=0), step(1, "input:0", "output:0")]
    for graph in (True, False):
        executable = CudaExecutable(package([nothing, kernel("copy", COPY)], steps), cuda_graph=graph)
        np.testing.assert_array_equal(executable(X)[0], X)
        np.testing.assert_array_equal(executable(-X)[0], -X)


def test_empty_tensors_need_no_address(mock):
    empty = TensorSpec("e", "f32", (0, 3))
    steps = [step(0, "input:1", "output:1")]
    executable = CudaExecutable(
        package([kernel("copy", COPY)], steps, inputs=(empty, vector("x")), outputs=(empty, vector("y")))
    )
    found = executable(np.zeros((0, 3), np.float32), X)
    assert found[0].shape == (0, 3)
    np.testing.assert_array_equal(found[1], X)
    source, target = DeviceArray(4000), DeviceArray(0)
    executable.launch([0, source.address], [target.address, source.address])
    executable.synchronize()


def test_workspaces_without_counters_are_shared(mock):
    def counting(name: str, zeroed: int):
        return kernel(
            name,
            f"count ppp n=1000 full=2 zeroed={max(zeroed, 1)}",
            workspace_bytes=1 << 20,
            zeroed_bytes=zeroed,
        )

    kernels = [counting(f"k{i}", 0) for i in range(8)]
    before = mock.lib.mock_allocated()
    CudaExecutable(package(kernels, [step(i, "input:0", "output:0") for i in range(8)]))
    used = max(int(line.split()[1]) for line in mock.log if line.startswith("allocated"))
    assert used == 1 << 20
    executable = CudaExecutable(
        package([counting("a", 8), counting("b", 8)], [step(1, "input:0", "output:0")])
    )
    assert "allocated 2097152" in mock.log
    np.testing.assert_array_equal(executable(X)[0], X + 1)
    assert before == 0


def checked(limit: int) -> CudaExecutable:
    checking = kernel(
        "checking",
        f"check ppp n=1000 full=2 limit={limit} check=1",
        asserts=("unused", "index 7 is out of range"),
    )
    return CudaExecutable(package([checking], [step(0, "input:0", "output:0", dispatch="dispatch_3")]))


def test_failed_checks_reach_host_calls_before_they_return(mock):
    executable = checked(10)
    np.testing.assert_array_equal(executable(X)[0], X)
    for _ in range(2):
        with pytest.raises(
            KernelAssertError,
            match=r"^index 7 is out of range \(main step 0, kernel `checking`, dispatch_3\)$",
        ):
            executable(X + 10)
    np.testing.assert_array_equal(executable(X)[0], X)


def test_failed_checks_reach_the_next_call_or_whoever_waits(mock):
    executable = checked(10)
    source, target = DeviceArray(4000), DeviceArray(4000)
    source.write(X + 10)
    executable.launch([source.address], [target.address])
    with pytest.raises(KernelAssertError, match=r"index 7 .*; an earlier call's results are undefined"):
        executable.synchronize()
    executable.launch([source.address], [target.address])
    mock.lib.mock_drain(None)
    mock.taken()
    with pytest.raises(KernelAssertError, match="index 7"):
        executable(X)
    assert not any(line.startswith("launch") for line in mock.log)
    np.testing.assert_array_equal(executable(X)[0], X)


def test_failed_checks_of_prepack_leave_nothing_bound(mock):
    checking = kernel("checking", "check ppp n=1000 full=2 limit=10 check=0", asserts=("too large",))
    built = package(
        [checking, kernel("add", ADD)],
        [step(1, "input:0", "packed", "output:0")],
        weights=(vector("w"),),
        prepack=[step(0, "weight:0", "packed")],
        packed_bytes=4000,
    )
    executable = CudaExecutable(built, [W])
    with pytest.raises(KernelAssertError, match=r"too large \(prepack step 0, kernel `checking`\)"):
        executable.rebind([W + 10])
    with pytest.raises(ArgumentError, match="no weights are bound: the last prepack failed"):
        executable(X)
    executable.rebind([W])
    np.testing.assert_array_equal(executable(X)[0], X + W)


def test_addresses_must_be_aligned(mock):
    executable = doublings(1)
    source = DeviceArray(4100)
    with pytest.raises(
        ArgumentError, match="input 0 lies at an address that is no multiple of 16 B; copy it"
    ):
        executable.launch([source.address + 4], [source.address])
    with pytest.raises(ArgumentError, match="output 0 lies at"):
        executable.launch([source.address], [source.address + 8])
    with pytest.raises(ArgumentError, match="expected 1 inputs and 1 outputs, found 0 and 1"):
        executable.launch([], [source.address])
    with pytest.raises(ArgumentError, match="do not fit into 4100 B"):
        source.write(np.zeros(1026, np.float32))


def test_profile_times_every_step_by_the_device(mock):
    kernels = [kernel("quick", "scale pp n=1000 by=2 us=3"), kernel("slow", "copy pp n=1000 us=40")]
    steps = [step(0, "input:0", "arena"), step(1, "arena", "output:0", dispatch="last")]
    executable = CudaExecutable(package(kernels, steps, arena_bytes=4096), cuda_graph=True)
    times = executable.profile(repeats=3)
    assert [(t.step, t.kernel, t.dispatch, t.tasks) for t in times] == [
        (0, "quick", "", 4),
        (1, "slow", "last", 4),
    ]
    np.testing.assert_allclose([t.time_us for t in times], [3, 40], rtol=1e-5)
    np.testing.assert_array_equal(executable(X)[0], 2 * X)
    with pytest.raises(ArgumentError, match="repeats: expected at least 1"):
        executable.profile(repeats=0)


def test_time_rotates_over_sets_of_inputs(mock):
    executable = CudaExecutable(package([kernel("double", DOUBLE + " us=7")], chain(2), arena_bytes=8192))
    sources = [DeviceArray(4000) for _ in range(3)]
    for number, source in enumerate(sources):
        source.write(X + number)
    target = DeviceArray(4000)
    times = executable.time([[s.address] for s in sources], [target.address], launches=5, rounds=4)
    np.testing.assert_allclose(times, [14.0] * 4, rtol=1e-5)
    np.testing.assert_array_equal(
        target.read().view(np.float32), 4 * (X + 1)
    )  # the fifth launch took the second set
    np.testing.assert_array_equal(executable(X)[0], 4 * X)


def test_resources_are_the_drivers(mock):
    kernels = [kernel("double", DOUBLE + " registers=168 local=16 static=32"), kernel("copy", COPY, "ptx")]
    executable = CudaExecutable(package(kernels, chain(1)))
    assert executable.resources() == [
        {"kernel": "double", "registers": 168, "local_bytes": 16, "shared_bytes": 32, "from_ptx": False},
        {"kernel": "copy", "registers": 32, "local_bytes": 0, "shared_bytes": 0, "from_ptx": True},
    ]


def test_threads_may_call_one_executable(mock):
    executable = doublings(5)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for turn in range(20):
            x = X + seed * 100 + turn
            if not np.array_equal(executable(x)[0], 32 * x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_devices_without_a_pool_reuse_blocks(mock):
    mock.device(pools=0)
    for _ in range(3):
        executable = doublings(3)
        other = doublings(3)
        np.testing.assert_array_equal(executable(X)[0], 8 * X)
        np.testing.assert_array_equal(other(X)[0], 8 * X)
        del executable
        fresh = doublings(3)
        np.testing.assert_array_equal(fresh(X)[0], 8 * X)
        del other, fresh
    assert mock.live == []
    allocated = sum(line.startswith("allocated") for line in mock.log)
    # Packed, arena, staging and an arena of prepack, which the second model takes over; the third takes all of the first.
    assert allocated == 3 * (4 + 3 + 0)


def test_kept_blocks_go_before_memory_runs_out(mock):
    mock.device(pools=0)
    held = DeviceArray(4096)
    first = DeviceArray(900 << 20)
    with pytest.raises(
        MemoryError, match="allocating 209715200 B of device memory: CUDA_ERROR_OUT_OF_MEMORY"
    ):
        DeviceArray(200 << 20)
    del first
    small = [DeviceArray(50 << 20) for _ in range(5)]
    del small
    assert DeviceArray(1000 << 20).nbytes == 1000 << 20
    assert held.nbytes == 4096


def test_libraries_are_told_apart(mock):
    with pytest.raises(Exception, match=r"no NVIDIA driver: .*nowhere\.so"):
        from tilewright.runtime import cuda_native

        count = ctypes.c_int32()
        status = cuda_native.library().tw_cuda_devices(b"/nowhere.so", None, 0, ctypes.byref(count))
        cuda_native.fail(status)
