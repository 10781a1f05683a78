"""CPUs as targets: what an x86 processor's features, cores, clock and caches make of it, and generic ones.

Nothing is read of the machine this runs on; `target_host` does that and calls `x86` here.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.compiler.target import GIB, KIB, MIB, X86_V3, X86_V4, MatrixUnit, MemoryLevel, Target


def _amx(features: tuple[str, ...]) -> tuple[MatrixUnit, ...]:
    """AMX tiles: 16 rows of 64 B. Source: Intel, Instruction Set Extensions Reference, ch. 3."""
    units = []
    if "amx-bf16" in features:
        units.append(MatrixUnit("tdpbf16ps", "bf16", "f32", (16, 16, 32)))
    if "amx-int8" in features:
        units.append(MatrixUnit("tdpbssd", "i8", "i32", (16, 16, 64)))
    return tuple(units)


def x86(
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
    levels = (("x86-64-v4", X86_V4), ("x86-64-v3", X86_V3), ("x86-64", ()))
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


def generic_x86(name: str, features: tuple[str, ...], l2: int) -> Target:
    """A plausible machine of an x86-64 psABI level: four 2.5 GHz cores, sizes common to Zen and Skylake."""
    caches = {"L1": 32 * KIB, "L2": l2, "L3": 16 * MIB}
    return x86(name, features, name, 4, 2.5, caches, 16 * GIB, 512)


def x86_64_v3() -> Target:
    """AVX2 and FMA: four generic cores with 512 KiB of L2 each."""
    return generic_x86("x86-64-v3", X86_V3, 512 * KIB)


def x86_64_v4() -> Target:
    """AVX-512: four generic cores with 1 MiB of L2 each."""
    return generic_x86("x86-64-v4", X86_V4, MIB)
