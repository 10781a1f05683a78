"""Loads damaged copies of an ELF object; a crash of this process is a finding, a refusal is not.

python test/py/runtime/fuzz_objects.py OBJECT SEED COUNT      # prints how many were refused
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from package_builder import kernel, package

from tilewright.runtime.errors import PackageError
from tilewright.runtime.executable import Executable


def damaged(data: bytes, choose: random.Random) -> bytes:
    """One of: truncated, a few bits flipped, a word replaced by an extreme value, a run of bytes moved."""
    copy = bytearray(data)
    kind = choose.randrange(4)
    at = choose.randrange(len(copy))
    if kind == 0:
        return bytes(copy[:at])
    if kind == 1:
        for _ in range(choose.randint(1, 8)):
            copy[choose.randrange(len(copy))] ^= 1 << choose.randrange(8)
    elif kind == 2:
        width = choose.choice([1, 2, 4, 8])
        value = choose.choice([0, 1, 2**31, 2**63, 2**64 - 1, 2**32 - 1, len(copy)]) % (1 << 8 * width)
        copy[at : at + width] = value.to_bytes(width, "little")
    else:
        other, length = choose.randrange(len(copy)), choose.randint(1, 64)
        copy[at : at + length] = copy[other : other + length]
    return bytes(copy[: len(data)])


def main(path: str, seed: str, count: str) -> None:
    data, choose = Path(path).read_bytes(), random.Random(int(seed))
    headers = len(data) - 64 * 12  # section headers stand last: half of the damage goes there
    refused = 0
    for number in range(int(count)):
        copy = damaged(data, choose)
        if number % 2:
            copy = data[:headers] + damaged(data[headers:], choose)
        try:
            Executable(package([kernel(copy)], []), num_threads=1)
        except PackageError:
            refused += 1
    print(refused)


if __name__ == "__main__":
    main(*sys.argv[1:])
