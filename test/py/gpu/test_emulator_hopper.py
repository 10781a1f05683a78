"""Hopper in the emulator: boxes by tensor maps, mbarriers, clusters, and a whole wgmma kernel with all its mutants."""

import numpy as np
import pytest
from hopper_products import Product
from kernel_mutants import survivors
from small_kernels import finding, shared_bytes, viewed, write
from test_hopper_gemm import draw, kernel, loaded, stored, tile

from tilewright.compiler.codegen.emulation import execute, load_kernel, run_kernel
from tilewright.compiler.gpu.builder import (
    barrier,
    block_id,
    for_,
    if_,
    load,
    store,
    thread_id,
)
from tilewright.compiler.gpu.launch import cluster_of
from tilewright.compiler.gpu.primitives import (
    Shared,
    bulk_commit,
    bulk_wait,
    cluster_rank,
    cluster_sync,
    fence_async_shared,
    fence_mbarrier_init,
    mbarrier_arrive,
    mbarrier_expect_tx,
    mbarrier_init,
    mbarrier_wait,
    named_barrier,
    tma_load,
    tma_store,
)
from tilewright.compiler.ir import ir, walk

SEEDS = (0, 1, 2)


def numbers(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def map_text(buffer: int, dtype: str, shape, strides, box, swizzle: int, every=()) -> str:
    """A tensor map's attribute; extents innermost first, `every` the element strides."""

    def array(values) -> str:
        return f"array<i64: {', '.join(map(str, values))}>" if len(values) else "array<i64>"

    return (
        f'{{buffer = {buffer} : i64, dtype = "{dtype}", shape = {array(shape)}, strides_bytes = {array(strides)}, '
        f"box = {array(box)}, swizzle_bytes = {swizzle} : i64, element_strides = {array(every)}}}"
    )


def box_through(kernel, coordinates, bytes_: int, swizzle: int) -> None:
    """Loads a box, undoes the swizzle by hand, stores it densely."""
    box, bars = shared_bytes(bytes_), shared_bytes(16)
    full = Shared(bars, 0)
    with if_(thread_id().equals(0)):
        mbarrier_init(full, 1)
        fence_mbarrier_init()
    barrier()
    with if_(thread_id().equals(0)):
        mbarrier_expect_tx(full, bytes_)
        tma_load(Shared(box, 0), kernel.maps[0], full, coordinates)
    mbarrier_wait(full, 0)
    halves = viewed(box, 0, f"{bytes_ // 2}xf16")

    def copy(i):
        at = (i * 32 + thread_id()) * 2
        place = at ^ (((at >> 7) & (swizzle // 16 - 1)) << 4) if swizzle else at
        store(load(halves, place // 2), kernel.buffers[1], at // 2)

    for_(0, bytes_ // 64, 1, [], copy)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("start", [(0, 0, 0), (16, 5, 1), (-8, -2, -1), (72, 9, 2)])
def test_boxes_are_swizzled_and_zero_outside(swizzle: int, start: tuple[int, int, int]) -> None:
    """A box of [2, 6, c] out of [3, 11, 80] halves; the source of a bit of an address is 3 bits above it."""
    columns = (swizzle or 64) // 2
    map_ = map_text(0, "f16", (80, 11, 3), (160, 1760), (columns, 6, 2), swizzle)
    nbytes = columns * 6 * 2 * 2

    def body(kernel):
        box_through(kernel, [c % (1 << 32) for c in start], nbytes, swizzle)

    a = numbers(3, 11, 80).astype(np.float16)
    padded = np.zeros((9, 31, 240), np.float16)
    padded[3:6, 10:21, 80:160] = a
    x, y, z = start
    expected = padded[3 + z : 5 + z, 10 + y : 16 + y, 80 + x : 80 + x + columns]
    loaded_kernel = load_kernel(write(["3x11x80xf16", f"{nbytes // 2}xf16"], body, tensor_maps=[map_]))
    for seed in SEEDS:
        found = np.zeros(nbytes // 2, np.float16)
        execute(loaded_kernel, [a, found], seed)
        assert np.array_equal(found, expected.reshape(-1))


@pytest.mark.parametrize("every", [(1, 2, 1), (1, 3, 2), (1, 8, 3)])
@pytest.mark.parametrize("start", [(0, 0, 0), (16, -3, -1), (8, 5, 1)])
def test_boxes_take_every_other_element(every: tuple[int, int, int], start: tuple[int, int, int]) -> None:
    """A box of [4, 7, 64] takes ceil(4 / z) times ceil(7 / y) rows of [3, 11, 80] halves, counted from its start."""
    map_ = map_text(0, "f16", (80, 11, 3), (160, 1760), (64, 7, 4), 128, every)
    x, y, z = start
    padded = np.zeros((12, 40, 240), np.float16)
    padded[4:7, 12:23, 80:160] = a = numbers(3, 11, 80).astype(np.float16)
    expected = padded[4 + z : 8 + z : every[2], 12 + y : 19 + y : every[1], 80 + x : 144 + x]
    assert expected.shape == (-(-4 // every[2]), -(-7 // every[1]), 64)

    def body(kernel):
        box_through(kernel, [c % (1 << 32) for c in start], 2 * expected.size, 128)

    found = np.zeros(expected.size, np.float16)
    loaded_kernel = load_kernel(write(["3x11x80xf16", f"{expected.size}xf16"], body, tensor_maps=[map_]))
    for seed in SEEDS:
        execute(loaded_kernel, [a, found], seed)
        assert np.array_equal(found, expected.reshape(-1))


def stages(kernel) -> None:
    """One thread loads boxes of 16 x 8 f32 into two stages, a warp doubles them in place, and they are stored."""
    memory, bars = shared_bytes(2 * 512), shared_bytes(32)
    full, empty = Shared(bars, 0), Shared(bars, 16)
    with if_(thread_id().equals(0)):
        for stage in range(2):
            mbarrier_init(full.at(8 * stage), 1)
            mbarrier_init(empty.at(8 * stage), 1)
        fence_mbarrier_init()
    barrier()
    values = viewed(memory, 0, "256xf32")

    def load_box(number):
        stage, turn = number % 2, number // 2
        mbarrier_wait(empty.at(stage * 8), (turn & 1) ^ 1)
        mbarrier_expect_tx(full.at(stage * 8), 512)
        target = Shared(memory, stage * 512)
        tma_load(target, kernel.maps[0], full.at(stage * 8), [number * 16, block_id() * 8])

    def store_box(number):
        stage, turn = number % 2, number // 2
        mbarrier_wait(full.at(stage * 8), turn & 1)
        for i in range(4):
            at = thread_id() - 32 + stage * 128 + 32 * i
            store(load(values, at) * 2.0, values, at)
        fence_async_shared()
        named_barrier(1, 32)
        with if_(thread_id().equals(32)):
            tma_store(kernel.maps[1], Shared(memory, stage * 512), [number * 16, block_id() * 8])
            bulk_commit()
            bulk_wait(0, read=True)
            mbarrier_arrive(empty.at(stage * 8))

    with if_(thread_id().equals(0)):
        for_(0, 5, 1, [], load_box)
    with if_(thread_id() >= 32):
        for_(0, 5, 1, [], store_box)


def stages_module() -> ir.Module:
    maps = [map_text(i, "f32", (70, 13), (288,), (16, 8), 0) for i in range(2)]
    return write(["13x72xf32"] * 2, stages, rtasks=2, block=64, tensor_maps=maps)


def stages_are_right(module: ir.Module, seed: int) -> bool:
    a, b = numbers(13, 72), np.full((13, 72), 5, np.float32)
    run_kernel(module, [a, b], seed=seed)
    return np.array_equal(b[:, :70], 2 * a[:, :70]) and bool((b[:, 70:] == 5).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_boxes_go_through_stages_and_are_clipped(seed: int) -> None:
    assert stages_are_right(stages_module(), seed)


def test_mutants_of_the_stages_are_caught() -> None:
    assert survivors(stages_module(), stages_are_right, SEEDS) == []


def multicast(kernel, syncs: bool = True) -> None:
    """Each block of a cluster of 2 loads half of a row for both."""
    row, bars = shared_bytes(512), shared_bytes(16)
    full = Shared(bars, 0)
    with if_(thread_id().equals(0)):
        mbarrier_init(full, 1)
        fence_mbarrier_init()
    cluster_sync()
    rank = cluster_rank()
    with if_(thread_id().equals(0)):
        mbarrier_expect_tx(full, 512)
        cluster = block_id() // 2
        tma_load(Shared(row, rank * 256), kernel.maps[0], full, [rank * 64, cluster], multicast=3)
    mbarrier_wait(full, 0)
    values = viewed(row, 0, "128xf32")
    for i in range(4):
        at = thread_id() + 32 * i
        store(load(values, 127 - at), kernel.buffers[1], block_id(), at)
    if syncs:
        cluster_sync()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("checked", [True, False])
def test_multicast_reaches_the_whole_cluster(seed: int, checked: bool) -> None:
    map_ = map_text(0, "f32", (128, 3), (512,), (64, 1), 0)
    module = write(["3x128xf32", "6x128xf32"], multicast, rtasks=3, gang=cluster_of(2), tensor_maps=[map_])
    a, b = numbers(3, 128), np.zeros((6, 128), np.float32)
    run_kernel(module, [a, b], seed=seed, checked=checked)
    assert np.array_equal(b, np.repeat(a[:, ::-1], 2, axis=0))


def test_too_many_arrivals_are_found() -> None:
    def body(kernel):
        bars = shared_bytes(16)
        with if_(thread_id().equals(0)):
            mbarrier_init(Shared(bars, 0), 2)
            fence_mbarrier_init()
        barrier()
        with if_(thread_id() < 3):
            mbarrier_arrive(Shared(bars, 8))
        store(load(kernel.buffers[0], 0), kernel.buffers[1], thread_id())

    report = finding(write(["1xf32", "32xf32"], body), [numbers(1), numbers(32)])
    assert "there is no initialised mbarrier at offset 8" in report


def test_accumulators_are_not_there_before_the_wait() -> None:
    """Epilogues of a kernel whose waits are gone read marks, which are NaNs."""
    problem = Product(m=64, n=64, k=64)
    module = kernel(problem, tile(64, 64), 2)
    for wait in walk(module.operation, "tilewright.wgmma_wait"):
        for result, operand in zip(wait.results, wait.operands):
            result.replace_all_uses_with(operand)
        wait.erase()
    random = np.random.default_rng(0)
    factors = [draw(random, problem.shape(own), problem.dtype) for own in (problem.a, problem.b)]
    result = np.zeros(problem.shape("mn"), np.float16)
    run_kernel(module, [*factors, result], checked=False)
    assert np.isnan(result).all()
    assert "a wgmma has not been waited for" in finding(module, [*factors, result])


def test_mutants_of_a_wgmma_kernel_are_caught() -> None:
    problem, gpu = Product(m=200, n=136, k=200), tile(64, 64, cluster=2, stages=2)
    module = kernel(problem, gpu, 2)

    def is_right(mutant: ir.Module, seed: int) -> bool:
        random = np.random.default_rng(5)
        factors = [draw(random, problem.shape(own), problem.dtype) for own in (problem.a, problem.b)]
        result = np.full(problem.shape("mn"), 77, stored(np.zeros(1), problem.result).dtype)
        run_kernel(mutant, [*factors, result], seed=seed)
        expected = problem.expected(*(loaded(own, problem.dtype) for own in factors), None)
        return bool(np.max(np.abs(result - expected) / (np.abs(expected) + np.sqrt(problem.k))) < 0.02)

    assert survivors(module, is_right, SEEDS) == []
