"""A whole model as AMD's assembly, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.compiler.cli.compile import command

MODEL = """
import torch
from torch import nn

def model():
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10), nn.Softmax(1))
    return layers.eval(), torch.randn(2, 3, 6, 6)
"""


def test_every_kernel_of_a_model_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "amd_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(command, ["amd_model:model", "--target", "hip:gfx90a", "-o", "kernels"])
    assert done.exit_code == 0, done.output
    written = sorted((tmp_path / "kernels").glob("*.s"))
    assert len(written) >= 4
    for path in written:
        text = path.read_text()
        assert '.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"' in text
        assert "s_endpgm" in text
    products = next(path for path in written if path.name.startswith("matmul")).read_text()
    assert "v_fma" in products or "v_fmac" in products or "v_pk_fma" in products


def test_a_file_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "amd_file.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(command, ["amd_file:model", "--target", "hip:gfx90a", "-o", "model.twm"])
    assert done.exit_code == 2
    assert "expected a folder" in done.output
