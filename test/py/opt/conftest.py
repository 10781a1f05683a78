"""Registers the sample passes of this folder as if they had files of their own."""

from __future__ import annotations

import pytest
from sample_passes import TEST_PASSES

from tilewright.compiler.pipeline import registry


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the passes above known to pipelines, beside the real ones."""
    real_load, real_exists, real_names = registry.load, registry.exists, registry.names
    monkeypatch.setattr(registry, "load", lambda name: TEST_PASSES.get(name) or real_load(name))
    monkeypatch.setattr(registry, "exists", lambda name: name in TEST_PASSES or real_exists(name))
    monkeypatch.setattr(registry, "names", lambda: sorted([*TEST_PASSES, *real_names()]))
