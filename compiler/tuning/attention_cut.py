"""Cuts of attention: queries per rTask, vectors of queries in flight, keys per block.

Queries lie along the lanes of vectors, so a score's row is a lane: maxima and sums over keys are vertical, and keys
and values are read as scalars, from wherever they lie. Source: the blocks of T. Dao, "FlashAttention-2", 2023, §3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.compiler.register_tiles import divisors

_LATENCY_X_THROUGHPUT = 8
"""Accumulators that keep two multiply-add units of four cycles' latency busy, as on every x86 core since 2013."""
_SCORES_BYTES = 32768
"""A block of scores, which is read once per few rows of results: the smallest first-level cache of a core that this
compiler knows. Blocks of a quarter to eight times as many keys take the same time within 2% on Zen 4."""
_NARROW = {1: 1.08, 2: 1.01}
"""Time per score of one and of two vectors of queries in flight, over that of more: each scalar of a key or a value
serves that many multiply-adds only. Measured on Zen 4 with 1024 keys of 64."""
_MINIMUM_FLOPS = 200_000
"""What an rTask should have at least: some microseconds, against the fraction of one that starting it takes."""


@dataclass(frozen=True)
class AttentionShape:
    """One attention: heads of all batches, queries, keys, the dot products' and the values' length; `causal` when
    later queries see more keys."""

    heads: int
    rows: int
    columns: int
    inner: int
    width: int
    causal: bool


@dataclass(frozen=True)
class AttentionCut:
    """`rows` queries per rTask in `groups` of (count, vectors of queries); `columns` keys per block."""

    rows: int
    groups: tuple[tuple[int, int], ...]
    columns: int


def cut_attention(
    shape: AttentionShape, cores: int, lanes: int, registers: int, item_bytes: int
) -> AttentionCut:
    """The cut with the least estimated time: the busiest core's vectors, whether their lanes are used or not."""
    most = 4 if registers >= 32 else 2

    def cost(rows: int) -> float:
        tasks = shape.heads * -(-shape.rows // rows)
        rounds = -(-tasks // cores)
        flops = 2.0 * rows * shape.columns * (shape.inner + shape.width)
        # Few rounds leave little to even out between cores; small tasks pay for being started.
        vectors = -(-rows // lanes)
        narrow = _NARROW.get(vectors, 1.0)
        return rounds * vectors * narrow * (1 + 0.1 / rounds) * (1 + 0.02 * _MINIMUM_FLOPS / flops)

    pieces = range(1, -(-shape.rows // lanes) + 1)
    rows = min((-(-shape.rows // count) for count in pieces), key=lambda rows: (cost(rows), rows))
    groups = tuple(_groups(-(-rows // lanes), most))
    widest = max(vectors for _, vectors in groups)
    fitting = max(8, _SCORES_BYTES // (widest * lanes * item_bytes))
    if shape.causal:
        # The block on the diagonal is computed whole: as wide as it is high, half of it is wasted at most.
        fitting = min(fitting, widest * lanes)
    blocks = -(-shape.columns // fitting)
    return AttentionCut(rows, groups, min(shape.columns, -(-shape.columns // blocks // 4) * 4))


def _groups(vectors: int, most: int) -> Iterator[tuple[int, int]]:
    """(count, vectors) that sum up to `vectors`: of `most`, and one or two that make up the rest evenly."""
    full, rest = divmod(vectors, most)
    if rest == 1 and full:
        full, rest = full - 1, most + 1
    if full:
        yield full, most
    if rest:
        yield 1, rest


def rows_in_flight(extent: int, vectors: int, registers: int) -> int:
    """How many rows of `vectors` accumulators to keep in registers: a divisor of `extent` where one serves well."""
    most = max(1, min(extent, (registers - 1 - vectors) // vectors))
    serving = [
        d for d in divisors(extent) if d <= most and 2 * d > most and d * vectors >= _LATENCY_X_THROUGHPUT
    ]
    return serving[-1] if serving else most
