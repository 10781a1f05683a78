"""A package of emulated GPU kernels with its weights bound: runs in host memory, one step after the other, checked."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.runtime import arrays, settings
from tilewright.runtime.emulated_kernel import EmulatedKernel, Memory
from tilewright.runtime.errors import ArgumentError, EmulationError, KernelAssertError, PackageError
from tilewright.runtime.executable import StepTime
from tilewright.runtime.host_calls import HostCalls
from tilewright.runtime.program import BufferRef, Package, Program, Step

ALIGNMENT_BYTES = 256
"""How far a GPU's allocations are aligned. Source: CUDA C++ programming guide, "Device memory accesses"."""
CALLER_ALIGNMENT_BYTES = 16
"""Alignment that kernels rely on of addresses that a caller gives: their widest access."""


class EmulatedExecutable(HostCalls):
    """A compiled model on an emulated GPU; the interface of `Executable`, and `seed` and `is_checked`.

    `seed` orders the threads of every launch (0 is in order of their ids), `is_checked` finds what a GPU does not allow
    and what may go wrong there; both may be set between calls. A launch that misbehaves raises EmulationError, which
    names the kernel, block, thread and source operation. Unchecked launches use `num_threads` threads of the CPU.

    Raises PackageError when package and weights do not hold together, or on a machine that is no x86-64.
    """

    def __init__(
        self,
        package: Package,
        weights: Sequence[Any] = (),
        seed: int = 0,
        checked: bool = True,
        num_threads: int | None = None,
    ):
        super().__init__(package)
        self.seed, self.is_checked = seed, checked
        self.num_threads = settings.num_threads() if num_threads is None else num_threads
        self._kernels = []
        for kernel in package.kernels:
            if kernel.launch is None or kernel.launch.image != "emulated":
                raise PackageError(f"kernel `{kernel.name}` is not for the emulator; compile for `emulate:`")
            self._kernels.append(EmulatedKernel(kernel.name, kernel.object, kernel.launch))
        self._workspaces = [self._workspace(kernel) for kernel in self._kernels]
        self._blocks = {
            "packed": aligned_bytes(package.packed_bytes),
            "arena": aligned_bytes(package.main.arena_bytes),
        }
        self._constants = [aligned_bytes(len(constant.data)) for constant in package.constants]
        for block, constant in zip(self._constants, package.constants):
            block[:] = np.frombuffer(constant.data, np.uint8)
        self._storages: tuple[arrays.Storage, ...] = ()
        self._held: list[np.ndarray] = []
        self.rebind(weights)

    @staticmethod
    def _workspace(kernel: EmulatedKernel) -> np.ndarray:
        made = aligned_bytes(kernel.launch.workspace_bytes)
        made[: kernel.launch.zeroed_bytes] = 0
        return made

    def rebind(self, weights: Sequence[Any]) -> None:
        """Binds other weights of the same specs and runs `prepack` again; raises PackageError, EmulationError."""
        specs = self.package.weights
        if len(weights) != len(specs):
            raise PackageError(f"expected {len(specs)} weights, found {len(weights)}")
        self._storages = tuple(arrays.weight_storage(weight, spec) for weight, spec in zip(weights, specs))
        held = [self._placed(storage.address, storage.nbytes) for storage in self._storages]
        self._weights = [
            Memory(address, storage.nbytes) for (address, _), storage in zip(held, self._storages)
        ]
        self._held = [copy for _, copy in held if copy is not None]
        arena = aligned_bytes(self.package.prepack.arena_bytes)
        self._execute(self.package.prepack, "prepack", {"arena": [arena]})

    @staticmethod
    def _placed(address: int, nbytes: int) -> tuple[int, np.ndarray | None]:
        """Where bytes are, or a copy of them, so that they are aligned as kernels expect."""
        if address % CALLER_ALIGNMENT_BYTES == 0:
            return address, None
        copy = aligned_bytes(nbytes)
        ctypes.memmove(copy.ctypes.data, address, nbytes)
        return copy.ctypes.data, copy

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
        """Bytes of the kernels' code as it is stored."""
        return sum(len(kernel.object) for kernel in self.package.kernels)

    def run(self, input_pointers: Sequence[int], output_pointers: Sequence[int]) -> None:
        """Runs on dense row-major memory at the given addresses; raises EmulationError, KernelAssertError."""
        self._run(input_pointers, output_pointers, None)

    def profile(self, *inputs: Any, repeats: int = 1) -> list[StepTime]:
        """Median microseconds of every step over `repeats` calls: what the emulation takes, not a GPU."""
        if repeats < 1:
            raise ArgumentError(f"repeats: expected at least 1, found {repeats}")
        dense = self.example_inputs(inputs)
        results = [self.output(position) for position in range(len(self.outputs))]
        steps = self.package.main.steps
        times: list[list[float]] = [[] for _ in steps]
        addresses = [a.ctypes.data for a in dense], [a.ctypes.data for a in results]
        for _ in range(repeats):
            self._run(*addresses, lambda number, us: times[number].append(us))
        kernels = self.package.kernels
        return [
            StepTime(
                number, kernels[step.kernel].name, step.dispatch, step.tasks, float(np.median(times[number]))
            )
            for number, step in enumerate(steps)
        ]

    def _run(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        on_step: Callable[[int, float], None] | None,
    ) -> None:
        if len(inputs) != len(self.inputs) or len(outputs) != len(self.outputs):
            raise ArgumentError(
                f"expected {len(self.inputs)} inputs and {len(self.outputs)} outputs, "
                f"found {len(inputs)} and {len(outputs)}"
            )
        placed = [self._placed(address, spec.nbytes) for address, spec in zip(inputs, self.inputs)]
        results = [self._placed(address, spec.nbytes) for address, spec in zip(outputs, self.outputs)]
        spaces = {
            "input": [Memory(address, spec.nbytes) for (address, _), spec in zip(placed, self.inputs)],
            "output": [Memory(address, spec.nbytes) for (address, _), spec in zip(results, self.outputs)],
        }
        self._execute(self.package.main, "main", spaces, on_step)
        for (_, copy), address in zip(results, outputs):
            if copy is not None:
                ctypes.memmove(address, copy.ctypes.data, copy.nbytes)

    def _execute(
        self,
        program: Program,
        which: str,
        more: dict[str, list[Any]],
        on_step: Callable[[int, float], None] | None = None,
    ) -> None:
        spaces = {
            "weight": self._weights,
            "constant": self._constants,
            **{name: [block] for name, block in self._blocks.items()},
            **more,
        }
        for number, step in enumerate(program.steps):
            began = time.perf_counter_ns()
            self._launch(
                step, [_memory(spaces, ref, step, which) for ref in step.buffers], f"{which} step {number}"
            )
            if on_step:
                on_step(number, (time.perf_counter_ns() - began) / 1e3)

    def _launch(self, step: Step, memory: list[Memory], place: str) -> None:
        kernel, launch = self._kernels[step.kernel], self._kernels[step.kernel].launch
        if launch.grid == 0:
            return
        workspace, status = self._workspaces[step.kernel], np.zeros(1, np.int32)
        if launch.workspace_bytes:
            memory.append(Memory(workspace.ctypes.data, workspace.nbytes))
        asserts = self.package.kernels[step.kernel].asserts
        if asserts:
            memory.append(Memory(status.ctypes.data, status.nbytes))
        kernel.run(memory, seed=self.seed, checked=self.is_checked, workers=self.num_threads)
        if workspace[: launch.zeroed_bytes].any():
            raise EmulationError(
                f"kernel `{kernel.name}`: the first {launch.zeroed_bytes} B of its workspace must be zero after a "
                f"launch, found others ({place})"
            )
        if status[0]:
            failed = int(status[0])
            message = asserts[failed - 1] if failed <= len(asserts) else f"kernel reported status {failed}"
            raise KernelAssertError(f"{message} ({place}, kernel `{kernel.name}`, {step.dispatch})")


def aligned_bytes(nbytes: int) -> np.ndarray:
    """Bytes that start where a GPU's allocator would start them: all ones, a NaN in every floating-point format."""
    raw = np.full(nbytes + ALIGNMENT_BYTES, 0xFF, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[offset : offset + nbytes]


def _memory(spaces: dict[str, list[Any]], ref: BufferRef, step: Step, which: str) -> Memory:
    """The part of a space from a reference on."""
    entries = spaces.get(ref.space, [])
    if ref.index >= len(entries):
        raise PackageError(f"{which}: `{step.dispatch}` uses {ref.space} {ref.index} of {len(entries)}")
    block = entries[ref.index]
    whole = block if isinstance(block, Memory) else Memory(block.ctypes.data, block.nbytes)
    if not 0 <= ref.offset <= whole.nbytes:
        raise PackageError(
            f"{which}: `{step.dispatch}` uses offset {ref.offset} of {whole.nbytes} B of {ref.space} {ref.index}"
        )
    return Memory(whole.address + ref.offset, whole.nbytes - ref.offset)
