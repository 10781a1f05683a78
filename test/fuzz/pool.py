"""Worker processes that run programs and may die doing so: a fork server that has loaded PyTorch starts them anew."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait

from fuzz.graph import Graph
from fuzz.outcome import Outcome
from fuzz.program import Program

LIMIT_S = 120.0
"""Seconds of wall-clock time after which a program hangs."""
PROGRAMS_PER_PROCESS = 400
"""Compiled code and Dynamo's records are never freed: a process makes way for another after so many programs."""


class Worker:
    """One process that runs one program at a time."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["fuzz.execution", "fuzz.draw"])
        self._start()

    def _start(self) -> None:
        self.connection, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs, dict(os.environ)), daemon=True)
        self._process.start()
        theirs.close()
        self.ran = 0
        self.limit_s, self.until = LIMIT_S, 0.0

    def send(self, program: Program | Graph, limit_s: float = LIMIT_S) -> None:
        if self.ran >= PROGRAMS_PER_PROCESS:
            self.close()
            self._start()
        self.ran += 1
        self.connection.send(program)
        self.limit_s, self.until = limit_s, time.monotonic() + limit_s

    def receive(self) -> Outcome:
        """What became of the program that was sent, within the limit of time since then."""
        if not self.connection.poll(max(0.0, self.until - time.monotonic())):
            self._process.kill()
            self._process.join()
            self._start()
            return Outcome("hang", f"no answer within {self.limit_s:.0f} s", self.limit_s)
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode or 0
            self._start()
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return Outcome("crash", name)

    def run(self, program: Program | Graph) -> Outcome:
        self.send(program)
        return self.receive()

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def outcomes(
    programs: Iterable[Program | Graph], processes: int
) -> Iterator[tuple[Program | Graph, Outcome]]:
    """Every program with what became of it, in the order in which they end."""
    workers = [Worker() for _ in range(processes)]
    waiting = iter(programs)
    busy: dict[Connection, tuple[Worker, Program | Graph]] = {}
    try:
        for worker in workers:
            _next(worker, waiting, busy)
        while busy:
            wait(list(busy), max(0.0, min(worker.until for worker, _ in busy.values()) - time.monotonic()))
            for connection, (worker, program) in list(busy.items()):
                if connection.poll() or time.monotonic() >= worker.until:
                    del busy[connection]
                    yield program, worker.receive()
                    _next(worker, waiting, busy)
    finally:
        for worker in workers:
            worker.close()


def _next(
    worker: Worker, waiting: Iterator[Program | Graph], busy: dict[Connection, tuple[Worker, Program | Graph]]
) -> None:
    program = next(waiting, None)
    if program is not None:
        worker.send(program)
        busy[worker.connection] = (worker, program)


def _serve(connection: Connection, environment: dict[str, str]) -> None:
    import faulthandler

    import torch

    from fuzz.execution import run
    from fuzz.paths import quiet

    # This process may die, so that it needs no others to compile in.
    os.environ.update({"TILEWRIGHT_COMPILE_WORKERS": "0", **environment})
    torch.set_num_threads(1)
    faulthandler.disable()
    with quiet():
        while True:
            try:
                program = connection.recv()
            except (EOFError, OSError):
                return
            connection.send(run(program))
