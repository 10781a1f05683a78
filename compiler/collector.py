"""Python's collector of cyclic garbage, while much is made and most of it stays: imports, traces, graphs."""

from __future__ import annotations

import atexit
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = (100_000, 50, 1000)
"""Young objects are looked at after so many new ones (700 by default): what died young is freed all the same."""
_lock = threading.Lock()
_inside = 0
_before = gc.get_threshold()


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Within it, in any thread, the collector runs after every 100,000 new objects; a disabled one stays disabled.

    Afterwards its thresholds are what they were before the first of the threads entered.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            gc.set_threshold(*_RARELY)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_before)


def uncollected_at_exit() -> None:
    """Lets this process end without the collections that Python ends with.

    They free cycle by cycle what the end of the process frees at once, which takes long where a model was compiled. Functions that
    are registered for the exit, `weakref.finalize` among them, are called as before.
    """
    atexit.register(gc.freeze)
