"""Programs run: steps in order, tasks once each, spaces resolved, weights bound, errors surfaced."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from package_builder import kernel, package, specs, step

from tilewright.runtime.errors import ArgumentError, KernelAssertError, PackageError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Constant, Update

ADD_ONE = """
KERNEL(kernel) {
  const float *x = b[0]; float *y = b[1];
  for (int64_t i = first; i < end; ++i) y[i] = x[i] + 1.0f;
  return 0;
}
"""
COUNT = """
KERNEL(kernel) {
  int32_t *y = b[0];
  for (int64_t i = first; i < end; ++i) __atomic_fetch_add(&y[i], 1, __ATOMIC_RELAXED);
  return 0;
}
"""
SCALE = """
KERNEL(kernel) {
  const float *x = b[0], *w = b[1]; float *y = b[2];
  for (int64_t i = first; i < end; ++i) y[i] = x[i] * w[0];
  return 0;
}
"""
POSITIVE = """
KERNEL(kernel) {
  const float *x = b[0]; float *y = b[1];
  for (int64_t i = first; i < end; ++i) { if (x[i] < 0) return 2; y[i] = sqrtf(x[i]); }
  return 0;
}
"""
SUM_IN_SCRATCH = """
KERNEL(kernel) {
  const float *x = b[0]; float *y = b[1]; double *s = scratch;
  if ((uintptr_t)scratch % 64) return 1;
  for (int64_t i = first; i < end; ++i) {
    for (int k = 0; k < 100000; ++k) s[k] = x[i];
    double sum = 0;
    for (int k = 0; k < 100000; ++k) sum += s[k];
    y[i] = (float)(sum / 100000);
  }
  return 0;
}
"""

f32 = partial(np.array, dtype=np.float32)
threads = pytest.mark.parametrize("threads", [1, 2, 5])


@threads
def test_chain_through_the_arena(compile_c, threads):
    steps = [
        step(0, 1000, "input", "arena"),
        step(0, 1000, "arena", "arena+4096"),
        step(0, 1000, "arena+4096", "output"),
    ]
    run = Executable(package([kernel(compile_c(ADD_ONE))], steps, arena_bytes=8192), num_threads=threads)
    x = np.random.default_rng(0).random(1000, np.float32)
    for _ in range(50):
        (y,) = run(x)
        np.testing.assert_array_equal(y, x + 1 + 1 + 1)
    assert run.arena_bytes == 8192


@given(tasks=st.lists(st.integers(0, 3000), min_size=1, max_size=6), threads=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_every_task_runs_once(compile_c, tasks, threads):
    outputs = [f"i32[{n}]" for n in tasks]
    steps = [step(0, n, f"output:{i}") for i, n in enumerate(tasks)]
    run = Executable(
        package([kernel(compile_c(COUNT))], steps, inputs=(), outputs=outputs), num_threads=threads
    )
    counts = [np.zeros(n, np.int32) for n in tasks]
    for repeat in range(1, 8):
        run.run([], [c.ctypes.data for c in counts])
        for count in counts:
            assert (count == repeat).all()


@threads
def test_prepack_fills_packed_from_weights_and_constants(compile_c, threads):
    (spec,) = specs("c", "f32[1]")
    run = Executable(
        package(
            [kernel(compile_c(SCALE))],
            [step(0, 8, "packed", "input", "output")],
            inputs=("f32[1]",),
            outputs=("f32[8]",),
            weights=("f32[8]",),
            constants=[Constant(spec, f32(10).tobytes())],
            prepack=[
                step(0, 8, "weight", "constant", "arena+64"),
                step(0, 8, "arena+64", "constant", "packed"),
            ],
            prepack_arena_bytes=128,
            packed_bytes=64,
        ),
        [np.arange(8, dtype=np.float32)],
        num_threads=threads,
    )
    np.testing.assert_array_equal(run(f32([2]))[0], np.arange(8) * 200)
    run.rebind([np.ones(8, np.float32)])
    np.testing.assert_array_equal(run(f32([2]))[0], np.full(8, 200))


@threads
def test_scratch_is_private_to_a_thread(compile_c, threads):
    built = kernel(compile_c(SUM_IN_SCRATCH), scratch_bytes=800_000)
    run = Executable(package([built], [step(0, 1000, "input", "output")]), num_threads=threads)
    x = np.random.default_rng(1).random(1000, np.float32)
    np.testing.assert_allclose(run(x)[0], x, rtol=1e-6)


@threads
def test_failed_assert_names_message_step_and_kernel(compile_c, threads):
    built = kernel(compile_c(POSITIVE), asserts=("never", "x must not be negative"))
    steps = [step(0, 1000, "input", "output", dispatch="sqrt at model.py:3")]
    run = Executable(package([built], steps), num_threads=threads)
    x = np.ones(1000, np.float32)
    run(x)
    x[777] = -1
    message = r"x must not be negative \(main step 0, kernel `kernel`, sqrt at model.py:3\)"
    with pytest.raises(KernelAssertError, match=message):
        run(x)
    x[777] = 4
    assert run(x)[0][777] == 2


def test_failed_assert_stops_the_program(compile_c):
    kernels = [kernel(compile_c(POSITIVE)), kernel(compile_c(COUNT))]
    steps = [step(0, 1, "input", "output:0"), step(1, 1, "output:1")]
    run = Executable(package(kernels, steps, inputs=("f32[1]",), outputs=("f32[1]", "i32[1]")))
    count, x, y = np.zeros(1, np.int32), f32([-1]), np.zeros(1, np.float32)
    with pytest.raises(KernelAssertError, match="status 2"):
        run.run([x.ctypes.data], [y.ctypes.data, count.ctypes.data])
    assert count[0] == 0


def test_failed_prepack_leaves_nothing_bound(compile_c):
    built = package(
        [kernel(compile_c(POSITIVE), asserts=("a", "bad weight"))],
        [step(0, 1, "packed", "output")],
        inputs=(),
        outputs=("f32[1]",),
        weights=("f32[1]",),
        prepack=[step(0, 1, "weight", "packed")],
        packed_bytes=4,
    )
    run = Executable(built, [f32([16])])
    assert run()[0] == 2
    with pytest.raises(KernelAssertError, match="bad weight"):
        run.rebind([f32([-1])])
    with pytest.raises(PackageError, match="no weights are bound"):
        run()
    run.rebind([f32([81])])
    assert run()[0] == 3


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), r"expected 1 inputs \(x0\), found 0"),
        ((np.zeros(1000),), "input 0 `x0`: expected float32, found float64"),
        ((np.zeros((10, 100), np.float32),), r"expected shape \[1000\], found \[10, 100\]"),
        ((np.zeros(1000, ">f4"),), "order"),
    ],
)
def test_calls_refuse_what_does_not_fit(compile_c, inputs, message):
    run = Executable(package([kernel(compile_c(ADD_ONE))], [step(0, 1000, "input", "output")]))
    with pytest.raises(ArgumentError, match=message):
        run(*inputs)


class OnlyDlpack:
    """An array of some other library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries_come_in_and_go_out_without_copies(compile_c):
    address = "KERNEL(kernel) { *(void **)b[1] = b[0]; return 0; }"
    steps = [step(0, 1, "input", "output")]
    run = Executable(package([kernel(compile_c(address))], steps, inputs=("f32[4]",), outputs=("i64[1]",)))
    x = f32([1, 2, 3, 4])
    for array in (OnlyDlpack(x), memoryview(x), x):
        assert run(array)[0][0] == x.ctypes.data
    (result,) = run(x)
    assert np.from_dlpack(OnlyDlpack(result)).ctypes.data == result.ctypes.data
    with pytest.raises(ArgumentError, match=r"input 0 `x0`: a list is no array here: .*inhomogeneous"):
        run([[1, 2], [3]])
    with pytest.raises(ArgumentError, match="input 0 `x0`: a OnlyDlpack is no array here"):
        run(OnlyDlpack(np.array(["text"])))


def test_strided_inputs_are_made_dense(compile_c):
    run = Executable(package([kernel(compile_c(ADD_ONE))], [step(0, 1000, "input", "output")]))
    x = np.arange(2000, dtype=np.float32)
    np.testing.assert_array_equal(run(x[::2])[0], x[::2] + 1)


def test_bf16_takes_uint16_or_ml_dtypes(compile_c):
    copy = "KERNEL(kernel) { memcpy(b[1], b[0], 8); return 0; }"
    run = Executable(
        package(
            [kernel(compile_c(copy))],
            [step(0, 1, "input", "output")],
            inputs=("bf16[4]",),
            outputs=("bf16[4]",),
        )
    )
    bits = np.array([1, 2, 3, 4], np.uint16)
    np.testing.assert_array_equal(run(bits)[0].view(np.uint16), bits)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    np.testing.assert_array_equal(run(bits.view(ml_dtypes.bfloat16))[0].view(np.uint16), bits)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.zeros(3, np.float32), r"weight `w0` \(f32\[4\]\): found float32\[3\]"),
        (np.zeros(4, np.int32), r"found int32\[4\]"),
        ((0, 12), "expected 16 B, found 12 B"),
        (bytearray(15), "expected 16 B, found 15 B"),
    ],
)
def test_weights_must_match_their_specs(compile_c, weight, message):
    built = package([kernel(compile_c(ADD_ONE))], [step(0, 4, "weight", "output")], weights=("f32[4]",))
    with pytest.raises(PackageError, match=message):
        Executable(built, [weight])
    with pytest.raises(PackageError, match="expected 1 weights, found 0"):
        Executable(built)


def test_weights_of_many_kinds(compile_c):
    torch = pytest.importorskip("torch")
    built = package(
        [kernel(compile_c(ADD_ONE))],
        [step(0, 4, "weight", "output")],
        inputs=(),
        outputs=("f32[4]",),
        weights=("f32[4]",),
    )
    array = f32([1, 2, 3, 4])
    tensor = torch.tensor(array)
    strided = torch.arange(1, 9, dtype=torch.float32)[:4].clone().repeat_interleave(2)[::2]
    for weight in (
        array,
        tensor,
        torch.nn.Parameter(tensor),
        strided,
        bytearray(array),
        (array.ctypes.data, 16),
    ):
        run = Executable(built, [weight])
        np.testing.assert_array_equal(run()[0], array + 1)
    with pytest.raises(PackageError, match=r"found int64\[4\]"):
        Executable(built, [tensor.long()])


def test_lazily_conjugated_weights_are_resolved():
    torch = pytest.importorskip("torch")
    weight = torch.tensor([1 + 2j, 3 - 4j]).conj()
    run = Executable(package([], [], weights=("c64[2]",)), [weight])
    found = np.frombuffer(run.weight_storages[0].view(), np.complex64)
    np.testing.assert_array_equal(found, [1 - 2j, 3 + 4j])


@pytest.mark.parametrize(
    ("spec", "dtype"), [("i8", np.uint8), ("u16", np.int16), ("i64", np.uint64), ("i1", np.uint8)]
)
def test_integers_of_a_width_stand_for_each_other(spec, dtype):
    run = Executable(package([], [], inputs=(f"{spec}[3]",), weights=(f"{spec}[3]",)), [np.zeros(3, dtype)])
    run(np.zeros(3, dtype))
    with pytest.raises(ArgumentError, match="found float16"):
        run(np.zeros(3, np.float16))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda s: [step(1, 1, "input", "output")], "main step 0: kernel 1 of 1"),
        (lambda s: [step(-1, 1, "input", "output")], "kernel -1 of 1"),
        (lambda s: [step(0, -1, "input", "output")], "-1 rTasks"),
        (lambda s: [step(0, 1, "input:1", "output")], "input 1 of 1"),
        (lambda s: [step(0, 1, "weight", "output")], "weight 0 of 0"),
        (lambda s: [step(0, 1, "arena+65", "output")], r"offset 65 in arena 0 of 64 B"),
        (lambda s: [step(0, 1, "arena+-1", "output")], "offset -1 in arena"),
        (lambda s: [step(0, 1 << 70, "input", "output")], "does not fit"),
        (lambda s: [step(0, 1, "nowhere", "output")], "does not fit"),
    ],
)
def test_tables_are_checked(compile_c, bad, message):
    built = package([kernel(compile_c(ADD_ONE))], bad(None), arena_bytes=64)
    with pytest.raises(PackageError, match=message):
        Executable(built)


def test_prepack_may_not_use_inputs(compile_c):
    built = package([kernel(compile_c(ADD_ONE))], [], prepack=[step(0, 1, "input", "packed")], packed_bytes=4)
    with pytest.raises(PackageError, match="prepack has no space `input`"):
        Executable(built)


def test_profile_lists_every_step(compile_c):
    steps = [step(0, 1000, "input", "output", dispatch=f"d{i}") for i in range(3)]
    run = Executable(package([kernel(compile_c(ADD_ONE))], steps))
    times = run.profile(repeats=3)
    assert [t.dispatch for t in times] == ["d0", "d1", "d2"]
    assert all(0 < t.time_us < 1e6 and t.tasks == 1000 and t.kernel == "kernel" for t in times)


def test_a_block_too_large_is_a_memory_error(compile_c):
    built = package([kernel(compile_c(ADD_ONE))], [], arena_bytes=1 << 60)
    with pytest.raises(MemoryError):
        Executable(built)


def test_empty_program_and_empty_tensors():
    run = Executable(package([], [], inputs=("f32[0]",), outputs=("f32[0,3]",)))
    (y,) = run(np.zeros(0, np.float32))
    assert y.shape == (0, 3)


class TestUpdates:
    """Outputs that are inputs with some elements written over."""

    @pytest.fixture
    def run(self, compile_c) -> Executable:
        """The first two of four elements counted up, where the output is read and written."""
        one = kernel(compile_c("KERNEL(kernel) { float *y = b[0]; y[first] += 1.0f; return y[first] < 0; }"))
        steps = [step(0, 1, "output"), step(0, 1, "output+4")]
        return Executable(package([one], steps, ("f32[4]",), ("f32[4]",), updates=[Update(0, 0)]))

    def test_arrays_stay_as_they_are(self, run: Executable) -> None:
        x = f32([1, 2, 3, 4])
        np.testing.assert_array_equal(run(x)[0], [2, 3, 3, 4])
        np.testing.assert_array_equal(x, [1, 2, 3, 4])

    def test_memory_that_is_given_for_both_is_written(self, run: Executable) -> None:
        x = f32([1, 2, 3, 4])
        for _ in range(2):
            run.run([x.ctypes.data], [x.ctypes.data])
        np.testing.assert_array_equal(x, [3, 4, 3, 4])

    def test_measuring_takes_memory_of_its_own(self, run: Executable) -> None:
        x = f32([1, 2, 3, 4])
        assert len(run.profile(x)) == 2
        np.testing.assert_array_equal(x, [1, 2, 3, 4])

    @pytest.mark.parametrize(
        ("updates", "message"),
        [
            ([Update(2, 0)], "update of output 2 from input 0: there are 2 and 2"),
            ([Update(0, -1)], "update of output 0 from input -1: there are 2 and 2"),
            ([Update(1, 0)], "update of output 1 from input 0: they have 8 and 16 B"),
            ([Update(0, 0), Update(0, 1)], "update of output 0 from input 1: one of them has another one"),
            ([Update(0, 1 << 70)], "a value that does not fit"),
        ],
    )
    def test_tables_hold_together(self, updates: list[Update], message: str) -> None:
        built = package([], [], ("f32[4]", "f32[4]"), ("f32[4]", "f32[2]"), updates=updates)
        with pytest.raises(PackageError, match=message):
            Executable(built)
