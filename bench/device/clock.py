"""Times calls in interleaved rounds: on a GPU by events with its L2 cache emptied before each call, or by the host."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Calls = Mapping[str, Callable[[], object]]

FLUSH_BYTES = 256 << 20
"""Written before each timed call: more than any L2 holds. It also keeps the device busy while the host launches."""


def device_rounds(calls: Calls, rounds: int = 5, round_ms: float = 40.0) -> dict[str, list[float]]:
    """Kernel time of every call, round after round: name -> the median call of each round, in us."""
    import torch

    scratch = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    counts = {}
    for name, call in calls.items():
        call()
        once = _device_us(call, scratch, 3)
        counts[name] = max(3, min(100, int(round_ms * 1e3 / max(statistics.median(once), 1.0))))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(statistics.median(_device_us(call, scratch, counts[name])))
    return found


def _device_us(call: Callable[[], object], scratch, count: int) -> list[float]:
    import torch

    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for start, end in events:
        scratch.zero_()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in events]


def host_rounds(
    calls: Calls, synchronize: Callable[[], object], rounds: int = 5, round_s: float = 0.2
) -> dict[str, list[float]]:
    """Latency of every call as its caller sees it, the device waited for: name -> median of each round, in us."""
    counts = {}
    for name, call in calls.items():
        call()
        synchronize()
        once = _host_us(call, synchronize, 2)
        counts[name] = max(3, min(200, int(round_s * 1e6 / max(min(once), 1.0))))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(statistics.median(_host_us(call, synchronize, counts[name])))
    return found


def _host_us(call: Callable[[], object], synchronize: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        synchronize()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return times
