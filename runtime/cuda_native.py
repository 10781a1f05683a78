"""The runtime library's interface to NVIDIA GPUs through ctypes: structs of csrc/cuda_abi.h, and failures as errors."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from tilewright.runtime import native
from tilewright.runtime.errors import (
    ArgumentError,
    DeviceError,
    DeviceMemoryError,
    KernelAssertError,
    PackageError,
)
from tilewright.runtime.launch_rules import TENSOR_MAP_DTYPES, broken_rule
from tilewright.runtime.program import Kernel, Package, TensorMap

ABI_VERSION = 3
"""TW_CUDA_ABI_VERSION of csrc/cuda_abi.h."""

OK, DRIVER, MEMORY, TABLE, ARGUMENT, ASSERT = range(6)
GRAPH_MODES = {False: 0, True: 1, "auto": 2}
_STICKY = frozenset((700, 702, 709, 710, *range(714, 720)))

i32, i64, u32, u64, pointer = (
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_void_p,
)


class _TensorMap(ctypes.Structure):
    _fields_ = (
        ("buffer", i32),
        ("type", i32),
        ("rank", i32),
        ("swizzle_bytes", i32),
        ("shape", u64 * 5),
        ("strides_bytes", u64 * 4),
        ("box", u32 * 5),
        ("element_strides", u32 * 5),
    )


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("image", ctypes.c_char_p),
        ("ptx", ctypes.c_char_p),
        ("image_bytes", u64),
        ("ptx_bytes", u64),
        ("name", ctypes.c_char_p),
        ("symbol", ctypes.c_char_p),
        ("grid", i32),
        ("block", i32),
        ("cluster", i32),
        ("shared_bytes", i32),
        ("workspace_bytes", i64),
        ("zeroed_bytes", i64),
        ("cooperative", i32),
        ("assert_count", i32),
        ("overlaps", i32),
        ("rtasks", i32),
        ("maps", ctypes.POINTER(_TensorMap)),
        ("map_count", i64),
    )


class _Package(ctypes.Structure):
    _fields_ = (("tables", pointer), ("kernels", ctypes.POINTER(_Kernel)))


class Weight(ctypes.Structure):
    """One weight's address, and whether that is on the device."""

    _fields_ = (("address", pointer), ("is_on_device", i32))


class DeviceData(ctypes.Structure):
    """What the driver says of a device; memory is the device's, shared memory what one block may have at most."""

    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("major", i32),
        ("minor", i32),
        ("multiprocessors", i32),
        ("driver_version", i32),
        ("memory_bytes", u64),
        ("shared_bytes", u64),
    )


class Resources(ctypes.Structure):
    """What the driver says of a loaded kernel."""

    _fields_ = (("registers", i32), ("local_bytes", i32), ("shared_bytes", i32), ("is_from_ptx", i32))


class _Failure(ctypes.Structure):
    _fields_ = (
        ("message", ctypes.c_char_p),
        ("step", i64),
        ("is_prepack", i32),
        ("status", i32),
        ("is_late", i32),
        ("driver_code", i32),
    )


_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "tw_cuda_devices": (ctypes.c_char_p, pointer, i32, ctypes.POINTER(i32)),
    "tw_cuda_create": (ctypes.c_char_p, i32, ctypes.POINTER(_Package), i32, i32, ctypes.POINTER(pointer)),
    "tw_cuda_bind": (pointer, pointer, pointer, i32),
    "tw_cuda_run": (pointer, pointer, pointer, pointer, i32),
    "tw_cuda_run_host": (pointer, pointer, pointer, i32),
    "tw_cuda_synchronize": (pointer,),
    "tw_cuda_profile": (pointer, pointer, i64, pointer),
    "tw_cuda_time": (pointer, pointer, i64, pointer, i64, i64, pointer),
    "tw_cuda_kernel_resources": (pointer, i64, ctypes.POINTER(Resources)),
    "tw_cuda_memory_new": (ctypes.c_char_p, i32, u64, ctypes.POINTER(pointer), ctypes.POINTER(u64)),
    "tw_cuda_memory_copy": (pointer, pointer, u64, i32),
}


@cache
def library() -> ctypes.CDLL:
    """The runtime library with the functions for GPUs declared; raises PackageError when it is of another version."""
    lib = native.library()
    version = lib.tw_cuda_abi_version() if hasattr(lib, "tw_cuda_abi_version") else 0
    if version != ABI_VERSION:
        raise PackageError(
            f"the runtime library's interface to GPUs has version {version}, tilewright needs {ABI_VERSION}; rebuild it"
        )
    for name, arguments in _ARGUMENTS.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, i32
    for name in ("tw_cuda_graph_error", "tw_cuda_overlap_error"):
        function = getattr(lib, name)
        function.argtypes, function.restype = (pointer,), ctypes.c_char_p
    for name in ("tw_cuda_destroy", "tw_cuda_memory_delete", "tw_cuda_last_failure"):
        function = getattr(lib, name)
        function.argtypes, function.restype = (pointer,), None
    return lib


def create(package: Package, driver: str, device: int, is_synchronous: bool, overlaps: bool) -> int:
    """Loads a package into a device; returns a handle for `tw_cuda_destroy`. Raises PackageError, DeviceError.

    `is_synchronous` waits for every kernel; otherwise, with `overlaps`, kernels that can start early do.
    """
    kernels = [_kernel(kernel) for kernel in package.kernels]
    tables = native.flatten(package)
    table = _Package(ctypes.addressof(tables), (_Kernel * len(kernels))(*kernels))
    handle = pointer()
    status = library().tw_cuda_create(
        driver.encode(), device, ctypes.byref(table), is_synchronous, overlaps, ctypes.byref(handle)
    )
    if status:
        fail(status, package)
    assert handle.value is not None
    return handle.value


def _kernel(kernel: Kernel) -> _Kernel:
    launch = kernel.launch
    if launch is None or launch.image == "emulated":
        raise PackageError(f"kernel `{kernel.name}`: it is no kernel for a GPU; compile the model for `cuda`")
    broken = broken_rule(launch)
    if broken:
        raise PackageError(f"kernel `{kernel.name}`: {broken}")
    image, ptx = bytes(kernel.object), launch.ptx or None
    maps = (_TensorMap * len(launch.tensor_maps))(*(_tensor_map(entry) for entry in launch.tensor_maps))
    return _Kernel(
        image,
        ptx,
        len(image),
        len(launch.ptx),
        kernel.name.encode(),
        kernel.symbol.encode(),
        launch.grid,
        launch.block,
        launch.cluster,
        launch.shared_bytes,
        launch.workspace_bytes,
        launch.zeroed_bytes,
        launch.cooperative,
        len(kernel.asserts),
        launch.overlaps,
        launch.tasks,
        maps,
        len(maps),
    )


def _tensor_map(tensor: TensorMap) -> _TensorMap:
    return _TensorMap(
        tensor.buffer,
        TENSOR_MAP_DTYPES[tensor.dtype].number,
        len(tensor.shape),
        tensor.swizzle_bytes,
        (u64 * 5)(*tensor.shape),
        (u64 * 4)(*tensor.strides_bytes),
        (u32 * 5)(*tensor.box),
        (u32 * 5)(*tensor.steps),
    )


def fail(status: int, package: Package | None = None) -> None:
    """Raises the calling thread's last failure as the error that says whose it is."""
    failure = _Failure()
    library().tw_cuda_last_failure(ctypes.byref(failure))
    message = (failure.message or b"").decode(errors="replace")
    if package is not None and failure.step >= 0:
        message = _with_step(message, failure, package)
    if status == ASSERT:
        late = "; an earlier call's results are undefined" if failure.is_late else ""
        raise KernelAssertError(message + late)
    if status == TABLE:
        raise PackageError(message)
    if status == ARGUMENT:
        raise ArgumentError(message)
    if status == MEMORY:
        raise DeviceMemoryError(message)
    raise DeviceError(message, failure.driver_code in _STICKY)


def _with_step(message: str, failure: _Failure, package: Package) -> str:
    which = "prepack" if failure.is_prepack else "main"
    step = (package.prepack if failure.is_prepack else package.main).steps[failure.step]
    kernel = package.kernels[step.kernel]
    if failure.status:
        known = 0 < failure.status <= len(kernel.asserts)
        message = kernel.asserts[failure.status - 1] if known else f"kernel wrote status {failure.status}"
    dispatch = f", {step.dispatch}" if step.dispatch else ""
    return f"{message} ({which} step {failure.step}, kernel `{kernel.name}`{dispatch})"
