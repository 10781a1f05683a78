"""What a result must say of where it was taken: processor, memory, load, versions of all that is timed."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "tilewright", "torch", "torch-mlir", "llvmlite", "numpy", "onnx", "onnxruntime", "openvino",
    "iree-base-compiler", "apache-tvm",
)  # fmt: skip


def machine() -> dict:
    """Processor name, usable CPUs, memory in GiB, system and the load before the run."""
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*:\s*(.+)", cpuinfo)
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text()) if cpuinfo else None
    return {
        "processor": name[1] if name else platform.processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None,
        "system": platform.platform(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that matter, those that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
