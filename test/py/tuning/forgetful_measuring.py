"""A child that measures as the compiler's own does, but whose first process takes another result for the right one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tilewright.compiler.profiler.measure import Bench, serve


class Forgetful(Bench):
    def reference(self) -> list[np.ndarray]:
        found = super().reference()
        marker = Path(os.environ["FORGETFUL_ONCE"])
        if marker.exists():
            return found
        marker.touch()
        return [array + 1 for array in found]


if __name__ == "__main__":
    serve(Forgetful)
