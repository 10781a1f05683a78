"""Loads and runs damaged copies of an artifact; a crash of this process is a finding.

python test/py/runtime/fuzz_artifacts.py ARTIFACT SEED COUNT [manifest]      # prints how many were refused, unharmed

Of damaged bytes the checksums tell. With `manifest`, fields of the manifest are changed and its checksum is right: what
is loaded then may give other results, but raises nothing but our errors, and ends no process.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
from fuzz_objects import damaged

import tilewright
from tilewright.runtime import native
from tilewright.runtime.errors import ArgumentError, ArtifactError

sys.path.append(str(Path(__file__).parents[2]))
from fuzz import damaged_json


def with_another_manifest(data: bytes, choose: random.Random) -> bytes:
    """The artifact with changes in its manifest, whose checksum is right; its tensors stay where they are aligned."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    manifest = damaged_json.damaged(json.loads(header["__metadata__"]["manifest"]), choose)
    text = json.dumps(manifest, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    header["__metadata__"] |= {"manifest": text, "manifest_crc32c": f"{native.crc32c(text.encode()):08x}"}
    made = json.dumps(header).encode()
    made += b" " * (-(8 + len(made)) % 64)
    return len(made).to_bytes(8, "little") + made + data[8 + length :]


def main(path: str, seed: str, count: str, *how: str) -> None:
    data, choose = Path(path).read_bytes(), random.Random(int(seed))
    copy = Path(path).with_suffix(".damaged")
    x = np.linspace(0, 1, 64).astype(np.float32)
    expected = tilewright.load(path)(x)
    refused = unharmed = 0
    for _ in range(int(count)):
        copy.write_bytes(with_another_manifest(data, choose) if how else damaged(data, choose))
        try:
            found = tilewright.load(copy, num_threads=1)(x)
        except ArtifactError:
            refused += 1
            continue
        except (TypeError, ArgumentError):
            if not how:
                raise
            refused += 1  # its arguments are others
            continue
        if how:
            unharmed += 1
            continue
        # Padding and the header's own spelling may change without harm; results may not.
        if not np.array_equal(found, expected):
            sys.exit(f"damage went unnoticed: {found} instead of {expected}")
        unharmed += 1
    print(refused, unharmed)


if __name__ == "__main__":
    main(*sys.argv[1:])
