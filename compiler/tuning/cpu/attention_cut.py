"""Cuts of attention for a CPU: those with the least estimated time."""

from __future__ import annotations

from tilewright.compiler.nouns.attention_cut import (
    AttentionCut,
    AttentionLoops,
    AttentionShape,
    grouped_vectors,
)

_SCORES_BYTES = 32768
"""A block of scores, which is read once per few rows of results: the smallest first-level cache of a core that this
compiler knows. Blocks of a quarter to eight times as many keys take the same time within 2% on Zen 4."""
_NARROW = {1: 1.08, 2: 1.01}
"""Time per score of one and of two vectors of queries in flight, over that of more: each scalar of a key or a value
serves that many multiply-adds only. Measured on Zen 4 with 1024 keys of 64."""
_MOST_CUTS = 8
"""Cuts that are listed: the others are slower by far."""
_MINIMUM_FLOPS = 200_000
"""What an rTask should have at least: some microseconds, against the fraction of one that starting it takes."""


def attention_cuts(
    shape: AttentionShape, cores: int, lanes: int, registers: int, item_bytes: int
) -> tuple[AttentionCut, ...]:
    """Cuts by estimated time: that of the busiest core's vectors, whether their lanes are used or not."""
    most = 4 if registers >= 32 else 2
    loops = AttentionLoops(shape.rows, shape.columns, shape.width, lanes, registers)

    def cost(rows: int) -> float:
        tasks = shape.heads * -(-shape.rows // rows)
        rounds = -(-tasks // cores)
        flops = 2.0 * rows * shape.columns * (shape.inner + shape.width)
        # Few rounds leave little to even out between cores; small tasks pay for being started.
        vectors = -(-rows // lanes)
        narrow = _NARROW.get(vectors, 1.0)
        return rounds * vectors * narrow * (1 + 0.1 / rounds) * (1 + 0.02 * _MINIMUM_FLOPS / flops)

    def cut(rows: int) -> AttentionCut:
        vectors = grouped_vectors(rows, lanes, most)
        widest = max(width for _, width in AttentionCut(rows, vectors, 1, 1).groups(lanes))
        fitting = max(8, _SCORES_BYTES // (widest * lanes * item_bytes))
        if shape.causal:
            # The block on the diagonal is computed whole: as wide as it is high, half of it is wasted at most.
            fitting = min(fitting, widest * lanes)
        blocks = -(-shape.columns // fitting)
        keys = min(shape.columns, -(-shape.columns // blocks // 4) * 4)
        return loops.least(AttentionCut(rows, vectors, keys, registers))

    pieces = range(1, -(-shape.rows // lanes) + 1)
    ranked = sorted({-(-shape.rows // count) for count in pieces}, key=lambda rows: (cost(rows), rows))
    return tuple(cut(rows) for rows in ranked[:_MOST_CUTS])
