"""The block tile of a wgmma kernel: who computes what part of it, what lies where in shared memory, how registers go.

rows = 64 per consumer warpgroup, columns = n of one wgmma, depth = 128 bytes along k per stage
"""

from __future__ import annotations

from dataclasses import dataclass

WARPGROUP_THREADS = 128
WARPGROUP_ROWS = 64
"""m of every wgmma. Source: PTX ISA 8.8, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"."""
MOST_COLUMNS = 256
ROW_BYTES = 128
"""Bytes along k (or n, m) of one row of a stage: the widest swizzle."""
PANEL = 64
"""16-bit elements of one such row."""
SWIZZLE_ATOM_BYTES = 1024
SHARED_BYTES = 227 * 1024
"""What one block may have on compute capability 9.0. Source: CUDA C++ Programming Guide, "Compute Capabilities"."""
REGISTERS = 65536
"""32-bit registers of a multiprocessor. Source: as above."""
ITEM_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "i8": 1, "u8": 1}
"""Operand types of wgmma here -> bytes per element in memory."""


@dataclass(frozen=True)
class HopperTile:
    """One block: `warpgroups` consumers of [64, columns] each, fed by one producer through `stages` buffers.

    `cluster` blocks, one below the other along M, load their part of b for each other. `split` blocks share the K
    loop of a tile that would otherwise leave multiprocessors idle. `raster` rows of tiles are walked column by column.
    """

    warpgroups: int
    columns: int
    stages: int
    cluster: int = 1
    split: int = 1
    raster: int = 8

    @property
    def rows(self) -> int:
        return self.warpgroups * WARPGROUP_ROWS

    @property
    def threads(self) -> int:
        return (self.warpgroups + 1) * WARPGROUP_THREADS

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers per thread of (producer, consumers) once they are handed over; None where each has enough anyway.

        Threads start with an equal share in multiples of 8, and that is the pool that consumers take from.
        """
        if self.warpgroups == 1:
            return None
        pool = REGISTERS // self.threads // 8 * 8 * (self.warpgroups + 1)
        producer = 40
        return producer, min(240, (pool - producer) // self.warpgroups // 8 * 8)

    @property
    def a_bytes(self) -> int:
        """Of one stage."""
        return self.rows * ROW_BYTES

    @property
    def b_bytes(self) -> int:
        """Of one stage: 128 bytes for each column, or 64 rows of k as long for each panel of 64 columns."""
        return self.columns * ROW_BYTES

    def staging_bytes(self, panels: int) -> int:
        """Of the results on their way out, `panels` of [64, 64] 16-bit elements per consumer."""
        return self.warpgroups * panels * WARPGROUP_ROWS * ROW_BYTES

    def shared_bytes(self, panels: int) -> int:
        """All of a block's shared memory: stages, staging, two barriers per stage, a flag per consumer."""
        stages = self.stages * (self.a_bytes + self.b_bytes)
        return stages + self.staging_bytes(panels) + 16 * self.stages + 16 * self.warpgroups

    def most_stages(self, panels: int) -> int:
        """As many as fit beside the staging buffers, at most 8."""
        free = SHARED_BYTES - self.staging_bytes(panels) - 16 * self.warpgroups
        return min(8, free // (self.a_bytes + self.b_bytes + 16))

    @property
    def accumulators(self) -> int:
        """Sums that one consumer thread keeps."""
        return self.columns // 2
