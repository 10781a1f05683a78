"""The registry of passes: kebab-case name -> module, loaded when first asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tilewright.compiler.passes.base import Pass

_NOT_PASSES = {"__init__", "base"}


def names() -> list[str]:
    """Names of all our passes, sorted: one per file of this folder."""
    return sorted(
        p.stem.replace("_", "-") for p in Path(__file__).parent.glob("*.py") if p.stem not in _NOT_PASSES
    )


def exists(name: str) -> bool:
    """True when `name` is a pass of ours; imports nothing."""
    stem = name.replace("-", "_")
    return "_" not in name and stem not in _NOT_PASSES and (Path(__file__).parent / f"{stem}.py").exists()


def load(name: str) -> type[Pass] | None:
    """The pass class called `name`, or None when it is not one of ours."""
    if not exists(name):
        return None
    module = import_module(f"tilewright.compiler.passes.{name.replace('-', '_')}")
    return getattr(module, "".join(part.capitalize() for part in name.split("-")))
