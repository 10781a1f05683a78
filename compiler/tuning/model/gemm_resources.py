"""What a tile of a contraction takes on a GPU: the record of n tiles, matrix instructions, and registers of a thread, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

SIMT_REGISTERS = 32
"""Registers of a thread beside its tile: addresses and loop variables, as for constructed programs (`roller.threads`)."""
MMA_REGISTERS = 40
"""The same of a thread that feeds matrix instructions, which keeps addresses of swizzled rows as well."""
SCATTERED_REGISTERS = 5
"""Registers for each element that a thread copies on its own: the value, its place in shared memory, an address of 64 bits,
and whether it is there. ptxas 12.9 spilled 36 to 232 B in f16 stems of 3 channels whose tiles leave fewer."""
MOST_ASKED_BLOCKS = 8
"""Blocks per multiprocessor that kernels of contractions ask the assembler to leave room for, at most: small ones may take
registers until no more than these fit."""
WGMMA_ROW_BYTES = 128
"""Bytes along k of one stage: a row of the widest swizzle."""
INSTRUCTIONS = {
    ("mma", "f16"): ("mma.m16n8k16", (16, 8, 16)),
    ("mma", "bf16"): ("mma.m16n8k16", (16, 8, 16)),
    ("mma", "tf32"): ("mma.m16n8k8.tf32", (16, 8, 8)),
    ("mma", "i8"): ("mma.m16n8k32", (16, 8, 32)),
    ("volta", "f16"): ("mma.m8n8k4", (16, 16, 4)),
}
"""What one warp computes at once: by kind of kernel and type, the instruction and its tile. Four quads of eight threads
each run an m8n8k4 of their own, so that a warp's is 16x16. Source: PTX ISA, "Matrix multiply-accumulate instructions"."""


@dataclass(frozen=True)
class GemmTiles:
    """n tiles, every field an array [n]: block, warp and thread sizes, and what a block takes of a multiprocessor.

    `warp_m` x `warp_n` is what one of `warps` computing warps has (a quarter of a warpgroup's rows for wgmma);
    `registers` per thread and `shared_bytes` per block are estimates of what code generation makes of it.
    """

    block_m: np.ndarray
    block_n: np.ndarray
    block_k: np.ndarray
    warp_m: np.ndarray
    warp_n: np.ndarray
    thread_m: np.ndarray
    thread_n: np.ndarray
    warps: np.ndarray
    threads: np.ndarray
    stages: np.ndarray
    cluster: np.ndarray
    registers: np.ndarray
    shared_bytes: np.ndarray

    def __len__(self) -> int:
        return len(self.block_m)

    def take(self, which: np.ndarray) -> GemmTiles:
        """The tiles at the positions, or where the mask is true."""
        return GemmTiles(*(getattr(self, field.name)[which] for field in fields(self)))

    @classmethod
    def of(cls, rows: list[tuple[int, ...]]) -> GemmTiles:
        """From one tuple of all fields per tile."""
        return cls(*np.asarray(rows, dtype=np.int64).reshape(-1, len(fields(cls))).T)


def simt_registers(thread_m: np.ndarray, thread_n: np.ndarray, width: int) -> np.ndarray:
    """Registers of threads with tiles of sums that take `width` registers each, beside what waits to be copied: [n]."""
    # Fragments of two steps of k, of four where few threads leave room for them: the assembler takes what there is.
    sums = thread_m * thread_n
    found = (sums + np.where(sums <= 64, 2, 4) * (thread_m + thread_n)) * width + SIMT_REGISTERS
    return np.minimum(found, 255) if width == 1 else found


def mma_registers(warp_m: np.ndarray, warp_n: np.ndarray, depth_bytes: int, asynchronous: bool) -> np.ndarray:
    """Registers of threads of warps whose instructions take so many bytes along k: [n]."""
    # A warp's sums in f32, two sets of fragments in 32-bit registers.
    fragments = (warp_m + warp_n) * depth_bytes // 4 // 32
    # What is copied through registers needs its two addresses per vector as well.
    return warp_m * warp_n // 32 + 2 * fragments + MMA_REGISTERS + (0 if asynchronous else 24)


def wgmma_registers(columns: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """Registers of threads at the start, which are dealt out evenly; consumers take the producer's later: [n]."""
    return np.minimum(columns // 2 + MMA_REGISTERS, 65536 // threads // 8 * 8)
