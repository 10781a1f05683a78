"""GPUs and Graphcore's IPU as targets, every number with its source beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.compiler.target import GIB, KIB, MIB, MatrixUnit, MemoryLevel, Target


def _gpu(
    name: str,
    arch: str,
    cores: int,
    ghz: float,
    lanes: int,
    dram: tuple[int, float],
    l2: tuple[int, float] | None,
    shared: tuple[int, float],
    peak: Mapping[str, float],
    units: tuple[MatrixUnit, ...] = (),
    warp: int = 32,
    registers_bytes: int = 256 * KIB,
) -> Target:
    """A GPU of `cores` multiprocessors with `lanes` f32 multiply-adds each; sizes in bytes, bandwidths in GB/s.

    Register bandwidth: three 4-byte operands per f32 FMA.
    """
    memory = [MemoryLevel("DRAM", *dram, 32, shared_by=cores)]
    if l2:
        memory.append(MemoryLevel("L2", *l2, 32, shared_by=cores))
    memory.append(MemoryLevel("shared", *shared, 128, 32, 4))
    memory.append(MemoryLevel("registers", registers_bytes, peak["f32"] / 2 * 12, 4))
    registers = 256 if warp == 64 else 255
    return Target(
        name, "gpu", arch, tuple(memory), cores, warp, 128, registers, dict(peak), units,
        lanes_per_core=lanes, clock_ghz=ghz,
    )  # fmt: skip


def _mma(*rows: tuple[str, str, str, tuple[int, int, int]]) -> tuple[MatrixUnit, ...]:
    return tuple(MatrixUnit(*row) for row in rows)


def k80() -> Target:
    """Tesla K80, one of its two GK210 chips, at its 875 MHz boost clock.

    Sources: Tesla K80 board specification BD-07317 (13 SMX of 192 lanes, 12 GB, 240 GB/s and 4.37 TFLOP/s per chip);
    Kepler tuning guide §1.4 (48 KB of shared memory per block, 512 KB of registers per SMX; 32 banks of 8 B,
    in the default mode 4 B each per cycle). NVIDIA gives no L2 bandwidth, so that level is left out.
    """
    return _gpu(
        "k80", "sm_37", 13, 0.875, 192, (12 * GIB, 240.0), None, (48 * KIB, 13 * 128 * 0.875),
        {"f32": 4370.0, "f64": 1456.0},
        registers_bytes=512 * KIB,
    )  # fmt: skip


def v100() -> Target:
    """Tesla V100 SXM2 16 GB at 1.53 GHz.

    Sources: V100 datasheet (900 GB/s; 15.7 TFLOP/s f32, 7.8 f64, 125 tensor); Volta whitepaper WP-08608 (80
    SMs of 64 lanes, 6 MB L2, 96 KB of shared memory, 256 KB of registers per SM); A100 whitepaper table 4 (V100's L2
    reads 2,048 B per cycle). Shared memory: 128 B per SM and cycle.
    """
    return _gpu(
        "v100", "sm_70", 80, 1.53, 64, (16 * GIB, 900.0), (6 * MIB, 2048 * 1.53), (96 * KIB, 80 * 128 * 1.53),
        {"f32": 15700.0, "f64": 7800.0, "f16": 125000.0},
        _mma(("wmma.m16n16k16", "f16", "f32", (16, 16, 16))),
    )  # fmt: skip


def a100() -> Target:
    """A100 SXM 40 GB at 1.41 GHz.

    Sources: A100 whitepaper V1.0 (108 SMs of 64 lanes, 1,555 GB/s, 40 MB L2 reading 5,120 B per cycle; 19.5 TFLOP/s f32,
    9.7 f64, 312 f16 and bf16, 156 tf32, 624 TOPS i8); CUDA programming guide (163 KB of shared memory
    per block).
    """
    return _gpu(
        "a100", "sm_80", 108, 1.41, 64, (40 * GIB, 1555.0), (40 * MIB, 5120 * 1.41), (163 * KIB, 108 * 128 * 1.41),
        {"f32": 19500.0, "f64": 9700.0, "f16": 312000.0, "bf16": 312000.0, "tf32": 156000.0, "i8": 624000.0},
        _mma(
            ("mma.m16n8k16", "f16", "f32", (16, 8, 16)),
            ("mma.m16n8k16", "bf16", "f32", (16, 8, 16)),
            ("mma.m16n8k8", "tf32", "f32", (16, 8, 8)),
        ),
    )  # fmt: skip


def h100() -> Target:
    """H100 SXM5 80 GB at 1.83 GHz, where its tensor peaks are quoted (f32 and f64 at 1.98 GHz).

    Sources: H100 whitepaper V1.04 (132 SMs of 128 lanes, 50 MB L2, 3,352 GB/s; dense TFLOP/s: 66.9 f32, 33.5 f64, 494.7
    tf32, 989.4 f16 and bf16, 1,978.9 f8, as many TOPS i8); CUDA programming guide (227 KB of shared memory
    per block). L2: A100's 5,120 B per cycle, as NVIDIA names no newer figure.
    """
    return _gpu(
        "h100", "sm_90a", 132, 1.98, 128, (80 * GIB, 3352.0), (50 * MIB, 5120 * 1.83), (227 * KIB, 132 * 128 * 1.83),
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
    return replace(
        base,
        name="h200",
        memory=(replace(base.memory[0], capacity_bytes=141 * 10**9, bandwidth_gbps=4800.0), *base.memory[1:]),
    )


def mi50() -> Target:
    """Radeon Instinct MI50 16 GB at 1.725 GHz.

    Sources: MI50 datasheet (60 compute units of 64 lanes, 1,024 GB/s; 13.3 TFLOP/s f32, 6.6 f64, 26.5 f16); Vega ISA
    reference (64 KB of LDS in 32 banks of 4 B, wavefronts of 64, 256 vector registers per thread, 256 KB of
    them per unit); Vega whitepaper (4 MB L2 in 16 channels of 64 B per cycle).
    """
    return _gpu(
        "mi50", "gfx906", 60, 1.725, 64, (16 * GIB, 1024.0), (4 * MIB, 16 * 64 * 1.725), (64 * KIB, 60 * 128 * 1.725),
        {"f32": 13300.0, "f64": 6600.0, "f16": 26500.0}, warp=64,
    )  # fmt: skip


def graphcore_ipu() -> Target:
    """Graphcore IPU Mk1 (GC2) at 1.6 GHz: tiles with local memory only, so its slowest level is the exchange.

    Sources: Roller, OSDI'22, §6.6 (1,216 cores with 256 KB each); Jia et al., "Dissecting the Graphcore IPU
    Architecture", 2019 (exchange 8 TB/s, local memory 45 TB/s in all, six threads per tile; 31.1 TFLOP/s f32,
    124.5 f16). Schedules can be constructed for it; no code is generated.
    """
    memory = (
        MemoryLevel("exchange", 1216 * 256 * KIB, 8000.0, 4, shared_by=1216),
        MemoryLevel("local", 256 * KIB, 45000.0, 16),
        MemoryLevel("registers", 16 * 4 * 6, 31100.0 / 2 * 12, 4),
    )
    unit = MatrixUnit("amp", "f16", "f32", (1, 16, 16))
    return Target(
        "graphcore-ipu", "ipu", "ipu1", memory, 1216, 6, 64, 16, {"f32": 31100.0, "f16": 124500.0}, (unit,),
        lanes_per_core=8, clock_ghz=1.6,
    )  # fmt: skip
