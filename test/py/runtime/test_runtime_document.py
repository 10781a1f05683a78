"""The example of docs/runtime.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_example_runs():
    pytest.importorskip("llvmlite")
    text = (Path(__file__).parents[3] / "docs" / "runtime.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example, "docs/runtime.md", "exec"), {})
