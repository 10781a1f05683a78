"""CPUs as targets: what a processor's features, cores, clock and caches make of it; x86 levels, Xeon, Neoverse.

Nothing is read of the machine this runs on; `targets.host` does that and calls `x86` here.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.compiler.targets.target import (
    GIB,
    KIB,
    MIB,
    X86_FEATURES,
    X86_V3,
    X86_V4,
    MatrixUnit,
    MemoryLevel,
    Target,
)


def _x86_matrix_units(features: tuple[str, ...]) -> tuple[MatrixUnit, ...]:
    """Dot products of AVX-512, and AMX tiles of 16 rows of 64 B.

    Source: Intel, Architecture Instruction Set Extensions Reference 319433, ch. 3 (AMX); SDM 325383 (VDPBF16PS,
    VPDPBUSD: 16 lanes that each sum 2 and 4 products).
    """
    known = (
        ("avx512bf16", MatrixUnit("vdpbf16ps", "bf16", "f32", (1, 16, 2))),
        ("avx512vnni", MatrixUnit("vpdpbusd", "i8", "i32", (1, 16, 4))),
        ("amx-bf16", MatrixUnit("tdpbf16ps", "bf16", "f32", (16, 16, 32))),
        ("amx-int8", MatrixUnit("tdpbssd", "i8", "i32", (16, 16, 64))),
    )
    return tuple(unit for feature, unit in known if feature in features)


def _x86_low_precision(features: tuple[str, ...], fma_bits: int) -> dict[str, float]:
    """Operations per core and cycle on bf16, f16 and i8, where there are instructions for them.

    Sources: Intel optimisation manual 248966, ch. 20 (AMX: 1,024 operations of bf16, 2,048 of i8 per cycle;
    AVX512-FP16: FMAs of f16 at the rate of f32's);
    uops.info (VPDPBUSD issues like an FMA on Intel and Zen 4; VDPBF16PS issues like an FMA on Zen 4, at half that rate
    on Intel's two-unit cores).
    """
    found: dict[str, float] = {}
    if "avx512bf16" in features:
        found["bf16"] = 2 * 512 / 16
    if "avx512fp16" in features:
        found["f16"] = 2 * fma_bits / 16
    if "avx512vnni" in features or "avxvnni" in features:
        found["i8"] = 2 * fma_bits / 8
    if "amx-bf16" in features:
        found["bf16"] = 1024
    if "amx-int8" in features:
        found["i8"] = 2048
    return found


def x86(
    name: str,
    features: tuple[str, ...],
    llvm_cpu: str,
    cores: int,
    ghz: float,
    caches_bytes: Mapping[str, int],
    dram_bytes: int,
    fma_bits: int,
    dram_gbps: float = 0.0,
    l3_shared_by: int = 0,
) -> Target:
    """An x86 CPU; `fma_bits` is how many bits of vector one core multiplies and adds per cycle.

    All cores share one L3 unless told otherwise.

    Bytes per core and cycle: L1 64 (two 256-bit loads), L2 32, L3 16 (what Intel's optimisation manual 248966 §2 and
    AMD's software optimisation guide 56665 §2.12 name as sustained); 128 and 48 of L1 and L2 on cores with two
    512-bit units (Intel's manual, cache parameters of the Skylake server). DRAM unless given: 17 GB/s for one core
    (read bandwidth measured on a Sapphire Rapids core), 205 GB/s at most (eight channels of DDR4-3200, JEDEC
    JESD79-4).
    """
    vector_bits = 512 if "avx512f" in features else 256 if "avx2" in features else 128
    clock = cores * ghz
    memory = [MemoryLevel("DRAM", dram_bytes, dram_gbps or min(17.0 * cores, 204.8), 64, shared_by=cores)]
    l2, l1 = (48, 128) if fma_bits == 1024 else (32, 64)
    for level, bytes_per_cycle in (("L3", 16), ("L2", l2), ("L1", l1)):
        if level in caches_bytes:
            gbps, sharing = round(clock * bytes_per_cycle, 1), (l3_shared_by or cores) if level == "L3" else 1
            memory.append(MemoryLevel(level, caches_bytes[level], gbps, 64, shared_by=sharing))
    count = 32 if vector_bits == 512 else 16
    memory.append(_vector_registers(count, vector_bits, clock * fma_bits / 8))
    rates = {"f32": 2 * fma_bits / 32, "f64": 2 * fma_bits / 64, **_x86_low_precision(features, fma_bits)}
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
        peak_gflops={dtype: round(clock * rate, 1) for dtype, rate in rates.items()},
        matrix_units=_x86_matrix_units(features),
        cpu_features=features,
        llvm_cpu=llvm_cpu or arch,
        lanes_per_core=fma_bits // 32,
        clock_ghz=ghz,
    )


def _vector_registers(count: int, vector_bits: int, multiplier_gbps: float) -> MemoryLevel:
    """`count` registers; they feed a multiply-add its three operands at the rate of the multiplier."""
    return MemoryLevel("registers", count * vector_bits // 8, round(multiplier_gbps * 3, 1), vector_bits // 8)


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


def sapphire_rapids() -> Target:
    """Xeon Platinum 8480+: AVX-512 with bf16, f16 and i8 products, and AMX; 56 cores at their 2.0 GHz base clock.

    Sources: Intel ARK (56 cores, 2.0 GHz, 105 MiB of L3, eight channels of DDR5-4800: 307.2 GB/s); Intel
    optimisation manual 248966 (48 KiB of L1, 2 MiB of L2 per core, two 512-bit units); features from LLVM's
    `sapphirerapids`. 512 GiB stand for the memory, which is the owner's choice.
    """
    caches = {"L1": 48 * KIB, "L2": 2 * MIB, "L3": 105 * MIB}
    absent = ("amx-fp16",)
    features = tuple(feature for feature in X86_FEATURES if feature not in absent)
    return x86("sapphire-rapids", features, "sapphirerapids", 56, 2.0, caches, 512 * GIB, 1024, 307.2)


def _neoverse(
    name: str,
    arch: str,
    features: tuple[str, ...],
    ghz: float,
    fma_bits: int,
    dram_gbps: float,
    rates: Mapping[str, float],
    units: tuple[MatrixUnit, ...],
) -> Target:
    """A server of 64 Neoverse cores; `rates` are operations per core and cycle beside those of f32 and f64.

    64 KiB of L1 and 1 MiB of L2 per core, 32 MiB of system-level cache; 32 vector registers of 128 bits. L1 gives two
    128-bit loads per cycle (three on V1), L2 and the system-level cache 32 B.
    """
    cores, vector_bits = 64, 128
    clock = cores * ghz
    loads = 48 if fma_bits == 512 else 32
    memory = (
        MemoryLevel("DRAM", 128 * GIB, dram_gbps, 64, shared_by=cores),
        MemoryLevel("L3", 32 * MIB, clock * 16, 64, shared_by=cores),
        MemoryLevel("L2", MIB, round(clock * 32, 1), 64),
        MemoryLevel("L1", 64 * KIB, round(clock * loads, 1), 64),
        _vector_registers(32, vector_bits, clock * fma_bits / 8),
    )
    rates = {"f32": 2 * fma_bits / 32, "f64": 2 * fma_bits / 64, "f16": 2 * fma_bits / 16, **rates}
    return Target(
        name=name,
        kind="cpu",
        arch=arch,
        memory=memory,
        num_cores=cores,
        warp_size=1,
        vector_bits=vector_bits,
        registers_per_thread=32,
        peak_gflops={dtype: round(clock * rate, 1) for dtype, rate in rates.items()},
        matrix_units=units,
        cpu_features=features,
        llvm_cpu=name,
        lanes_per_core=fma_bits // 32,
        clock_ghz=ghz,
    )


def neoverse_n1() -> Target:
    """64 Neoverse N1 cores at 2.5 GHz, as in AWS Graviton2; schedules only, no code is generated for ARM.

    Sources: Arm Neoverse N1 Software Optimization Guide PJDOC-466751330-9707 (two 128-bit NEON pipes, each an FMA or
    a dot product of i8; two 128-bit loads); Arm Neoverse N1 TRM 100616 (caches); Pellegrini et al., "The Arm Neoverse
    N1 Platform", IEEE Micro 2020, and AWS's description of Graviton2 (64 cores, 2.5 GHz, 32 MiB, eight channels of
    DDR4-3200: 204.8 GB/s). L3's 16 B per core and cycle are the width of the mesh (CMN-600 TRM 100180) shared by two
    cores.
    """
    dot = MatrixUnit("sdot", "i8", "i32", (1, 4, 4))
    features = ("neon", "fullfp16", "dotprod", "lse")
    return _neoverse("neoverse-n1", "armv8.2-a", features, 2.5, 256, 204.8, {"i8": 64}, (dot,))


def neoverse_v1() -> Target:
    """64 Neoverse V1 cores at 2.6 GHz, as in AWS Graviton3, used as NEON; schedules only.

    Sources: Arm Neoverse V1 Software Optimization Guide PJDOC-466751330-9685 (four 128-bit NEON pipes with FMA and dot
    products; three loads); Neoverse V1 TRM 101427 (caches); AWS's
    description of Graviton3 (64 cores, 2.6 GHz, eight channels of DDR5-4800: 307.2 GB/s). L3 as on N1.
    """
    units = (
        MatrixUnit("bfmmla", "bf16", "f32", (2, 2, 4)),
        MatrixUnit("smmla", "i8", "i32", (2, 2, 8)),
    )
    features = ("neon", "sve", "fullfp16", "dotprod", "bf16", "i8mm", "lse")
    # Four pipes of dot products: 8 multiply-adds of bf16 each, 16 of i8.
    rates = {"bf16": 4 * 2 * 8, "i8": 4 * 2 * 16}
    return _neoverse("neoverse-v1", "armv8.4-a", features, 2.6, 512, 307.2, rates, units)
