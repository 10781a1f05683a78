"""What micro-benchmarks found on this machine, kept on disk, and the host's target with it in place of nominal figures.

`tilewright targets --measure` fills the file; until then, and after `--forget`, `cpu` carries nominal figures. Measured
ones are part of the target: their digest is in `Target.measured`, so every cache key changes with them, and the same
measurements give the same artifact.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tilewright.compiler import debug
from tilewright.compiler.settings import settings
from tilewright.compiler.targets import host as target_host
from tilewright.compiler.targets.target import MemoryLevel, Target

VERSION = 1
"""Of the measurements' meaning: a newer one measures anew instead of reading what an older one wrote."""


@dataclass(frozen=True)
class LevelRates:
    """One memory level: GB/s read by one core and by all, copied (bytes both ways) likewise, and ns per access.

    0 stands for what cannot be told apart from another level.
    """

    read_core_gbps: float
    read_gbps: float
    copy_core_gbps: float
    copy_gbps: float
    latency_ns: float


@dataclass(frozen=True)
class PeakRates:
    """The fastest instruction for a dtype, and its GFLOP/s on one core and on all."""

    instruction: str
    core_gflops: float
    gflops: float


@dataclass(frozen=True)
class Measurements:
    """Everything measured on one processor; `start_us` is the cost of one more parallel step on all cores."""

    processor: str
    levels: Mapping[str, LevelRates]
    peaks: Mapping[str, PeakRates]
    start_us: float

    @property
    def digest(self) -> str:
        """Of all numbers: 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict) -> Measurements:
        """Raises ValueError, KeyError or TypeError for anything but what `to_json` gives."""
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}, expected {VERSION}")
        found = cls(
            str(data["processor"]),
            {str(name): LevelRates(**row) for name, row in data["levels"].items()},
            {str(name): PeakRates(**row) for name, row in data["peaks"].items()},
            data["start_us"],
        )
        numbers = [found.start_us]
        for row in found.levels.values():
            numbers += list(asdict(row).values())
        for row in found.peaks.values():
            numbers += [row.core_gflops, row.gflops]
        if not all(isinstance(n, (int, float)) and math.isfinite(n) and n >= 0 for n in numbers):
            raise ValueError("a rate is no number of at least 0")
        return found


def host() -> Target:
    """This machine: as measured if it was, else with nominal figures."""
    nominal = target_host.host()
    found = find(nominal)
    return apply(nominal, found) if found else nominal


def path(target: Target) -> Path:
    """Where measurements of the machine that `target` describes are kept."""
    capacities = [(level.name, level.capacity_bytes) for level in target.memory[1:-1]]
    facts = (
        VERSION,
        target_host.processor(),
        target.llvm_cpu,
        target.cpu_features,
        target.num_cores,
        capacities,
    )
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return settings().cache_dir / "targets" / f"{key[:32]}.json"


def find(target: Target) -> Measurements | None:
    """The measurements of this machine; None if there are none or their file is damaged."""
    file = path(target)
    try:
        return Measurements.from_json(json.loads(file.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        debug.log(1, f"measurements in {file}: {type(error).__name__}: {error}; nominal figures are used")
        return None


def store(target: Target, found: Measurements) -> Path:
    """Writes the measurements in one piece; raises OSError where the cache folder cannot be written."""
    file = path(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as partial:
        partial.write(json.dumps(found.to_json(), indent=1) + "\n")
    os.replace(partial.name, file)
    return file


def forget(target: Target) -> bool:
    """Removes the measurements of this machine; tells whether there were any."""
    file = path(target)
    existed = file.exists()
    file.unlink(missing_ok=True)
    return existed


def apply(target: Target, found: Measurements) -> Target:
    """`target` with measured rates where there are any.

    A level is taken to be at least as fast as the slower one before it, whatever noise says. Registers feed
    multiply-adds three operands of 4 bytes at the measured f32 peak.
    """
    memory: list[MemoryLevel] = []
    peaks = {**target.peak_gflops, **{dtype: rates.gflops for dtype, rates in found.peaks.items()}}
    for level in target.memory:
        rates = found.levels.get(level.name)
        if rates:
            level = replace(
                level,
                bandwidth_gbps=rates.read_gbps or level.bandwidth_gbps,
                core_gbps=rates.read_core_gbps,
                copy_gbps=rates.copy_gbps,
                latency_ns=rates.latency_ns,
            )
        elif level.name == "registers":
            level = replace(level, bandwidth_gbps=round(peaks["f32"] / 2 * 12, 1))
        slower = memory[-1].bandwidth_gbps if memory else 0.0
        memory.append(replace(level, bandwidth_gbps=max(level.bandwidth_gbps, slower)))
    one = found.peaks.get("f32")
    clock = (
        one.core_gflops / (2 * target.lanes_per_core) if one and target.lanes_per_core else target.clock_ghz
    )
    return replace(
        target,
        memory=tuple(memory),
        peak_gflops=peaks,
        clock_ghz=round(clock, 3),
        start_us=found.start_us,
        measured=found.digest,
    )
