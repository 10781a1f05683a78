"""What the GPU at hand is, and the physical limits that results are read against."""

from __future__ import annotations

from tilewright.bench.device import clock
from tilewright.compiler.targets.target import Target


def describe(target: Target, is_cuda: bool) -> dict:
    """Name, driver, clocks and limits: peaks as published for the board, copy bandwidth as measured now, in GB/s."""
    found: dict = {
        "target": target.name,
        "arch": target.arch,
        "peak_gflops": dict(target.peak_gflops),
        "dram_gbps": target.memory[0].bandwidth_gbps,
    }
    if is_cuda:
        import torch

        properties = torch.cuda.get_device_properties(0)
        found.update(
            name=properties.name,
            memory_gib=round(properties.total_memory / 2**30, 1),
            multiprocessors=properties.multi_processor_count,
            driver=_driver(),
            cuda=torch.version.cuda,
            copy_gbps=round(copy_gbps(), 1),
        )
    return found


def copy_gbps(nbytes: int = 1 << 30) -> float:
    """Bytes read and written per nanosecond by PyTorch's copy of one GiB."""
    import torch

    source = torch.empty(nbytes // 4, dtype=torch.float32, device="cuda").normal_()
    copied = torch.empty_like(source)
    times = clock.device_rounds({"copy": lambda: copied.copy_(source)})["copy"]
    return 2 * nbytes / min(times) / 1e3


def bound_us(record: dict, device: dict) -> tuple[float, str]:
    """The least time that a case's work can take on the device, and what sets it; 0 where nothing is known."""
    peaks = device["peak_gflops"]
    peak = peaks.get(record["dtype"], peaks.get("f32", 0.0))
    compute = record["flops"] / peak / 1e3 if peak else 0.0
    bandwidth = device.get("copy_gbps") or device["dram_gbps"]
    memory = record["bytes"] / bandwidth / 1e3
    return (compute, f"{record['dtype']} peak") if compute >= memory else (memory, "DRAM")


def _driver() -> str:
    import subprocess

    try:
        asked = [
            "nvidia-smi",
            "--query-gpu=driver_version,clocks.max.sm,power.limit",
            "--format=csv,noheader",
        ]
        return (
            subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()[0]
        )
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"
