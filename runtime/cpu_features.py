"""Which CPU features this machine has, asked for by LLVM's names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

CPUINFO_NAMES = {
    "64bit": "lm", "avx512bf16": "avx512_bf16", "avx512bitalg": "avx512_bitalg", "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avxifma": "avx_ifma", "avxneconvert": "avx_ne_convert",
    "avxvnni": "avx_vnni", "avxvnniint8": "avx_vnni_int8", "avxvnniint16": "avx_vnni_int16", "bmi": "bmi1",
    "crc32": "sse4_2", "lzcnt": "abm", "pclmul": "pclmulqdq", "prfchw": "3dnowprefetch", "rdrnd": "rdrand",
    "sahf": "lahf_lm", "sha": "sha_ni", "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2",
}  # fmt: skip
"""LLVM's feature names whose spelling in /proc/cpuinfo differs by more than `-` for `_`."""


def cpuinfo_name(feature: str) -> str:
    """The /proc/cpuinfo flag of an LLVM feature name; a leading `+` is dropped."""
    name = feature.removeprefix("+")
    return CPUINFO_NAMES.get(name, name.replace("-", "_"))


@cache
def machine_flags() -> frozenset[str]:
    """Flags of the first processor in /proc/cpuinfo; empty where that file does not list them."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            for line in lines:
                name, _, flags = line.partition(":")
                if name.strip() == "flags":
                    return frozenset(flags.split())
    except OSError:
        return frozenset()
    return frozenset()


def missing(features: Iterable[str], flags: frozenset[str] | None = None) -> list[str]:
    """Those of the LLVM features that this machine (or a machine with `flags`) lacks, in the given order.

    A feature with a leading `-` asks for nothing.
    """
    present = machine_flags() if flags is None else flags
    return [f for f in features if not f.startswith("-") and cpuinfo_name(f) not in present]
