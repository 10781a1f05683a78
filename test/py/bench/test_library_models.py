"""Models of other libraries: what is built of their descriptions, and what becomes of right, wrong, refused and dying ones."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from tilewright.bench import library_models
from tilewright.bench.library_models import Outcome, apart, judge, made, outcome_of, read_models

LIBRARY = """
import os, torch
__version__ = "1"
class Config:
    use_cache = True
    def __init__(self, size):
        self.size = size
class Right(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        assert not config.use_cache
        self.inner = torch.nn.Linear(config.size, 3)
    def forward(self, x):
        return {"y": self.inner(x), "number": x.argmax(-1)}
class Refused(Right):
    def forward(self, x):
        return torch.linalg.svd(x)
class Dying(Right):
    def forward(self, x):
        os._exit(7)
"""


def entry(model: str) -> dict:
    return {
        "config": "Config",
        "model": model,
        "options": {"size": 4},
        "inputs": {"x": {"values": [[1.0, 2.0, 0.5, 4.0]]}},
    }


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library of three models in place of transformers, here and in processes that are started."""
    (tmp_path / "transformers.py").write_text(LIBRARY)
    models = {name: entry(name) for name in ("Right", "Refused", "Dying", "Missing")}
    (tmp_path / "models.json").write_text(json.dumps({"transformers": models}))
    info = tmp_path / "transformers-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "transformers", raising=False)
    monkeypatch.setattr(library_models, "_SECONDS", 0.01)
    return models


def test_outcomes(library):
    right = outcome_of("transformers", "a", entry("Right"), "tilewright.compile")
    assert right.outcome == "right" and right.error is not None and right.error < 1e-6
    assert right.compile_s and right.eager_ms and right.ours_ms
    assert outcome_of("transformers", "a", entry("Right"), "torch.compile").outcome == "right"
    refused = outcome_of("transformers", "a", entry("Refused"), "tilewright.compile")
    assert refused.outcome == "refused" and "svd" in refused.detail
    missing = outcome_of("transformers", "a", entry("Missing"), "tilewright.compile")
    assert missing.outcome == "unbuilt" and "Missing" in missing.detail


def test_a_record_is_continued(library, tmp_path, monkeypatch):
    ran = []

    def pretended(library, name, how, seconds):
        ran.append(name)
        return Outcome(name, "failed", "exit status 7: ")

    monkeypatch.setattr(library_models, "apart", pretended)
    monkeypatch.setattr(library_models, "read_models", lambda: {"transformers": library})
    asked = ["transformers", "-o", str(tmp_path / "record.json")]
    first = CliRunner().invoke(library_models.main, [*asked[:1], "Right", *asked[1:]])
    assert first.exit_code == 1 and ran == ["Right"]
    CliRunner().invoke(library_models.main, asked)
    assert ran == ["Right", "Refused", "Dying", "Missing"]
    record = json.loads((tmp_path / "record.json").read_text())
    assert [case["name"] for case in record["cases"]] == ran and record["versions"]["transformers"] == "1"


def test_a_name_that_is_unknown_is_refused():
    refused = CliRunner().invoke(library_models.main, ["timm", "no_such_model"])
    assert refused.exit_code == 2 and "no model no_such_model of timm" in refused.output


def test_a_process_that_dies_is_an_outcome(monkeypatch):
    monkeypatch.setattr(library_models.sys, "executable", "/bin/false")
    found = apart("transformers", "bert", "tilewright.compile", 10)
    assert found.outcome == "failed" and found.detail.startswith("exit status 1")


def test_results_are_judged():
    x = torch.tensor([1.0, float("inf"), 4.0])
    assert judge({"a": x}, {"a": x}) == (0.0, "")
    assert "off by" in judge([x * torch.tensor([1.01, 1, 1])], [x])[1]
    assert "infinite" in judge([torch.tensor([1.0, 2.0, 4.0])], [x])[1]
    assert "integers" in judge([torch.tensor([1])], [torch.tensor([2])])[1]
    assert "2 results" in judge([x, x], [x])[1]
    assert "0 results" in judge([], [])[1]
    assert "eager PyTorch has" in judge([x[:2]], [x])[1]


def test_every_description_is_one_that_can_be_built():
    models = read_models()
    assert set(models) == {"transformers", "diffusers", "timm"}
    for library, entries in models.items():
        for name, found in entries.items():
            assert set(found) <= {"config", "model", "options", "inputs"}, f"{library} {name}"
            assert all(isinstance(made(spec), torch.Tensor) for spec in found.get("inputs", {}).values())
