"""Options that name a file to write: refused before the work whose results would have nowhere to go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class OutputPath(click.Path):
    """A file in a folder that is there and may be written to; with `folders`, names without a suffix are folders to be made."""

    def __init__(self, folders: bool = False):
        super().__init__(path_type=Path)
        self._folders = folders

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self._folders and not path.suffix:
            return path
        reason = why_no_file(path)
        if reason:
            self.fail(reason, param, ctx)
        return path


def why_no_file(path: Path) -> str | None:
    """Why no file can be written there; None where one can."""
    if path.is_dir():
        return f"`{path}` is a folder; name a file"
    if not path.parent.is_dir():
        return f"`{path}`: there is no folder `{path.parent}`; make it first"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return f"`{path}` may not be written to; name another file"
    return None
