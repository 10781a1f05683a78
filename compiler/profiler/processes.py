"""Child processes that answer requests in lines of JSON: what they do may crash or hang without harm to the compiler."""

from __future__ import annotations

import collections
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

Message = dict[str, Any]
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


class ChildLost(Exception):
    """A child died, hung or broke the protocol; the message says which.

    It `is_killed` where somebody else ended it, for want of memory or otherwise: nothing that it did.
    """

    def __init__(self, how: str, is_killed: bool = False):
        super().__init__(how)
        self.is_killed = is_killed


class Child:
    """A process running `python -m module`, spoken to in one JSON object per line.

    It has a session of its own, so that Ctrl-C reaches the compiler alone, which then stops it.
    """

    def __init__(self, module: str):
        self.module = module
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.fileno = self._process.stdout.fileno()
        self._pending = b""
        self._lines: collections.deque[bytes] = collections.deque()

    def send(self, request: Message) -> None:
        """Hands the child a request; raises ChildLost when it is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._obituary() from None

    def receive(self, timeout_s: float) -> Message:
        """The child's next message; raises ChildLost after `timeout_s` without one, or when it died."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self._lines:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise ChildLost(f"no answer within {timeout_s:g} s")
                self._read()
        return self._message(self._lines.popleft())

    def ready(self) -> list[Message]:
        """All whole messages that can be read without waiting longer; call when `fileno` is readable."""
        self._read()
        found = [self._message(line) for line in self._lines]
        self._lines.clear()
        return found

    def _read(self) -> None:
        data = os.read(self.fileno, 1 << 20)
        if not data:
            raise self._obituary()
        *lines, self._pending = (self._pending + data).split(b"\n")
        self._lines.extend(lines)

    def _message(self, line: bytes) -> Message:
        try:
            message = json.loads(line)
        except ValueError:
            raise ChildLost(f"it wrote `{line[:80]!r}`, which is no JSON") from None
        if not isinstance(message, dict):
            raise ChildLost(f"it wrote `{line[:80]!r}`, which is no message")
        return message

    def _obituary(self) -> ChildLost:
        status = self._process.wait()
        self._errors.seek(0)
        last = (self._errors.read().decode(errors="replace").strip().splitlines() or [""])[-1]
        how = f"died of signal {-status}" if status < 0 else f"ended with status {status}"
        return ChildLost(f"{how}: {last[:200]}" if last else how, status == -signal.SIGKILL)

    def kill(self) -> None:
        """Ends the process, whatever it is doing; whoever waits for it hears of that."""
        self._process.kill()

    def stop(self) -> None:
        """Ends the process, and lets go of it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


class MeasuringChild:
    """The process that candidates run in, started when needed and anew after one was lost."""

    def __init__(self, module: str):
        self.module = module
        self._child: Child | None = None

    def get(self) -> Child:
        if self._child is None:
            self._child = Child(self.module)
        return self._child

    def kill(self) -> None:
        """Ends the process from another thread than that which speaks to it."""
        if self._child is not None:
            self._child.kill()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop()


def requests() -> Iterator[tuple[Message, Callable[[Message], None]]]:
    """In a child: every request from the parent, with the function that answers it, until the parent is gone.

    Standard output is the parent's from now on; what libraries print goes to standard error. A parent that is killed
    takes its child along, whatever that is running.
    """
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(message: Message) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    for line in sys.stdin:
        yield json.loads(line), answer
