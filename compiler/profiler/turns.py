"""Turns at what would disturb each other: processes that measure on one device, and compiling on the cores that measure."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.compiler import debug
from tilewright.compiler.nouns.record import key_of
from tilewright.compiler.settings import settings

_LONGEST_S = 60.0
"""Who holds a turn for longer is stopped, or worse: nobody waits for that."""
_LOOK_S = 0.002


@contextmanager
def turn(device: str, is_over: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Waits until no other process measures on the device, or `is_over`; without a folder to lock in, nobody waits.

    The system ends the turn of a process that dies.
    """
    path = settings().cache_dir / f"measuring-{key_of(device)[:16]}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        debug.log(2, f"{path}: {error.strerror}; others may measure at the same time")
        yield
        return
    try:
        deadline = time.monotonic() + _LONGEST_S
        while not _taken(lock) and not is_over() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(lock)


class Cores:
    """The cores of a machine where measuring takes all of them: whoever compiles waits until nothing is to be measured."""

    def __init__(self, is_waiting: Callable[[], bool]):
        self._is_waiting = is_waiting
        self._changed = threading.Condition()
        self._is_taken = self._is_over = False

    def end(self) -> None:
        """From now on nobody waits."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """While nothing is measured, nor waits for it."""
        with self._held(lambda: not self._is_taken and not self._is_waiting()):
            yield

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """While nothing is compiled."""
        with self._held(lambda: not self._is_taken):
            yield

    @contextmanager
    def _held(self, is_free: Callable[[], bool]) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or is_free())
            self._is_taken = True
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
