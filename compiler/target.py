"""What a schedule must know of a machine: frozen data per device, presets with sources, the detected host.

Memory levels run from the slowest (DRAM) to the fastest (registers). Capacities are those of one instance as
one core sees it (a core's own L1, the L3 that cores share, one thread block's shared memory, one core's
registers); bandwidths are peaks over the whole device, all cores pulling at once. Nothing here imports ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class UnknownTargetError(ValueError):
    """A target name is not a preset; the message lists those that are."""


@dataclass(frozen=True)
class MemoryLevel:
    """One level of memory: `transaction_bytes` is its least useful access; `banks` is 1 if none conflict."""

    name: str
    capacity_bytes: int
    bandwidth_gbps: float
    transaction_bytes: int
    banks: int = 1
    bank_bytes: int = 64


@dataclass(frozen=True)
class MatrixUnit:
    """One matrix instruction: `[m, k] x [k, n]` of `dtype`, summed in `accumulator`."""

    name: str
    dtype: str
    accumulator: str
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class Target:
    """A device as data; `peak_gflops` counts a multiply-add as two, per dtype, over all cores.

    `vector_bits` is one core's SIMD register (a GPU's widest load per thread); `registers_per_thread` counts
    vector registers on a CPU and 32-bit ones on a GPU; `cpu_features` and `llvm_cpu` are LLVM's names.
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

    def level(self, name: str) -> MemoryLevel:
        """The memory level called `name`; raises KeyError with the levels there are."""
        for level in self.memory:
            if level.name == name:
                return level
        raise KeyError(
            f"{self.name} has no memory level `{name}`; it has {', '.join(m.name for m in self.memory)}"
        )

    @property
    def llvm_features(self) -> str:
        """LLVM's feature string: `+f` for what there is, `-f` for what a CPU's name alone would imply."""
        if self.kind != "cpu":
            return ""
        absent = [f for f in X86_FEATURES if f not in self.cpu_features]
        return ",".join([f"+{f}" for f in self.cpu_features] + [f"-{f}" for f in absent])

    def to_json(self) -> dict:
        """Plain dicts, lists, strings and numbers; `from_json` reads it back."""
        return asdict(replace(self, peak_gflops=dict(self.peak_gflops)))

    @classmethod
    def from_json(cls, data: dict) -> Target:
        units = (MatrixUnit(**{**u, "shape": tuple(u["shape"])}) for u in data["matrix_units"])
        return cls(
            **{
                **data,
                "memory": tuple(MemoryLevel(**level) for level in data["memory"]),
                "matrix_units": tuple(units),
                "cpu_features": tuple(data["cpu_features"]),
            }
        )


# What generated code may use of x86, as LLVM names; other features (shstk, xsave) never come out of a kernel.
_V3 = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "avx", "avx2", "fma", "f16c", "bmi", "bmi2",
    "lzcnt", "movbe",
)  # fmt: skip
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_BEYOND = (
    "avxvnni", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq",
    "avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16", "amx-fp16", "gfni",
)  # fmt: skip
X86_FEATURES = (*_V4, *_BEYOND)


def _amx(features: tuple[str, ...]) -> tuple[MatrixUnit, ...]:
    """AMX tiles: 16 rows of 64 B. Source: Intel, Instruction Set Extensions Reference, ch. 3."""
    units = []
    if "amx-bf16" in features:
        units.append(MatrixUnit("tdpbf16ps", "bf16", "f32", (16, 16, 32)))
    if "amx-int8" in features:
        units.append(MatrixUnit("tdpbssd", "i8", "i32", (16, 16, 64)))
    return tuple(units)


def _x86(
    name: str,
    features: tuple[str, ...],
    llvm_cpu: str,
    cores: int,
    ghz: float,
    caches_bytes: Mapping[str, int],
    dram_bytes: int,
    fma_bits: int,
) -> Target:
    """An x86 CPU; `fma_bits` is how many bits of vector one core multiplies and adds per cycle.

    Bytes per core and cycle: L1 64 (two 256-bit loads; Intel SDM optimisation manual 2.x, AMD software
    optimisation guide 56665 §2.12 give 64 or more), L2 32 and L3 16 (what those manuals name as sustained).
    DRAM: 17 GB/s for one core (read bandwidth measured on a Sapphire Rapids core), 205 GB/s at most (eight
    channels of DDR4-3200, JEDEC JESD79-4).
    """
    vector_bits = 512 if "avx512f" in features else 256 if "avx2" in features else 128
    count = 32 if vector_bits == 512 else 16
    clock = cores * ghz
    memory = [MemoryLevel("DRAM", dram_bytes, min(17.0 * cores, 204.8), 64)]
    for level, bytes_per_cycle in (("L3", 16), ("L2", 32), ("L1", 64)):
        if level in caches_bytes:
            memory.append(MemoryLevel(level, caches_bytes[level], round(clock * bytes_per_cycle, 1), 64))
    # Registers feed an FMA with three operands at the rate of the multiplier.
    registers_gbps = round(clock * fma_bits / 8 * 3, 1)
    memory.append(MemoryLevel("registers", count * vector_bits // 8, registers_gbps, vector_bits // 8))
    f32 = clock * 2 * fma_bits / 32
    peak = {"f32": f32, "f64": f32 / 2}
    units = _amx(features)
    if units:
        # Measured with tiles in L1 on Sapphire Rapids: 3,300 GFLOP/s per core at 3 GHz.
        peak["bf16"] = clock * 1100
    peak = {dtype: round(value, 1) for dtype, value in peak.items()}
    levels = (("x86-64-v4", _V4), ("x86-64-v3", _V3), ("x86-64", ()))
    arch = next(level for level, needs in levels if set(needs) <= set(features))
    return Target(
        name=name,
        kind="cpu",
        arch=arch,
        memory=tuple(memory),
        num_cores=cores,
        warp_size=1,
        vector_bits=vector_bits,
        registers_per_thread=count,
        peak_gflops=peak,
        matrix_units=units,
        cpu_features=features,
        llvm_cpu=llvm_cpu or arch,
    )


def _generic_x86(name: str, features: tuple[str, ...], l2: int) -> Target:
    """A plausible machine of an x86-64 psABI level: four 2.5 GHz cores, sizes common to Zen and Skylake."""
    caches = {"L1": 32 * KIB, "L2": l2, "L3": 16 * MIB}
    return _x86(name, features, name, 4, 2.5, caches, 16 * GIB, 512)


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMG]?)", text.strip()).groups()  # type: ignore[union-attr]
    return int(number) * {"": 1, "K": KIB, "M": MIB, "G": GIB}[unit]


def read_caches(root: Path, cpu: int = 0) -> dict[str, int]:
    """Data and unified cache sizes in bytes by level ("L1".."L3"), from a copy of /sys/devices/system/cpu."""
    found = {}
    for index in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
        kind, level, size = ((index / part).read_text().strip() for part in ("type", "level", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = _bytes(size)
    return found


def read_cpuinfo(text: str, usable: set[int]) -> tuple[dict[str, str], set[str], int]:
    """The first processor's fields, its flags, and how many physical cores the `usable` CPUs make."""
    processors = [
        {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        for block in text.strip().split("\n\n")
    ]
    cores = {
        (p.get("physical id", "0"), p.get("core id", p.get("processor", "0")))
        for p in processors
        if int(p.get("processor", 0)) in usable
    }
    return processors[0], set(processors[0].get("flags", "").split()), max(1, len(cores))


# /proc/cpuinfo spells some features otherwise; those not here are spelled as LLVM spells them.
_CPUINFO_NAMES = {
    "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "lzcnt": "abm",
    "avxvnni": "avx_vnni",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
    "amx-tile": "amx_tile", "amx-int8": "amx_int8", "amx-bf16": "amx_bf16", "amx-fp16": "amx_fp16",
}  # fmt: skip


def usable_features(llvm: Mapping[str, bool], flags: set[str]) -> tuple[str, ...]:
    """Features that both LLVM's CPUID and the kernel report, in the order of X86_FEATURES.

    A hypervisor may mask a feature, and the kernel may not have enabled its state; either makes it unusable.
    """
    return tuple(f for f in X86_FEATURES if llvm.get(f) and (not flags or _CPUINFO_NAMES.get(f, f) in flags))


def _fma_bits(info: Mapping[str, str], features: tuple[str, ...]) -> int:
    """Vector bits one core multiplies and adds per cycle, from vendor and family.

    Sources: AMD software optimisation guides for Zen 2 to 4 (two 256-bit FMA pipes; 512-bit operations take
    both or two passes) and Zen 5 (family 26: two 512-bit pipes); Intel optimisation manual (two 512-bit pipes
    on server cores with AVX-512, two 256-bit ones otherwise).
    """
    if "fma" not in features:
        return 128
    wide = info.get("vendor_id") == "GenuineIntel" or int(info.get("cpu family", 0) or 0) >= 26
    return 1024 if wide and "avx512f" in features else 512


@cache
def host() -> Target:
    """The machine this process may run on: its features, caches and the physical cores it is allowed to use.

    Frequency is the kernel's maximum, else the processor's nominal one (its boost is then unknown, and a
    kernel may beat the peak). Where the system tells nothing, the generic level's sizes are used.
    """
    import llvmlite.binding as llvm

    cpuinfo = Path("/proc/cpuinfo")
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    info, flags, cores = read_cpuinfo(cpuinfo.read_text() if cpuinfo.exists() else "", usable)
    features = usable_features(llvm.get_host_cpu_features(), flags)
    system = Path("/sys/devices/system/cpu")
    generic = _generic_x86("x86-64-v4" if "avx512f" in features else "x86-64-v3", (), MIB)
    caches = read_caches(system, min(usable)) or {m.name: m.capacity_bytes for m in generic.memory[1:-1]}
    maximum = system / f"cpu{min(usable)}" / "cpufreq" / "cpuinfo_max_freq"
    if maximum.exists():
        ghz = int(maximum.read_text()) / 1e6
    else:
        # The invariant time-stamp clock; `cpu MHz` wanders with load, which would make two compiles differ.
        ghz = round(float(info["bogomips"]) / 2000, 2) if "bogomips" in info else 2.5
    meminfo = Path("/proc/meminfo")
    total = re.search(r"MemTotal:\s+(\d+) kB", meminfo.read_text()) if meminfo.exists() else None
    dram = int(total[1]) * KIB // GIB * GIB if total else 16 * GIB
    name, fma_bits = llvm.get_host_cpu_name(), _fma_bits(info, features)
    return _x86("cpu", features, name, cores, ghz, caches, dram, fma_bits)


def _gpu(
    name: str,
    arch: str,
    cores: int,
    dram: tuple[int, float],
    l2: tuple[int, float] | None,
    shared: tuple[int, float],
    peak: Mapping[str, float],
    units: tuple[MatrixUnit, ...] = (),
    warp: int = 32,
    registers_bytes: int = 256 * KIB,
) -> Target:
    """A GPU; sizes in bytes, bandwidths in GB/s. Register bandwidth: three 4-byte operands per f32 FMA."""
    memory = [MemoryLevel("DRAM", *dram, 32)]
    if l2:
        memory.append(MemoryLevel("L2", *l2, 32))
    memory.append(MemoryLevel("shared", *shared, 128, 32, 4))
    memory.append(MemoryLevel("registers", registers_bytes, peak["f32"] / 2 * 12, 4))
    registers = 256 if warp == 64 else 255
    return Target(name, "gpu", arch, tuple(memory), cores, warp, 128, registers, dict(peak), units)


def _mma(*rows: tuple[str, str, str, tuple[int, int, int]]) -> tuple[MatrixUnit, ...]:
    return tuple(MatrixUnit(*row) for row in rows)


def k80() -> Target:
    """Tesla K80, one of its two GK210 chips, at its 875 MHz boost clock.

    Sources: Tesla K80 board specification BD-07317 (13 SMX, 12 GB, 240 GB/s and 4.37 TFLOP/s per chip);
    Kepler tuning guide §1.4 (48 KB of shared memory per block, 512 KB of registers per SMX; 32 banks of 8 B,
    in the default mode 4 B each per cycle). NVIDIA gives no L2 bandwidth, so that level is left out.
    """
    return _gpu(
        "k80", "sm_37", 13, (12 * GIB, 240.0), None, (48 * KIB, 13 * 128 * 0.875),
        {"f32": 4370.0, "f64": 1456.0},
        registers_bytes=512 * KIB,
    )  # fmt: skip


def v100() -> Target:
    """Tesla V100 SXM2 16 GB at 1.53 GHz.

    Sources: V100 datasheet (900 GB/s; 15.7 TFLOP/s f32, 7.8 f64, 125 tensor); Volta whitepaper WP-08608 (80
    SMs, 6 MB L2, 96 KB of shared memory, 256 KB of registers per SM); A100 whitepaper table 4 (V100's L2
    reads 2,048 B per cycle). Shared memory: 128 B per SM and cycle.
    """
    return _gpu(
        "v100", "sm_70", 80, (16 * GIB, 900.0), (6 * MIB, 2048 * 1.53), (96 * KIB, 80 * 128 * 1.53),
        {"f32": 15700.0, "f64": 7800.0, "f16": 125000.0},
        _mma(("wmma.m16n16k16", "f16", "f32", (16, 16, 16))),
    )  # fmt: skip


def a100() -> Target:
    """A100 SXM 40 GB at 1.41 GHz.

    Sources: A100 whitepaper V1.0 (108 SMs, 1,555 GB/s, 40 MB L2 reading 5,120 B per cycle; 19.5 TFLOP/s f32,
    9.7 f64, 312 f16 and bf16, 156 tf32, 624 TOPS i8); CUDA programming guide (163 KB of shared memory
    per block).
    """
    return _gpu(
        "a100", "sm_80", 108, (40 * GIB, 1555.0), (40 * MIB, 5120 * 1.41), (163 * KIB, 108 * 128 * 1.41),
        {"f32": 19500.0, "f64": 9700.0, "f16": 312000.0, "bf16": 312000.0, "tf32": 156000.0, "i8": 624000.0},
        _mma(
            ("mma.m16n8k16", "f16", "f32", (16, 8, 16)),
            ("mma.m16n8k16", "bf16", "f32", (16, 8, 16)),
            ("mma.m16n8k8", "tf32", "f32", (16, 8, 8)),
        ),
    )  # fmt: skip


def h100() -> Target:
    """H100 SXM5 80 GB at 1.83 GHz, where its tensor peaks are quoted (f32 and f64 at 1.98 GHz).

    Sources: H100 whitepaper V1.04 (132 SMs, 50 MB L2, 3,352 GB/s; dense TFLOP/s: 66.9 f32, 33.5 f64, 494.7
    tf32, 989.4 f16 and bf16, 1,978.9 f8, as many TOPS i8); CUDA programming guide (227 KB of shared memory
    per block). L2: A100's 5,120 B per cycle, as NVIDIA names no newer figure.
    """
    return _gpu(
        "h100", "sm_90a", 132, (80 * GIB, 3352.0), (50 * MIB, 5120 * 1.83), (227 * KIB, 132 * 128 * 1.83),
        {
            "f32": 66900.0, "f64": 33500.0, "tf32": 494700.0, "f16": 989400.0, "bf16": 989400.0,
            "f8": 1978900.0, "i8": 1978900.0,
        },
        _mma(
            ("wgmma.m64n256k16", "f16", "f32", (64, 256, 16)),
            ("wgmma.m64n256k16", "bf16", "f32", (64, 256, 16)),
            ("wgmma.m64n256k8", "tf32", "f32", (64, 256, 8)),
            ("mma.m16n8k16", "f16", "f32", (16, 8, 16)),
            ("mma.m16n8k16", "bf16", "f32", (16, 8, 16)),
        ),
    )  # fmt: skip


def h200() -> Target:
    """H200 SXM: the H100's compute with 141 GB of HBM3e at 4.8 TB/s. Source: H200 datasheet."""
    base = h100()
    return replace(base, name="h200", memory=(MemoryLevel("DRAM", 141 * 10**9, 4800.0, 32), *base.memory[1:]))


def mi50() -> Target:
    """Radeon Instinct MI50 16 GB at 1.725 GHz.

    Sources: MI50 datasheet (60 compute units, 1,024 GB/s; 13.3 TFLOP/s f32, 6.6 f64, 26.5 f16); Vega ISA
    reference (64 KB of LDS in 32 banks of 4 B, wavefronts of 64, 256 vector registers per thread, 256 KB of
    them per unit); Vega whitepaper (4 MB L2 in 16 channels of 64 B per cycle).
    """
    return _gpu(
        "mi50", "gfx906", 60, (16 * GIB, 1024.0), (4 * MIB, 16 * 64 * 1.725), (64 * KIB, 60 * 128 * 1.725),
        {"f32": 13300.0, "f64": 6600.0, "f16": 26500.0}, warp=64,
    )  # fmt: skip


def graphcore_ipu() -> Target:
    """Graphcore IPU Mk1 (GC2) at 1.6 GHz: tiles with local memory only, so its slowest level is the exchange.

    Sources: Roller, OSDI'22, §6.6 (1,216 cores with 256 KB each); Jia et al., "Dissecting the Graphcore IPU
    Architecture", 2019 (exchange 8 TB/s, local memory 45 TB/s in all, six threads per tile; 31.1 TFLOP/s f32,
    124.5 f16). Schedules can be constructed for it; no code is generated.
    """
    memory = (
        MemoryLevel("exchange", 1216 * 256 * KIB, 8000.0, 4),
        MemoryLevel("local", 256 * KIB, 45000.0, 16),
        MemoryLevel("registers", 16 * 4 * 6, 31100.0 / 2 * 12, 4),
    )
    unit = MatrixUnit("amp", "f16", "f32", (1, 16, 16))
    return Target(
        "graphcore-ipu", "ipu", "ipu1", memory, 1216, 6, 64, 16, {"f32": 31100.0, "f16": 124500.0}, (unit,)
    )


PRESETS: dict[str, Callable[[], Target]] = {
    "cpu": host,
    "x86-64-v3": lambda: _generic_x86("x86-64-v3", _V3, 512 * KIB),
    "x86-64-v4": lambda: _generic_x86("x86-64-v4", _V4, MIB),
    "k80": k80,
    "v100": v100,
    "a100": a100,
    "h100": h100,
    "h200": h200,
    "mi50": mi50,
    "graphcore-ipu": graphcore_ipu,
}
"""Preset name -> maker, in the order they are listed."""


def resolve(name: str) -> Target:
    """The preset called `name`, in any case; raises UnknownTargetError with the list of presets."""
    maker = PRESETS.get(name.lower())
    if maker is None:
        raise UnknownTargetError(f"unknown target `{name}`; the presets are: {', '.join(PRESETS)}")
    return maker()
