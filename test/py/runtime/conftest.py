"""The C compiler as a fixture: kernels of test packages are compiled once per session."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

PRELUDE = """
#include <math.h>
#include <stdint.h>
#include <string.h>
#define KERNEL(name) int32_t name(void *const *b, int64_t first, int64_t end, void *scratch)
"""


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory) -> Callable[..., bytes]:
    """`compile_c(source, *flags)`: the object of C source, with KERNEL(name) as a kernel's head."""
    folder: Path = tmp_path_factory.mktemp("objects")

    @cache
    def run(source: str, *flags: str) -> bytes:
        path, output = folder / "kernel.c", folder / "kernel.o"
        path.write_text(PRELUDE + source)
        command = ["gcc", "-O2", "-c", *(flags or ("-fPIC",)), str(path), "-o", str(output)]
        subprocess.run(command, check=True, timeout=60)
        return output.read_bytes()

    return run
