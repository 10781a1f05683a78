"""The machine this process runs on as a target: features, caches, cores, clock and memory as the system tells them."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from tilewright.compiler.targets.cpus import generic_x86, x86
from tilewright.compiler.targets.target import GIB, KIB, MIB, X86_FEATURES, Target


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


def read_sharing(root: Path, cpu: int, level: str) -> set[int]:
    """The CPUs that share `cpu`'s cache of that level; only itself where the system does not tell."""
    for index in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
        listed = index / "shared_cpu_list"
        if f"L{(index / 'level').read_text().strip()}" == level and listed.exists():
            spans = (part.split("-") for part in listed.read_text().strip().split(",") if part)
            return {n for span in spans for n in range(int(span[0]), int(span[-1]) + 1)}
    return {cpu}


def _processors(text: str) -> list[dict[str, str]]:
    """The blocks of /proc/cpuinfo, one per CPU."""
    return [
        {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        for block in text.strip().split("\n\n")
    ]


def read_cores(text: str, usable: set[int]) -> dict[tuple[str, str], int]:
    """The first usable CPU of each physical core, from /proc/cpuinfo's text."""
    cores: dict[tuple[str, str], int] = {}
    for p in _processors(text):
        number = int(p.get("processor", 0))
        if number in usable:
            cores.setdefault((p.get("physical id", "0"), p.get("core id", str(number))), number)
    return cores


def read_cpuinfo(text: str, usable: set[int]) -> tuple[dict[str, str], set[str], int]:
    """The first processor's fields, its flags, and how many physical cores the `usable` CPUs make."""
    first = _processors(text)[0]
    return first, set(first.get("flags", "").split()), max(1, len(read_cores(text, usable)))


def _usable_cpus() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _cpuinfo() -> str:
    file = Path("/proc/cpuinfo")
    return file.read_text() if file.exists() else ""


def core_cpus() -> list[int]:
    """One CPU of each physical core that this process may use, in rising order."""
    usable = _usable_cpus()
    return sorted(read_cores(_cpuinfo(), usable).values()) or [min(usable)]


def processor() -> str:
    """The processor's name as its maker writes it; empty where the system does not tell."""
    return _processors(_cpuinfo())[0].get("model name", "")


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


def granted_features(features: tuple[str, ...], ask: Callable[[], bool]) -> tuple[str, ...]:
    """`features`, without AMX where the system, asked by `ask`, does not grant tiles to this process."""
    tiles = [feature for feature in features if feature.startswith("amx")]
    if not tiles or ask():
        return features
    return tuple(feature for feature in features if feature not in tiles)


def ask_for_tiles() -> bool:
    """Asks the kernel for tile state, as every process must once before its first tile.

    Source: Linux, Documentation/arch/x86/xstate.rst, ARCH_REQ_XCOMP_PERM (0x1023) of XTILEDATA (18).
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0


def fma_bits(info: Mapping[str, str], features: tuple[str, ...]) -> int:
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

    usable = _usable_cpus()
    info, flags, cores = read_cpuinfo(_cpuinfo(), usable)
    features = granted_features(usable_features(llvm.get_host_cpu_features(), flags), ask_for_tiles)
    system = Path("/sys/devices/system/cpu")
    generic = generic_x86("x86-64-v4" if "avx512f" in features else "x86-64-v3", (), MIB)
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
    sharing = read_sharing(system, min(usable), "L3") & set(core_cpus())
    return x86(
        "cpu", features, llvm.get_host_cpu_name(), cores, ghz, caches, dram, fma_bits(info, features),
        l3_shared_by=max(1, len(sharing)),
    )  # fmt: skip
