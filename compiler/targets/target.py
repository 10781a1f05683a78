"""What a schedule must know of a machine: frozen data per device, and the presets by name.

Memory levels run from the slowest (DRAM) to the fastest (registers). Capacities are those of one instance as
one core sees it (a core's own L1, the L3 that cores share, one thread block's shared memory, one core's
registers); bandwidths are peaks over the whole device, all cores pulling at once. The makers of presets stand in `cpus`, `gpus` and `host`,
where every number has its source; they are imported when first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module

from tilewright.compiler.errors import TilewrightError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class UnknownTargetError(ValueError):
    """A target name is not a preset; the message lists those that are."""


class TargetDataError(TilewrightError, ValueError):
    """What a file says of a target is incomplete or impossible; the message names the entry and what it expects."""


@dataclass(frozen=True)
class MemoryLevel:
    """One level of memory, as one core sees it; 0 where nobody says how much.

    `bandwidth_gbps` is read by all cores together, `core_gbps` by one core alone, `copy_gbps` what all cores copy
    (bytes read plus bytes written); `latency_ns` passes from asking for a value to having it. `shared_by` cores have
    one instance in common. `transaction_bytes` is the least useful access; `banks` is 1 if none conflict.
    """

    name: str
    capacity_bytes: int
    bandwidth_gbps: float
    transaction_bytes: int
    banks: int = 1
    bank_bytes: int = 64
    shared_by: int = 1
    core_gbps: float = 0.0
    copy_gbps: float = 0.0
    latency_ns: float = 0.0

    def bandwidth_of(self, cores: int, total: int) -> float:
        """GB/s that `cores` of the device's `total` read together.

        Private levels add up; of a shared one, one core may take more than its even share.
        """
        even = self.bandwidth_gbps * min(cores, total) / total
        return min(self.bandwidth_gbps, max(even, self.core_gbps * cores))


@dataclass(frozen=True)
class MatrixUnit:
    """One matrix instruction: `[m, k] x [k, n]` of `dtype`, summed in `accumulator`; `shape` is (m, n, k)."""

    name: str
    dtype: str
    accumulator: str
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class Target:
    """A device as data; `peak_gflops` counts a multiply-add as two, per dtype, over all cores.

    `vector_bits` is one core's SIMD register (a GPU's widest load per thread); `registers_per_thread` counts
    vector registers on a CPU and 32-bit ones on a GPU; `cpu_features` and `llvm_cpu` are LLVM's names. Each cycle
    of `clock_ghz` a core starts `lanes_per_core` f32 multiply-adds on its execution units; `start_us` is what it
    costs to start all cores on one parallel step and wait for the last. `measured` is the digest of the measurements
    that stand in for published figures, empty when all are published.

    What Roller's rTiles may take (OSDI'22, §4), 0 where the level's capacity is the limit: `tile_registers` of a
    thread's registers, `tile_shared_bytes` of one block's shared memory. How a core runs threads, 0 where it runs
    none: warp `schedulers`, `block_threads` at most in one block, `core_threads` and `core_blocks` at once.
    `sustained_gflops` is the f32 rate that a micro-benchmark reaches (§3.3), 0 where only the peak is known.
    `issue_lanes` counts lanes whose instructions a core issues each cycle, 0 for one warp per scheduler.
    `core_shared_bytes` is the shared memory of a core, all blocks on it together (0: one block's capacity);
    `block_reserved_bytes` of it the system keeps for each block. `mma_share` is the part of a dtype's peak that
    instructions of one warp (`mma.sync`) reach where those of four (`wgmma`) reach all of it. Kernels for an
    `emulated` GPU run on the CPU.
    """

    name: str
    kind: str
    arch: str
    memory: tuple[MemoryLevel, ...]
    num_cores: int
    warp_size: int
    vector_bits: int
    registers_per_thread: int
    peak_gflops: Mapping[str, float] = field(hash=False)
    matrix_units: tuple[MatrixUnit, ...] = ()
    cpu_features: tuple[str, ...] = ()
    llvm_cpu: str = ""
    lanes_per_core: int = 0
    clock_ghz: float = 0.0
    start_us: float = 0.0
    measured: str = ""
    tile_registers: int = 0
    tile_shared_bytes: int = 0
    schedulers: int = 0
    block_threads: int = 0
    core_threads: int = 0
    core_blocks: int = 0
    sustained_gflops: float = 0.0
    issue_lanes: int = 0
    emulated: bool = False
    core_shared_bytes: int = 0
    block_reserved_bytes: int = 0
    mma_share: float = 1.0

    def level(self, name: str) -> MemoryLevel:
        """The memory level called `name`; raises KeyError with the levels there are."""
        for level in self.memory:
            if level.name == name:
                return level
        raise KeyError(
            f"{self.name} has no memory level `{name}`; it has {', '.join(m.name for m in self.memory)}"
        )

    @property
    def own_cache(self) -> MemoryLevel:
        """The last level of memory that a CPU's core has to itself; where cores share every one, the first cache."""
        alone = (level for level in self.memory[1:] if level.shared_by == 1)
        return next(alone, self.memory[-2])

    @property
    def is_x86(self) -> bool:
        """Whether this is an x86 CPU."""
        return self.kind == "cpu" and self.arch.startswith("x86-64")

    @property
    def is_cuda(self) -> bool:
        """Whether this is an NVIDIA GPU that code is generated for: Volta or newer."""
        return self.kind == "gpu" and re.fullmatch(r"sm_([7-9]\d|1\d\d)a?", self.arch) is not None

    @property
    def compute_capability(self) -> int:
        """80 for sm_80, 90 for sm_90a; 0 for what is no NVIDIA GPU."""
        found = re.fullmatch(r"sm_(\d+)a?", self.arch)
        return int(found.group(1)) if found else 0

    @property
    def can_overlap_launches(self) -> bool:
        """Whether a kernel can begin before the one launched before it has ended: NVIDIA, compute capability 9.0 on."""
        return self.is_cuda and self.compute_capability >= 90

    @property
    def has_code(self) -> bool:
        """Whether code is generated for the target; for others schedules are constructed only."""
        return self.is_x86 or self.is_cuda

    @property
    def llvm_features(self) -> str:
        """LLVM's feature string: `+f` for what there is, `-f` for what a CPU's name alone would imply."""
        if self.kind != "cpu":
            return ""
        known = (*X86_FEATURES, *_X86_NEVER) if self.is_x86 else ()
        absent = [f for f in known if f not in self.cpu_features]
        return ",".join([f"+{f}" for f in self.cpu_features] + [f"-{f}" for f in absent])

    def to_json(self) -> dict:
        """Plain dicts, lists, strings and numbers; `from_json` reads it back."""
        return asdict(replace(self, peak_gflops=dict(self.peak_gflops)))

    @classmethod
    def from_json(cls, data: dict) -> Target:
        """Reads what `to_json` wrote; raises TargetDataError that says which entry is wrong."""
        from tilewright.compiler.targets.file import parse

        return parse(data)


# What generated code may use of x86, as LLVM names; other features (shstk, xsave) never come out of a kernel.
X86_V3 = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "avx", "avx2", "fma", "f16c", "bmi", "bmi2",
    "lzcnt", "movbe",
)  # fmt: skip
X86_V4 = (*X86_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_X86_BEYOND = (
    "avxvnni", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq",
    "avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16", "amx-fp16", "gfni",
)  # fmt: skip
X86_FEATURES = (*X86_V4, *_X86_BEYOND)
_X86_NEVER = ("sse4a",)
"""What a CPU's name implies and a target does not tell: AMD alone streams single numbers, by SSE4a."""


def _maker(module: str, function: str) -> Callable[[], Target]:
    """A preset's maker, imported when first called: the modules of makers import this one."""
    return lambda: getattr(import_module(f"tilewright.compiler.targets.{module}"), function)()


PRESETS: dict[str, Callable[[], Target]] = {
    "cpu": _maker("measurements", "host"),
    "x86-64-v3": _maker("cpus", "x86_64_v3"),
    "x86-64-v4": _maker("cpus", "x86_64_v4"),
    "sapphire-rapids": _maker("cpus", "sapphire_rapids"),
    "neoverse-n1": _maker("cpus", "neoverse_n1"),
    "neoverse-v1": _maker("cpus", "neoverse_v1"),
    "k80": _maker("gpus", "k80"),
    "v100": _maker("gpus", "v100"),
    "a100": _maker("gpus", "a100"),
    "h100": _maker("gpus", "h100"),
    "h200": _maker("gpus", "h200"),
    "mi50": _maker("gpus", "mi50"),
    "mi250": _maker("gpus", "mi250"),
    "graphcore-ipu": _maker("gpus", "graphcore_ipu"),
}
"""Preset name -> maker, in the order they are listed."""


def resolve(name: str) -> Target:
    """The preset called `name`, in any case, `cuda`, `cuda:ARCH`, `emulate:ARCH`, or what a `.json` file describes.

    Raises UnknownTargetError with the list of presets, TargetDataError for a file that describes none.
    """
    if name.endswith(".json"):
        from tilewright.compiler.targets.file import read

        return read(name)
    if ":" in name or name == "cuda":
        target_device = import_module("tilewright.compiler.targets.devices")
        return target_device.present() if name == "cuda" else target_device.named(name.lower())
    maker = PRESETS.get(name.lower())
    if maker is None:
        presets = ", ".join(PRESETS)
        raise UnknownTargetError(
            f"unknown target `{name}`; the presets are: {presets}; or name a .json file that describes one"
        )
    return maker()
