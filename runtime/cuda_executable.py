"""A package with its weights bound on an NVIDIA GPU: runs on device addresses, or on numpy arrays through copies."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.runtime import arrays, cuda_native, settings
from tilewright.runtime.cuda_devices import default_index, device, misfit
from tilewright.runtime.errors import ArgumentError, PackageError
from tilewright.runtime.executable import StepTime
from tilewright.runtime.host_calls import HostCalls
from tilewright.runtime.program import Package, TensorSpec

CALLER_ALIGNMENT_BYTES = 16
"""Alignment that kernels rely on of addresses that a caller gives: their widest load."""

GRAPHS = (True, False, "auto")


@dataclass(frozen=True)
class _OnDevice:
    """A weight that lies on the device already, used in place."""

    address: int
    owner: Any


class CudaExecutable(HostCalls):
    """A compiled model ready to run on device number `device_index`; the interface of `Executable`, and `launch`.

    `weights` follow `package.weights`. Torch tensors on the device are used in place, everything that `Executable`
    takes is copied there, and `prepack` runs there now. `device_index` defaults to the device of the first weight
    that is on one, else 0. `cuda_graph` says whether calls go through a CUDA graph: True, False, or "auto" for
    models of several steps from their third call on. Raises DeviceError without a driver, a device or memory, and
    PackageError when package, weights and device do not hold together.

    Calls from several threads are safe. They follow one another, on the device too, whatever their streams. A
    run-time check that fails on the device is seen by the next call, by `synchronize`, and by every call on numpy
    arrays before it returns.
    """

    def __init__(
        self,
        package: Package,
        weights: Sequence[Any] = (),
        device_index: int | None = None,
        cuda_graph: bool | str | None = None,
    ):
        super().__init__(package)
        self.cuda_graph = settings.cuda_graph() if cuda_graph is None else cuda_graph
        if self.cuda_graph not in GRAPHS:
            raise PackageError(f"cuda_graph: expected True, False or 'auto', found {cuda_graph!r}")
        if device_index is None:
            device_index = default_index(weights)
        self.device = device(device_index)
        reason = misfit(package, self.device)
        if reason:
            raise PackageError(reason)
        lib = cuda_native.library()
        self._handle = cuda_native.create(
            package,
            settings.cuda_library(),
            device_index,
            settings.cuda_synchronous(),
            settings.cuda_overlap(),
        )
        # Not at exit: the driver is taken down first, and the system takes the memory back anyway.
        weakref.finalize(self, lib.tw_cuda_destroy, self._handle).atexit = False
        self._lib = lib
        self._pointers = ctypes.c_void_p * len(package.inputs), ctypes.c_void_p * len(package.outputs)
        self._weights: tuple[arrays.Storage | _OnDevice, ...] = ()
        self.rebind(weights)

    def rebind(self, weights: Sequence[Any]) -> None:
        """Binds other weights of the same specs and runs `prepack` again; raises PackageError, DeviceError."""
        specs = self.package.weights
        if len(weights) != len(specs):
            raise PackageError(f"expected {len(specs)} weights, found {len(weights)}")
        placed = tuple(self._placed(weight, spec) for weight, spec in zip(weights, specs))
        rows = (cuda_native.Weight * len(placed))(
            *((place.address, isinstance(place, _OnDevice)) for place in placed)
        )
        stream, has_stream = 0, any(isinstance(place, _OnDevice) for place in placed)
        if has_stream:  # whatever torch still does to them comes first
            from tilewright.runtime.torch_cuda_calls import current_stream

            stream = current_stream(self.device.index)
        status = self._lib.tw_cuda_bind(self._handle, rows, stream, has_stream)
        # Bound or not, the library may now hold the new addresses and none of the old ones.
        self._weights = placed
        if status:
            cuda_native.fail(status, self.package)

    def _placed(self, weight: Any, spec: TensorSpec) -> arrays.Storage | _OnDevice:
        if not getattr(weight, "is_cuda", False):
            return arrays.weight_storage(weight, spec)
        who = f"weight `{spec.name}` ({spec.dtype}{list(spec.shape)})"
        if (weight.device.index or 0) != self.device.index:
            raise PackageError(
                f"{who}: it lies on {weight.device}, the model runs on cuda:{self.device.index}; move one of them"
            )
        found = str(weight.dtype).removeprefix("torch.")
        if not arrays.is_stored_as(spec.dtype, found) or tuple(weight.shape) != tuple(spec.shape):
            raise PackageError(f"{who}: found {found}{list(weight.shape)}")
        # An alias: `module.double()` and the like give a parameter other memory and would let this go.
        held = weight.detach()
        if not held.is_contiguous() or held.is_conj() or held.is_neg():
            held = held.resolve_conj().resolve_neg().contiguous()
        if held.data_ptr() % CALLER_ALIGNMENT_BYTES:
            held = held.clone()
        return _OnDevice(held.data_ptr(), held)

    @property
    def weights(self) -> tuple[Any, ...]:
        """The objects that hold the bound weights' bytes, in the order of `package.weights`."""
        return tuple(place.owner for place in self._weights)

    @property
    def weight_storages(self) -> tuple[arrays.Storage, ...]:
        """Address and size of each bound weight in host memory; those on the device are copied, each tensor once."""
        copies: dict[int, Any] = {}
        found = []
        for place, spec in zip(self._weights, self.package.weights):
            if isinstance(place, _OnDevice):
                if place.address not in copies or not spec.nbytes:
                    copies[place.address] = place.owner.cpu()
                found.append(arrays.weight_storage(copies[place.address].reshape(spec.shape), spec))
            else:
                found.append(place)
        return tuple(found)

    @property
    def arena_bytes(self) -> int:
        """Peak bytes of intermediate tensors during a call."""
        return self.package.main.arena_bytes

    @property
    def packed_bytes(self) -> int:
        """Bytes of weights in packed form, filled by `prepack`."""
        return self.package.packed_bytes

    @property
    def code_bytes(self) -> int:
        """Bytes of the kernels' code as it is stored."""
        return sum(len(kernel.object) for kernel in self.package.kernels)

    def run(self, input_pointers: Sequence[int], output_pointers: Sequence[int]) -> None:
        """Runs on dense row-major host memory at the given addresses, copied there and back; waits for the end.

        The GIL is released meanwhile. Raises KernelAssertError, DeviceError.
        """
        inputs, outputs = self._addresses(input_pointers, output_pointers)
        status = self._lib.tw_cuda_run_host(self._handle, inputs, outputs, self._graph_mode)
        if status:
            cuda_native.fail(status, self.package)

    def launch(self, input_pointers: Sequence[int], output_pointers: Sequence[int], stream: int = 0) -> None:
        """Launches on dense row-major device memory at the given addresses, on a stream, and returns at once.

        `stream` is a CUstream or cudaStream_t as an integer, 0 the default stream. Addresses are multiples of 16 B.
        Outputs must not overlap inputs or each other. A failed check of an earlier call is raised here as
        KernelAssertError, and nothing is launched.
        """
        inputs, outputs = self._addresses(input_pointers, output_pointers)
        status = self._lib.tw_cuda_run(self._handle, inputs, outputs, stream, self._graph_mode)
        if status:
            cuda_native.fail(status, self.package)

    def synchronize(self) -> None:
        """Waits for all calls so far; raises KernelAssertError when a run-time check failed in one."""
        status = self._lib.tw_cuda_synchronize(self._handle)
        if status:
            cuda_native.fail(status, self.package)

    def profile(self, *inputs: Any, repeats: int = 10) -> list[StepTime]:
        """Median microseconds of every step over `repeats` calls, by the device's clock; inputs default to zeros."""
        if repeats < 1:
            raise ArgumentError(f"repeats: expected at least 1, found {repeats}")
        dense = self.example_inputs(inputs)
        steps = self.package.main.steps
        times = np.zeros((repeats, len(steps)))
        pointers = self._pointers[0](*(array.ctypes.data for array in dense))
        status = self._lib.tw_cuda_profile(self._handle, pointers, repeats, times.ctypes.data)
        if status:
            cuda_native.fail(status, self.package)
        kernels = self.package.kernels
        return [
            StepTime(number, kernels[step.kernel].name, step.dispatch, step.tasks, float(time))
            for number, (step, time) in enumerate(zip(steps, np.median(times, axis=0)))
        ]

    def time(
        self, input_sets: Sequence[Sequence[int]], output_pointers: Sequence[int], launches: int, rounds: int
    ) -> list[float]:
        """Microseconds of one launch, per round of `launches` in a row, over sets of input addresses in turn."""
        flat = [address for addresses in input_sets for address in addresses]
        if any(len(addresses) != len(self.inputs) for addresses in input_sets):
            raise ArgumentError(f"expected sets of {len(self.inputs)} inputs")
        outputs = self._pointers[1](*output_pointers)
        times = np.zeros(rounds)
        status = self._lib.tw_cuda_time(
            self._handle,
            (ctypes.c_void_p * len(flat))(*flat),
            len(input_sets),
            outputs,
            launches,
            rounds,
            times.ctypes.data,
        )
        if status:
            cuda_native.fail(status, self.package)
        return times.tolist()

    def resources(self) -> list[dict[str, Any]]:
        """What the driver says of every kernel: registers and local bytes of a thread, static shared bytes of a block."""
        found = []
        for number, kernel in enumerate(self.package.kernels):
            data = cuda_native.Resources()
            status = self._lib.tw_cuda_kernel_resources(self._handle, number, ctypes.byref(data))
            if status:
                cuda_native.fail(status, self.package)
            found.append(
                {
                    "kernel": kernel.name,
                    "registers": data.registers,
                    "local_bytes": data.local_bytes,
                    "shared_bytes": data.shared_bytes,
                    "from_ptx": bool(data.is_from_ptx)
                    or (kernel.launch is not None and kernel.launch.image == "ptx"),
                }
            )
        return found

    @property
    def graph_error(self) -> str:
        """Why calls at `cuda_graph="auto"` go through no graph although it would pay; empty when nothing went wrong."""
        return self._lib.tw_cuda_graph_error(self._handle).decode(errors="replace")

    @property
    def overlap_error(self) -> str:
        """Why kernels that could start before the one before them has ended do not; empty when nothing went wrong."""
        return self._lib.tw_cuda_overlap_error(self._handle).decode(errors="replace")

    @property
    def _graph_mode(self) -> int:
        return cuda_native.GRAPH_MODES[self.cuda_graph]

    def _addresses(self, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[Any, Any]:
        if len(inputs) != len(self.inputs) or len(outputs) != len(self.outputs):
            raise ArgumentError(
                f"expected {len(self.inputs)} inputs and {len(self.outputs)} outputs, "
                f"found {len(inputs)} and {len(outputs)}"
            )
        return self._pointers[0](*inputs), self._pointers[1](*outputs)


class DeviceArray:
    """A dense array on a device, for callers without a library that has some; `address` is what `launch` takes."""

    def __init__(self, nbytes: int, device_index: int = 0):
        lib = cuda_native.library()
        handle, address = ctypes.c_void_p(), ctypes.c_uint64()
        status = lib.tw_cuda_memory_new(
            settings.cuda_library().encode(),
            device_index,
            nbytes,
            ctypes.byref(handle),
            ctypes.byref(address),
        )
        if status:
            cuda_native.fail(status)
        self._handle, self._lib = handle.value, lib
        weakref.finalize(self, lib.tw_cuda_memory_delete, handle.value).atexit = False
        self.address: int = address.value
        self.nbytes = nbytes

    def write(self, array: np.ndarray) -> None:
        """Copies an array's bytes to the start of the memory."""
        dense = np.ascontiguousarray(array)
        self._copy(dense, True)

    def read(self) -> np.ndarray:
        """All bytes of the memory."""
        found = np.empty(self.nbytes, np.uint8)
        self._copy(found, False)
        return found

    def _copy(self, array: np.ndarray, is_to_device: bool) -> None:
        if array.nbytes > self.nbytes:
            raise ArgumentError(f"{array.nbytes} B do not fit into {self.nbytes} B of device memory")
        status = self._lib.tw_cuda_memory_copy(self._handle, array.ctypes.data, array.nbytes, is_to_device)
        if status:
            cuda_native.fail(status)
