"""A part of a search that Ctrl-C ends, even where what was running loses it.

    with Interruptible() as part:
        search(part)
    part.is_interrupted

Python raises KeyboardInterrupt wherever it is. numpy turns one that comes while it compares structured arrays into a
TypeError, and one that comes in a callback from C or in a finalizer is dropped.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interruptible:
    """Remembers that SIGINT came, and hands it on to who was told of it before; what it raises ends the part alone.

    Whatever is raised behind a SIGINT counts as what became of it. Other threads than the main one get no SIGINT: there it
    takes a KeyboardInterrupt alone.
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self._before = None

    def check(self) -> None:
        """Raises the KeyboardInterrupt that was lost, if one was."""
        if self.is_interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> Interruptible:
        before = signal.getsignal(signal.SIGINT)
        if callable(before) and threading.current_thread() is threading.main_thread():
            self._before = before
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        self.is_interrupted |= isinstance(error, KeyboardInterrupt)
        return self.is_interrupted

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.is_interrupted = True
        assert self._before is not None
        self._before(number, frame)
