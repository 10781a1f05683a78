"""Kernels that may start before the one before them has ended: they wait before they touch memory, or it is found."""

from __future__ import annotations

import dispatch_runs
import numpy as np
import pytest
import test_hopper_mutants
import torch
from small_kernels import finding, i32_value, write
from test_emulator_hopper import stages_are_right, stages_module

from tilewright.compiler.codegen.emulation import EmulationError, execute, load_kernel, run_kernel
from tilewright.compiler.codegen.lower_gpu import gpu_module
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.gpu.builder import barrier, block_id, if_, load, store, thread_id
from tilewright.compiler.gpu.primitives import atomic_add, grid_dependency_wait, load_acquire, store_release
from tilewright.compiler.ir import ir, parse, walk
from tilewright.compiler.passes.lower_gpu.overlap_launches import WAIT, OverlapLaunches
from tilewright.compiler.targets.target import resolve

SEEDS = (0, 1, 2)


def overlapping(module: ir.Module) -> ir.Module:
    """The module with its kernel made to overlap, in place."""
    with module.context:
        OverlapLaunches().run(kernel_of(module))
    return module


def without_wait(module: ir.Module) -> ir.Module:
    """The module with its kernel's wait removed, in place."""
    (wait,) = walk(module.operation, WAIT)
    wait.erase()
    return module


def doubling(kernel) -> None:
    i = block_id() * 32 + thread_id()
    value = load(kernel.buffers[0], i)
    store(value + value, kernel.buffers[1], i)


@pytest.mark.parametrize("seed", SEEDS)
def test_reads_and_writes_come_after_the_wait(seed: int) -> None:
    a, b = np.arange(96, dtype=np.float32), np.zeros(96, np.float32)
    module = overlapping(write(["96xf32"] * 2, doubling, rtasks=3))
    run_kernel(module, [a, b], seed=seed)
    assert np.array_equal(b, 2 * a)
    report = finding(without_wait(module), [a, b], seed)
    assert "- early access: block" in report
    assert "grid_dependency_wait must come first" in report
    assert "in %2 = memref.load" in report or "memref.load %arg0" in report
    assert "memref.store" in report
    assert "- unfinished work: block" in report
    assert "returns without having waited for the kernels launched before" in report


def test_kernels_that_do_not_overlap_need_no_wait() -> None:
    a, b = np.arange(96, dtype=np.float32), np.zeros(96, np.float32)
    run_kernel(write(["96xf32"] * 2, doubling, rtasks=3), [a, b])
    assert np.array_equal(b, 2 * a)


def test_each_thread_waits_for_itself() -> None:
    """A barrier after one thread's wait says nothing of what the others may read."""

    def body(kernel) -> None:
        with if_(thread_id().equals(0)):
            grid_dependency_wait()
        barrier()
        doubling(kernel)

    module = write(["32xf32"] * 2, body)
    with module.context, ir.Location.unknown():
        kernel = kernel_of(module)
        fields = {field.name: field.attr for field in ir.DictAttr(kernel.attributes["tilewright.launch"])}
        kernel.attributes["tilewright.launch"] = ir.DictAttr.get(
            {**fields, "overlaps": ir.BoolAttr.get(True)}
        )
    report = finding(module, [np.zeros(32, np.float32)] * 2)
    assert "- early access: block 0, thread 31 " in report


@pytest.mark.parametrize("early", [load_acquire, store_release, atomic_add])
def test_flags_and_counters_are_memory_too(early) -> None:
    def body(kernel) -> None:
        with if_(thread_id().equals(5)):
            early(*([] if early is load_acquire else [i32_value(1)]), kernel.buffers[0], 0)
        grid_dependency_wait()

    report = finding(overlapping(write(["1xi32"], body)), [np.zeros(1, np.int32)], ready=[0])
    assert "- early access: block 0, thread 5 touches global memory" in report
    assert f"tilewright.{early.__name__}" in report


def test_boxes_are_loaded_and_stored_after_the_wait() -> None:
    module = overlapping(stages_module())
    assert stages_are_right(module, 1)
    with pytest.raises(EmulationError) as raised:
        stages_are_right(without_wait(module), 0)
    report = str(raised.value)
    early = [line for line in report.split("- ") if line.startswith("early access")]
    assert any("tilewright.tma_load" in line for line in early)
    assert any("tilewright.tma_store" in line for line in early)


def emit(function: ir.Operation, _schedule, target) -> ir.Module:
    """A dispatch's kernel as it is compiled: by its family, with the wait."""
    module, _ = gpu_module(function, target)
    assert len(walk(module.operation, WAIT)) == 1
    return module


def mutant(function: ir.Operation, schedule, target) -> ir.Module:
    return without_wait(emit(function, schedule, target))


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[0])).to(dtype)


CASES = {
    "contraction": (lambda a, b: a @ b, (67, 40), (40, 56), torch.float16, "nvgpu.device_async_copy"),
    "rows": (lambda a, b: (a + b).softmax(-1), (37, 129), (37, 129), torch.float32, "load"),
    "parallel": (lambda a, b: (a * b).relu(), (45, 71), (45, 71), torch.float32, "load"),
}


@pytest.mark.parametrize("name", CASES)
def test_families_wait(name: str) -> None:
    """Three orders of threads are in `dispatch_runs.run`; what each family touches first is found without the wait."""
    function, left, right, dtype, first = CASES[name]
    args = draw(*left, dtype=dtype), draw(*right, dtype=dtype)
    (found,) = dispatch_runs.run(function, args, emit, target="emulate:sm_90a")
    expected = function(*(a.double() for a in args))
    error = (found.double() - expected).norm() / expected.norm()
    assert error < (1e-3 if dtype == torch.float16 else 1e-6)
    with pytest.raises(EmulationError, match="early access") as raised:
        dispatch_runs.run(function, args, mutant, target="emulate:sm_90a")
    assert first in str(raised.value)


def test_wgmma_kernels_wait_after_their_barriers_are_made() -> None:
    arrays, expected = test_hopper_mutants.case("persistent")
    module = overlapping(parse(test_hopper_mutants.text("persistent")))
    kernel = kernel_of(module)
    names = [op.name for op in walk(kernel)]
    wait = names.index(WAIT)
    assert names.index("tilewright.mbarrier_init") < wait < names.index("tilewright.tma_load")
    assert names[wait + 1] == "tilewright.launch_dependents"
    loaded = load_kernel(module)
    for seed in SEEDS:
        result = np.zeros_like(expected)
        execute(loaded, [*arrays, result], seed=seed)
        assert np.array_equal(result, expected)
    with pytest.raises(EmulationError, match="early access") as raised:
        run_kernel(without_wait(module), [*arrays, np.zeros_like(expected)])
    assert "tilewright.tma_load" in str(raised.value)


@pytest.mark.parametrize("target", ["h100", "h200", "cuda:sm_90", "emulate:sm_90a"])
def test_devices_that_can(target: str) -> None:
    assert resolve(target).can_overlap_launches


@pytest.mark.parametrize("target", ["a100", "v100", "k80", "emulate:sm_80", "hip:gfx90a", "x86-64-v3"])
def test_devices_that_cannot(target: str) -> None:
    assert not resolve(target).can_overlap_launches
