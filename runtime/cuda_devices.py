"""The NVIDIA GPUs that the driver of this machine has, and which code they run."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.runtime import cuda_native, settings
from tilewright.runtime.errors import DeviceError
from tilewright.runtime.program import Package

_MOST_DEVICES = 64
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")


@dataclass(frozen=True)
class Device:
    """A GPU as its driver describes it; `driver_version` is the CUDA that the driver is made for."""

    index: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    shared_bytes: int
    driver_version: tuple[int, int]

    @property
    def arch(self) -> str:
        """The architecture to compile for: `sm_80`, or `sm_90a` where a generation has instructions of its own."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name} (cuda:{self.index}, compute capability {major}.{minor})"


def devices() -> tuple[Device, ...]:
    """All devices, in the driver's order; none where there is no driver, or one that has or answers for none."""
    try:
        return require_devices()
    except DeviceError:
        return ()


def require_devices() -> tuple[Device, ...]:
    """All devices; raises DeviceError that says why there are none."""
    library = settings.cuda_library()
    found, count = (cuda_native.DeviceData * _MOST_DEVICES)(), ctypes.c_int32()
    status = cuda_native.library().tw_cuda_devices(
        library.encode(), found, _MOST_DEVICES, ctypes.byref(count)
    )
    if status:
        cuda_native.fail(status)
    if not count.value:
        raise DeviceError(
            f"the driver in {library} has no NVIDIA GPU; is one hidden by CUDA_VISIBLE_DEVICES?"
        )
    return tuple(
        Device(
            index,
            data.name.decode(errors="replace"),
            (data.major, data.minor),
            data.multiprocessors,
            data.memory_bytes,
            data.shared_bytes,
            (data.driver_version // 1000, data.driver_version % 1000 // 10),
        )
        for index, data in enumerate(found[: min(count.value, _MOST_DEVICES)])
    )


def device(index: int) -> Device:
    """Device number `index`; raises DeviceError with those that there are."""
    found = require_devices()
    if not 0 <= index < len(found):
        raise DeviceError(f"there is no device cuda:{index}; there are {', '.join(map(str, found))}")
    return found[index]


def index_of(device: Any) -> int:
    """The number of a device: `1`, `cuda:1`, `cuda` (the first), or a torch device; raises DeviceError."""
    text = str(device).strip()
    kind, _, number = text.partition(":")
    if text.isdecimal():
        return int(text)
    if kind == "cuda" and (number or "0").isdecimal():
        return int(number or 0)
    raise DeviceError(f"device: expected a number, `cuda` or `cuda:1`, found {device!r}")


def default_index(weights: Sequence[Any]) -> int:
    """The device of the first weight that lies on one, else 0."""
    return next((w.device.index or 0 for w in weights if getattr(w, "is_cuda", False)), 0)


def misfit(package: Package, device: Device) -> str | None:
    """Why a device cannot run a package: what is needed and what was found; None when it can."""
    arch = next(filter(None, map(_ARCH.search, (*package.features, package.target))), None)
    if arch is None:
        return f"compiled for `{package.target}`, which is no NVIDIA GPU; {device} runs `cuda:{device.arch}`"
    has_ptx = all(k.launch and (k.launch.image == "ptx" or k.launch.ptx) for k in package.kernels)
    return runs(arch[0], has_ptx, device)


def runs(arch: str, has_ptx: bool, device: Device) -> str | None:
    """Why a device cannot run code for `sm_90a` or the like; None when it can.

    Machine code runs on its own generation from its minor version on, PTX on every later device too; architectures
    whose names end in `a` run on exactly one. Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX
    Compatibility", "Architecture-Specific Features".
    """
    parts = _ARCH.fullmatch(arch)
    if parts is None:
        return (
            f"compiled for {arch}, which is no architecture of NVIDIA's; {device} runs `cuda:{device.arch}`"
        )
    needed, suffix = (int(parts[1]), int(parts[2])), parts[3]
    if suffix == "a":
        fits, rule = device.capability == needed, "exactly"
    elif suffix == "f" or not has_ptx:
        fits, rule = (
            device.capability[0] == needed[0] and device.capability >= needed,
            "this generation, from",
        )
    else:
        fits, rule = device.capability >= needed, "at least"
    if fits:
        return None
    return (
        f"compiled for {arch}, which needs compute capability {needed[0]}.{needed[1]} ({rule} that), found "
        f"{device}; compile the model for `cuda:{device.arch}`"
    )
