"""Jobs of the compiler that die of what tests choose; workers find them on the path of the tests."""

from __future__ import annotations

import os

from tilewright.compiler.targets.target import Target
from tilewright.compiler.workers import tasks


def run_upstream(module: bytes, pipeline: str) -> bytes:
    """Cosines kill it."""
    if b"aten.cos" in module:
        os.abort()
    return tasks.run_upstream(module, pipeline)


def run_phase(module: bytes, target: Target, phase: str) -> bytes:
    """Hyperbolic tangents kill it in the layout phase."""
    if phase == "layout" and b"tanh" in module:
        os.abort()
    return tasks.run_phase(module, target, phase)
