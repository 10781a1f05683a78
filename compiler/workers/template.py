"""The process that workers are forked off: it has one thread, the bindings loaded, and never compiles anything itself.

Its parent asks for workers over a socket and sends along what each is to talk through; it tells its parent how they
ended. It ends with its parent, or when nobody wanted a worker for a while, and takes all workers with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import io
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tilewright.compiler.collector import rarely_collected
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.settings import adopt
from tilewright.compiler.workers import messages

IDLE_S = 120.0
"""After so long without work a worker ends, and the template when it has no workers."""
_RECYCLED_KIB = 1 << 20
"""A worker that has grown beyond this ends after its answer: types and attributes of a context are never freed."""
_SHARE_OF_MEMORY = 0.5
_LEAST_BYTES = 4 << 30
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


def serve() -> None:
    """Forks workers as the parent on standard input asks, until it is gone."""
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    _limit_resources()
    with rarely_collected():
        from tilewright.compiler.workers import tasks

        tasks.preload()
    # What is garbage among it stays: to look for it takes longer than it is worth.
    gc.freeze()
    control.send(b"ready")
    _Template(control).run()


def _limit_resources() -> None:
    """No core dumps; a worker that asks for more than its share of memory dies alone, and first."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    share = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _SHARE_OF_MEMORY)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = max(_LEAST_BYTES, share)
    resource.setrlimit(
        resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
    )
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


class _Template:
    def __init__(self, control: socket.socket):
        self._control = control
        self._numbers: dict[int, int] = {}
        """Numbers of workers by process."""
        self._wake, awakened = socket.socketpair()
        self._wake.setblocking(False)
        awakened.setblocking(False)
        signal.set_wakeup_fd(awakened.fileno())
        self._awakened = awakened
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def run(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(self._wake, selectors.EVENT_READ)
        idle_since = time.monotonic()
        while True:
            if self._numbers:
                idle_since = time.monotonic()
            left = idle_since + IDLE_S - time.monotonic()
            if left <= 0:
                return
            for key, _ in selector.select(left):
                if key.fileobj is self._wake:
                    with contextlib.suppress(BlockingIOError):
                        self._wake.recv(4096)
                    self._report()
                else:
                    worker = self._obey()
                    if worker is not None:
                        selector.close()
                        worker()

    def _report(self) -> None:
        """Tells the parent of every worker that ended, and how."""
        while self._numbers:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            number = self._numbers.pop(process)
            with contextlib.suppress(OSError):
                self._control.send(f"ended {number} {os.waitstatus_to_exitcode(status)}".encode())

    def _obey(self) -> Callable[[], None] | None:
        """Carries out one order; in a new worker, returns what it does from now on."""
        order, handles, _, _ = socket.recv_fds(self._control, 256, 2)
        if not order:
            self._end()
        what, number = order.decode().split()
        if what == "start":
            connection, log = handles
            process = os.fork()
            if not process:
                return lambda: _work(
                    socket.socket(fileno=connection), log, [self._control, self._wake, self._awakened]
                )
            self._numbers[process] = int(number)
            os.close(connection)
            os.close(log)
        else:
            for process, known in self._numbers.items():
                if known == int(number):
                    _kill(process)
        return None

    def _end(self) -> None:
        for process in self._numbers:
            _kill(process)
        os._exit(0)


def _kill(process: int) -> None:
    """Ends a worker with all processes that it started."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(process, signal.SIGKILL)


def _work(connection: socket.socket, log: int, others: list[socket.socket]) -> None:
    """A worker: answers jobs until its parent is gone, it is idle for long, or has grown large; never returns."""
    template = os.getppid()
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for other in others:
        other.close()
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    faulthandler.enable(2)
    status = 1
    try:
        while os.getppid() == template:
            job = messages.decode(messages.receive(connection, IDLE_S))
            answer = answer_to(job)
            connection.settimeout(None)
            messages.send(connection, answer)
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _RECYCLED_KIB:
                break
        status = 0
    except (messages.Closed, TimeoutError):
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


def answer_to(job: tuple[str, tuple[Any, ...], dict[str, str]]) -> bytes:
    """The encoded (result, text for standard error) of a job: the name of a function, its arguments, and settings.

    A result that is an exception was raised.
    """
    function, arguments, variables = job
    said, stderr = io.StringIO(), sys.stderr
    sys.stderr = said
    try:
        adopt(variables)
        result = named(function)(*arguments)
    except Exception as error:
        result = error
        if not isinstance(error, TilewrightError):  # a bug: say where
            error.add_note(f"in a worker process:\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}")
    finally:
        sys.stderr = stderr
    try:
        return messages.encode((result, said.getvalue()))
    except Exception as error:  # an exception or a result with something inside that cannot travel
        return messages.encode(
            (RuntimeError(f"{type(result).__name__}: {result} ({error})"), said.getvalue())
        )


def named(function: str) -> Callable[..., Any]:
    """The function called `module:name`."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)
