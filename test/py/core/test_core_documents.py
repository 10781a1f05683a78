"""What the documents of the core name exists, and their Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.compiler.pipeline import registry
from tilewright.compiler.targets.target import PRESETS

ROOT = Path(__file__).parents[3]
DOCUMENTS = (
    "README.md",
    "docs/architecture.md",
    "docs/schedules.md",
    "docs/adding-a-target.md",
    "docs/records.md",
    "docs/roadmap.md",
)


def text(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def quoted(document: str) -> set[str]:
    """What stands in backticks outside of code blocks."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text(document), flags=re.DOTALL)))


def sources() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "compiler").rglob("*.py"))


@pytest.mark.parametrize("document", (*DOCUMENTS, "CONTRIBUTING.md"))
def test_files_exist(document):
    names = {name for name in quoted(document) if re.fullmatch(r"[\w./-]+\.(py|md|mlir)|(\w+/)+", name)}
    shown = set(re.findall(r"`([\w-]+\.(?:py|mlir))`:?\n\n```", text(document)))
    for name in sorted(names - shown):
        if name.startswith("dump/"):
            continue
        found = [ROOT / name, *(ROOT / "compiler").rglob(name.rstrip("/"))]
        assert any(path.exists() for path in found), f"{document} names `{name}`"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_attributes_and_passes_exist(document):
    known = sources()
    for name in sorted(quoted(document)):
        if re.fullmatch(r"tilewright\.[a-z_]+", name) and name not in (
            "tilewright.load",
            "tilewright.compile",
        ):
            assert f'"{name}"' in known, f"{document} names the attribute `{name}`"
        if re.fullmatch(r"[a-z]+(-[a-z]+)+", name) and not name.startswith(("tilewright", "torch")):
            assert registry.exists(name) or name in PRESETS, f"{document} names the pass `{name}`"


def test_python_runs(monkeypatch):
    monkeypatch.setattr("tilewright.compiler.targets.target.PRESETS", dict(PRESETS))
    blocks = re.findall(r"```python\n(.*?)```", text("docs/adding-a-target.md"), re.DOTALL)
    assert len(blocks) == 2
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, "docs/adding-a-target.md", "exec"), namespace)


def test_the_readme_has_no_number_without_a_command():
    """Its results are for whoever measures them; until then the command stands alone."""
    results = text("README.md").partition("## Results")[2].partition("## ")[0]
    assert "make bench" in results
