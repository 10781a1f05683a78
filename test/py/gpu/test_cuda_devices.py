"""Devices and what they refuse: no driver, an old one, another architecture, too little of something; failures anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from mock_cuda_driver import (
    COPY,
    DOUBLE,
    ROW_MAP,
    kernel,
    package,
    step,
    vector,
    whole_model,
)

import tilewright
from tilewright.compiler.targets import devices as target_device
from tilewright.compiler.targets.occupancy import resident_blocks
from tilewright.runtime import cuda
from tilewright.runtime.binding import AbsentDevice, bind
from tilewright.runtime.cuda import CudaExecutable
from tilewright.runtime.errors import ArtifactError, DeviceError, PackageError
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.program import Kernel, Launch
from tilewright.runtime.signature import Signature

X = np.linspace(-3, 5, 1000, dtype=np.float32)


def copies(**launch) -> list[Kernel]:
    return [kernel("copy", COPY, **launch)]


ONE_STEP = (step(0, "input:0", "output:0"),)


class TestDevices:
    def test_are_described(self, mock):
        mock.device(0, "NVIDIA H200")
        mock.device(1, "NVIDIA A100", major=8, minor=0, shared=166912)
        first, second = cuda.devices()
        assert (first.index, first.name, first.capability, first.arch) == (0, "NVIDIA H200", (9, 0), "sm_90a")
        assert (first.multiprocessors, first.memory_bytes, first.driver_version) == (4, 1 << 30, (12, 8))
        assert (second.index, second.arch, second.shared_bytes) == (1, "sm_80", 166912)
        assert str(second) == "NVIDIA A100 (cuda:1, compute capability 8.0)"
        with pytest.raises(DeviceError, match=r"there is no device cuda:2; there are NVIDIA H200 \(cuda:0"):
            cuda.device(2)

    def test_are_targets_with_the_shared_memory_that_they_have(self, mock):
        """Devices that run the same code differ: what `sm_80` may use is more than an `sm_86` has."""
        mock.device(0, "NVIDIA A10", major=8, minor=6, shared=101376)
        small = target_device.present()
        assert (small.arch, small.num_cores) == ("sm_80", 4)
        assert small.level("shared").capacity_bytes == 101376
        assert resident_blocks(small, 128, 32, 50 << 10) == 1
        mock.device(0, "NVIDIA H200", major=9, minor=0, shared=232448)
        whole = target_device.present()
        assert (whole.arch, whole.level("shared").capacity_bytes) == ("sm_90a", 227 << 10)
        assert resident_blocks(whole, 128, 32, 113 << 10) == 2

    def test_without_a_driver_are_none(self, monkeypatch):
        monkeypatch.setenv("TILEWRIGHT_CUDA_LIBRARY", "libcuda-nowhere.so")
        assert cuda.devices() == ()
        with pytest.raises(DeviceError, match=r"no NVIDIA driver: libcuda-nowhere\.so: cannot open"):
            cuda.require_devices()

    def test_may_be_hidden(self, mock):
        mock.lib.mock_device_count(0)
        assert cuda.devices() == ()
        with pytest.raises(DeviceError, match="has no NVIDIA GPU; is one hidden by CUDA_VISIBLE_DEVICES"):
            cuda.require_devices()

    @pytest.mark.parametrize(
        ("given", "index"), [(1, 1), ("1", 1), ("cuda:3", 3), ("cuda", 0), (" cuda:0 ", 0)]
    )
    def test_are_named(self, given, index):
        assert cuda.index_of(given) == index

    @pytest.mark.parametrize("given", ["cpu", "cuda:x", -1, "gpu:0"])
    def test_are_not_named_otherwise(self, given):
        with pytest.raises(DeviceError, match="device: expected a number, `cuda` or `cuda:1`"):
            cuda.index_of(given)

    def test_of_an_old_driver_are_refused(self, mock, tmp_path):
        """In a process of its own: a driver that was loaded once is not asked again."""
        code = (
            "import ctypes, sys; ctypes.CDLL(sys.argv[1]).mock_driver_version(11080)\n"
            "from tilewright.runtime import cuda; cuda.require_devices()"
        )
        run = subprocess.run(
            [sys.executable, "-c", code, str(mock.path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "the NVIDIA driver is made for CUDA 11.8, at least 12.0 is needed; update it" in run.stderr


@pytest.mark.parametrize(
    ("target", "image", "capability", "fits"),
    [
        ("cuda:sm_90a", "cubin", (9, 0), True),
        ("cuda:sm_90a", "ptx", (10, 0), False),
        ("cuda:sm_80", "cubin", (8, 6), True),
        ("cuda:sm_86", "cubin", (8, 0), False),
        ("cuda:sm_80", "cubin", (9, 0), False),
        ("cuda:sm_80", "ptx", (9, 0), True),
        ("cuda:sm_80", "ptx", (7, 0), False),
        ("cuda:sm_100f", "cubin", (10, 3), True),
        ("cuda:sm_100f", "ptx", (12, 0), False),
        ("cuda:sm_120", "ptx", (12, 1), True),
    ],
)
def test_which_device_runs_which_code(mock, target, image, capability, fits):
    mock.device(major=capability[0], minor=capability[1])
    reason = cuda.misfit(package(copies(image=image), ONE_STEP, target=target), cuda.device(0))
    assert (reason is None) == fits
    if reason:
        assert f"compiled for {target[5:]}, which needs compute capability" in reason
        assert (
            f"found Mock GPU (cuda:0, compute capability {capability[0]}.{capability[1]}); compile" in reason
        )


class TestBinding:
    def test_takes_the_device_that_is_asked_for(self, mock):
        mock.device(1)
        assert bind(package(copies(), ONE_STEP), device="cuda:1").device.index == 1
        with pytest.raises(DeviceError, match="there is no device cuda:2"):
            bind(package(copies(), ONE_STEP), device=2, needs_device=True)
        with pytest.raises(PackageError, match="compiled for `cpu`, which runs on no GPU"):
            bind(replace(package((), ()), target="cpu"), device=0)

    def test_of_a_model_without_kernels_is_to_the_gpu_too(self, mock):
        model = package((), (), inputs=(), outputs=())
        executable = bind(model)
        assert isinstance(executable, CudaExecutable)
        assert executable() == []

    def test_keeps_models_for_other_devices_to_be_saved(self, mock, tmp_path):
        mock.device(major=7, minor=0)
        absent = bind(whole_model(), [X])
        assert isinstance(absent, AbsentDevice)
        model = CompiledModel(absent, Signature.flat(absent.inputs, absent.outputs))
        with pytest.raises(
            PackageError, match=r"does not run here: compiled for sm_90a.*7\.0.*; save the model"
        ):
            model(X)
        model.save(tmp_path / "m.twm")
        with pytest.raises(
            ArtifactError, match=r"m\.twm: compiled for sm_90a, which needs compute capability 9\.0"
        ):
            tilewright.load(tmp_path / "m.twm")
        mock.device(major=9)
        loaded = tilewright.load(tmp_path / "m.twm", cuda_graph=True)
        assert loaded.executable.cuda_graph is True
        y, z = loaded(X)
        np.testing.assert_allclose(y, 2 * (X + 2 * X) + np.arange(1000) + 1, rtol=1e-6)
        np.testing.assert_array_equal(y, z)

    def test_needs_a_driver_to_load(self, monkeypatch, tmp_path):
        monkeypatch.setenv("TILEWRIGHT_CUDA_LIBRARY", "libcuda-nowhere.so")
        absent = bind(whole_model(), [X])
        CompiledModel(absent, Signature.flat(absent.inputs, absent.outputs)).save(tmp_path / "m.twm")
        with pytest.raises(ArtifactError, match=r"m\.twm: no NVIDIA driver: libcuda-nowhere\.so"):
            tilewright.load(tmp_path / "m.twm")

    def test_loads_in_a_process_without_compiler_and_torch(self, mock, tmp_path):
        model = CompiledModel(
            bind(whole_model(), [X]), Signature.flat((vector("x"),), (vector("y"), vector("z")))
        )
        model.save(tmp_path / "m.twm")
        np.save(tmp_path / "y.npy", model(X)[0])
        code = (
            "import sys, numpy as np, tilewright\n"
            "model = tilewright.load(sys.argv[1] + '/m.twm')\n"
            "x = np.linspace(-3, 5, 1000, dtype=np.float32)\n"
            "np.testing.assert_array_equal(model(x)[0], np.load(sys.argv[1] + '/y.npy'))\n"
            "heavy = [m for m in sys.modules if m.partition('.')[0] in ('torch', 'torch_mlir', 'llvmlite')"
            " or m.startswith('tilewright.compiler')]\n"
            "assert not heavy, heavy\n"
        )
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (copies(shared_bytes=300_000), "`copy`: it needs 300000 B of shared memory, this device has 232448 B"),
        (copies(block=100), "kernel `copy`: block: expected whole warps"),
        (copies(cluster=3), "cluster: expected 1 to 16 blocks that divide the grid of 4"),
        (copies(grid=129, cooperative=True), "its 129 blocks must run at once, this device runs 64 of them"),
        (
            [kernel("copy", "map ppm", tensor_maps=(replace(ROW_MAP, shape=(20, 51)),))],
            "main step 0, kernel `copy`: tensor map 0 reaches beyond the 4000 B of its buffer",
        ),
        (
            [kernel("copy", "map ppm", tensor_maps=(replace(ROW_MAP, shape=(4, 1 << 32, 1 << 32), strides_bytes=(16, 1 << 36), box=(4,) * 3),))],
            "reaches beyond the 4000 B",
        ),
        (
            [kernel("copy", "map ppm", tensor_maps=(replace(ROW_MAP, buffer=2),))],
            "tensor map 0 lies over buffer 2 of 2",
        ),
        ([replace(copies()[0], launch=None)], "kernel `copy`: it is no kernel for a GPU"),
        ([replace(copies()[0], launch=Launch("emulated", 4, 128))], "kernel `copy`: it is no kernel for a GPU"),
    ],
)  # fmt: skip
def test_packages_that_do_not_fit_are_refused(mock, kernels, message):
    steps = [step(0, "input:0", "output:0", tasks=kernels[0].launch.grid if kernels[0].launch else 4)]
    with pytest.raises(PackageError, match=message):
        CudaExecutable(package(kernels, steps))
    assert mock.live == []


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            [step(0, "input:0", "output:0", tasks=5)],
            "main step 0, kernel `copy`: 5 rTasks of a kernel that has 4",
        ),
        ([step(1, "input:0", "output:0")], "main step 0: kernel 1 of 1"),
        ([step(0, "input:1", "output:0")], "main step 0: input 1 of 1"),
        ([step(0, "input:0+4004", "output:0")], "main step 0: offset 4004 in input 0 of 4000 B"),
    ],
)
def test_tables_that_do_not_hold_together_are_refused(mock, steps, message):
    with pytest.raises(PackageError, match=message):
        CudaExecutable(package(copies(), steps))
    assert mock.live == []


def test_features_of_a_device_are_asked_for(mock):
    mock.device(clusters=0, cooperative=0)
    with pytest.raises(PackageError, match="it runs in clusters of 2 blocks, which this device has none of"):
        CudaExecutable(package(copies(cluster=2), ONE_STEP))
    with pytest.raises(PackageError, match="it needs cooperative launches, which this device has none of"):
        CudaExecutable(package(copies(cooperative=True), ONE_STEP))
    assert mock.live == []


def test_weights_must_match(mock):
    with pytest.raises(PackageError, match="expected 1 weights, found 0"):
        CudaExecutable(whole_model())
    with pytest.raises(PackageError, match=r"weight `w` \(f32\[1000\]\): found float32\[999\]"):
        CudaExecutable(whole_model(), [X[1:]])
    assert mock.live == []


class TestImages:
    def test_ptx_stands_in_for_a_cubin_of_another_architecture(self, mock):
        cubin = kernel("copy", COPY)
        ptx = b".version 8.0\nfn copy_symbol scale pp n=1000 by=3\n"
        both = replace(
            cubin, object=cubin.object.replace(b"sm_90a", b"sm_80"), launch=replace(cubin.launch, ptx=ptx)
        )
        executable = CudaExecutable(package([both], ONE_STEP, target="cuda:sm_80"))
        np.testing.assert_array_equal(executable(X)[0], 3 * X)
        assert executable.resources()[0]["from_ptx"]

    def test_the_drivers_log_is_shown(self, mock):
        broken = kernel("copy", COPY, "ptx")
        broken = replace(broken, object=broken.object + b"error\n")
        message = (
            "kernel `copy`: the driver does not load it, saying `ptxas fatal: line 7: unknown instruction`: "
            r"CUDA_ERROR_INVALID_PTX \(mock failure\)"
        )
        with pytest.raises(DeviceError, match=message):
            CudaExecutable(package([broken], ONE_STEP))
        assert mock.live == []

    def test_a_missing_function_is_named(self, mock):
        broken = replace(kernel("copy", COPY), symbol="nowhere")
        with pytest.raises(DeviceError, match="kernel `copy`: looking for its function `nowhere`"):
            CudaExecutable(package([broken], ONE_STEP))


class TestFaults:
    def faulting(self) -> CudaExecutable:
        kernels = [kernel("double", DOUBLE), kernel("fault", "fault pp n=1000")]
        steps = [step(0, "input:0", "arena"), step(1, "arena", "output:0", dispatch="dispatch_1")]
        return CudaExecutable(package(kernels, steps, arena_bytes=4096))

    def test_are_fatal_and_say_how_to_learn_more(self, mock):
        executable = self.faulting()
        for _ in range(2):
            with pytest.raises(
                DeviceError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS .*TILEWRIGHT_CUDA_SYNC=1"
            ) as caught:
                executable(X)
            assert caught.value.is_fatal
        del executable, caught

    def test_name_their_kernel_when_every_step_is_waited_for(self, mock, monkeypatch):
        monkeypatch.setenv("TILEWRIGHT_CUDA_SYNC", "1")
        executable = self.faulting()
        with pytest.raises(DeviceError, match=r"running it: .*\(main step 1, kernel `fault`, dispatch_1\)$"):
            executable(X)


def test_forked_processes_are_told(mock):
    executable = CudaExecutable(package(copies(), ONE_STEP))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            executable(X)
            message = "it ran"
        except Exception as error:
            message = str(error)
        os.write(writer, message.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        assert "this process was forked from one that used CUDA; start it with `spawn` instead" in file.read()
    os.waitpid(child, 0)
    np.testing.assert_array_equal(executable(X)[0], X)
