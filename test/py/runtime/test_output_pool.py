"""Outputs come from memory of outputs that nobody holds any more, and from nowhere else."""

from __future__ import annotations

import gc
import resource

import numpy as np
import pytest
from package_builder import package
from test_threads import run_in_threads

from tilewright.runtime.errors import SettingError
from tilewright.runtime.executable import Executable
from tilewright.runtime.output_pool import OutputPool


def test_memory_returns_when_its_last_user_is_gone():
    pool = OutputPool()
    lease = pool.take(4096)
    address = lease.address
    view = np.frombuffer(lease, np.float32)[10:20].reshape(2, 5)
    del lease
    assert pool.free_bytes == 0
    assert pool.take(4096).address != address
    del view
    assert pool.take(4096).address in (address, *_free_addresses(pool))


def _free_addresses(pool):
    return [chunk.address for chunk in pool._free[4096]]


def test_live_outputs_never_share_memory():
    run = Executable(package([], [], inputs=(), outputs=("f32[100]", "f32[100]")))
    held = [array for _ in range(20) for array in run()]
    for number, array in enumerate(held):
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(held))


def test_large_outputs_fault_no_fresh_pages():
    pool = OutputPool()
    nbytes = 64 << 20

    def use():
        np.frombuffer(pool.take(nbytes), np.uint8)[::4096] = 1

    use()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        use()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 100


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 4096, 5000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1])
def test_blocks_are_aligned_and_writable(nbytes):
    lease = OutputPool().take(nbytes)
    assert lease.address % (64 if nbytes < 2 << 20 else 2 << 20) == 0
    bytes_ = np.frombuffer(lease, np.uint8) if nbytes else np.zeros(0, np.uint8)
    bytes_[:] = 7
    assert len(bytes_) == nbytes


def test_the_pool_keeps_no_more_than_its_bound():
    pool = OutputPool(keep_bytes=10_000)
    leases = [pool.take(4096) for _ in range(5)]
    del leases
    assert pool.free_bytes == 8192
    pool.clear()
    assert pool.free_bytes == 0
    none = OutputPool(keep_bytes=0)
    none.take(64)
    assert none.free_bytes == 0


def test_arrays_outlive_pool_and_executable():
    run = Executable(package([], [], inputs=(), outputs=("f32[100]",)))
    (array,) = run()
    array[:] = 3
    del run
    gc.collect()
    assert (array == 3).all()


def test_torch_tensors_hold_their_lease():
    torch = pytest.importorskip("torch")
    pool = OutputPool()
    tensor = torch.frombuffer(pool.take(400), dtype=torch.float32).view(10, 10)
    assert pool.free_bytes == 0
    del tensor
    assert pool.free_bytes == 400


def test_many_threads_take_and_drop():
    pool = OutputPool()

    def body(number):
        for turn in range(500):
            array = np.frombuffer(pool.take(256), np.int64)
            array[:] = number * 1000 + turn
            assert (array == number * 1000 + turn).all()

    run_in_threads(8, body)
    assert pool.free_bytes <= 8 * 256


def test_the_bound_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_OUTPUT_POOL_MB", "3")
    assert OutputPool().keep_bytes == 3 << 20
    monkeypatch.setenv("TILEWRIGHT_OUTPUT_POOL_MB", "lots")
    with pytest.raises(SettingError, match="TILEWRIGHT_OUTPUT_POOL_MB: expected an integer"):
        OutputPool()
