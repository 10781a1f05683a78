"""Loads and runs damaged copies of an artifact; a crash of this process is a finding.

python test/py/runtime/fuzz_artifacts.py ARTIFACT SEED COUNT      # prints how many were refused, unharmed
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
from fuzz_objects import damaged

import tilewright
from tilewright.runtime.errors import ArtifactError


def main(path: str, seed: str, count: str) -> None:
    data, choose = Path(path).read_bytes(), random.Random(int(seed))
    copy = Path(path).with_suffix(".damaged")
    x = np.linspace(0, 1, 64).astype(np.float32)
    expected = tilewright.load(path)(x)
    refused = unharmed = 0
    for _ in range(int(count)):
        copy.write_bytes(damaged(data, choose))
        try:
            found = tilewright.load(copy, num_threads=1)(x)
        except ArtifactError:
            refused += 1
            continue
        # Padding and the header's own spelling may change without harm; results may not.
        if not np.array_equal(found, expected):
            sys.exit(f"damage went unnoticed: {found} instead of {expected}")
        unharmed += 1
    print(refused, unharmed)


if __name__ == "__main__":
    main(*sys.argv[1:])
