"""A package with its weights bound: runs on raw addresses, or on numpy arrays with checks."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.runtime import arrays, native, settings
from tilewright.runtime.errors import ArgumentError, KernelAssertError, PackageError
from tilewright.runtime.host_calls import HostCalls
from tilewright.runtime.program import Package, Program, TensorSpec


@dataclass(frozen=True)
class StepTime:
    """Time of one step of the main program, over all its rTasks."""

    step: int
    kernel: str
    dispatch: str
    tasks: int
    time_us: float


class Executable(HostCalls):
    """A compiled model ready to run on the CPU.

    `weights` follow `package.weights`; each is a torch tensor, numpy array, DLPack or buffer object, or a
    pair (address, nbytes). They are used in place and kept alive. `prepack` runs now. `num_threads` defaults
    to `settings.num_threads()`. Raises PackageError when package and weights do not hold together.

    Calls from several threads are safe: calls of one executable follow one another, and while one executable
    uses the worker pool another runs on its caller's thread alone.
    """

    def __init__(self, package: Package, weights: Sequence[Any] = (), num_threads: int | None = None):
        super().__init__(package)
        self.num_threads = settings.num_threads() if num_threads is None else num_threads
        if not 1 <= self.num_threads <= settings.MOST_THREADS:
            raise PackageError(f"num_threads: expected 1 to {settings.MOST_THREADS}, found {num_threads}")
        lib = native.library()
        self._handle = native.create(package)
        # Not at exit: a daemon thread may still be running this, and the system takes the memory back anyway.
        weakref.finalize(self, lib.tw_destroy, self._handle).atexit = False
        self._run = lib.tw_run
        self._pointers = ctypes.c_void_p * len(package.inputs), ctypes.c_void_p * len(package.outputs)
        self._storages: tuple[arrays.Storage, ...] = ()
        self.rebind(weights)

    def rebind(self, weights: Sequence[Any]) -> None:
        """Binds other weights of the same specs and runs `prepack` again; raises PackageError."""
        specs = self.package.weights
        if len(weights) != len(specs):
            raise PackageError(f"expected {len(specs)} weights, found {len(weights)}")
        storages = tuple(arrays.weight_storage(weight, spec) for weight, spec in zip(weights, specs))
        addresses = (ctypes.c_void_p * len(storages))(*(storage.address for storage in storages))
        status = native.library().tw_bind(self._handle, addresses, self.num_threads)
        # Bound or not, the library may now hold the new addresses and none of the old ones.
        self._storages = storages
        if status:
            self._fail(status, self.package.prepack, "prepack")

    @property
    def weights(self) -> tuple[Any, ...]:
        """The objects that hold the bound weights' bytes, in the order of `package.weights`."""
        return tuple(storage.owner for storage in self._storages)

    @property
    def weight_storages(self) -> tuple[arrays.Storage, ...]:
        """Address and size of each bound weight."""
        return self._storages

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
        """Bytes of address space that the kernels' code and constants occupy."""
        return native.library().tw_code_bytes(self._handle)

    def run(self, input_pointers: Sequence[int], output_pointers: Sequence[int]) -> None:
        """Runs on dense row-major memory at the given addresses, unchecked; raises KernelAssertError.

        The GIL is released meanwhile. Outputs must not overlap inputs or each other, except that one of `package.updates` may lie
        where its input does.
        """
        inputs, outputs = self._pointers
        if len(input_pointers) != len(self.inputs) or len(output_pointers) != len(self.outputs):
            raise ArgumentError(
                f"expected {len(self.inputs)} inputs and {len(self.outputs)} outputs, "
                f"found {len(input_pointers)} and {len(output_pointers)}"
            )
        status = self._run(
            self._handle, inputs(*input_pointers), outputs(*output_pointers), self.num_threads, None
        )
        if status:
            self._fail(status, self.package.main, "main")

    def profile(self, *inputs: Any, repeats: int = 10) -> list[StepTime]:
        """Median microseconds of every step over `repeats` calls; inputs default to zeros."""
        if repeats < 1:
            raise ArgumentError(f"repeats: expected at least 1, found {repeats}")
        dense = self.example_inputs(inputs)
        results = [self.output(position) for position in range(len(self.outputs))]
        in_type, out_type = self._pointers
        steps = self.package.main.steps
        times = np.zeros((repeats, len(steps)))
        for row in times:
            status = self._run(
                self._handle,
                in_type(*(array.ctypes.data for array in dense)),
                out_type(*(array.ctypes.data for array in results)),
                self.num_threads,
                row.ctypes.data,
            )
            if status:
                self._fail(status, self.package.main, "main")
        kernels = self.package.kernels
        return [
            StepTime(number, kernels[step.kernel].name, step.dispatch, step.tasks, float(time))
            for number, (step, time) in enumerate(zip(steps, np.median(times, axis=0)))
        ]

    def _fail(self, status: int, program: Program, which: str) -> None:
        if status == native.ERROR_MEMORY:
            raise MemoryError(f"{which}: no memory for arena, packed weights or scratch")
        if status == native.ERROR_UNBOUND:
            raise PackageError("no weights are bound: the last prepack failed")
        number, code = (status >> 32) - 1, status & 0xFFFFFFFF
        step = program.steps[number]
        kernel = self.package.kernels[step.kernel]
        known = code <= len(kernel.asserts)
        message = kernel.asserts[code - 1] if known else f"kernel returned status {code}"
        place = f"{which} step {number}, kernel `{kernel.name}`"
        raise KernelAssertError(f"{message} ({place}{f', {step.dispatch}' if step.dispatch else ''})")


def spec_text(spec: TensorSpec) -> str:
    """`name: f32[2, 3]`."""
    return f"{spec.name}: {spec.dtype}{list(spec.shape)}"
