"""Turns of the processes of one machine at measuring on one device: two at once would measure each other."""

from __future__ import annotations

import fcntl
import os
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


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
