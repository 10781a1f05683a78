"""Packages bound to the machine that runs them: a CPU, a GPU, the emulator, or none that is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tilewright.runtime import arrays
from tilewright.runtime.errors import DeviceError, PackageError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Package


def bind(
    package: Package,
    weights: Sequence[Any] = (),
    num_threads: int | None = None,
    device: Any = None,
    cuda_graph: bool | str | None = None,
    needs_device: bool = False,
) -> Any:
    """What runs `package` with `weights` bound: an object with the interface of `Executable`.

    `device` is the GPU for a package of GPU kernels: a number, `cuda:1`, or a torch device; `cuda_graph` as in
    `CudaExecutable`. On a machine without a GPU that runs it, such a package becomes an `AbsentDevice`, which can
    be saved but not run, or raises DeviceError or PackageError when it `needs_device`. Raises PackageError when
    package and weights do not hold together.
    """
    images = {kernel.launch.image if kernel.launch else "" for kernel in package.kernels}
    is_cuda = images <= {"cubin", "ptx"} and (bool(images) or package.target.startswith("cuda:"))
    if device is not None and not is_cuda:
        raise PackageError(
            f"compiled for `{package.target}`, which runs on no GPU; leave out device={device!r}"
        )
    if is_cuda:
        return _bind_to_gpu(package, weights, device, cuda_graph, needs_device)
    if not images or images == {""}:
        return Executable(package, weights, num_threads)
    if images == {"emulated"}:
        from tilewright.runtime.emulated import EmulatedExecutable

        return EmulatedExecutable(package, weights)
    raise PackageError(f"kernels of one package run on one kind of machine, found images {sorted(images)}")


def _bind_to_gpu(
    package: Package, weights: Sequence[Any], device: Any, cuda_graph: bool | str | None, needs_device: bool
) -> Any:
    from tilewright.runtime import cuda

    index = cuda.default_index(weights) if device is None else cuda.index_of(device)
    try:
        reason = cuda.misfit(package, cuda.device(index))
    except DeviceError as error:
        if needs_device:
            raise
        reason = str(error)
    if reason is None:
        return cuda.CudaExecutable(package, weights, index, cuda_graph)
    if needs_device:
        raise PackageError(reason)
    return AbsentDevice(package, weights, reason)


class AbsentDevice:
    """A package for a GPU that this machine does not have: keeps the weights for `save`, and refuses to run."""

    def __init__(self, package: Package, weights: Sequence[Any] = (), reason: str = ""):
        self.package, self.reason = package, reason
        self.inputs, self.outputs = package.inputs, package.outputs
        self.rebind(weights)

    def rebind(self, weights: Sequence[Any]) -> None:
        """Keeps other weights of the same specs; raises PackageError."""
        specs = self.package.weights
        if len(weights) != len(specs):
            raise PackageError(f"expected {len(specs)} weights, found {len(weights)}")
        self.weight_storages = tuple(
            arrays.weight_storage(weight.cpu() if getattr(weight, "is_cuda", False) else weight, spec)
            for weight, spec in zip(weights, specs)
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

    def run(self, *_: Any, **__: Any) -> NoReturn:
        """Raises PackageError: there is no device."""
        raise PackageError(
            f"compiled for `{self.package.target}`, which does not run here: {self.reason}; save the model and load "
            "it where it does, or compile for `emulate:` and the architecture"
        )

    @property
    def pool(self) -> Any:
        """Raises as `run` does: without a device there are no outputs."""
        self.run()

    __call__ = output = profile = run
