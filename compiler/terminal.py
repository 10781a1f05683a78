"""Consoles of the tool: as wide as the terminal, and wide enough for its tables where there is none."""

from __future__ import annotations

import os

from rich.console import Console

PIPED_WIDTH = 180


def console(stderr: bool = False) -> Console:
    """A console on standard output or error; a pipe or file gets PIPED_WIDTH columns unless COLUMNS is set."""
    made = Console(stderr=stderr)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made = Console(stderr=stderr, width=PIPED_WIDTH)
    return made
