"""GPUs and Graphcore's IPU as targets, every number with its source beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.compiler.targets.target import GIB, KIB, MIB, MatrixUnit, MemoryLevel, Target


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
        lanes_per_core=lanes, clock_ghz=ghz, schedulers=4, block_threads=1024, core_threads=2048, core_blocks=32,
    )  # fmt: skip


def _mma(*rows: tuple[str, str, str, tuple[int, int, int]]) -> tuple[MatrixUnit, ...]:
    return tuple(MatrixUnit(*row) for row in rows)


def k80() -> Target:
    """Tesla K80, one of its two GK210 chips, at its 875 MHz boost clock.

    Sources: Tesla K80 board specification BD-07317 (13 SMX of 192 lanes, 12 GB, 240 GB/s and 4.37 TFLOP/s per chip);
    Kepler tuning guide §1.4 (48 KB of shared memory per block, 512 KB of registers per SMX; 32 banks of 8 B,
    in the default mode 4 B each per cycle; 16 blocks; four schedulers that issue two instructions each). NVIDIA gives no L2 bandwidth, so that level is left out.
    Roller (OSDI'22, §4 and its public artifact): 96 registers for a tile, 191 GB/s measured, banks of 8 B.
    """
    target = _gpu(
        "k80", "sm_37", 13, 0.875, 192, (12 * GIB, 240.0), None, (48 * KIB, 13 * 128 * 0.875),
        {"f32": 4370.0, "f64": 1456.0},
        registers_bytes=512 * KIB,
    )  # fmt: skip
    dram, shared, registers = target.memory
    memory = (replace(dram, copy_gbps=191.0), replace(shared, bank_bytes=8), registers)
    return replace(
        target, memory=memory, tile_registers=96, tile_shared_bytes=48 * KIB, core_blocks=16, issue_lanes=256
    )


def v100() -> Target:
    """Tesla V100 PCIe 16 GB at 1.38 GHz, the board of Azure's NC24s_v3 that Roller's figures come from (§5).

    Sources: V100 datasheet, PCIe column (900 GB/s; 14 TFLOP/s f32, 7 f64, 112 tensor); Volta whitepaper WP-08608 (80
    SMs of 64 lanes and 4 schedulers, 6 MB L2, 96 KB of shared memory and 256 KB of registers per SM, 2,048 threads and
    32 blocks). Measured: DRAM copies 790 GB/s on this board (Warburton, "Rough-n-Ready Roofline: NVIDIA V100 edition",
    2018); Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, table 3.1: L2 loads
    2,155 GB/s, shared memory 12,080 GB/s; an L2 hit takes 193 cycles, a miss 375, shared memory 19. 12,480 GFLOP/s f32 by
    Roller's micro-benchmark, 96 registers and 48 KB for a tile (Roller, OSDI'22, §4 and its public artifact). An empty
    kernel's start: Zhang et al., "A Study of Single and Multi-device Synchronization Methods", IPDPS'20.
    """
    target = _gpu(
        "v100", "sm_70", 80, 1.38, 64, (16 * GIB, 900.0), (6 * MIB, 2155.0), (96 * KIB, 12080.0),
        {"f32": 14131.0, "f64": 7065.0, "f16": 112000.0},
        _mma(("wmma.m16n16k16", "f16", "f32", (16, 16, 16)), ("mma.m8n8k4", "f16", "f32", (8, 8, 4))),
    )  # fmt: skip
    dram, l2, shared, registers = target.memory
    memory = (
        replace(dram, copy_gbps=790.0, latency_ns=375 / 1.38),
        replace(l2, latency_ns=193 / 1.38),
        replace(shared, latency_ns=19 / 1.38),
        registers,
    )
    return replace(
        target,
        memory=memory,
        tile_registers=96,
        tile_shared_bytes=48 * KIB,
        start_us=1.4,
        sustained_gflops=12480.0,
    )


def _latencies(target: Target, ghz: float, cycles: tuple[float, float, float]) -> Target:
    """With the cycles that a load takes from DRAM, L2 and shared memory, at `ghz`."""
    *caches, registers = target.memory
    known = (replace(level, latency_ns=count / ghz) for level, count in zip(caches, cycles))
    return replace(target, memory=(*known, registers))


def a100() -> Target:
    """A100 SXM 40 GB at 1.41 GHz.

    Sources: A100 whitepaper V1.0 (108 SMs of 64 lanes, 1,555 GB/s, 40 MB L2 reading 5,120 B per cycle; 19.5 TFLOP/s f32,
    9.7 f64, 312 f16 and bf16, 156 tf32, 624 TOPS i8); CUDA programming guide (163 KB of shared memory
    per block, 164 per SM, 1 KB of it kept per block). A load from DRAM, L2 and shared memory takes 466, 262 and 29
    cycles (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", 2024, table IV). Starting a
    kernel: the V100's, as nobody measured it.
    """
    target = _gpu(
        "a100", "sm_80", 108, 1.41, 64, (40 * GIB, 1555.0), (40 * MIB, 5120 * 1.41), (163 * KIB, 108 * 128 * 1.41),
        {"f32": 19500.0, "f64": 9700.0, "f16": 312000.0, "bf16": 312000.0, "tf32": 156000.0, "i8": 624000.0},
        _mma(
            ("mma.m16n8k16", "f16", "f32", (16, 8, 16)),
            ("mma.m16n8k16", "bf16", "f32", (16, 8, 16)),
            ("mma.m16n8k8", "tf32", "f32", (16, 8, 8)),
            ("mma.m16n8k32", "i8", "i32", (16, 8, 32)),
        ),
    )  # fmt: skip
    target = _latencies(target, 1.41, (466.3, 261.5, 29.0))
    return replace(target, start_us=1.4, core_shared_bytes=164 * KIB, block_reserved_bytes=KIB)


def h100() -> Target:
    """H100 SXM5 80 GB at 1.83 GHz, where its tensor peaks are quoted (f32 and f64 at 1.98 GHz).

    Sources: H100 whitepaper V1.04 (132 SMs of 128 lanes, 50 MB L2, 3,352 GB/s; dense TFLOP/s: 66.9 f32, 33.5 f64, 494.7
    tf32, 989.4 f16 and bf16, 1,978.9 f8, as many TOPS i8); CUDA programming guide (227 KB of shared memory
    per block, 228 per SM, 1 KB of it kept per block). L2: A100's 5,120 B per cycle, as NVIDIA names no newer figure.
    A load from DRAM, L2 and shared memory takes 479, 263 and 29 cycles; `mma.sync` reaches 62.9% of the peak (Luo et al.,
    2024, table IV and §IV-C). Starting a kernel: the V100's, as nobody measured it.
    """
    target = _gpu(
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
            ("mma.m16n8k8", "tf32", "f32", (16, 8, 8)),
            ("mma.m16n8k32", "i8", "i32", (16, 8, 32)),
        ),
    )  # fmt: skip
    target = _latencies(target, 1.83, (478.8, 263.0, 29.0))
    return replace(
        target, start_us=1.4, core_shared_bytes=228 * KIB, block_reserved_bytes=KIB, mma_share=0.629
    )


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
    them per unit, 40 wavefronts, of which one starts a vector instruction each cycle); Vega whitepaper (4 MB L2 in 16 channels of 64 B per cycle). Roller (OSDI'22, §4 and
    its public artifact): 70 registers for a tile, transactions of 64 B; 900 GB/s and 12,000 GFLOP/s measured.
    """
    target = _gpu(
        "mi50", "gfx906", 60, 1.725, 64, (16 * GIB, 1024.0), (4 * MIB, 16 * 64 * 1.725), (64 * KIB, 60 * 128 * 1.725),
        {"f32": 13300.0, "f64": 6600.0, "f16": 26500.0}, warp=64,
    )  # fmt: skip
    dram, *rest = target.memory
    memory = (replace(dram, transaction_bytes=64, copy_gbps=900.0), *rest)
    return replace(
        target, memory=memory, tile_registers=70, core_threads=2560, sustained_gflops=12000.0, issue_lanes=64
    )


def mi250() -> Target:
    """One of the two dies of an Instinct MI250 at 1.7 GHz, which the system shows as a GPU of its own.

    Sources: MI250 datasheet, half of it (104 compute units, 64 GB, 1,638 GB/s; 22.6 TFLOP/s f32 and f64, 181 f16 and
    bf16); CDNA 2 whitepaper (8 MB of L2 in 32 channels of 128 B per cycle; matrix instructions);
    CDNA 2 ISA reference (64 KB of LDS in 32 banks of 4 B, wavefronts of 64, 512 KB of vector registers per unit, 256
    per thread beside as many accumulators; 32 wavefronts per unit).
    """
    target = _gpu(
        "mi250", "gfx90a", 104, 1.7, 64, (64 * GIB, 1638.0), (8 * MIB, 32 * 128 * 1.7), (64 * KIB, 104 * 128 * 1.7),
        {"f32": 22600.0, "f64": 22600.0, "f16": 181000.0, "bf16": 181000.0},
        _mma(("mfma.m32n32k8", "f16", "f32", (32, 32, 8)), ("mfma.m32n32k8", "bf16", "f32", (32, 32, 8))),
        warp=64, registers_bytes=512 * KIB,
    )  # fmt: skip
    dram, *rest = target.memory
    memory = (replace(dram, transaction_bytes=64), *rest)
    return replace(target, memory=memory, issue_lanes=64)


def graphcore_ipu() -> Target:
    """Graphcore IPU Mk1 (GC2) at 1.6 GHz: tiles with local memory only, so its slowest level is the exchange.

    Sources: Roller, OSDI'22, §6.6 (1,216 cores with 256 KB each); Jia et al., "Dissecting the Graphcore IPU
    Architecture", 2019 (exchange 8 TB/s, local memory 45 TB/s in all, six threads per tile; 31.1 TFLOP/s f32,
    124.5 f16). Roller (OSDI'22, §4): 10 registers for a tile. Schedules can be constructed; no code is generated.
    """
    memory = (
        MemoryLevel("exchange", 1216 * 256 * KIB, 8000.0, 4, shared_by=1216),
        MemoryLevel("local", 256 * KIB, 45000.0, 16),
        MemoryLevel("registers", 16 * 4 * 6, 31100.0 / 2 * 12, 4),
    )
    unit = MatrixUnit("amp", "f16", "f32", (1, 16, 16))
    return Target(
        "graphcore-ipu", "ipu", "ipu1", memory, 1216, 6, 64, 16, {"f32": 31100.0, "f16": 124500.0}, (unit,),
        lanes_per_core=8, clock_ghz=1.6, tile_registers=10,
    )  # fmt: skip
