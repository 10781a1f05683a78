"""The code of docs/layouts.md runs, and the passes and attributes it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.compiler.nouns.layout import Layout, Primitive
from tilewright.compiler.pipeline import registry
from tilewright.compiler.rewriting.layout_rules import ATTRIBUTE

TEXT = (Path(__file__).parents[3] / "docs" / "layouts.md").read_text()


def test_its_python_runs():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/layouts.md", "exec"), {})


def test_its_layouts_parse_and_its_passes_exist():
    (texts,) = re.findall(re.escape(ATTRIBUTE) + r" = \[(.*?\")\]", TEXT)
    assert [Layout.parse((1, 2, 3, 4), text).order for text in re.findall(r'"(.*?)"', texts)]
    for name in re.findall(r"builtin\.module\((.*?)\)", TEXT):
        assert all(registry.load(part) for part in name.split(","))


def test_its_table_names_every_primitive():
    table = set(re.findall(r"^\| `(\w+)", TEXT, re.MULTILINE)) | set(re.findall(r"\| `(\w+)` \|", TEXT))
    assert table == {kind.__name__.lower() for kind in Primitive.__subclasses__()}
