"""A kernel's body is given the numbers of its rTasks, whatever blocks do them; what it needs is read off the kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_kernels import write

from tilewright.compiler import driver
from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.explain.report import explain
from tilewright.compiler.gpu.builder import (
    Kernel,
    Operand,
    Value,
    barrier,
    if_,
    load,
    shared,
    store,
    thread_id,
)
from tilewright.compiler.gpu.launch import ALONE, GRID, Gang, cluster_of, launch_of
from tilewright.compiler.gpu.primitives import cluster_rank
from tilewright.compiler.ir import context, ir, parse
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.program import Launch

DOUBLED = np.arange(7 * 32, dtype=np.float32).reshape(7, 32)


IN_TURN = """
func.func @in_turn(%task: index, %x: memref<12xf32>, %out: memref<12xf32>, %status: memref<1xi32>, %scratch: memref<1099511627776xi8>)
    attributes {tilewright.tasks = 12 : i64} {
  %c0 = arith.constant 0 : index
  %thread = gpu.thread_id x
  %is_first = arith.cmpi eq, %thread, %c0 : index
  %t = memref.alloc() : memref<1024xf32>
  %u = memref.alloc() : memref<1024xf32>
  scf.if %is_first {
    %v = memref.load %x[%task] : memref<12xf32>
    memref.store %v, %t[%task] : memref<1024xf32>
    memref.store %v, %u[%c0] : memref<1024xf32>
    %a = memref.load %t[%task] : memref<1024xf32>
    %b = memref.load %u[%c0] : memref<1024xf32>
    %sum = arith.addf %a, %b : f32
    memref.store %sum, %out[%task] : memref<12xf32>
  }
  return
}
"""


def double(kernel: Kernel, rtask: Value, rank: Operand = 0) -> None:
    """Row `2 rtask + rank` of two buffers, or row `rtask`, backwards through shared memory."""
    row = rtask * kernel.gang.blocks + rank
    tile = shared([32], ir.F32Type.get())
    store(load(kernel.buffers[0], row, thread_id()), tile, thread_id())
    barrier()
    store(load(tile, 31 - thread_id()) * 2.0, kernel.buffers[1], row, thread_id())
    barrier()


def one(kernel: Kernel) -> None:
    double(kernel, kernel.rtask())


def several(kernel: Kernel) -> None:
    kernel.share().each([], lambda rtask: double(kernel, rtask))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("body", "gangs"), [(one, 0), (one, 7), (several, 0), (several, 3), (several, 1)])
def test_every_rtask_is_done_once(body, gangs: int, seed: int) -> None:
    module = write(["7x32xf32"] * 2, body, rtasks=7, gangs=gangs)
    assert launch_of(kernel_of(module)).grid == (gangs or 7)
    found = np.zeros((7, 32), np.float32)
    run_kernel(module, [DOUBLED, found], seed)
    assert np.array_equal(found, DOUBLED[:, ::-1] * 2)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("gangs", [0, 2])
def test_the_blocks_of_a_cluster_have_the_same_rtask(gangs: int, seed: int) -> None:
    def body(kernel: Kernel) -> None:
        rank = cluster_rank().to(ir.IndexType.get())
        kernel.share().each([], lambda rtask: double(kernel, rtask, rank))

    module = write(["6x32xf32"] * 2, body, rtasks=3, gang=cluster_of(2), gangs=gangs)
    found = np.zeros((6, 32), np.float32)
    run_kernel(module, [DOUBLED[:6], found], seed)
    assert np.array_equal(found, DOUBLED[:6, ::-1] * 2)


def test_a_loop_over_rtasks_carries_values() -> None:
    """Gang 1 of 3 has rTasks 1 and 4 of 7."""

    def body(kernel: Kernel) -> None:
        share = kernel.share()
        (total,) = share.each([share.first], lambda rtask, before: [before * 10 + rtask])
        with if_(thread_id().equals(0)):
            store(total.to(ir.IntegerType.get_signless(32)), kernel.buffers[0], share.first)

    found = np.zeros(3, np.int32)
    run_kernel(write(["3xi32"], body, rtasks=7, gangs=3), [found])
    assert found.tolist() == [36, 114, 225]


def test_a_body_of_one_rtask_is_not_given_several() -> None:
    with pytest.raises(ValueError, match="3 gangs take 7 rTasks in turn; ask for their `share`"):
        write(["7x32xf32"] * 2, one, rtasks=7, gangs=3)


def test_no_gang_is_without_work() -> None:
    with pytest.raises(ValueError, match="expected a gang for each of its 7 rTasks at most, found 8 gangs"):
        write(["7x32xf32"] * 2, several, rtasks=7, gangs=8)


@pytest.mark.parametrize(
    ("gang", "gangs", "launch"),
    [
        (ALONE, 0, Launch("emulated", 560, 64, rtasks=560)),
        (cluster_of(1), 132, Launch("emulated", 132, 64, rtasks=560)),
        (cluster_of(2), 132, Launch("emulated", 264, 64, cluster=2, rtasks=560)),
        (GRID, 0, Launch("emulated", 560, 64, cooperative=True, rtasks=560)),
    ],
)
def test_what_a_kernel_needs_is_read_off_it(gang: Gang, gangs: int, launch: Launch) -> None:
    found = launch_of(kernel_of(write([], lambda _: None, rtasks=560, block=64, gang=gang, gangs=gangs)))
    assert (found, found.gang, found.tasks) == (launch, gang.name, 560)


def test_rtasks_in_turn_have_the_temporaries_of_their_block() -> None:
    """Room for two blocks: twelve rTasks of a dispatch, each of whose two temporaries is used again by the next one."""
    with context(), ir.Location.unknown():
        module = parse(IN_TURN)
        run_pipeline(
            module.operation,
            "builtin.module(func.func(report-asserts,place-temporaries{shared-bytes=0}),"
            "form-gpu-kernels{threads=32 workspace-bytes=16384})",
        )
    launch = launch_of(kernel_of(module))
    assert (launch.grid, launch.tasks, launch.workspace_bytes) == (2, 12, 16384)
    found = np.zeros(12, np.float32)
    run_kernel(module, [np.arange(12, dtype=np.float32), found], 1)
    assert np.array_equal(found, np.arange(12) * 2)


def test_a_persistent_kernel_has_the_rtasks_of_its_work() -> None:
    """Units of a product on the wgmma kernels, more than there are blocks, in the notes and in `explain`."""
    args = torch.zeros(4096, 64, dtype=torch.float16), torch.zeros(64, 8192, dtype=torch.float16)
    package = driver.compile(torch.matmul, args, target="emulate:sm_90a").executable.package
    (step,), (note,), target = package.main.steps, package.notes["dispatches"], resolve("emulate:sm_90a")
    launch = package.kernels[step.kernel].launch
    assert launch is not None and note["family"] == "wgmma"
    assert launch.tasks * launch.cluster > launch.grid
    assert (note["tasks"], note["gang"]) == (step.tasks, launch.gang) == (launch.tasks, launch.gang)
    (row,) = explain("product", package.notes, [1.0], target, 1).dispatches
    assert row.work == f"{launch.tasks} rTasks" + (" of clusters" if launch.cluster > 1 else "")
