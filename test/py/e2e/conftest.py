"""Every session of these tests compiles into a folder of its own: a stale cache must never hide a bug."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def fresh_cache(tmp_path_factory):
    """TILEWRIGHT_CACHE_DIR points at an empty folder for the whole session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("kernel-cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_torch():
    """The references run on one thread, so that they do not fight the compiled kernels for the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
