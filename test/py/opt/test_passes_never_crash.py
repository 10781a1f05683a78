"""Every pass of ours on every module of every lit test: it rewrites, leaves alone or refuses, and never crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.compiler.cli.opt import split
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.ir import parse
from tilewright.compiler.pipeline import registry
from tilewright.compiler.pipeline.pipeline import Pipeline, StepError

LIT = Path(__file__).parents[2] / "lit"
REAL_PASSES = registry.names()


def modules() -> list[tuple[str, str]]:
    """The parts of all lit tests that parse, with their file's name."""
    found = []
    for path in sorted(LIT.rglob("*.mlir")):
        for text in split(path.read_text(encoding="utf-8")):
            try:
                parse(text)
            except TilewrightError:
                continue
            found.append((path.name, text))
    return found


MODULES = modules()


@pytest.mark.parametrize("name", REAL_PASSES)
def test_no_module_crashes_a_pass(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    loaded = registry.load(name)
    assert loaded is not None
    anchor = "builtin.module" if loaded.anchor == "any" else loaded.anchor
    pipeline = (
        f"builtin.module({name})" if anchor == "builtin.module" else f"builtin.module({anchor}({name}))"
    )
    problems = []
    for file, text in MODULES:
        try:
            Pipeline.parse(pipeline).run(parse(text).operation)
        except StepError as error:
            if error.crashed or "left invalid IR behind" in error.reason:
                problems.append(f"{file}: {error}")
        except TilewrightError:
            continue
    assert not problems, "\n".join(problems)


def test_there_are_modules_to_try() -> None:
    assert len(MODULES) > 50
