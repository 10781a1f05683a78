"""Consoles of the tool: as wide as the terminal, and wide enough for its tables where there is none."""

from __future__ import annotations

import shutil

from rich.console import Console

PIPED_WIDTH = 180


def console(stderr: bool = False) -> Console:
    """A console on standard output or error; a pipe or file gets PIPED_WIDTH columns unless COLUMNS says else."""
    made = Console(stderr=stderr)
    if made.is_terminal:
        return made
    return Console(stderr=stderr, width=shutil.get_terminal_size((PIPED_WIDTH, 50)).columns)
