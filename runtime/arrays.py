"""Arrays as the runtime sees them: dtype names, addresses of any library's tensors, checks against specs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.runtime.errors import ArgumentError, PackageError
from tilewright.runtime.program import TensorSpec

NUMPY_NAMES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "c64": "complex64", "c128": "complex128",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "i1": "bool",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bf16": "bfloat16",
}  # fmt: skip
"""numpy's (and torch's) name of each dtype; numpy has `bfloat16` when `ml_dtypes` is imported."""

_SPEC_NAMES = {numpy_name: name for name, numpy_name in NUMPY_NAMES.items()} | {"bool_": "i1"}
_STORED_ALIKE = {("bf16", "u16"), ("i1", "u8"), ("i1", "i8")} | {
    pair for bits in (8, 16, 32, 64) for pair in ((f"i{bits}", f"u{bits}"), (f"u{bits}", f"i{bits}"))
}
"""(spec, array) dtype pairs of the same bytes: kernels see signless integers, and numpy lacks bfloat16."""


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype that holds `name`; bf16 is `ml_dtypes.bfloat16` when that is installed, else uint16."""
    if name != "bf16":
        return np.dtype(NUMPY_NAMES[name])
    try:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    except ImportError:
        return np.dtype(np.uint16)


def is_stored_as(name: str, dtype: str) -> bool:
    """True when an array of numpy or torch dtype `dtype` has the bytes of spec dtype `name`."""
    found = _SPEC_NAMES.get(dtype)
    return found == name or (name, found) in _STORED_ALIKE


@dataclass(frozen=True)
class Storage:
    """Where an array's bytes are; `owner` keeps them alive."""

    address: int
    nbytes: int
    owner: Any

    def view(self) -> memoryview:
        """The bytes, readable; they are kept alive with it."""
        array = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        array.owner = self.owner
        return memoryview(array).cast("B")


def weight_storage(weight: Any, spec: TensorSpec) -> Storage:
    """Finds the bytes of a weight and checks them against its spec.

    `weight` is a torch tensor on the CPU, a numpy array, a DLPack or buffer-protocol object, or a pair
    (address, nbytes) whose memory the caller keeps alive. Raises PackageError naming the weight.
    """
    who = f"weight `{spec.name}` ({spec.dtype}{list(spec.shape)})"
    if isinstance(weight, tuple):
        address, nbytes = weight[:2]
        storage = Storage(address, nbytes, weight)
    elif hasattr(weight, "data_ptr"):  # a torch tensor, recognised without importing torch
        if weight.device.type != "cpu":
            raise PackageError(f"{who}: it lies on {weight.device}; move it to the CPU")
        if not weight.is_contiguous() or weight.is_conj() or weight.is_neg():
            weight = weight.detach().resolve_conj().resolve_neg().contiguous()
        _check(who, spec, str(weight.dtype).removeprefix("torch."), tuple(weight.shape))
        # An alias: `module.double()` and the like give a parameter other memory and would let this go.
        held = weight.detach()
        storage = Storage(held.data_ptr(), held.numel() * held.element_size(), held)
        if storage.nbytes and not storage.address:
            raise PackageError(f"{who}: it has no memory (a FakeTensor has none); give it values first")
    else:
        if not isinstance(weight, np.ndarray) and hasattr(weight, "__dlpack__"):
            weight = np.from_dlpack(weight)
        array = np.ascontiguousarray(weight).reshape(np.shape(weight))
        if isinstance(weight, np.ndarray):
            _check(who, spec, array.dtype.name, array.shape)
        storage = Storage(array.ctypes.data, array.nbytes, array)
    if storage.nbytes != spec.nbytes:
        raise PackageError(f"{who}: expected {spec.nbytes} B, found {storage.nbytes} B")
    return storage


def _check(who: str, spec: TensorSpec, dtype: str, shape: tuple[int, ...]) -> None:
    if not is_stored_as(spec.dtype, dtype) or shape != tuple(spec.shape):
        raise PackageError(f"{who}: found {dtype}{list(shape)}")


def checked_input(array: Any, spec: TensorSpec, position: int) -> np.ndarray:
    """`array` as dense row-major memory, copied only when it is not; raises ArgumentError naming it."""
    if not isinstance(array, np.ndarray):
        try:
            array = np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            found = type(array).__name__
            raise ArgumentError(
                f"input {position} `{spec.name}`: a {found} is no array here: {error}"
            ) from None
    if array.dtype.name != NUMPY_NAMES[spec.dtype] and not is_stored_as(spec.dtype, array.dtype.name):
        raise ArgumentError(
            f"input {position} `{spec.name}`: expected {NUMPY_NAMES[spec.dtype]}, found {array.dtype.name}; "
            f"convert it first"
        )
    if array.shape != spec.shape:
        raise ArgumentError(
            f"input {position} `{spec.name}`: expected shape {list(spec.shape)}, found {list(array.shape)}; "
            f"shapes are fixed when a model is compiled"
        )
    if not array.dtype.isnative:
        raise ArgumentError(f"input {position} `{spec.name}`: its bytes are not in this machine's order")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
