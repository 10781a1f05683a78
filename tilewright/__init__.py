"""tilewright: compile a model, run it, save it, load it elsewhere.

Only the names below are public; everything heavy is imported when first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["UnsupportedError", "compile", "fallback_count", "load"]

_HOME = {
    "compile": "tilewright.compiler.driver",
    "fallback_count": "tilewright.compiler.torch.fallback",
    "load": "tilewright.runtime.artifact",
    "UnsupportedError": "tilewright.compiler.errors",
}


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'tilewright' has no attribute '{name}'")
    from importlib import import_module

    if not _HOME[name].startswith("tilewright.compiler."):
        return getattr(import_module(_HOME[name]), name)
    from tilewright.compiler.collector import rarely_collected

    with rarely_collected():
        return getattr(import_module(_HOME[name]), name)
