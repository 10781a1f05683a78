"""Which GPU of this machine measures kernels for a target, and what its records are kept under."""

from __future__ import annotations

from tilewright.compiler.targets.target import Target
from tilewright.runtime.errors import DeviceError


def measuring_gpu(target: Target) -> tuple[str, int]:
    """Name, with that of its driver, and index of the first GPU here that runs a target's code; raises DeviceError."""
    from tilewright.runtime import cuda

    if target.emulated:
        raise DeviceError("the emulator's times are not a GPU's")
    for device in cuda.devices():
        if cuda.runs(target.arch, True, device) is None:
            version = ".".join(map(str, device.driver_version))
            return f"{device.name}, driver for CUDA {version}", device.index
    raise DeviceError(f"no GPU here runs {target.arch}")
