"""The runtime's environment variables, read here and nowhere else.

- `TILEWRIGHT_NUM_THREADS`: threads of a run, the calling thread included; default: one per physical core that
  this process may use.
- `TILEWRIGHT_OUTPUT_POOL_MB`: mebibytes of freed output memory that each model keeps for reuse; default 256,
  and at least the outputs of one call; 0 keeps none.
- `TILEWRIGHT_CUDA_GRAPH`: whether models on a GPU run through a CUDA graph: `0`, `1` or `auto`, the default.
- `TILEWRIGHT_CUDA_OVERLAP`: `0` starts no kernel on a GPU before the one before it has ended; default 1.
- `TILEWRIGHT_CUDA_SYNC`: `1` waits for every kernel on a GPU, so that a fault names the one that made it; default 0.
- `TILEWRIGHT_CUDA_LIBRARY`: the NVIDIA driver's library; default `libcuda.so.1`.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

from tilewright.runtime.errors import SettingError

MOST_THREADS = 1024
_CUDA_GRAPH: dict[str, bool | str] = {"0": False, "1": True, "auto": "auto"}


def num_threads() -> int:
    """Threads of a run unless the caller asks for another number; raises SettingError for a bad variable."""
    text = os.environ.get("TILEWRIGHT_NUM_THREADS")
    if text is None:
        return physical_cores()
    return _integer("TILEWRIGHT_NUM_THREADS", text, 1, MOST_THREADS)


def output_pool_bytes() -> int:
    """Bytes of freed output memory that a pool keeps; raises SettingError for a bad variable."""
    text = os.environ.get("TILEWRIGHT_OUTPUT_POOL_MB", "256")
    return _integer("TILEWRIGHT_OUTPUT_POOL_MB", text, 0, 1 << 20) << 20


def cuda_graph() -> bool | str:
    """Whether models go through CUDA graphs unless the caller says; raises SettingError for a bad variable."""
    text = os.environ.get("TILEWRIGHT_CUDA_GRAPH", "auto").strip()
    if text not in _CUDA_GRAPH:
        raise SettingError(f"TILEWRIGHT_CUDA_GRAPH: expected 0, 1 or auto, found `{text}`")
    return _CUDA_GRAPH[text]


def cuda_synchronous() -> bool:
    """Whether every kernel is waited for; raises SettingError for a bad variable."""
    return bool(_integer("TILEWRIGHT_CUDA_SYNC", os.environ.get("TILEWRIGHT_CUDA_SYNC", "0"), 0, 1))


def cuda_overlap() -> bool:
    """Whether kernels may start before the one before has ended; raises SettingError for a bad variable."""
    return bool(_integer("TILEWRIGHT_CUDA_OVERLAP", os.environ.get("TILEWRIGHT_CUDA_OVERLAP", "1"), 0, 1))


def cuda_library() -> str:
    """The name or path that the NVIDIA driver's library is loaded by."""
    return os.environ.get("TILEWRIGHT_CUDA_LIBRARY") or "libcuda.so.1"


def _integer(name: str, text: str, least: int, most: int) -> int:
    if text.strip().isdecimal() and least <= int(text) <= most:
        return int(text)
    raise SettingError(f"{name}: expected an integer from {least} to {most}, found `{text}`")


@cache
def physical_cores() -> int:
    """Physical cores in this process's affinity mask, at most its control group's CPU quota, at least 1."""
    cores = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.exists() else str(cpu))
    return max(1, math.ceil(min(len(cores), _cpu_quota(), MOST_THREADS)))


def _cpu_quota() -> float:
    """CPUs that the control group grants, or infinity."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(quota) / int(period) if quota != "max" else math.inf
    except (OSError, ValueError):  # no control group v2, or one without a CPU controller
        return math.inf
