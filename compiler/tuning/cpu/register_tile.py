"""Register tiles: as many independent accumulators as the vector registers hold, in extents that divide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from tilewright.compiler.nouns.register_tiles import DotTile, RegisterTile, block_widths, register_pieces
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.overlap import exposed

LATENCY_X_THROUGHPUT = 8
"""Accumulators that keep two multiply-add units of four cycles' latency busy, as on every x86 core since 2013."""


VECTOR_LOAD = 1.5
"""Cost of loading a vector, in broadcasts of one element, where two multiply-adds pass until L2 has given it. Measured on Zen 4,
one core, 128 x 4032 x 1000: 9.5 ms at 1, which takes seven registers of columns, 9.05 ms at 1.5, which takes three."""
_MULTIPLY_ADDS_PER_VECTOR = 2.0
"""Those of Zen 4: one of 512 bits in a cycle, and 32 bytes of L2."""

LOAD = 0.3
"""What a load costs beside multiply-adds, in their time. Measured on Zen 5, two cores: 512 x 512 x 512 runs at 484 GFLOP/s
in tiles of 14 x 32, which load 0.6 times for each of them, at 485 in 6 x 64 with 0.5, at 437 in one vector with 1.05."""

_SET_SPAN_BYTES = 4096
"""Addresses this far apart share a set of the first cache, whose sets are found before pages are: each row being read needs one
of its ways, 8 of 32 KiB and 12 of 48. Source: Intel's optimisation manual 248966 and AMD's guide 56665 (cache parameters)."""


def vector_load(target: Target) -> float:
    """The cost of loading a vector on a core of `target`, in broadcasts of one element, at least that of one of these.

    Panels stream through L2: what it costs goes up with the multiply-adds that pass until a vector is there. Measured on an Ice
    Lake Xeon, whose cores start two of 512 bits in a cycle beside 48 bytes of L2 (2.0 broadcasts): 128 x 3072 x 768 takes 3.9 ms in
    tiles of 4 x 96, 3.3 in 8 x 48; a convolution of groups of 256 channels 2.2 ms in 4 x 64, 2.0 in 8 x 32.
    """
    vectors = 8 / target.vector_bits  # of a GB/s, in 10^9
    started = target.peak_gflops["f32"] / (2 * target.vector_bits / 32)
    second = target.memory[max(1, len(target.memory) - 3)]
    passing = started / (float(second.bandwidth_gbps) * vectors)
    return max(1.0, VECTOR_LOAD * passing / _MULTIPLY_ADDS_PER_VECTOR)


@dataclass(frozen=True)
class Panel:
    """What it costs that a register tile's columns of the vector operand come from far: once, and again where they do not stay.

    `points` results share each of its elements. While the first rows pass, a vector takes `arrival` multiply-adds' time to
    come; rows after them find it in the core's own cache of `own_bytes`, or, where `column_bytes` of each column are too
    many, take `overflow` times as long to load it.
    """

    points: int
    arrival: float
    column_bytes: int
    own_bytes: int
    overflow: float

    @classmethod
    def of(cls, target: Target, points: int, steps: int, dtype: str, itemsize: int, in_memory: bool) -> Panel:
        """A panel of `steps` elements of `dtype` a column, which lies in main memory or in the cache that cores share."""
        own = target.own_cache
        behind = target.memory[target.memory.index(own) - 1]
        source = target.memory[0 if in_memory else 1]
        gflops = float(target.peak_gflops.get(dtype) or target.peak_gflops["f32"])
        arrival = itemsize * gflops / (2 * float(source.bandwidth_gbps))
        overflow = max(1.0, float(own.bandwidth_gbps) / float(behind.bandwidth_gbps))
        return cls(points, arrival, steps * itemsize, own.capacity_bytes, overflow)

    def load(self, width: int) -> float:
        """How many times as long as from the core's own cache a vector takes to load, of tiles `width` wide."""
        return self.overflow if width * self.column_bytes > self.own_bytes else 1.0

    def exposed(self, rows: int) -> float:
        """The part of all multiply-adds' time that is waited beside them for the columns, where `rows` pass first."""
        return exposed(1.0, self.arrival / self.points, rows / self.points)


@cache
def choose_register_tile(
    unroll_extent: int,
    vector_extent: int,
    lanes: int,
    registers: int,
    widths: tuple[int, ...] | None = None,
    most_rows: int | None = None,
    panel: Panel | None = None,
    vector_load: float = VECTOR_LOAD,
) -> RegisterTile:
    """The tile that takes the least time per useful multiply-add and leaves no spills.

    `lanes` elements fill a vector register, of which there are `registers`; `widths`, when given, are the only
    vector extents allowed, the divisors of the block that an operand is stored in. A tile of u x v registers needs
    u*v accumulators, v registers for the vector operand and one for broadcasts; per step of the reduction it loads
    u + v registers for u*v multiply-adds, of which the v whole ones weigh more: they stream through the caches, where
    a line of what is broadcast serves many steps. `most_rows` bounds u where more rows would evict each other.
    With a `panel` columns that come from far are waited for, and more rows wait less. `vector_load` is that of the target.
    """
    # Where not even one row of the narrowest width fits, that row spills least.
    best, chosen = (-math.inf, 0), RegisterTile(1, min(vector_extent, min(widths) if widths else lanes))
    for width in widths or tuple(lanes * vectors for vectors in (1, 2, 3, 4, 6, 8)):
        width = min(width, vector_extent)
        vectors = len(register_pieces(width, lanes))
        for unroll in range(1, min(unroll_extent, registers, most_rows or registers) + 1):
            if unroll * vectors + vectors + 1 > registers and (unroll, vectors) != (1, 1):
                break
            computed = -(-unroll_extent // unroll) * unroll * -(-vector_extent // width) * vectors * lanes
            useful = unroll_extent * vector_extent / computed
            busy = min(1.0, unroll * vectors / LATENCY_X_THROUGHPUT)
            far = panel.load(width) if panel is not None else 1.0
            loads = (unroll + vector_load * far * vectors) / (unroll * vectors)
            waited = panel.exposed(unroll) if panel is not None else 0.0
            score = (-(1 + LOAD * loads) / (useful * busy) - waited, -unroll * vectors)
            if score > best:
                best, chosen = score, RegisterTile(unroll, width)
    return chosen


@cache
def dot_tiles(rows: int, columns: int, steps: int, registers: int, reuses: bool) -> tuple[DotTile, ...]:
    """Tiles of results that are vectors along their reduction, by multiply-adds per loaded vector.

    `rows` and `columns` are extents, `steps` the vectors along the reduction, of which chains take turns;
    without `reuses` rows share nothing that is loaded, and four of them are enough to overlap.
    """
    scored = []
    most = 8 if reuses else 4
    for r in range(1, min(rows, most) + 1):
        for c in range(1, min(columns, most) + 1):
            for chains in (1, 2, 4, 8):
                accumulators = r * c * chains
                if (chains > 1 and chains > steps) or accumulators + min(r, c) + 2 > registers:
                    break
                useful = rows * columns / (-(-rows // r) * r * -(-columns // c) * c)
                busy = min(1.0, accumulators / LATENCY_X_THROUGHPUT)
                loads = (r + c) / (r * c) if reuses else 1.0
                scored.append(
                    ((-useful * busy / (1 + loads), chains, accumulators, r), DotTile(r, c, chains))
                )
    return tuple(tile for _, tile in sorted(scored, key=lambda row: row[0]))


def rows_in_one_set(stride_bytes: int, target: Target) -> int | None:
    """How many rows `stride_bytes` apart can be read side by side from a core's first cache; None when they fall into many sets.

    Rows of a power of two are the common case: 4 KiB apart, all lines of a column share one set. Two ways are left
    to what else is read.
    """
    shared = math.gcd(stride_bytes, _SET_SPAN_BYTES)
    ways = max(3, target.memory[-2].capacity_bytes // _SET_SPAN_BYTES)
    return None if shared < _SET_SPAN_BYTES // 2 else (ways - 2) * (_SET_SPAN_BYTES // shared)


def choose_packing(
    unroll_extent: int,
    vector_extent: int,
    lanes: int,
    registers: int,
    most_rows: int | None = None,
    panel: Panel | None = None,
    vector_load: float = VECTOR_LOAD,
) -> RegisterTile | None:
    """The register tile of a contraction whose operand is stored in blocks as wide as it, which divide the vector loop: a kernel
    streams through memory. None where no divisor serves well."""
    widths = block_widths(vector_extent, lanes, registers)
    if not widths:
        return None
    return choose_register_tile(
        unroll_extent, vector_extent, lanes, registers, widths, most_rows, panel, vector_load
    )
