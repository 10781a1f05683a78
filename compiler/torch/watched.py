"""Tensors that are watched, so that what was made of them is made anew once they are others or have other values."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from tilewright.runtime import native


class Watched:
    """Tells of tensors whether they change: by address, by version, and on CPUs by words of their memory.

    Writes through `tensor.data`, as of target networks and moving averages, and through NumPy count no version. Words of
    their memory, all of a small tensor's and 16 of a large one's, tell of those that write to many elements.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self._see(tensors)

    def changes(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether `tensors` are others than at the last call, or other values; True where nothing tells."""
        stamp = _stamped(tensors)
        if stamp is None or stamp != self._stamp:
            self._see(tensors)
            return True
        seen, self._fingerprint = self._fingerprint, self._read()
        return seen != self._fingerprint

    def _see(self, tensors: Sequence[torch.Tensor]) -> None:
        self._held = list(tensors)  # while they are held, no other tensor can have their addresses
        self._stamp = _stamped(tensors)
        blocks = [(tensor.data_ptr(), _span_bytes(tensor)) for tensor in tensors if tensor.is_cpu]
        self._addresses = (ctypes.c_void_p * len(blocks))(*(address for address, _ in blocks))
        self._bytes = (ctypes.c_uint64 * len(blocks))(*(size for _, size in blocks))
        self._fingerprint = self._read()

    def _read(self) -> int:
        return native.library().tw_fingerprint(self._addresses, self._bytes, len(self._bytes))


def _stamped(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]] | None:
    """Address and version of each; None when one counts no versions (inference tensors)."""
    try:
        return [(tensor.data_ptr(), tensor._version) for tensor in tensors]
    except RuntimeError:
        return None


def _span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last."""
    if not tensor.numel():
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()
