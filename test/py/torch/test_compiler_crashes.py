"""What dies while a model is imported or goes through the phases is a worker: the model runs, or an error says what died."""

from __future__ import annotations

import warnings

import pytest
import torch

import tilewright
from tilewright.compiler.errors import CompilerCrashError
from tilewright.compiler.importers.torch import lowering as torch_lowering
from tilewright.compiler.torch.fallback import FallbackWarning
from tilewright.compiler.workers import modules


@pytest.fixture(autouse=True)
def anew(monkeypatch, tmp_path):
    """No verdict and no module of another test is known, and reproducers go where nobody minds."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch_lowering, "_verdicts", {})
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tilewright.compiler.torch.fallback._reported", set())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def crashing(monkeypatch):
    monkeypatch.setattr(modules, "_TASKS", "crashing_imports")


def wave(x):
    y = x * 2 + 1
    return torch.cos(y) - x


def plain(x):
    return torch.tanh(x) * 2


X = torch.linspace(-1, 1, 24).reshape(4, 6)


def test_an_operator_that_kills_the_importer_is_named(crashing):
    with pytest.raises(
        tilewright.UnsupportedError, match=r"aten\.cos\.default at .*test_compiler_crashes"
    ) as refused:
        tilewright.compile(wave, (X,))
    (operator,) = refused.value.operators
    assert "died of signal 6 (SIGABRT)" in operator.reason


def test_under_torch_compile_it_runs_eagerly_and_is_counted(crashing):
    compiled = torch.compile(wave, backend="tilewright")
    before = tilewright.fallback_count()
    with pytest.warns(FallbackWarning, match=r"aten\.cos\.default at .*died of signal 6"):
        torch.testing.assert_close(compiled(X), wave(X))
    assert tilewright.fallback_count() == before + 1
    compiled(X)
    assert tilewright.fallback_count() == before + 2


def test_a_crash_that_only_the_whole_graph_shows_is_no_operators(monkeypatch, crashing):
    monkeypatch.setattr(torch_lowering, "refusal", lambda node: None)
    with pytest.raises(CompilerCrashError, match="the import of a graph: the process that compiled it died"):
        tilewright.compile(wave, (X,))


def test_a_phase_that_dies_is_named(crashing):
    with pytest.raises(
        CompilerCrashError, match="phase `layout`: the process that compiled it died"
    ) as crash:
        tilewright.compile(plain, (X,))
    with open(crash.value.reproducer) as reproducer:
        assert "assign-layouts" in reproducer.read()


def test_under_torch_compile_a_phase_that_dies_costs_the_graph(crashing):
    compiled = torch.compile(plain, backend="tilewright")
    before = tilewright.fallback_count()
    with pytest.warns(FallbackWarning, match="phase `layout`: the process that compiled it died"):
        torch.testing.assert_close(compiled(X), plain(X))
    assert tilewright.fallback_count() == before + 2


def test_strict_raises_what_died(crashing):
    compiled = torch.compile(plain, backend="tilewright", options={"strict": True})
    with pytest.raises(CompilerCrashError, match="phase `layout`"):
        compiled(X)


def test_a_known_import_needs_no_worker(monkeypatch):
    first = tilewright.compile(wave, (X,))
    monkeypatch.setattr(modules, "_TASKS", "nowhere")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = tilewright.compile(wave, (X,))
    torch.testing.assert_close(first(X), again(X), rtol=0, atol=0)
