"""The examples run as they stand and agree with what they compare themselves to."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SMALL = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "demo")


def run(name: str, cache: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-m", f"examples.{name}"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TILEWRIGHT_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", SMALL)
def test_example(name: str, tmp_path: Path) -> None:
    text = run(name, tmp_path)
    differences = re.findall(r"largest difference: (\S+)", text)
    assert all(float(difference) < 1e-5 for difference in differences)
    assert differences or "torch loaded: False" in text
