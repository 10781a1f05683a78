"""NVIDIA GPUs: which there are, and packages bound to one."""

from __future__ import annotations

from tilewright.runtime.cuda_devices import (
    Device,
    default_index,
    device,
    devices,
    index_of,
    misfit,
    require_devices,
    runs,
)
from tilewright.runtime.cuda_executable import CudaExecutable, DeviceArray

__all__ = [
    "CudaExecutable",
    "Device",
    "DeviceArray",
    "default_index",
    "device",
    "devices",
    "index_of",
    "misfit",
    "require_devices",
    "runs",
]
