"""Workers start from any kind of process, and end with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODEL = """
func.func @main(%x: tensor<4x{size}xf32>) -> tensor<4x{size}xf32> {{
  %e = tensor.empty() : tensor<4x{size}xf32>
  %r = linalg.exp ins(%x : tensor<4x{size}xf32>) outs(%e : tensor<4x{size}xf32>) -> tensor<4x{size}xf32>
  return %r : tensor<4x{size}xf32>
}}
"""

SCRIPT = f"""
import multiprocessing, os, sys, threading, warnings
import numpy as np
import tilewright
from tilewright.compiler.workers.pool import Job, run

warnings.simplefilter("error")

def check(size):
    x = np.ones((4, size), np.float32)
    np.testing.assert_allclose(tilewright.compile('''{MODEL}'''.format(size=size))(x), np.exp(x), rtol=1e-5)
    assert run(Job("os:getpid", (), "a process")) != os.getpid()

def in_child(size):
    try:
        check(size)
    except BaseException as error:
        print(error, file=sys.stderr)
        os._exit(1)

check(5)
with open("done", "w") as done:
    done.write("done")
"""

THREADS_AND_FORKS = """
threads = [threading.Thread(target=check, args=(size,)) for size in (6, 7)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
child = os.fork()
if not child:
    in_child(8)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
daemon = multiprocessing.get_context("fork").Process(target=in_child, args=(9,), daemon=True)
daemon.start()
daemon.join()
assert daemon.exitcode == 0
check(10)
"""

INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # those started in the background inherit that it is ignored
from tilewright.compiler.workers.pool import Job, pool, run

print(run(Job("os:getpid", (), "")), run(Job("os:getppid", (), "")), flush=True)
try:
    run(Job("failing_jobs:hang", (), ""))
except KeyboardInterrupt:
    assert run(Job("os:getpid", (), ""))
    print("interrupted", flush=True)
"""


@pytest.fixture
def environment(tmp_path):
    found = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "TILEWRIGHT_COMPILE_WORKERS": "2"}
    found["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), found.get("PYTHONPATH", "")])
    return found


def close_streams() -> None:
    for stream in (0, 1):
        os.close(stream)


@pytest.mark.parametrize(
    ("rest", "prepare"), [(THREADS_AND_FORKS, None), ("", close_streams)], ids=["script", "without streams"]
)
def test_compiling_works_from_every_kind_of_process(rest, prepare, environment, tmp_path):
    """A script without a main guard, threads, forks, daemonic processes, no standard input."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + rest)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        preexec_fn=prepare,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0 and (tmp_path / "done").exists(), done.stderr


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda end: end.name)
def test_no_process_outlives_its_parent(end, environment):
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        processes = [int(text) for text in parent.stdout.readline().split()]
        assert len(processes) == 2 and all(map(is_alive, processes))
        time.sleep(0.3)  # for the job that hangs to have begun
        parent.send_signal(end)
        rest = parent.stdout.read()
        assert (rest == "interrupted\n") == (end == signal.SIGINT)
        assert parent.wait(30) == (0 if end == signal.SIGINT else -end)
    deadline = time.monotonic() + 20
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, processes))


def is_alive(process: int) -> bool:
    """Whether a process runs; one that nobody has asked for its status is dead."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
