"""The kernel cache gives back exactly what was stored, and treats everything else as a miss."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler.cache.store import KernelCache
from tilewright.compiler.codegen.lower_cpu import LoweredKernel
from tilewright.runtime.program import Kernel

KEY = "ab" + 62 * "0"
KERNEL = LoweredKernel(Kernel("matmul", "tw_kernel", bytes(range(64)), 4096, ("index out of range",)), 12)


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "kernels")


def entry(cache: KernelCache):
    (path,) = cache.folder.rglob("*.twk")
    return path


def test_gives_back_what_was_stored(cache):
    cache.store(KEY, KERNEL)
    assert cache.find(KEY, "matmul") == KERNEL


def test_the_name_is_the_askers(cache):
    """Equal dispatches of two models share code, each under its own name."""
    cache.store(KEY, KERNEL)
    found = cache.find(KEY, "other")
    assert found is not None
    assert found.kernel.name == "other"
    assert found.kernel.object == KERNEL.kernel.object


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.binary(max_size=200),
    st.integers(0, 2**40),
    st.lists(st.text(max_size=20), max_size=3),
    st.integers(1, 2**31),
)
def test_any_kernel_comes_back(tmp_path, code, scratch, asserts, tasks):
    cache = KernelCache(tmp_path)
    lowered = LoweredKernel(Kernel("k", "tw_kernel", code, scratch, tuple(asserts)), tasks)
    cache.store(KEY, lowered)
    assert cache.find(KEY, "k") == lowered


def test_an_unknown_key_is_a_miss(cache):
    assert cache.find(KEY, "matmul") is None
    cache.store(KEY, KERNEL)
    assert cache.find("ab" + 62 * "1", "matmul") is None


def test_truncated_entries_are_misses(cache):
    cache.store(KEY, KERNEL)
    path = entry(cache)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert cache.find(KEY, "matmul") is None, f"{length} of {len(data)} bytes"


def test_damaged_entries_are_misses(cache):
    """A flipped bit anywhere, be it in machine code or in the bytes of scratch that it needs."""
    cache.store(KEY, KERNEL)
    path = entry(cache)
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        assert cache.find(KEY, "matmul") is None, f"byte {position} of {len(data)}"
    path.write_bytes(data + b"\0")
    assert cache.find(KEY, "matmul") is None


def test_a_miss_says_why(cache, monkeypatch, capsys):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    cache.find(KEY, "matmul")
    assert "kernel matmul: not in the cache, key ab0000000000" in capsys.readouterr().err
    cache.store(KEY, KERNEL)
    entry(cache).write_bytes(b"TWK3")
    cache.find(KEY, "matmul")
    assert "kernel matmul: damaged cache entry ab0000000000, compiled anew" in capsys.readouterr().err


def test_storing_over_a_damaged_entry_repairs_it(cache):
    cache.store(KEY, KERNEL)
    entry(cache).write_bytes(b"")
    cache.store(KEY, KERNEL)
    assert cache.find(KEY, "matmul") == KERNEL


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, capsys):
    """A file stands where the folder should be, which not even root can write through."""
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    (tmp_path / "kernels").write_text("in the way")
    cache = KernelCache(tmp_path / "kernels")
    cache.store(KEY, KERNEL)
    assert "kernel matmul: not cached" in capsys.readouterr().err
    assert cache.find(KEY, "matmul") is None
    assert "cannot be read" in capsys.readouterr().err


def test_writers_never_show_half_an_entry(cache):
    """Eight threads replace and read one entry; every read is whole, and no temporary file stays."""

    def work(number: int) -> bool:
        for _ in range(20):
            cache.store(KEY, KERNEL)
            if cache.find(KEY, "matmul") != KERNEL:
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert [path.suffix for path in cache.folder.rglob("*") if path.is_file()] == [".twk"]
