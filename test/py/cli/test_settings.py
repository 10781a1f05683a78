"""Environment variables: read when asked, typed, refused with the name and the range."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.compiler.settings import SettingError, settings, variables


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*variables(), "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    found = settings()
    assert (found.debug, found.dump, found.override, found.num_threads) == (0, None, None, None)
    assert found.cache_dir == Path.home() / ".cache" / "tilewright"


def test_changes_are_seen_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "3")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "later"))
    assert (settings().debug, settings().cache_dir) == (3, tmp_path / "later")
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "")
    assert settings().debug == 0


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings().cache_dir == tmp_path / "tilewright"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("TILEWRIGHT_DEBUG", "6", "TILEWRIGHT_DEBUG: expected an integer from 0 to 5, found `6`"),
        ("TILEWRIGHT_DEBUG", "loud", "expected an integer from 0 to 5, found `loud`"),
        ("TILEWRIGHT_NUM_THREADS", "0", "expected an integer of at least 1, found `0`"),
        ("TILEWRIGHT_OVERRIDE", "/nowhere/at/all", "does not exist; fill one with TILEWRIGHT_DUMP first"),
        ("TILEWRIGHT_DUMP", __file__, "expected a folder, found the file"),
    ],
)
def test_a_bad_value_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(SettingError) as refusal:
        settings()
    assert message in str(refusal.value)
