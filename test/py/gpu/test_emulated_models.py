"""Whole models on an emulated GPU: through the public interface, from artifacts, and by `tilewright run --check`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from small_kernels import write
from torch import nn

import tilewright
from tilewright.compiler.cli.check import check, compare
from tilewright.compiler.cli.run import command
from tilewright.compiler.codegen.emulation import compile_object
from tilewright.compiler.gpu.builder import barrier, load, shared, store, thread_id
from tilewright.compiler.gpu.launch import launch_of
from tilewright.compiler.ir import ir, walk
from tilewright.runtime.emulated import EmulatedExecutable
from tilewright.runtime.errors import EmulationError, PackageError
from tilewright.runtime.program import BufferRef, Kernel, Package, Program, Step, TensorSpec

MODULE = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 49, 7), nn.LogSoftmax(1))
    return model.eval(), torch.randn(2, 3, 7, 7)
"""


def small() -> tuple[nn.Module, torch.Tensor]:
    space: dict = {}
    exec(MODULE, space)
    return space["small"]()


@pytest.fixture(scope="module")
def compiled():
    model, x = small()
    return tilewright.compile(model, (x,), target="emulate:sm_80"), model, x


def test_a_model_computes_what_pytorch_does(compiled) -> None:
    emulated, model, x = compiled
    for seed in (0, 1, 2):
        emulated.executable.seed = seed
        torch.testing.assert_close(emulated(x), model(x).detach(), rtol=1e-5, atol=1e-5)
    emulated.executable.is_checked, emulated.executable.num_threads = False, 3
    torch.testing.assert_close(emulated(x), model(x).detach(), rtol=1e-5, atol=1e-5)
    emulated.executable.is_checked = True


def test_rebinding_takes_other_weights(compiled) -> None:
    emulated, model, x = compiled
    held = list(emulated.executable.weights)
    try:
        emulated.executable.rebind([torch.as_tensor(w) * 0 for w in held])
        assert torch.allclose(emulated(x), torch.full((2, 7), -np.log(7.0), dtype=torch.float32))
    finally:
        emulated.executable.rebind(held)
    torch.testing.assert_close(emulated(x), model(x).detach(), rtol=1e-5, atol=1e-5)


def test_steps_are_timed(compiled) -> None:
    emulated, _, _ = compiled
    times = emulated.executable.profile()
    assert len(times) == len(emulated.executable.package.main.steps)
    assert all(time.time_us > 0 for time in times)


def test_artifacts_keep_emulated_kernels(compiled, tmp_path) -> None:
    emulated, model, x = compiled
    emulated.save(str(tmp_path / "small.twm"))
    again = tilewright.load(str(tmp_path / "small.twm"))
    assert isinstance(again.executable, EmulatedExecutable)
    torch.testing.assert_close(again(x), model(x).detach(), rtol=1e-5, atol=1e-5)


def package(has_barrier: bool) -> Package:
    """One step that reverses 64 values."""

    def body(kernel):
        tile = shared([64], ir.F32Type.get())
        store(load(kernel.buffers[0], thread_id()), tile, thread_id())
        if has_barrier:
            barrier()
        store(load(tile, 63 - thread_id()), kernel.buffers[1], thread_id())

    module = write(["64xf32"] * 2, body, block=64)
    (kernel,) = walk(module.operation, "gpu.func")
    launch = launch_of(kernel)
    spec = TensorSpec("x", "f32", (64,))
    made = Kernel("reverse", "reverse", compile_object(module), launch=replace(launch, shared_bytes=256))
    step = Step(0, (BufferRef("input"), BufferRef("output")), 1, "reverse_0")
    return Package("emulate:sm_80", (), (spec,), (spec,), (), (), (made,), Program((step,)))


def test_unaligned_memory_of_the_caller_is_copied() -> None:
    executable = EmulatedExecutable(package(True))
    memory = np.zeros(200, np.float32)
    a, b = memory[1:65], memory[101:165]
    a[:] = np.arange(64)
    executable.run([a.ctypes.data], [b.ctypes.data])
    assert np.array_equal(b, a[::-1])
    assert not memory[65:101].any()


def test_findings_name_the_kernel() -> None:
    executable = EmulatedExecutable(package(False), seed=1)
    with pytest.raises(EmulationError, match=r"kernel `reverse`, seed 1: .*\n- (race|uninitialised)"):
        executable(np.zeros(64, np.float32))


def test_packages_for_other_machines_are_refused() -> None:
    whole = package(True)
    kernel = replace(whole.kernels[0], launch=None)
    with pytest.raises(PackageError, match="not for the emulator"):
        EmulatedExecutable(replace(whole, kernels=(kernel,)))
    with pytest.raises(PackageError, match="not an ELF object"):
        EmulatedExecutable(replace(whole, kernels=(replace(whole.kernels[0], object=b"\0" * 100),)))
    launch = replace(whole.kernels[0].launch, block=48)
    with pytest.raises(PackageError, match="whole warps"):
        EmulatedExecutable(replace(whole, kernels=(replace(whole.kernels[0], launch=launch),)))


def test_the_tool_checks_a_model(tmp_path, monkeypatch) -> None:
    (tmp_path / "zoo_of_one.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = ["zoo_of_one:small", "--target", "emulate:sm_80", "--check", "--seeds", "2"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.count("nothing found") == 2
    refused = CliRunner().invoke(command, ["zoo_of_one:small", "--check"])
    assert refused.exit_code == 2
    assert "emulate:" in refused.output


def test_checking_reports_findings_and_wrong_results(compiled) -> None:
    emulated, model, x = compiled
    rows = check(emulated, model(x).detach(), (x,), {}, 2)
    assert [(row.seed, row.problem) for row in rows] == [(0, ""), (1, "")]
    (row,) = check(emulated, model(x).detach() + 0.5, (x,), {}, 1)
    assert "the error is" in row.problem


@pytest.mark.parametrize(
    "found, wanted, is_right",
    [
        (np.array([1.0, np.nan], np.float32), np.array([1.0, np.nan], np.float32), True),
        (np.array([1.0, np.nan], np.float32), np.array([1.0, 2.0], np.float32), False),
        (np.array([1.0, np.inf], np.float32), np.array([1.0, np.inf], np.float32), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.zeros((2, 0), np.float32), np.zeros((2, 0), np.float32), True),
        (np.zeros(2, np.float32), np.zeros(3, np.float32), False),
    ],
)
def test_results_are_compared(found: np.ndarray, wanted: np.ndarray, is_right: bool) -> None:
    assert (compare({"y": found}, {"y": wanted}, 1.0)[1] == "") == is_right
