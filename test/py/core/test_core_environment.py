"""An environment with tilewright's own requirements and torch, without any extra, compiles, calls, saves and loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


def test_compiling_needs_no_extra(tmp_path: Path) -> None:
    program = Path(__file__).with_name("core_environment.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"
