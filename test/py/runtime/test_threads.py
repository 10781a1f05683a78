"""Runs from several threads, in forked children, beside OpenMP, and with more threads than cores."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
import timeit
import traceback

import numpy as np
import pytest
from package_builder import kernel, package, step

from tilewright.runtime import settings
from tilewright.runtime.errors import PackageError, SettingError
from tilewright.runtime.executable import Executable

# Writes `x + number of the step` through the arena, slowly enough that every thread gets its share.
ADD = """
KERNEL(kernel) {
  const float *x = b[0]; float *y = b[1];
  for (int64_t i = first; i < end; ++i) { y[i] = x[i] + 1; for (volatile int k = 0; k < 200; ++k) {} }
  return 0;
}
"""
IDENTITY = """
#include <pthread.h>
#include <signal.h>
KERNEL(kernel) {
  int64_t *y = b[0];
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, 0, &blocked);
  for (int64_t i = first; i < end; ++i) {
    for (volatile int k = 0; k < 100000; ++k) {}
    y[i] = (int64_t)pthread_self() * 2 + (sigismember(&blocked, SIGINT) != 0);
  }
  return 0;
}
"""
MXCSR = """
#include <xmmintrin.h>
KERNEL(kernel) {
  int32_t *y = b[0];
  for (int64_t i = first; i < end; ++i) {
    for (volatile int k = 0; k < 50000; ++k) {}
    y[i] = _mm_getcsr() & 0x8000;
  }
  return 0;
}
"""


def chain(compile_c, threads: int, steps: int = 20) -> Executable:
    places = ["input", *(f"arena+{4096 * (i % 2)}" for i in range(steps - 1)), "output"]
    main = [step(0, 1000, *pair) for pair in itertools.pairwise(places)]
    return Executable(package([kernel(compile_c(ADD))], main, arena_bytes=8192), num_threads=threads)


def run_in_threads(count: int, body) -> None:
    """Runs body(number) in `count` threads and raises the first failure."""
    failures = []

    def guarded(number):
        try:
            body(number)
        except BaseException:
            failures.append(traceback.format_exc())

    workers = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a run never came back"
    assert not failures, failures[0]


@pytest.mark.parametrize("shared", [True, False], ids=["one executable", "own executables"])
def test_several_python_threads_call_at_once(compile_c, shared):
    common = chain(compile_c, 2)

    def body(number):
        run = common if shared else chain(compile_c, 2)
        x = np.random.default_rng(number).random(1000, np.float32)
        expected = x
        for _ in range(20):
            expected = expected + np.float32(1)
        for _ in range(100):
            np.testing.assert_array_equal(run(x)[0], expected)

    run_in_threads(4, body)


def test_work_is_spread_and_helpers_block_signals(compile_c):
    run = Executable(
        package([kernel(compile_c(IDENTITY))], [step(0, 64, "output")], inputs=(), outputs=("i64[64]",)),
        num_threads=2,
    )
    run()
    deadline = time.monotonic() + 20
    seen: set[int] = set()
    while len(seen) < 2 and time.monotonic() < deadline:
        seen |= set(run()[0].tolist())
    assert len({identity >> 1 for identity in seen}) == 2
    assert {identity & 1 for identity in seen} == {0, 1}  # the caller takes SIGINT, the helper does not


def test_short_runs_that_follow_each_other_wake_sleeping_helpers(compile_c):
    source = IDENTITY.replace("100000", "100")  # about 5 us in all: alone, not worth it
    built = package([kernel(compile_c(source))], [step(0, 64, "output")], inputs=(), outputs=("i64[64]",))
    run = Executable(built, num_threads=2)
    deadline = time.monotonic() + 20
    seen: set[int] = set()
    while len(seen) < 2 and time.monotonic() < deadline:
        run()
        time.sleep(0.005)  # the helper falls asleep
        seen = set()
        for _ in range(30_000):  # until a busy machine has a core for the helper
            seen |= set(run()[0].tolist())
            if len(seen) == 2:
                break
    assert len(seen) == 2


def test_short_runs_far_apart_leave_helpers_asleep(compile_c):
    source = IDENTITY.replace("100000", "100")
    built = package([kernel(compile_c(source))], [step(0, 64, "output")], inputs=(), outputs=("i64[64]",))
    run = Executable(built, num_threads=2)
    for _ in range(20):  # until what it takes is known, busy machines included
        run()
    alone = 0
    for _ in range(40):
        time.sleep(0.005)
        alone += len(set(run()[0].tolist())) == 1
    assert alone >= 30


def test_helpers_follow_the_callers_floating_point_mode(compile_c):
    built = package([kernel(compile_c(MXCSR))], [step(0, 64, "output")], inputs=(), outputs=("i32[64]",))
    run = Executable(built, num_threads=2)
    torch = pytest.importorskip("torch")
    for flush in (True, False, True, False):
        torch.set_flush_denormal(flush)
        for _ in range(20):
            assert (run()[0] == (0x8000 if flush else 0)).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 16, 200])
def test_any_number_of_threads(compile_c, threads):
    x = np.zeros(1000, np.float32)
    run = chain(compile_c, threads, 5)
    for _ in range(10):
        assert (run(x)[0] == 5).all()


def test_num_threads_is_checked(compile_c):
    for wrong in (0, -1, 5000):
        with pytest.raises(PackageError, match="num_threads: expected 1 to 1024"):
            chain(compile_c, wrong)


@pytest.mark.parametrize(("text", "expected"), [("1", 1), ("7", 7), (None, settings.physical_cores())])
def test_the_variable_sets_the_default(monkeypatch, text, expected):
    if text is None:
        monkeypatch.delenv("TILEWRIGHT_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", text)
    assert settings.num_threads() == expected
    assert Executable(package([], [])).num_threads == expected


@pytest.mark.parametrize("text", ["", "two", "0", "-3", "1.5", "99999"])
def test_a_bad_variable_is_refused(monkeypatch, text):
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", text)
    with pytest.raises(SettingError, match="TILEWRIGHT_NUM_THREADS: expected an integer from 1 to 1024"):
        settings.num_threads()


def in_child(body) -> int:
    """Exit status of body() in a forked child."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_its_own_helpers(compile_c):
    run = chain(compile_c, 2)
    x = np.zeros(1000, np.float32)
    run(x)

    def body():
        for _ in range(20):
            assert (run(x)[0] == 20).all()
        assert len(os.listdir("/proc/self/task")) == 2
        assert in_child(lambda: run(x)) == 0

    assert in_child(body) == 0
    assert (run(x)[0] == 20).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forks_in_the_middle_of_another_threads_run(compile_c):
    run = chain(compile_c, 2, 200)
    x = np.zeros(1000, np.float32)
    stop = threading.Event()

    def keep_running():
        while not stop.is_set():
            run(x)

    runner = threading.Thread(target=keep_running)
    runner.start()
    try:
        for _ in range(20):
            assert in_child(lambda: np.testing.assert_array_equal(run(x)[0], 200)) == 0
    finally:
        stop.set()
        runner.join()


def test_works_beside_openmp(compile_c):
    torch = pytest.importorskip("torch")
    run = chain(compile_c, 2)
    x = np.zeros(1000, np.float32)
    a = torch.ones(256, 256)
    for _ in range(30):
        assert (a @ a)[0, 0] == 256
        assert (run(x)[0] == 20).all()


def test_the_process_exits_while_helpers_sleep_and_spin(compile_c, tmp_path):
    path = tmp_path / "kernel.o"
    path.write_bytes(compile_c(ADD))
    program = f"""
import numpy as np
from package_builder import kernel, package, step
from tilewright.runtime.executable import Executable
built = package([kernel(open({str(path)!r}, "rb").read())], [step(0, 1000, "input", "output")])
run = Executable(built, num_threads=4)
y = run(np.zeros(1000, np.float32))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=os.path.dirname(__file__), timeout=60)
    assert done.returncode == 0


@pytest.mark.slow
def test_a_call_costs_under_20_us(compile_c):
    built = kernel(compile_c("KERNEL(kernel) { return 0; }"))
    run = Executable(
        package([built], [step(0, 1, "input:0", "input:1", "output")], inputs=("f32[8]", "f32[8]"))
    )
    x, y = np.zeros(8, np.float32), np.zeros(1000, np.float32)
    pointers = [x.ctypes.data, x.ctypes.data], [y.ctypes.data]
    assert min(timeit.repeat(lambda: run(x, x), number=100, repeat=50)) / 100 < 20e-6
    assert min(timeit.repeat(lambda: run.run(*pointers), number=100, repeat=50)) / 100 < 5e-6


@pytest.mark.slow
def test_a_single_task_step_costs_under_1_us(compile_c):
    built = kernel(compile_c("KERNEL(kernel) { return 0; }"))
    run = Executable(package([built], [step(0, 1, "input", "output")] * 10_000), num_threads=2)
    x, y = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
    pointers = [x.ctypes.data], [y.ctypes.data]
    assert min(timeit.repeat(lambda: run.run(*pointers), number=1, repeat=50)) / 10_000 < 1e-6


@pytest.mark.slow
def test_busy_processes_cost_at_most_three_times():
    from tilewright.bench import runtime_overhead

    found = runtime_overhead.contended(threads=2, busy=2)
    ratios = {name: value for name, value in found.items() if "/" in name}
    assert len(ratios) == 2
    assert max(ratios.values()) < 3, found
