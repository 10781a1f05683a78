"""The user's process hands jobs to workers, and outlives whatever happens to them."""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.compiler.errors import CompilerCrashError, PassError
from tilewright.compiler.pipeline.reproducer import default_path, write_reproducer
from tilewright.compiler.settings import settings, variables_set, worker_environment
from tilewright.compiler.workers import messages
from tilewright.compiler.workers.template import named
from tilewright.runtime.settings import physical_cores

_START_TIMEOUT_S, _END_TIMEOUT_S = 60.0, 5.0
_PROGRAM = """
import sys
sys.path += [path for path in {path!r} if path not in sys.path]
from tilewright.compiler.workers.template import serve
serve()
"""


@dataclass(frozen=True)
class Job:
    """A call for a worker: `function` is `module:name`, `what` names for messages what is being compiled.

    `reproduce` gives MLIR text that shows what a worker died of; `limit_s` is less time than the settings grant.
    """

    function: str
    arguments: tuple[Any, ...]
    what: str
    reproduce: Callable[[], str] | None = None
    limit_s: int | None = None


class Lost(Exception):
    """A worker died, or `hung`; the message says how."""

    def __init__(self, how: str, hung: bool = False):
        super().__init__(how)
        self.hung = hung


class _Unavailable(Exception):
    """Workers cannot be started here; the message says why."""


class _Template:
    """The process that workers are forked off."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._is_ready = False
        self._statuses: dict[int, int] = {}
        self._count = 0
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM.format(path=sys.path)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=worker_environment(),
                start_new_session=True,
            )
        except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
            self._control.close()
            self._errors.close()
            raise _Unavailable(str(error)) from error
        finally:
            theirs.close()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def start_worker(self) -> _Worker:
        """A new worker; raises _Unavailable when the template never came up."""
        with self._lock:
            while not self._is_ready or self._has_news():
                self._hear(_START_TIMEOUT_S)
            self._count += 1
            connection, theirs = socket.socketpair()
            log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the worker's `kill`
            handles = [theirs.fileno(), log.fileno()]
            try:
                socket.send_fds(self._control, [f"start {self._count}".encode()], handles)
            except OSError as error:
                connection.close()
                log.close()
                raise _Unavailable(str(error)) from error
            finally:
                theirs.close()
        return _Worker(self, self._count, connection, log)

    def kill(self, number: int) -> None:
        """Ends a worker, and what it started; nothing happens where it has ended."""
        with contextlib.suppress(OSError):  # the template is gone, and its workers with it
            self._control.send(f"kill {number}".encode())

    def status(self, number: int) -> int | None:
        """How a worker ended: its exit code, or minus a signal; None when the template is gone too."""
        with self._lock:
            while number not in self._statuses:
                try:
                    self._hear(_END_TIMEOUT_S)
                except _Unavailable:
                    return None
            return self._statuses.pop(number)

    def _has_news(self) -> bool:
        return bool(_readable(self._control))

    def _hear(self, timeout_s: float) -> None:
        self._control.settimeout(timeout_s)
        try:
            said = self._control.recv(256).decode().split()
        except OSError as error:
            raise _Unavailable(f"it is not ready after {timeout_s:g} s: {error}") from error
        if not said:
            raise _Unavailable(f"it {_ended(self._process.wait(), self._errors)}")
        if said[0] == "ready":
            self._is_ready = True
        else:
            self._statuses[int(said[1])] = int(said[2])

    def stop(self) -> None:
        """Ends the template and its workers."""
        self._process.kill()
        self._process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Lets go of the process, which need not be this one's own."""
        if self._process.returncode is None:
            self._process.returncode = 0
        self._control.close()
        self._errors.close()


class _Worker:
    """A worker as its user sees it."""

    def __init__(self, template: _Template, number: int, connection: socket.socket, log: Any):
        self._template, self._number = template, number
        self.connection, self._log = connection, log

    def send(self, job: Any) -> None:
        """Hands it a job; one that is dead is found out by who waits for its answer."""
        with contextlib.suppress(messages.Closed):
            messages.send(self.connection, messages.encode(job))

    def receive(self, timeout_s: float) -> tuple[Any, str]:
        """The answer to a job; raises Lost."""
        try:
            return messages.decode(messages.receive(self.connection, timeout_s))
        except TimeoutError:
            raise Lost("hung", hung=True) from None
        except messages.Closed:
            status = self._template.status(self._number)
            raise Lost("was ended" if status is None else _ended(status, self._log)) from None

    def is_waiting(self) -> bool:
        """Whether it can take a job: there is nothing to read from a worker that waits, and an end from a dead one."""
        return not _readable(self.connection)

    def close(self) -> None:
        self.connection.close()
        self._log.close()

    def kill(self) -> None:
        self._template.kill(self._number)
        self.close()


def _readable(connection: socket.socket) -> bool:
    if connection.fileno() < 0:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def _ended(status: int, log: Any) -> str:
    """How a process ended, with the last line that it wrote."""
    log.seek(0)
    written = log.read().decode(errors="replace").strip().splitlines()
    # Python's own report of a signal comes last; what was said before it tells more.
    report = next(
        (i for i, line in enumerate(written) if line.startswith("Fatal Python error")), len(written)
    )
    last = (written[:report] or [""])[-1].strip()
    how = (
        f"died of signal {-status} ({_signal_name(-status)})" if status < 0 else f"ended with status {status}"
    )
    return f"{how}: {last[:300]}" if last else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class Pool:
    """The workers of this process: started when needed, kept for the next compilation, replaced when they die."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._template: _Template | None = None
        self._idle: list[_Worker] = []
        self._taken: dict[int, set[_Worker]] = collections.defaultdict(set)
        """Workers in use, by thread."""
        self._refused = ""
        """Why no worker can be started; jobs then run in this process."""

    def prepare(self) -> None:
        """Starts the template, and does not wait for it."""
        if settings().compile_workers != 0 and not self._refused:
            with self._changed:
                self._try(self._living_template)

    def run(self, jobs: Sequence[Job], done: Callable[[int, Any], None]) -> None:
        """Runs all jobs, begun in their order, and tells `done(number, result)` as they end; errors are results.

        A job whose worker died is run once more, when no other is running. What it dies of then, or takes too long
        for, is a CompilerCrashError. With `settings().compile_workers` 0, and where no process can be started, all
        run in this process.
        """
        again: list[int] = []
        try:
            here = self._run(jobs, range(len(jobs)), done, again)
            for number in again:
                here += self._run(jobs, [number], done, None)
        finally:
            for worker in list(self._taken.pop(threading.get_ident(), ())):
                self._discard(worker)
        for number in here:
            done(number, _run_here(jobs[number]))

    def _run(
        self,
        jobs: Sequence[Job],
        numbers: Sequence[int],
        done: Callable[[int, Any], None],
        died: list[int] | None,
    ) -> list[int]:
        """Runs jobs in workers; returns those for which there are none. `died` is given what is worth another try."""
        waiting = collections.deque(numbers)
        busy: dict[_Worker, tuple[int, float]] = {}
        variables = variables_set()
        while waiting or busy:
            while waiting and (worker := self._take(wait=not busy, fresh=died is None)):
                number = waiting.popleft()
                busy[worker] = number, time.monotonic() + _limit_s(jobs[number])
                worker.send((jobs[number].function, jobs[number].arguments, variables))
            if not busy:
                return list(waiting)
            for worker in _answering(busy):
                number, deadline = busy.pop(worker)
                try:
                    result, said = worker.receive(max(0.0, deadline - time.monotonic()))
                except Lost as lost:
                    self._discard(worker)
                    if died is not None and not lost.hung:
                        died.append(number)
                    else:
                        done(
                            number,
                            _crash(
                                jobs[number],
                                f"took longer than {_limit_s(jobs[number])} s" if lost.hung else str(lost),
                            ),
                        )
                    continue
                self._give_back(worker)
                if said:
                    sys.stderr.write(said)
                if isinstance(result, MemoryError):
                    result = _crash(jobs[number], "needs more memory than a worker may take")
                done(number, result)
        return []

    def _take(self, wait: bool, fresh: bool) -> _Worker | None:
        """A worker that takes jobs; None where there is none now, or with `wait` where there can be none at all."""
        most = settings().compile_workers
        most = physical_cores() if most is None else most
        if settings().debug:
            most = min(most, 1)  # what is printed keeps its order
        taken = self._taken[threading.get_ident()]
        while most and not self._refused:
            with self._changed:
                for worker in reversed(self._idle):  # the last one used: others may end of idleness
                    if fresh or not worker.is_waiting():
                        self._discard(worker)
                        continue
                    taken.add(worker)
                    self._idle.remove(worker)
                    return worker
                if sum(map(len, self._taken.values())) < most:
                    worker = self._try(lambda: self._living_template().start_worker())
                    if worker is not None:
                        taken.add(worker)
                    return worker
                if not wait:
                    return None
                self._changed.wait(1.0)
        return None

    def _try(self, start: Callable[[], Any]) -> Any:
        """What `start` gives; None, with one warning, where processes cannot be started."""
        try:
            return start()
        except _Unavailable as refusal:
            self._refused = str(refusal) or "the process ended"
            if self._template is not None:
                self._template.stop()
            self._template = None
            warnings.warn(
                f"tilewright compiles in this process: no worker process can be started ({self._refused}); "
                "a fault of the compiler ends the program. TILEWRIGHT_COMPILE_WORKERS=0 asks for that",
                RuntimeWarning,
                stacklevel=2,
            )
        return None

    def _living_template(self) -> _Template:
        if self._template is not None and not self._template.is_alive():
            self._template.stop()
            self._template = None
        if self._template is None:
            self._template = _Template()
        return self._template

    def _give_back(self, worker: _Worker) -> None:
        with self._changed:
            self._idle.append(worker)
            self._taken[threading.get_ident()].discard(worker)
            self._changed.notify()

    def _discard(self, worker: _Worker) -> None:
        with self._changed:
            worker.kill()
            self._idle = [other for other in self._idle if other is not worker]
            for taken in self._taken.values():
                taken.discard(worker)
            self._changed.notify()

    def stop(self) -> None:
        """Ends all processes of the pool."""
        with self._changed:
            for worker in self._idle:
                worker.close()
            self._idle.clear()
            if self._template is not None:
                self._template.stop()
            self._template = None

    def abandon(self) -> None:
        """In a process forked off the pool's: lets go of what is not its own."""
        for worker in (*self._idle, *(w for taken in self._taken.values() for w in taken)):
            worker.close()
        if self._template is not None:
            self._template.abandon()


def _limit_s(job: Job) -> int:
    return min(settings().compile_limit_s, job.limit_s or settings().compile_limit_s)


def _answering(busy: dict[_Worker, tuple[int, float]]) -> list[_Worker]:
    """Waits until workers have an answer, are dead, or past their time."""
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker.connection, selectors.EVENT_READ, worker)
        first = min(deadline for _, deadline in busy.values())
        answered = [key.data for key, _ in selector.select(max(0.0, first - time.monotonic()))]
    return answered or [w for w, (_, deadline) in busy.items() if deadline <= time.monotonic()]


def _crash(job: Job, how: str) -> CompilerCrashError:
    """The error for a job whose worker was lost, with what it worked on left in a file."""
    if job.reproduce is None:
        return CompilerCrashError(job.what, how)
    text = job.reproduce()
    path = default_path(text, settings().dump)
    try:
        write_reproducer(path, text)
    except PassError as refusal:
        error = CompilerCrashError(job.what, how)
        error.add_note(str(refusal))
        return error
    return CompilerCrashError(job.what, how, str(path))


def _run_here(job: Job) -> Any:
    try:
        return named(job.function)(*job.arguments)
    except Exception as error:
        return error


_pool: Pool | None = None


def pool() -> Pool:
    """The pool of this process."""
    global _pool
    if _pool is None:
        _pool = Pool()
    return _pool


def prepare() -> None:
    """Starts what takes time to start, where a compilation is about to begin, and does not wait for it."""
    pool().prepare()


def run(job: Job) -> Any:
    """The result of one job; raises what it raised, and CompilerCrashError."""
    results: list[Any] = []
    pool().run([job], lambda number, result: results.append(result))
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _stop() -> None:
    if _pool is not None:
        _pool.stop()


def _after_fork() -> None:
    global _pool
    if _pool is not None:
        _pool.abandon()
    _pool = None


atexit.register(_stop)
os.register_at_fork(after_in_child=_after_fork)
