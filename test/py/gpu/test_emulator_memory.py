"""What the emulator finds in single accesses, and races between them: each beside the same kernel done right."""

import numpy as np
import pytest
from small_kernels import finding, write

from tilewright.compiler.codegen.emulation import execute, load_kernel, run_kernel
from tilewright.compiler.gpu.builder import (
    barrier,
    block_id,
    for_,
    if_,
    load,
    load_vector,
    shared,
    shuffle_xor,
    store,
    store_vector,
    thread_id,
)
from tilewright.compiler.gpu.launch import GRID
from tilewright.compiler.gpu.primitives import atomic_add, load_acquire, store_release, thread_fence
from tilewright.compiler.ir import arith, ir, memref, scf, walk

SEEDS = (0, 1, 2)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape, dtype=np.float32)


def reverse(kernel, has_barrier: bool) -> None:
    f32 = ir.F32Type.get()
    tile = shared([64], f32)
    position = block_id() * 64 + thread_id()
    store(load(kernel.buffers[0], position), tile, thread_id())
    if has_barrier:
        barrier()
    store(load(tile, 63 - thread_id()), kernel.buffers[1], position)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("checked", [True, False])
def test_a_block_exchanges_values(seed: int, checked: bool) -> None:
    a, b = numbers(192), np.zeros(192, np.float32)
    run_kernel(
        write(["192xf32"] * 2, lambda k: reverse(k, True), rtasks=3, block=64),
        [a, b],
        seed=seed,
        checked=checked,
    )
    assert np.array_equal(b, a.reshape(3, 64)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_barrier_is_a_race(seed: int) -> None:
    report = finding(
        write(["192xf32"] * 2, lambda k: reverse(k, False), rtasks=3, block=64), [numbers(192)] * 2, seed
    )
    assert "- race: block" in report
    assert "a barrier between them is missing" in report
    assert "memref.load" in report
    assert "memref.store" in report


def test_reports_name_block_thread_operation_and_place() -> None:
    def body(kernel):
        with ir.Location.file("model.py", 33, 5), if_(thread_id().equals(5)):
            store(load(kernel.buffers[0], block_id() + 7), kernel.buffers[1], 0)

    report = finding(write(["8xf32"] * 2, body, rtasks=3), [numbers(8)] * 2)
    assert "kernel `small`, seed 0: 1 finding(s)" in report
    assert "- out of bounds: block 1, thread 5 index 8 in dimension 0 of extent 8" in report
    assert "memref.load" in report
    assert "(model.py:33:5)" in report


def test_extents_of_a_view_bound_it_too() -> None:
    def body(kernel):
        row = memref.subview(kernel.buffers[0], [0, 0], [1, 4], [1, 1])
        with if_(thread_id().equals(0)):
            store(load(row, 0, thread_id() + 4), kernel.buffers[1], 0)

    report = finding(write(["2x8xf32", "1xf32"], body), [numbers(2, 8), numbers(1)])
    assert "index 4 in dimension 1 of extent 4" in report


def test_the_last_lanes_of_a_vector_count() -> None:
    def body(kernel):
        vector = load_vector(kernel.buffers[0], [thread_id() * 4], 4, 16)
        store_vector(vector, kernel.buffers[1], [thread_id() * 4], 16)

    a, b = numbers(130), np.zeros(128, np.float32)
    run_kernel(write(["130xf32", "128xf32"], body), [a, b])
    assert np.array_equal(b, a[:128])
    report = finding(write(["126xf32", "128xf32"], body), [a[:126], b])
    assert "thread 31 indices 124 to 127 in dimension 0 of extent 126" in report


@pytest.mark.parametrize("start", [0, 1, 2])
def test_vectors_must_be_aligned(start: int) -> None:
    def body(kernel):
        vector = load_vector(kernel.buffers[0], [thread_id() * 4 + start], 4, 16)
        store_vector(vector, kernel.buffers[1], [thread_id() * 4], 16)

    module = write(["136xf32", "128xf32"], body)
    a, b = numbers(136), np.zeros(128, np.float32)
    if start == 0:
        run_kernel(module, [a, b])
    else:
        report = finding(module, [a, b])
        assert "misaligned access" in report
        assert f"found {4 * start} B past a multiple" in report
    # Without an alignment of its own a vector is read element by element.
    run_kernel(module, [a, b], checked=False)
    assert np.array_equal(b, a[start : start + 128])


def test_uninitialised_shared_memory_is_found() -> None:
    def body(kernel):
        tile = shared([40], ir.F32Type.get())
        store(load(kernel.buffers[0], thread_id()), tile, thread_id())
        barrier()
        store(load(tile, thread_id() + 1), kernel.buffers[1], thread_id())

    report = finding(write(["32xf32"] * 2, body), [numbers(32)] * 2)
    assert "uninitialised read: block 0, thread 31 reads shared memory at offset 128" in report


def test_outputs_hold_nothing_at_first() -> None:
    def body(kernel):
        i = thread_id()
        store(load(kernel.buffers[1], i) + load(kernel.buffers[0], i), kernel.buffers[1], i)

    module = write(["32xf32"] * 2, body)
    assert "uninitialised read" in finding(module, [numbers(32)] * 2)
    a, b = numbers(32), np.ones(32, np.float32)
    run_kernel(module, [a, b], ready=[1])
    assert np.array_equal(b, a + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_neighbouring_halves_of_a_word_do_not_race(seed: int) -> None:
    def body(kernel):
        tile = shared([64], ir.F16Type.get())
        store(load(kernel.buffers[0], thread_id()), tile, thread_id())
        barrier()
        store(load(tile, 63 - thread_id()), kernel.buffers[1], thread_id())

    a, b = numbers(64).astype(np.float16), np.zeros(64, np.float16)
    run_kernel(write(["64xf16"] * 2, body, block=64), [a, b], seed=seed)
    assert np.array_equal(b, a[::-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_write_neighbouring_halves_of_a_workspace(seed: int) -> None:
    def body(kernel):
        partial = memref.view(ir.Type.parse("memref<64xf16>"), kernel.workspace, _zero(), [])
        at = block_id() * 32 + thread_id()
        store(load(kernel.buffers[0], at), partial, at)
        store(load(partial, at), kernel.buffers[1], at)

    a, b = numbers(64).astype(np.float16), np.zeros(64, np.float16)
    run_kernel(write(["64xf16"] * 2, body, rtasks=2, workspace_bytes=128, zeroed_bytes=0), [a, b], seed=seed)
    assert np.array_equal(b, a)


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_of_one_warp_race_too(seed: int) -> None:
    """A shuffle makes lanes meet, but orders no memory."""

    def body(kernel):
        tile = shared([32], ir.F32Type.get())
        value = load(kernel.buffers[0], thread_id())
        store(value, tile, thread_id())
        other = shuffle_xor(value, 1)
        store(load(tile, thread_id() ^ 1) - other, kernel.buffers[1], thread_id())

    assert "race" in finding(write(["32xf32"] * 2, body), [numbers(32)] * 2, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_overwriting_what_others_still_read_is_a_race(seed: int) -> None:
    def body(kernel, last):
        tile = shared([64], ir.F32Type.get())
        for start in (0, 64):
            store(load(kernel.buffers[0], thread_id() + start), tile, thread_id())
            barrier()
            store(load(tile, 63 - thread_id()), kernel.buffers[1], thread_id() + start)
            if last:
                barrier()

    a, b = numbers(128), np.zeros(128, np.float32)
    run_kernel(write(["128xf32"] * 2, lambda k: body(k, True), block=64), [a, b], seed=seed)
    assert np.array_equal(b, a.reshape(2, 64)[:, ::-1].reshape(-1))
    report = finding(write(["128xf32"] * 2, lambda k: body(k, False), block=64), [a, b], seed)
    assert "race" in report


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_blocks_may_write_the_same_value_twice(factor: float) -> None:
    def body(kernel):
        value = load(kernel.buffers[0], thread_id())
        with if_(block_id().equals(0)):
            store(value, kernel.buffers[1], thread_id())
        with if_(block_id().equals(1)):
            store(value * factor, kernel.buffers[1], thread_id())

    a, b = numbers(32), np.zeros(32, np.float32)
    module = write(["32xf32"] * 2, body, rtasks=2)
    if factor == 1:
        run_kernel(module, [a, b])
        assert np.array_equal(a, b)
    else:
        report = finding(module, [a, b])
        assert "writes another value to byte 0 of argument 1" in report
        assert "of block 0" in report


def test_atomics_do_not_race_with_each_other() -> None:
    def body(kernel):
        memref.atomic_rmw(
            arith.AtomicRMWKind.addi,
            load(kernel.buffers[0], thread_id()).value,
            kernel.buffers[1],
            [(thread_id() % 3).value],
        )

    a, b = np.arange(32, dtype=np.int32), np.zeros(3, np.int32)
    run_kernel(write(["32xi32", "3xi32"], body, rtasks=4), [a, b], ready=[1], seed=2)
    assert np.array_equal(b, 4 * np.array([a[i::3].sum() for i in range(3)]))


def last_block_sums(kernel, fences: bool, order: str = "relaxed") -> None:
    """Every block writes a partial result; the last one to come adds them up."""
    i32 = ir.IntegerType.get_signless(32)
    partial, total = kernel.buffers[1], kernel.buffers[2]
    flag = shared([1], i32)
    counters = memref.view(ir.Type.parse("memref<1xi32>"), kernel.workspace, _zero(), [])
    store(load(kernel.buffers[0], block_id() * 32 + thread_id()), partial, block_id() * 32 + thread_id())
    if fences:
        thread_fence()
    barrier()
    with if_(thread_id().equals(0)):
        store(atomic_add(1, counters, 0, order), flag, 0)
    barrier()
    with if_(load(flag, 0).equals(3)):
        if fences:
            thread_fence()
        sum_ = load(partial, thread_id())
        for block in range(1, 4):
            sum_ = sum_ + load(partial, thread_id() + 32 * block)
        store(sum_, total, thread_id())
        with if_(thread_id().equals(0)):
            store(load(flag, 0) - 3, counters, 0)


def _zero() -> ir.Value:
    return arith.constant(ir.IndexType.get(), 0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fences, order", [(False, "acq_rel"), (True, "acq_rel")])
def test_the_last_block_reads_what_others_released(seed: int, fences: bool, order: str) -> None:
    module = write(
        ["128xf32", "128xf32", "32xf32"],
        lambda k: last_block_sums(k, fences, order),
        rtasks=4,
        workspace_bytes=16,
        zeroed_bytes=4,
    )
    a, partial, total = numbers(128), np.zeros(128, np.float32), np.zeros(32, np.float32)
    run_kernel(module, [a, partial, total], seed=seed)
    rows = a.reshape(4, 32)
    assert np.array_equal(total, ((rows[0] + rows[1]) + rows[2]) + rows[3])


@pytest.mark.parametrize("seed", SEEDS)
def test_reading_another_blocks_result_needs_a_release(seed: int) -> None:
    module = write(
        ["128xf32", "128xf32", "32xf32"],
        lambda k: last_block_sums(k, False),
        rtasks=4,
        workspace_bytes=16,
        zeroed_bytes=4,
    )
    report = finding(module, [numbers(128), np.zeros(128, np.float32), np.zeros(32, np.float32)], seed)
    assert "nothing makes it visible to this block" in report


def test_buffers_that_threads_share_are_not_promised_to_have_no_aliases() -> None:
    """LLVM merges loads of a `noalias` argument across barriers and fences; other threads write to the workspace."""
    module = write(
        ["128xf32", "128xf32", "32xf32"],
        lambda k: last_block_sums(k, True),
        rtasks=4,
        workspace_bytes=16,
        zeroed_bytes=4,
        asserts=["never"],
    )
    (kernel,) = walk(module.operation, "gpu.func")
    # Source and total; partial results, the workspace and the status may change under a thread.
    promised = ["llvm.noalias" in entry for entry in kernel.attributes["arg_attrs"]]
    assert promised == [True, False, True, False, False]


def test_values_are_not_exchanged_through_buffers_without_aliases() -> None:
    module = write(
        ["128xf32", "128xf32", "32xf32"],
        lambda k: last_block_sums(k, True, "acq_rel"),
        rtasks=4,
        workspace_bytes=16,
        zeroed_bytes=4,
    )
    (kernel,) = walk(module.operation, "gpu.func")
    with module.context:
        promise = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
        kernel.attributes["arg_attrs"] = ir.ArrayAttr.get([promise] * 3 + [ir.DictAttr.get({})])
    report = finding(module, [numbers(128), np.zeros(128, np.float32), np.zeros(32, np.float32)])
    assert "- misuse: block 3" in report
    assert "threads exchange values through shared memory or the workspace" in report


def test_counters_must_be_left_zero() -> None:
    def body(kernel):
        counters = memref.view(ir.Type.parse("memref<1xi32>"), kernel.workspace, _zero(), [])
        atomic_add(1, counters, 0)
        store(load(kernel.buffers[0], thread_id()), kernel.buffers[1], thread_id())

    module = write(["32xf32"] * 2, body, workspace_bytes=4, zeroed_bytes=4)
    assert "must be zero after a launch" in finding(module, [numbers(32)] * 2)


def chain(kernel, waits: bool) -> None:
    """Block i adds to what block i - 1 released, clears its flag and sets its own."""
    flags = memref.view(ir.Type.parse("memref<8xi32>"), kernel.workspace, _zero(), [])
    a, b = kernel.buffers
    block = block_id()
    with if_(thread_id().equals(0)):
        with if_(block.equals(0)):
            store(load(a, 0), b, 0)
        with if_(block > 0):
            if waits:
                loop = scf.WhileOp([], [])
                with ir.InsertionPoint(loop.regions[0].blocks.append()):
                    scf.condition(load_acquire(flags, block - 1).equals(0).value, [])
                with ir.InsertionPoint(loop.regions[1].blocks.append()):
                    scf.yield_([])
                store_release(0, flags, block - 1)
            store(load(b, block - 1) + load(a, block), b, block)
        with if_(block < 7):
            store_release(1, flags, block)


CHAIN = {"rtasks": 8, "gang": GRID, "workspace_bytes": 32, "zeroed_bytes": 32}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("checked", [True, False])
def test_cooperative_blocks_wait_for_each_other(seed: int, checked: bool) -> None:
    a, b = numbers(8), np.zeros(8, np.float32)
    module = write(["8xf32"] * 2, lambda k: chain(k, True), **CHAIN)
    run_kernel(module, [a, b], seed=seed, checked=checked)
    assert np.array_equal(b, np.add.accumulate(a))


@pytest.mark.parametrize("seed", SEEDS)
def test_cooperative_blocks_that_do_not_wait_race(seed: int) -> None:
    report = finding(
        write(["8xf32"] * 2, lambda k: chain(k, False), **CHAIN), [numbers(8), np.zeros(8, np.float32)], seed
    )
    assert "race" in report or "uninitialised read" in report


def test_waiting_for_a_flag_that_nobody_sets_is_a_standstill() -> None:
    def body(kernel):
        flags = memref.view(ir.Type.parse("memref<8xi32>"), kernel.workspace, _zero(), [])
        loop = scf.WhileOp([], [])
        with ir.InsertionPoint(loop.regions[0].blocks.append()):
            scf.condition(load_acquire(flags, 0).equals(0).value, [])
        with ir.InsertionPoint(loop.regions[1].blocks.append()):
            scf.yield_([])
        store(load(kernel.buffers[0], 0), kernel.buffers[1], 0)

    report = finding(write(["8xf32"] * 2, body, **CHAIN), [numbers(8)] * 2)
    assert "standstill" in report
    assert "0-31 wait for a value to change in global memory at `tilewright.load_acquire`" in report


def test_a_loaded_kernel_runs_again() -> None:
    kernel = load_kernel(write(["64xf32"] * 2, lambda k: reverse(k, True), block=64))
    for seed in SEEDS:
        a, b = numbers(64) + seed, np.zeros(64, np.float32)
        execute(kernel, [a, b], seed)
        assert np.array_equal(b, a[::-1])


def test_the_same_seed_finds_the_same() -> None:
    module = write(["192xf32"] * 2, lambda k: reverse(k, False), rtasks=3, block=64)
    reports = [finding(module, [numbers(192)] * 2, seed) for seed in (3, 3, 4)]
    assert reports[0] == reports[1]
    assert reports[0] != reports[2]


@pytest.mark.slow
def test_loops_without_end_are_a_standstill() -> None:
    """A flag in shared memory, polled without any operation that would let others run."""

    def body(kernel):
        flag = shared([1], ir.IntegerType.get_signless(32))
        with if_(thread_id().equals(0)):
            store(load(kernel.buffers[0], 0), flag, 0)
        barrier()
        loop = scf.WhileOp([], [])
        with ir.InsertionPoint(loop.regions[0].blocks.append()):
            scf.condition(load(flag, 0).equals(0).value, [])
        with ir.InsertionPoint(loop.regions[1].blocks.append()):
            scf.yield_([])
        store(load(flag, 0), kernel.buffers[1], 0)

    report = finding(write(["1xi32"] * 2, body), [np.zeros(1, np.int32), np.zeros(1, np.int32)])
    assert "its loop has no end" in report


def test_threads_have_arrays_of_their_own() -> None:
    def body(kernel):
        own = memref.alloca(ir.Type.parse("memref<12288xf32>"), [], [])

        def fill(i):
            store(load(kernel.buffers[0], i % 32), own, i)

        for_(0, 12288, 1, [], fill)
        store(load(own, 12288 - 32 + thread_id()), kernel.buffers[1], thread_id())

    a, b = numbers(32), np.zeros(32, np.float32)
    run_kernel(write(["32xf32"] * 2, body), [a, b])
    assert np.array_equal(a, b)
