"""NVIDIA GPUs: which there are, and packages bound to one."""

from __future__ import annotations

from tilewright.runtime.cuda_devices import Device, device, devices, misfit, require_devices
from tilewright.runtime.cuda_executable import CudaExecutable, DeviceArray

__all__ = ["CudaExecutable", "Device", "DeviceArray", "device", "devices", "misfit", "require_devices"]
