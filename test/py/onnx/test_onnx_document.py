"""The example of docs/onnx.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path


def test_example():
    text = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example, "docs/onnx.md", "exec"), {})
