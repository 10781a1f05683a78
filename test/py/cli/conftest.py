"""The tool run in this process, with a compile cache of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tilewright.compiler.cli.main import main

TINY = """
import torch
from torch import nn


def tiny():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), torch.ones(2, 8)


def no_pair():
    return nn.ReLU()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder that holds `tiny_models.py`."""
    (tmp_path / "tiny_models.py").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("TILEWRIGHT_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def tool(folder: Path) -> Callable[..., Result]:
    """Runs `tilewright ARGUMENTS...`."""
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])
