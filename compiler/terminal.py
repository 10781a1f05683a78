"""Consoles of the tool: as wide as the terminal, and wide enough for its tables where there is none."""

from __future__ import annotations

import shutil
from functools import cache

from rich.console import Console

PIPED_WIDTH = 180


def console(stderr: bool = False) -> Console:
    """A console on standard output or error; a pipe or file gets PIPED_WIDTH columns unless COLUMNS says else.

    A terminal has one console, so that what moves on it does not overwrite each other.
    """
    made = Console(stderr=stderr)
    if made.is_terminal:
        return _of_terminal(stderr)
    return Console(stderr=stderr, width=shutil.get_terminal_size((PIPED_WIDTH, 50)).columns)


@cache
def _of_terminal(stderr: bool) -> Console:
    return Console(stderr=stderr)
