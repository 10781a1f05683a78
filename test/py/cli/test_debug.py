"""The debugging ladder: what every level adds, what a dump holds, and files that replace what is generated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.compiler.errors import PassError

TEXT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.add ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
"""
X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DEBUG", "DUMP", "OVERRIDE"):
        monkeypatch.delenv(f"TILEWRIGHT_{name}", raising=False)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


SHOWN = {
    1: "phase schedule: ",
    2: "rTasks",
    3: "// after 4-schedule",
    4: "canonicalize",
    5: ".text",
}


@pytest.mark.parametrize("level", range(6))
def test_a_level_shows_its_own_and_all_below(
    level: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", str(level))
    tilewright.compile(TEXT)
    shown = capfd.readouterr().err
    assert {number for number, text in SHOWN.items() if text in shown} == set(range(1, level + 1))


def test_a_dump_holds_numbered_phases_and_every_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tilewright.compile(TEXT)
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "dump"))
    compiled = tilewright.compile(TEXT)
    names = {path.name for path in (tmp_path / "dump").iterdir()}
    kernel = compiled.executable.package.kernels[0].name
    assert names == {
        "0-graph.mlir", "1-layout.mlir", "2-packing.mlir", "3-dispatch.mlir", "4-schedule.mlir", f"{kernel}.ll", f"{kernel}.s",
    }  # fmt: skip
    assert "tilewright.schedule" in (tmp_path / "dump" / "4-schedule.mlir").read_text()


def edited_dump(name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Dumps, edits one file, and leaves only that one as an override."""
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(folder / "dump"))
    kernel = tilewright.compile(TEXT).executable.package.kernels[0].name
    monkeypatch.delenv("TILEWRIGHT_DUMP")
    source = folder / "dump" / name.format(kernel=kernel)
    assert old in source.read_text()
    (folder / "edited").mkdir()
    (folder / "edited" / source.name).write_text(source.read_text().replace(old, new))
    monkeypatch.setenv("TILEWRIGHT_OVERRIDE", str(folder / "edited"))


@pytest.mark.parametrize(
    ("name", "old", "new"), [("3-dispatch.mlir", "arith.addf", "arith.mulf"), ("{kernel}.ll", "fadd", "fmul")]
)
def test_an_edited_file_replaces_what_is_generated(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    edited_dump(name, old, new, monkeypatch, tmp_path)
    np.testing.assert_array_equal(tilewright.compile(TEXT)(X), X * X)
    monkeypatch.delenv("TILEWRIGHT_OVERRIDE")
    np.testing.assert_array_equal(tilewright.compile(TEXT)(X), X + X)


def test_an_override_that_does_not_parse_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    edited_dump("3-dispatch.mlir", "arith.addf", "arith.nothing", monkeypatch, tmp_path)
    with pytest.raises(PassError, match=r"3-dispatch\.mlir"):
        tilewright.compile(TEXT)
