"""The physical limits that results are read against: peak arithmetic and memory bandwidth, as measured on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from tilewright.compiler.targets import host as target_host
from tilewright.compiler.targets import measurements as target_measurements
from tilewright.compiler.targets.measurements import Measurements
from tilewright.compiler.targets.target import Target


@dataclass(frozen=True)
class Level:
    """What the cores in use hold together in one memory level, and read and copy (bytes both ways), in GB/s."""

    name: str
    capacity_bytes: int
    read_gbps: float
    copy_gbps: float


@dataclass(frozen=True)
class Limits:
    """The limits of `threads` cores; `peak_gflops` per dtype, `levels` from slow to fast, `digest` of what they rest on."""

    threads: int
    peak_gflops: dict[str, float]
    levels: tuple[Level, ...]
    digest: str

    def bound(self, flops: int, read_bytes: int, written_bytes: int, dtype: str = "f32") -> tuple[float, str]:
        """The least microseconds that a call can take, and what takes them: a dtype's peak, or a memory level.

        Operations run at the peak. Bytes move at the rates of the fastest level that holds them all, as a call finds
        what the one before it left: those read no faster than the level reads, all of them no faster than it copies.
        Source: Williams et al., "Roofline", CACM 2009, with a ceiling per memory level.
        """
        compute = flops / self.peak_gflops.get(dtype, self.peak_gflops["f32"]) / 1e3
        both = read_bytes + written_bytes
        level = [level for level in self.levels if both <= level.capacity_bytes or level is self.levels[0]][
            -1
        ]
        # Copying reads too: where it reads faster than reading alone was seen to, that is the limit.
        reading = read_bytes / max(level.read_gbps, level.copy_gbps / 2)
        memory = max(reading, both / max(level.copy_gbps, level.read_gbps)) / 1e3
        return (compute, f"{dtype} peak") if compute >= memory else (memory, level.name)

    def to_json(self) -> dict:
        return asdict(self)


def limits_of(target: Target, found: Measurements, threads: int) -> Limits:
    """The limits of `threads` of the measured machine's cores; several get what one does times their number,
    and no more than all of them together."""
    cores = min(threads, target.num_cores)

    def of(one: float, every: float) -> float:
        return min(one * cores, max(every, one))

    levels = []
    for level in target.memory:
        if row := found.levels.get(level.name):
            instances = -(-cores // level.shared_by)
            levels.append(
                Level(
                    level.name,
                    level.capacity_bytes * instances,
                    round(of(row.read_core_gbps, row.read_gbps or row.read_core_gbps * cores), 1),
                    round(of(row.copy_core_gbps, row.copy_gbps or row.copy_core_gbps * cores), 1),
                )
            )
    peaks = {dtype: round(of(p.core_gflops, p.gflops), 1) for dtype, p in found.peaks.items()}
    return Limits(threads, peaks, tuple(levels), found.digest)


def find_or_measure(threads: int, say: Callable[[str], None]) -> Limits:
    """The limits of this machine: from its kept measurements, else measured now and not kept.

    Keeping them would change what is compiled afterwards; that is for `tilewright targets --measure` to do.
    """
    target = target_host.host()
    found = target_measurements.find(target)
    if found is None:
        from tilewright.compiler.targets.measure import measure

        found = measure(target, say)
    return limits_of(target, found, threads)
