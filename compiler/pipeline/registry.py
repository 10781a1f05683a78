"""The registry of passes: kebab-case name -> module, loaded when first asked for; plugins add classes."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from tilewright.compiler.pipeline.pass_base import Pass

_FOLDER = Path(__file__).parents[1] / "passes"
ADDED: dict[str, type[Pass]] = {}
"""Passes of plugins by name."""


def names() -> list[str]:
    """Names of all our passes, sorted: one per file of the folders in `compiler/passes`, and those of plugins."""
    return sorted([*_names(), *ADDED])


def exists(name: str) -> bool:
    """True when `name` is a pass of ours; imports nothing."""
    return name in _names() or name in ADDED


def path_of(name: str) -> Path:
    """The file of a pass of ours."""
    return _FOLDER / _names()[name] / f"{name.replace('-', '_')}.py"


def folder_of(name: str) -> str | None:
    """The folder of `compiler/passes` that a pass of ours is in; None for those of plugins."""
    return _names().get(name)


@cache
def _names() -> dict[str, str]:
    """The folder of every pass."""
    files = (path for path in _FOLDER.glob("*/*.py") if path.stem != "__init__")
    return {path.stem.replace("_", "-"): path.parent.name for path in files}


def load(name: str) -> type[Pass] | None:
    """The pass class called `name`, or None when it is not one of ours."""
    if name in ADDED:
        return ADDED[name]
    if not exists(name):
        return None
    module = import_module(f"tilewright.compiler.passes.{_names()[name]}.{name.replace('-', '_')}")
    return getattr(module, "".join(part.capitalize() for part in name.split("-")))
