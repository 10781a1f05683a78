"""Packages bound to the machine that runs them: a CPU, a GPU, the emulator, or none that is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tilewright.runtime import arrays
from tilewright.runtime.errors import PackageError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Package


def bind(package: Package, weights: Sequence[Any] = (), num_threads: int | None = None) -> Any:
    """What runs `package` with `weights` bound: an object with the interface of `Executable`.

    A package of GPU kernels on a machine without a GPU becomes an `AbsentDevice`, which can be saved but not
    run. Raises PackageError when package and weights do not hold together.
    """
    images = {kernel.launch.image if kernel.launch else "" for kernel in package.kernels}
    if not images or images == {""}:
        return Executable(package, weights, num_threads)
    if images == {"emulated"}:
        from tilewright.runtime.emulated import EmulatedExecutable

        return EmulatedExecutable(package, weights)
    if images <= {"cubin", "ptx"}:
        from tilewright.runtime import cuda

        return cuda.CudaExecutable(package, weights) if cuda.devices() else AbsentDevice(package, weights)
    raise PackageError(f"kernels of one package run on one kind of machine, found images {sorted(images)}")


class AbsentDevice:
    """A package for a GPU that this machine does not have: keeps the weights for `save`, and refuses to run."""

    def __init__(self, package: Package, weights: Sequence[Any] = ()):
        if len(weights) != len(package.weights):
            raise PackageError(f"expected {len(package.weights)} weights, found {len(weights)}")
        self.package = package
        self.inputs, self.outputs = package.inputs, package.outputs
        self.weight_storages = tuple(
            arrays.weight_storage(weight, spec) for weight, spec in zip(weights, package.weights)
        )

    @property
    def weights(self) -> tuple[Any, ...]:
        """The objects that hold the weights' bytes, in the order of `package.weights`."""
        return tuple(storage.owner for storage in self.weight_storages)

    @property
    def arena_bytes(self) -> int:
        return self.package.main.arena_bytes

    @property
    def packed_bytes(self) -> int:
        return self.package.packed_bytes

    def run(self, *_: Any) -> NoReturn:
        """Raises PackageError: there is no device."""
        raise PackageError(
            f"compiled for `{self.package.target}`, and this machine has no NVIDIA GPU whose driver answers; "
            "save the model and load it where there is one, or compile for `emulate:` and the architecture"
        )

    __call__ = output = profile = rebind = run
