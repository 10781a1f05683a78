"""Ctrl-C ends parts of a search, wherever it comes, and loses nothing of what the search has.

    with holding_interrupts() as interrupts:        // what comes between parts ends the next one
        with Interruptible() as part:
            part.check()                            // raises what came before
            search(part)
        part.is_interrupted                         // and interrupts.is_interrupted

Python raises KeyboardInterrupt wherever it is: between two parts, where it would end the whole search. numpy turns one that
comes while it compares structured arrays into a TypeError, and one that comes in a callback from C or in a finalizer is dropped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]


class Interrupts:
    """What came of SIGINT where `holding_interrupts`; a second one between parts is for who was told of it before."""

    def __init__(self, before: _Handler):
        self.is_interrupted = False
        self.before = before

    def hold(self, number: int, frame: FrameType | None) -> None:
        """Is told of SIGINT between parts."""
        if self.is_interrupted:
            self.before(number, frame)
        self.is_interrupted = True


@contextmanager
def holding_interrupts() -> Iterator[Interrupts]:
    """Lets SIGINT end parts of what is done within, and nothing else; within another one it is that one again.

    Other threads than the main one get no SIGINT: there it holds nothing, as where SIGINT is ignored.
    """
    before = _handler()
    if (held := _holder(before)) is not None:
        yield held
        return
    interrupts = Interrupts(before or signal.default_int_handler)
    if before is not None:
        signal.signal(signal.SIGINT, interrupts.hold)
    try:
        yield interrupts
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


class Interruptible:
    """Remembers that SIGINT came, and hands it on to who was told of it before; what it raises ends the part alone.

    Whatever is raised behind a SIGINT counts as what became of it. In other threads than the main one it takes a
    KeyboardInterrupt alone.
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self._before: _Handler | None = None
        self._holder: Interrupts | None = None

    def check(self) -> None:
        """Raises the KeyboardInterrupt that was lost, or that came before the part, if one was."""
        if self.is_interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> Interruptible:
        self._before = _handler()
        self._holder = _holder(self._before)
        if self._before is not None:
            signal.signal(signal.SIGINT, self._interrupt)
        if self._holder is not None:
            self.is_interrupted = self._holder.is_interrupted
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        self.is_interrupted |= isinstance(error, KeyboardInterrupt)
        if self._holder is not None:
            self._holder.is_interrupted |= self.is_interrupted
        return self.is_interrupted

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.is_interrupted = True
        assert self._before is not None
        told = self._before if self._holder is None else self._holder.before
        told(number, frame)


def _handler() -> _Handler | None:
    """Who is told of SIGINT in this thread."""
    found = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    return found if is_main and callable(found) else None


def _holder(handler: _Handler | None) -> Interrupts | None:
    """The interrupts that a handler holds."""
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, Interrupts) else None
