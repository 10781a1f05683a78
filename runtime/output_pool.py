"""Output memory that is reused once its consumer dropped it, so that large outputs do not fault fresh pages.

    lease = pool.take(nbytes)                      # a writable buffer object, 64-byte aligned
    array = np.frombuffer(lease, np.float32)       # torch.frombuffer works alike
    del lease, array                               # the last reference gone, the next take() gets the memory

The lease lives as long as anything built on it; there is nothing to release by hand. All operations on the
free lists are single list operations, which Python makes atomic, so no lock can be held across a fork.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

from tilewright.runtime import native, settings


class _Chunk:
    """Pages owned by one free-list entry or one lease."""

    __slots__ = ("address", "nbytes", "release")

    def __init__(self, nbytes: int):
        lib = native.library()
        self.nbytes = max(nbytes, 1)  # an empty tensor has an address too
        self.release = lib.tw_release
        self.address = lib.tw_reserve(self.nbytes)
        if not self.address:
            raise MemoryError(f"cannot reserve {nbytes} B for an output")

    def __del__(self):
        if self.address:
            self.release(self.address, self.nbytes)


@lru_cache(maxsize=256)
def _lease_type(nbytes: int) -> type:
    """A buffer type of `nbytes` bytes whose instances give their chunk back when they are collected."""

    def give_back(lease):
        lease.pool._give_back(lease.chunk)

    return type("Lease", (ctypes.c_uint8 * nbytes,), {"__del__": give_back})


class OutputPool:
    """Hands out memory blocks and takes them back when their last user is gone; safe from any thread.

    At most `keep_bytes` of free memory stays with the pool (default: `settings.output_pool_bytes()`).
    """

    def __init__(self, keep_bytes: int | None = None):
        self.keep_bytes = settings.output_pool_bytes() if keep_bytes is None else keep_bytes
        self._free: dict[int, list[_Chunk]] = {}

    def take(self, nbytes: int):
        """A writable buffer object of `nbytes` bytes; `.address` is its first byte, 64-byte aligned."""
        try:
            chunk = self._free[max(nbytes, 1)].pop()
        except (KeyError, IndexError):
            chunk = _Chunk(nbytes)
        lease = _lease_type(nbytes).from_address(chunk.address)
        lease.chunk, lease.pool, lease.address = chunk, self, chunk.address
        return lease

    @property
    def free_bytes(self) -> int:
        """Bytes that wait for reuse."""
        return sum(nbytes * len(chunks) for nbytes, chunks in list(self._free.items()))

    def clear(self) -> None:
        """Gives all free memory back to the system; leases stay valid."""
        self._free.clear()

    def _give_back(self, chunk: _Chunk) -> None:
        if self.free_bytes + chunk.nbytes <= self.keep_bytes:
            self._free.setdefault(chunk.nbytes, []).append(chunk)
