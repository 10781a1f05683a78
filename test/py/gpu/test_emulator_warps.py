"""Warps in the emulator: shuffles, divergence, matrix fragments against numpy, asynchronous copies of threads."""

import numpy as np
import pytest
from kernel_mutants import survivors
from small_kernels import finding, i32_value, to_bf16, write

from tilewright.compiler.codegen.emulation import execute, load_kernel, run_kernel
from tilewright.compiler.gpu.builder import (
    Value,
    barrier,
    constant,
    for_,
    if_,
    index,
    load,
    shared,
    store,
    thread_id,
)
from tilewright.compiler.gpu.primitives import mma_m8n8k4, named_barrier, uniform
from tilewright.compiler.ir import arith, gpu, ir, nvgpu, vector

SEEDS = (0, 1, 2)


def numbers(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("mode, offset", [("xor", 5), ("xor", 1), ("up", 3), ("down", 2), ("idx", 2)])
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_shuffles(mode: str, offset: int, width: int, dtype: str) -> None:
    def body(kernel):
        attribute = ir.Attribute.parse(f"#gpu<shuffle_mode {mode}>")
        value = load(kernel.buffers[0], thread_id()).value
        found, valid = gpu.shuffle(value, i32_value(offset).value, i32_value(width).value, attribute)
        store(Value(found), kernel.buffers[1], thread_id())
        store(Value(arith.extui(ir.IntegerType.get_signless(32), valid)), kernel.buffers[2], thread_id())

    a = numbers(64) if dtype == "f32" else np.arange(64) * (1 << 33)
    kernel = load_kernel(write([f"64x{dtype}"] * 2 + ["64xi32"], body, block=64))
    lane = np.arange(64)
    first = lane // width * width
    source = {"xor": lane ^ offset, "up": lane - offset, "down": lane + offset, "idx": first + offset}[mode]
    inside = (source >= first) & (source < first + width)
    for seed in SEEDS:
        found, valid = np.zeros_like(a), np.zeros(64, np.int32)
        execute(kernel, [a, found, valid], seed)
        assert np.array_equal(valid, inside)
        assert np.array_equal(found, a[np.where(inside, source, lane)])


def test_uniform_is_lane_0() -> None:
    def body(kernel):
        i32 = ir.IntegerType.get_signless(32)
        store(uniform(thread_id().to(i32)), kernel.buffers[0], thread_id())

    found = np.zeros(96, np.int32)
    run_kernel(write(["96xi32"], body, block=96), [found])
    assert np.array_equal(found, np.arange(96) // 32 * 32)


def test_a_barrier_in_one_half_of_a_warp_is_a_standstill() -> None:
    def body(kernel):
        with if_(thread_id() < 16):
            barrier()
        store(load(kernel.buffers[0], thread_id()), kernel.buffers[1], thread_id())

    report = finding(write(["32xf32"] * 2, body), [numbers(32)] * 2)
    assert "standstill" in report
    assert "0-15 wait for the block's barrier at `gpu.barrier`" in report
    assert "16 threads of the block have returned" in report


@pytest.mark.parametrize("seed", SEEDS)
def test_different_barriers_for_lanes_of_a_warp_are_divergence(seed: int) -> None:
    def body(kernel):
        with if_(thread_id() < 16):
            barrier()
        with if_(thread_id() >= 16):
            barrier()
        store(load(kernel.buffers[0], thread_id()), kernel.buffers[1], thread_id())

    assert "divergence" in finding(write(["32xf32"] * 2, body), [numbers(32)] * 2, seed)


def test_shuffles_of_half_a_warp_are_divergence() -> None:
    def body(kernel):
        value = load(kernel.buffers[0], thread_id())
        attribute = ir.Attribute.parse("#gpu<shuffle_mode xor>")
        for is_low in (True, False):
            with if_(thread_id() < 16 if is_low else thread_id() >= 16):
                found, _ = gpu.shuffle(value.value, i32_value(1).value, i32_value(32).value, attribute)
                store(Value(found), kernel.buffers[1], thread_id())

    assert "divergence" in finding(write(["32xf32"] * 2, body), [numbers(32)] * 2)


def named_barriers(kernel) -> None:
    """Two groups of 64 threads exchange values in their own halves of a tile."""
    tile = shared([128], ir.F32Type.get())
    group, place = thread_id() // 64, thread_id() % 64
    for step in range(2):
        store(load(kernel.buffers[0], thread_id() + 128 * step), tile, thread_id())
        named_barrier(group + 1, 64)
        store(load(tile, group * 64 + (63 - place)), kernel.buffers[1], thread_id() + 128 * step)
        named_barrier(group + 1, 64)


def test_named_barriers_and_their_mutants() -> None:
    module = write(["256xf32"] * 2, named_barriers, block=128)

    def is_right(mutant: ir.Module, seed: int) -> bool:
        a, b = numbers(256), np.zeros(256, np.float32)
        run_kernel(mutant, [a, b], seed=seed)
        return np.array_equal(b, a.reshape(4, 64)[:, ::-1].reshape(-1))

    # The last barrier orders nothing any more.
    (last,) = survivors(module, is_right, SEEDS)
    assert "named_barrier number 3" in last


# Fragments. `lanes` and registers follow the PTX ISA's figures for mma.m16n8k*.

TYPES = {
    "f16": (np.float16, 2),
    "bf16": (np.uint16, 2),
    "f32": (np.float32, 4),
    "i8": (np.int8, 1),
}


def mma_operands(dtype: str, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """a [16, k] and b [k, 8] as stored, as float64 (tf32 truncated), and c."""
    if dtype == "i8":
        random = np.random.default_rng(1)
        a, b = random.integers(-128, 128, (16, k), np.int8), random.integers(-128, 128, (k, 8), np.int8)
        return a, b, a.astype(np.float64), b.astype(np.float64), np.arange(128, dtype=np.int32).reshape(16, 8)
    a, b, c = numbers(16, k), numbers(k, 8, seed=4), numbers(16, 8, seed=5)
    if dtype == "bf16":
        stored = [to_bf16(x) for x in (a, b)]
        return *stored, *((x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for x in stored), c
    if dtype == "f32":
        return (
            a,
            b,
            *((x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in (a, b)),
            c,
        )
    stored = [x.astype(np.float16) for x in (a, b)]
    return *stored, *(x.astype(np.float64) for x in stored), c


@pytest.mark.parametrize(
    "dtype, k",
    [("f16", 16), ("f16", 8), ("bf16", 16), ("bf16", 8), ("f32", 8), ("f32", 4), ("i8", 32), ("i8", 16)],
)
def test_mma(dtype: str, k: int) -> None:
    _, size = TYPES[dtype]
    per, total = 4 // size, "i32" if dtype == "i8" else "f32"
    halves = k // (4 * per)

    def body(kernel):
        a, b, c, d = kernel.buffers
        group, quad = thread_id() // 4, thread_id() % 4

        def gathered(shape, at):
            type_ = ir.VectorType.get(list(shape), ir.MemRefType(at[0][0].type).element_type)
            scalars = [load(buffer, *place).value for buffer, *place in at]
            return vector.from_elements(type_, scalars)

        a_places = [
            (a, group + 8 * (r % 2), quad * per + i + r // 2 * 4 * per)
            for r in range(2 * halves)
            for i in range(per)
        ]
        b_places = [(b, quad * per + i + r * 4 * per, group) for r in range(halves) for i in range(per)]
        c_places = [(c, group + 8 * r, quad * 2 + i) for r in range(2) for i in range(2)]
        fragments = [
            gathered((2 * halves, per), a_places),
            gathered((halves, per), b_places),
            gathered((2, 2), c_places),
        ]
        tf32 = {"tf32Enabled": ir.UnitAttr.get()} if dtype == "f32" else {}
        i64 = ir.IntegerType.get_signless(64)
        shape = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, n) for n in (16, 8, k)])
        result = ir.Operation.create(
            "nvgpu.mma.sync", [fragments[2].type], fragments, {"mmaShape": shape, **tf32}
        ).results[0]
        for r in range(2):
            for i in range(2):
                store(Value(vector.extract(result, [], [r, i])), d, group + 8 * r, quad * 2 + i)

    a, b, exact_a, exact_b, c = mma_operands(dtype, k)
    d = np.zeros_like(c)
    shapes = [f"16x{k}x{dtype}", f"{k}x8x{dtype}", f"16x8x{total}", f"16x8x{total}"]
    kernel = load_kernel(write(shapes, body))
    for seed in SEEDS:
        execute(kernel, [a, b, c, d], seed)
        expected = c + exact_a @ exact_b
        if dtype == "i8":
            assert np.array_equal(d, expected)
        else:
            np.testing.assert_allclose(d, expected, rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize("tiles", [1, 2, 4])
@pytest.mark.parametrize("transpose", [False, True])
def test_ldmatrix(tiles: int, transpose: bool) -> None:
    def body(kernel):
        f16 = ir.F16Type.get()
        tile = shared([8 * tiles, 8], f16)
        for at in range(0, 8 * tiles, 4):
            row, column = index(at) + thread_id() // 8, thread_id() % 8
            store(load(kernel.buffers[0], row, column), tile, row, column)
        barrier()
        type_ = ir.VectorType.get([tiles, 2], f16)
        zero = index(0)
        row = thread_id() % (8 * tiles)
        i32 = ir.IntegerType.get_signless(32)
        found = nvgpu.ldmatrix(
            type_, tile, [row.value, zero.value], ir.BoolAttr.get(transpose), ir.IntegerAttr.get(i32, tiles)
        )
        for number in range(tiles):
            for i in range(2):
                store(
                    Value(vector.extract(found, [], [number, i])), kernel.buffers[1], number, thread_id(), i
                )

    a = numbers(8 * tiles, 8).astype(np.float16)
    found = np.zeros((tiles, 32, 2), np.float16)
    run_kernel(write([f"{8 * tiles}x8xf16", f"{tiles}x32x2xf16"], body), [a, found], seed=1)
    matrices = a.reshape(tiles, 8, 8)
    expected = (matrices.transpose(0, 2, 1) if transpose else matrices).reshape(tiles, 32, 2)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("a_layout", ["row", "col"])
@pytest.mark.parametrize("b_layout", ["row", "col"])
def test_mma_of_volta(a_layout: str, b_layout: str) -> None:
    """Every quad pair has a product of its own. Source: PTX ISA, "Matrix fragments for mma.m8n8k4 with .f16"."""

    def body(kernel):
        a, b, c, d = kernel.buffers
        lane = thread_id()
        pair, low, upper = lane % 16 // 4, lane % 4, lane // 16
        f16 = ir.F16Type.get()
        own = low + upper * 4
        a_at = [(pair, own, i) if a_layout == "row" else (pair, upper * 4 + i, low) for i in range(4)]
        b_at = [(pair, low, upper * 4 + i) if b_layout == "row" else (pair, i, own) for i in range(4)]
        c_at = [(pair, low % 2 + (i & 2) + upper * 4, low // 2 * 2 + (i & 4) + (i & 1)) for i in range(8)]

        def gathered(buffer, places, element):
            type_ = ir.VectorType.get([len(places)], element)
            return Value(vector.from_elements(type_, [load(buffer, *place).value for place in places]))

        fragments = gathered(a, a_at, f16), gathered(b, b_at, f16), gathered(c, c_at, ir.F32Type.get())
        result = mma_m8n8k4(*fragments, a_layout, b_layout)
        for i, place in enumerate(c_at):
            store(result[i], d, *place)

    a, b = numbers(4, 8, 4).astype(np.float16), numbers(4, 4, 8, seed=8).astype(np.float16)
    c, d = numbers(4, 8, 8, seed=9), np.zeros((4, 8, 8), np.float32)
    run_kernel(write(["4x8x4xf16", "4x4x8xf16", "4x8x8xf32", "4x8x8xf32"], body), [a, b, c, d], seed=2)
    np.testing.assert_allclose(d, c + a.astype(np.float64) @ b.astype(np.float64), rtol=1e-6, atol=1e-6)


# Asynchronous copies.


def copied(kernel, is_ragged: bool = False) -> None:
    """Tiles of 128 values through three stages; each is reversed. The last tile of a ragged source is half full."""
    source, result = kernel.buffers
    tile = shared([3, 128], ir.F32Type.get())
    token_type = ir.Type.parse("!nvgpu.device.async.token")
    thread, i32 = thread_id(), ir.IntegerType.get_signless(32)

    def start(number: Value, stage: Value):
        at = number * 128 + thread * 4
        left = Value(arith.minsi((index(448) - at).value, index(4).value))
        some = Value(arith.maxsi(left.value, index(0).value))
        operands = [tile, stage.value, (thread * 4).value, source, at.value]
        sizes = [1, 2, 1, 1, 1 if is_ragged else 0]
        if is_ragged:
            operands.append(some.value)
        ir.Operation.create(
            "nvgpu.device_async_copy",
            [token_type],
            operands,
            {
                "dstElements": ir.IntegerAttr.get(ir.IndexType.get(), 4),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get(sizes),
            },
        )

    def commit():
        return ir.Operation.create("nvgpu.device_async_create_group", [token_type], []).results[0]

    def wait(token, groups):
        ir.Operation.create(
            "nvgpu.device_async_wait", [], [token], {"numGroups": ir.IntegerAttr.get(i32, groups)}
        )

    for stage in range(2):
        start(index(stage), index(stage))
        commit()

    def body(number):
        with if_(number < 2):
            start(number + 2, (number + 2) % 3)
        wait(commit(), 2)
        barrier()
        for i in range(4):
            store(load(tile, number % 3, 127 - (thread * 4 + i)), result, number * 128 + thread * 4 + i)
        barrier()

    for_(0, 4, 1, [], body)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("checked", [True, False])
def test_copies_arrive_when_waited_for(seed: int, checked: bool) -> None:
    a, b = numbers(512), np.zeros(512, np.float32)
    run_kernel(write(["512xf32"] * 2, copied), [a, b], seed=seed, checked=checked)
    assert np.array_equal(b, a.reshape(4, 128)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_not_copied_is_zero(seed: int) -> None:
    a, b = numbers(448), np.zeros(512, np.float32)
    run_kernel(write(["448xf32", "512xf32"], lambda k: copied(k, True)), [a, b], seed=seed)
    whole = np.concatenate([a, np.zeros(64, np.float32)])
    assert np.array_equal(b, whole.reshape(4, 128)[:, ::-1].reshape(-1))


def test_copies_past_the_end_are_found() -> None:
    report = finding(write(["448xf32", "512xf32"], copied), [numbers(448), numbers(512)])
    assert "out of bounds" in report
    assert "nvgpu.device_async_copy" in report


def test_every_mutant_of_the_copies_is_caught() -> None:
    def is_right(mutant: ir.Module, seed: int) -> bool:
        a, b = numbers(512), np.zeros(512, np.float32)
        run_kernel(mutant, [a, b], seed=seed)
        return np.array_equal(b, a.reshape(4, 128)[:, ::-1].reshape(-1))

    assert survivors(write(["512xf32"] * 2, copied), is_right, SEEDS) == []


def test_a_copy_that_nobody_waits_for_is_found() -> None:
    def body(kernel):
        tile = shared([32], ir.F32Type.get())
        token = ir.Type.parse("!nvgpu.device.async.token")
        at = thread_id().value
        ir.Operation.create(
            "nvgpu.device_async_copy",
            [token],
            [tile, at, kernel.buffers[0], at],
            {
                "dstElements": ir.IntegerAttr.get(ir.IndexType.get(), 1),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, 0]),
            },
        )
        store(constant(ir.F32Type.get(), 1.0), kernel.buffers[1], thread_id())

    report = finding(write(["32xf32"] * 2, body), [numbers(32)] * 2)
    assert "unfinished work" in report
