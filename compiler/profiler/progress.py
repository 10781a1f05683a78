"""How the kernel profiler tells what it is doing: a line that is redrawn on a terminal, the debug log elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.compiler import debug


@contextmanager
def reporting() -> Iterator[Callable[[int, int, str], None]]:
    """Gives the function that is told of progress: steps done, steps in all, and what is going on."""
    errors = _console()
    if errors is None or not errors.is_terminal:
        yield lambda done, total, text: debug.log(2, f"profiler: {done}/{total} {text}")
        return
    from rich.errors import LiveError
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=errors, transient=True)
    try:
        bar.start()
    except LiveError:
        # A command's own display is on the terminal already.
        yield lambda done, total, text: None
        return
    try:
        task = bar.add_task("profiling")
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
    finally:
        bar.stop()


def _console() -> Any:
    """The console on standard error; None without `rich`, which compiling does not need (extra `cli`)."""
    try:
        from tilewright.compiler.terminal import console
    except ModuleNotFoundError:
        return None
    return console(stderr=True)
