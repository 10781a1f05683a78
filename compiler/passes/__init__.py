"""The registry of passes: kebab-case name -> module, loaded when first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from tilewright.compiler.passes.base import Pass

_NOT_PASSES = {"__init__", "base"}


def names() -> list[str]:
    """Names of all our passes, sorted: one per file of this folder."""
    return sorted(_names())


def exists(name: str) -> bool:
    """True when `name` is a pass of ours; imports nothing."""
    return name in _names()


@cache
def _names() -> frozenset[str]:
    stems = {path.stem for path in Path(__file__).parent.glob("*.py")} - _NOT_PASSES
    return frozenset(stem.replace("_", "-") for stem in stems)


def load(name: str) -> type[Pass] | None:
    """The pass class called `name`, or None when it is not one of ours."""
    if not exists(name):
        return None
    module = import_module(f"tilewright.compiler.passes.{name.replace('-', '_')}")
    return getattr(module, "".join(part.capitalize() for part in name.split("-")))
