"""What all tests share: they never read or fill the user's own compile cache."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A compile cache that is empty when the session begins: a kernel of yesterday must not hide today's bug."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("compile-cache")))
        # One per process that runs tests: the cores have enough of those already.
        patch.setenv("TILEWRIGHT_COMPILE_WORKERS", "1")
        for name in ("TILEWRIGHT_DEBUG", "TILEWRIGHT_DUMP", "TILEWRIGHT_OVERRIDE"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module", autouse=True)
def survivors_are_left_alone() -> Iterator[None]:
    """What is alive after a file of tests is not searched for garbage again: after thousands of tests that took over a second."""
    yield
    gc.collect()
    gc.freeze()
