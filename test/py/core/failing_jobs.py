"""Jobs that misbehave, each in a way of its own; workers find them on the path of the tests."""

from __future__ import annotations

import ctypes
import os
import time

from tilewright.compiler.errors import PassError, ScheduleError, UnsupportedError, UnsupportedOperator
from tilewright.compiler.ir import context, ir
from tilewright.compiler.workers import tasks


def answer(value: object) -> object:
    return value


def process() -> int:
    return os.getpid()


def abort() -> None:
    os.abort()


def read_null() -> None:
    ctypes.string_at(0)


def leave(status: int) -> None:
    """As LLVM leaves on a fatal error: one line, and the end."""
    os.write(2, b"LLVM ERROR: ran out of registers\n")
    os._exit(status)


def hang() -> None:
    time.sleep(1000)


def take_memory() -> int:
    return sum(len(block) for block in [bytearray(1 << 40)])


def die_once(marker: str) -> str:
    """Dies the first time, and answers the second."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "alive"
    os.abort()


def refuse(kind: str) -> None:
    where = ir.Location.file("model.py", 3, 7, context())
    if kind == "schedule":
        raise ScheduleError("no such tile", where)
    if kind == "pass":
        error = PassError("it does not fit", where)
        error.add_note("try another")
        raise error
    if kind == "operators":
        raise UnsupportedError([UnsupportedOperator("aten.x", "no reason", "model.py:3")])
    raise KeyError("a bug")


def compile_kernel(module: bytes, target: object, key: str) -> object:
    """The compiler's own job, but that products kill it."""
    if b"matmul" in module:
        read_null()
    return tasks.compile_kernel(module, target, key)
