"""Workers: whatever a job does, this process goes on, and hears of it what it has to know."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import failing_jobs
import pytest

from tilewright.compiler import phases
from tilewright.compiler.errors import CompilerCrashError, PassError, ScheduleError, UnsupportedError
from tilewright.compiler.ir import parse
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.workers import compile_kernels
from tilewright.compiler.workers import pool as workers
from tilewright.compiler.workers.pool import Job, Pool


def job(name: str, *arguments: object) -> Job:
    return Job(f"failing_jobs:{name}", arguments, f"job `{name}`", lambda: f"// {name}\n")


def results(*jobs: Job) -> list[object]:
    found: dict[int, object] = {}
    workers.pool().run(jobs, found.__setitem__)
    assert sorted(found) == list(range(len(jobs)))
    return [found[number] for number in range(len(jobs))]


def test_jobs_run_in_another_process_that_is_kept():
    first, second = results(job("process"), job("process"))
    assert first == second != os.getpid()


@pytest.mark.parametrize(
    ("deed", "arguments", "how"),
    [
        ("abort", (), r"died of signal 6 \(SIGABRT\)"),
        ("read_null", (), r"died of signal 11 \(SIGSEGV\)"),
        ("leave", (1,), "ended with status 1: LLVM ERROR: ran out of registers"),
        ("leave", (0,), "ended with status 0: LLVM ERROR: ran out of registers"),
        ("take_memory", (), "needs more memory than a worker may take"),
    ],
)
def test_a_lost_worker_costs_its_own_job_only(deed, arguments, how, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    before, lost, after = results(job("answer", 1), job(deed, *arguments), job("answer", 2))
    assert (before, after) == (1, 2)
    with pytest.raises(
        CompilerCrashError, match=f"job `{deed}`: the process that compiled it {how}"
    ) as crash:
        raise lost
    (written,) = tmp_path.glob("tilewright-reproducer-*.mlir")
    assert written.read_text() == f"// {deed}\n"
    assert crash.value.reproducer == str(written) and f"`{written}`" in str(crash.value)


def test_a_job_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_COMPILE_LIMIT_S", "1")
    start = time.monotonic()
    hung, after = results(job("hang"), job("answer", 3))
    assert after == 3 and time.monotonic() - start < 20
    assert "took longer than 1 s" in str(hung)


def test_a_job_gets_a_second_chance_in_another_worker(tmp_path):
    assert results(job("die_once", str(tmp_path / "died")), job("answer", 4)) == ["alive", 4]


@pytest.mark.parametrize("inside", ["0", "1"])
def test_errors_arrive_as_they_were_raised(inside, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_COMPILE_WORKERS", inside)
    schedule, refused, operators, bug = results(
        *(job("refuse", kind) for kind in ("schedule", "pass", "operators", "bug"))
    )
    assert isinstance(schedule, ScheduleError) and schedule.reason == "no such tile"
    assert schedule.location.filename == "model.py" and schedule.location.start_line == 3
    assert isinstance(refused, PassError) and refused.__notes__ == ["try another"]
    assert isinstance(operators, UnsupportedError) and operators.operators[0].location == "model.py:3"
    assert isinstance(bug, KeyError) and bug.args == ("a bug",)


def test_threads_share_the_workers():
    found: list[object] = []

    def work(number: int) -> None:
        found.extend(results(*(job("answer", (number, i)) for i in range(20))))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [(n, i) for n in range(4) for i in range(20)]


def test_an_interrupted_run_leaves_no_worker_behind(monkeypatch):
    def interrupted(number: int, result: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("TILEWRIGHT_COMPILE_WORKERS", "2")
    before = workers_alive()
    pool = Pool()
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.run([job("answer", 1), job("hang")], interrupted)
        found: list[object] = []
        pool.run([job("process"), job("process")], lambda number, result: found.append(result))
        workers_of_this_pool = set(found) | workers_alive() - before
        assert len(set(found)) <= 2
        deadline = time.monotonic() + 60
        while len(workers_of_this_pool) > 2 and time.monotonic() < deadline:
            time.sleep(0.05)  # the worker that was told to end takes its time
            workers_of_this_pool = set(found) | workers_alive() - before
        assert len(workers_of_this_pool) <= 2 and set(found) <= workers_alive()
    finally:
        pool.stop()


def workers_alive() -> set[int]:
    """The workers of all pools of this process."""
    return {worker for template in children(os.getpid()) for worker in children(template)}


def children(process: int) -> set[int]:
    return {
        int(entry)
        for task in Path(f"/proc/{process}/task").iterdir()
        for entry in (task / "children").read_text().split()
    }


PRODUCT_AND_SUM = """
func.func @main(%x: tensor<40x64xf32> {tilewright.role = "input", tilewright.name = "x"},
                %y: tensor<64x48xf32> {tilewright.role = "input", tilewright.name = "y"})
    -> (tensor<40x48xf32>, tensor<40xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x48xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<40x48xf32>) -> tensor<40x48xf32>
  %m = linalg.matmul ins(%x, %y : tensor<40x64xf32>, tensor<64x48xf32>) outs(%i : tensor<40x48xf32>) -> tensor<40x48xf32>
  %s = tensor.empty() : tensor<40xf32>
  %j = linalg.fill ins(%zero : f32) outs(%s : tensor<40xf32>) -> tensor<40xf32>
  %r = linalg.reduce ins(%x : tensor<40x64xf32>) outs(%j : tensor<40xf32>) dimensions = [1]
    (%a: f32, %b: f32) { %c = arith.addf %a, %b : f32  linalg.yield %c : f32 }
  return %m, %r : tensor<40x48xf32>, tensor<40xf32>
}
"""


def package():
    module, report = parse(PRODUCT_AND_SUM, "model.mlir"), phases.Report()
    return phases.compile_module(module, resolve("x86-64-v3"), report), report


def test_a_dispatch_that_kills_its_worker_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    real = compile_kernels.Job
    with monkeypatch.context() as patch:
        patch.setattr(
            compile_kernels,
            "Job",
            lambda function, *rest: real("failing_jobs:compile_kernel", *rest),
        )
        with pytest.raises(
            CompilerCrashError, match=r"dispatch `matmul_\w+` \(matmul of -:8:\d+\).*signal 11"
        ) as crash:
            package()
    reproducer = Path(crash.value.reproducer)
    assert "linalg.generic" in reproducer.read_text() and "apply-schedule" in reproducer.read_text()
    reproducer.unlink()
    compiled, report = package()
    assert report.kernels_compiled == 1 and report.kernels_cached == len(compiled.kernels) - 1 >= 1


def test_the_number_of_workers_changes_nothing(tmp_path, monkeypatch):
    found = []
    for count in ("0", "1", "3"):
        monkeypatch.setenv("TILEWRIGHT_COMPILE_WORKERS", count)
        monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / count))
        compiled, report = package()
        assert report.kernels_compiled == len(compiled.kernels)
        compiled.notes.pop("phases_s")
        found.append(compiled)
    assert found[0] == found[1] == found[2]


def test_what_passes_say_is_heard(monkeypatch, capsys, tmp_path):
    """Debug output and dumps of a worker are where the user's own would be."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "5")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_DUMP", "dumped")
    compiled, _ = package()
    said = capsys.readouterr().err
    for kernel in compiled.kernels:
        assert f"; {kernel.name}\n" in said and (tmp_path / f"dumped/{kernel.name}.s").exists()


def test_without_processes_it_compiles_here_and_says_so(monkeypatch):
    monkeypatch.setattr(workers.sys, "executable", "/nowhere/python")
    pool, found = Pool(), []
    with pytest.warns(RuntimeWarning, match="compiles in this process: no worker process can be started"):
        pool.run([job("process")], lambda number, result: found.append(result))
    pool.run([job("process")], lambda number, result: found.append(result))
    assert found == [os.getpid()] * 2


def test_a_template_that_cannot_start_is_reported(monkeypatch):
    monkeypatch.setattr(workers, "_PROGRAM", "raise SystemExit('no room')")
    pool, found = Pool(), []
    with pytest.warns(RuntimeWarning, match="ended with status 1: no room"):
        pool.run([job("process")], lambda number, result: found.append(result))
    assert found == [os.getpid()]


def test_a_forked_process_has_workers_of_its_own():
    (mine,) = results(job("process"))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            (theirs,) = results(job("process"))
            os.write(writing, str(theirs).encode())
        finally:
            workers._stop()
            os._exit(0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    with open(reading) as answers:
        theirs = int(answers.read())
    assert theirs not in (mine, os.getpid(), child)
    assert results(job("process")) == [mine]
    assert failing_jobs.process() == os.getpid()
