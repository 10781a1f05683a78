"""Attention on warpgroups' matrix instructions, fed by TMA, for f16 and bf16 on sm_90a: everything decided beforehand.

Every operand is linear in the loops, so it is a tensor map (`hopper_maps.py`); a box of it is 64 elements of a head
times the rows of a tile. A head of more than 64 elements is several such panels.

Source: J. Shah et al., "FlashAttention-3", 2024, §3.1 and §3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.families.attention.problem import Access, AttentionProblem
from tilewright.compiler.families.wgmma.maps import MapPlan, NotHopper, Strided
from tilewright.compiler.families.wgmma.pipeline import BARRIER_BYTES
from tilewright.compiler.families.wgmma.tile import (
    PANEL,
    REGISTERS,
    ROW_BYTES,
    WARPGROUP_ROWS,
    WARPGROUP_THREADS,
)
from tilewright.compiler.gpu.builder import Operand
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.runtime.launch_rules import broken_map_rule
from tilewright.runtime.program import TensorMap

ARCH = "sm_90a"
MOST_WIDTH = 256
"""Elements of a head: n of one wgmma is at most 256. Source: PTX ISA 8.8, "wgmma.mma_async"."""
STEP = 16
"""Keys, or elements of a head, that one wgmma multiplies."""
PRODUCER_REGISTERS = 32
OTHER_REGISTERS = 32
"""Of a consumer's thread, beside scores, weights and results: maxima, sums, addresses, and what is being converted.
ptxas 12.9 spills where there are fewer."""
MASK_REGISTERS = 24
"""For reading what scores are changed by: without them, 192 queries and 128 keys of 64 elements would spill."""


@dataclass(frozen=True)
class WgmmaTile:
    """`rows` of queries, 64 per consumer, and `columns` of keys, of which `stages` are in shared memory at once.

    `inner` and `width` are the lengths of the dot products and of the values; `reads_masks` is whether scores are
    changed by elements of other tensors.
    """

    rows: int
    columns: int
    stages: int
    inner: int
    width: int
    reads_masks: bool = False

    @property
    def consumers(self) -> int:
        return self.rows // WARPGROUP_ROWS

    @property
    def threads(self) -> int:
        return (self.consumers + 1) * WARPGROUP_THREADS

    @property
    def result_columns(self) -> int:
        """n of the second product: whole panels, as a factor that is contiguous along n has them in memory.

        Source: PTX ISA 8.8, "Strides" of wgmma's matrix descriptors: 128 bytes swizzled are 64 elements along n.
        """
        return self.width_panels * PANEL

    @property
    def inner_panels(self) -> int:
        return -(-self.inner // PANEL)

    @property
    def width_panels(self) -> int:
        return -(-self.width // PANEL)

    @property
    def query_bytes(self) -> int:
        """Of the queries' panels."""
        return self.inner_panels * self.rows * ROW_BYTES

    @property
    def key_bytes(self) -> int:
        """Of one stage of keys."""
        return self.inner_panels * self.columns * ROW_BYTES

    @property
    def value_bytes(self) -> int:
        """Of one stage of values."""
        return self.width_panels * self.columns * ROW_BYTES

    @property
    def rows_bytes(self) -> int:
        """Of what holds queries first and results at last."""
        return max(self.inner_panels, self.width_panels) * self.rows * ROW_BYTES

    @property
    def shared_bytes(self) -> int:
        """All of a block's shared memory, four barriers per stage among it."""
        return self.rows_bytes + self.stages * (self.key_bytes + self.value_bytes + 4 * BARRIER_BYTES)

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers per thread of (producer, consumers) once they are handed over; None where each has enough anyway."""
        if self.consumers == 1:
            return None
        pool = REGISTERS // self.threads // 8 * 8 * (self.consumers + 1)
        return PRODUCER_REGISTERS, min(240, (pool - PRODUCER_REGISTERS) // self.consumers // 8 * 8)

    @property
    def held_registers(self) -> int:
        """What a consumer's thread holds: scores and results in f32, weights in 16 bits, and the rest."""
        held = self.columns // 2 + self.columns // 4 + self.result_columns // 2
        return held + OTHER_REGISTERS + (MASK_REGISTERS if self.reads_masks else 0)


@dataclass(frozen=True)
class WgmmaPlan:
    """An attention, its tile, and tensor maps of queries, keys, values and the result."""

    problem: AttentionProblem
    tile: WgmmaTile
    maps: tuple[MapPlan, MapPlan, MapPlan, MapPlan]

    @property
    def type_(self) -> str:
        return self.problem.accesses[0].dtype

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        tile = self.tile
        instruction = f"wgmma.m64n{tile.columns}k{STEP}"
        return GpuTile(
            "wgmma", tile.threads, (tile.rows, tile.columns), instruction=instruction, stages=tile.stages
        )

    @property
    def parts(self) -> int:
        """Blocks of one head."""
        return -(-self.problem.attention.rows // self.tile.rows)

    def starts(
        self, batch: Sequence[Operand], row: Operand = 0, key: Operand = 0, element: int = 0
    ) -> dict[int, Operand]:
        """Positions of all loops for a box at query `row` or key `key`, from `element` of the head on."""
        first = len(batch)
        return {
            **dict(enumerate(batch)),
            first: row,
            first + 1: key,
            first + 2: element,
            first + 3: element,
        }

    @property
    def tensor_maps(self) -> list[TensorMap]:
        """Those queries, keys, values and the result."""
        first, tile = len(self.problem.attention.extents), self.tile
        queries, keys, values, result = self.maps
        return [
            queries.over({first: tile.rows, first + 2: PANEL}, ROW_BYTES),
            keys.over({first + 1: tile.columns, first + 2: PANEL}, ROW_BYTES),
            values.over({first + 1: tile.columns, first + 3: PANEL}, ROW_BYTES),
            result.over({first: WARPGROUP_ROWS, first + 3: PANEL}, ROW_BYTES),
        ]


def tile_of(problem: AttentionProblem, rows: int, columns: int, stages: int = 2) -> WgmmaTile:
    """The tile of these sizes, whether it keeps the rules or not."""
    a = problem.attention
    return WgmmaTile(rows, columns, stages, a.inner, a.width, len(problem.accesses) > 4)


def read_maps(problem: AttentionProblem) -> tuple[MapPlan, MapPlan, MapPlan, MapPlan]:
    """Tensor maps of queries, keys, values and the result; raises NotHopper where TMA or wgmma cannot take them."""
    a = problem.attention
    types = {problem.accesses[i].dtype for i in (0, 1, 2, -1)}
    if len(types) != 1 or not types <= {"f16", "bf16"} or str(problem.real) != "f32":
        raise NotHopper(f"queries, keys, values and result of {', '.join(sorted(types))}")
    if max(a.inner, a.width) > MOST_WIDTH:
        raise NotHopper(f"heads of {max(a.inner, a.width)} elements")
    first = len(a.extents)
    row, key, inner, width = range(first, first + 4)
    named = (
        ("queries", 0, row, inner),
        ("keys", 1, key, inner),
        ("values", 2, key, width),
        ("the result", -1, row, width),
    )
    queries, keys, values, result = (
        _map(problem, name, problem.accesses[number], along, across) for name, number, along, across in named
    )
    return queries, keys, values, result


def _map(problem: AttentionProblem, name: str, access: Access, along: int, across: int) -> MapPlan:
    """A tensor map whose rows, of loop `along`, are contiguous in loop `across`."""
    memory, offset = access.type.get_strides_and_offset()
    loops = problem.attention.loops
    strides = [
        0 if extent == 1 else sum(own[loop] * step for own, step in zip(access.strides, memory))
        for loop, extent in enumerate(loops)
    ]
    start = offset + sum(own * step for own, step in zip(access.starts, memory))
    if not strides[along]:
        raise NotHopper(f"{name} move along no rows")
    place = Strided(name, access.buffer, access.alignment, access.element_bytes, start)
    found = place.map(access.dtype, strides, loops, (across, along))
    if any(found.dimension(loop).is_shared for loop in (across, along)):
        raise NotHopper(f"what lies behind the rows of {name}, or behind one, is no zero")
    if (rule := broken_map_rule(found.over({across: PANEL, along: WARPGROUP_ROWS}, ROW_BYTES))) is not None:
        raise NotHopper(f"a tensor map of {name}: {rule}")
    return found
