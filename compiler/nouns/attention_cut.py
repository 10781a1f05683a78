"""Cuts of attention on a CPU: queries per rTask, vectors of queries in flight, keys per block, and what that makes of registers.

Queries lie along the lanes of vectors, so a score's row is a lane: maxima and sums over keys are vertical, and keys
and values are read as scalars, from wherever they lie. Source: the blocks of T. Dao, "FlashAttention-2", 2023, §3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.nouns.register_tiles import MOST_SPILLED, divisors

_LATENCY_X_THROUGHPUT = 8
"""Accumulators that keep two multiply-add units of four cycles' latency busy, as on every x86 core since 2013."""


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
    """`queries` per rTask, in groups of `vectors` of them; `keys` per block; `registers` that scores and results take."""

    queries: int
    vectors: int
    keys: int
    registers: int

    def groups(self, lanes: int) -> tuple[tuple[int, int], ...]:
        """(count, vectors) of the groups of an rTask, one or two: a single vector that is left joins the last group."""
        total = -(-self.queries // lanes)
        full, rest = divmod(total, self.vectors)
        if rest == 1 and full:
            full, rest = full - 1, self.vectors + 1
        return tuple(group for group in ((full, self.vectors), (1, rest)) if all(group))


@dataclass(frozen=True)
class AttentionLoops:
    """What a cut is chosen for: `queries` and `keys` of one head, values of `width`, on vectors of `lanes`."""

    queries: int
    keys: int
    width: int
    lanes: int
    registers: int

    @property
    def block(self) -> None:
        """Nothing is packed."""
        return None

    def most(self) -> tuple[int, int, int, int]:
        """The largest sizes of a cut."""
        return self.queries, -(-self.queries // self.lanes), self.keys, MOST_SPILLED * self.registers

    def accumulators(self, sizes: Sequence[int]) -> int:
        """Vector registers that the sums of a block of scores, or of results, take at most."""
        return max(vectors * rows for vectors, *held in self._held(AttentionCut(*sizes)) for rows in held)

    def rule(self, sizes: Sequence[int]) -> str | None:
        """What a cut has to keep to beside the largest sizes: no other cut makes the same loops."""
        cut = AttentionCut(*sizes)
        vectors = -(-cut.queries // self.lanes)
        if cut.vectors > vectors:
            return f"vectors is {cut.vectors}, {cut.queries} queries fill {vectors}; use at most that"
        if cut.vectors + 1 == vectors:
            return f"vectors is {cut.vectors}, which leaves one that joins them; use {vectors}"
        least = self.least(cut)
        if cut.registers != least.registers:
            return f"registers is {cut.registers}, whose loops are those of {least.registers}; use that"
        return None

    def least(self, cut: AttentionCut) -> AttentionCut:
        """The cut of the same loops with the smallest number of registers to say so."""
        held, registers = self._held(cut), cut.registers
        while registers > 1:
            fewer = AttentionCut(cut.queries, cut.vectors, cut.keys, registers - 1)
            if self._held(fewer) != held:
                break
            registers -= 1
        return AttentionCut(cut.queries, cut.vectors, cut.keys, registers)

    def _held(self, cut: AttentionCut) -> list[tuple[int, ...]]:
        """Of each group: its vectors, and how many rows of scores and of results are in registers at a time."""
        blocks = dict.fromkeys((cut.keys, self.keys % cut.keys))
        extents = (*(extent for extent in blocks if extent), self.width)
        return [
            (vectors, *(rows_in_flight(extent, vectors, cut.registers) for extent in extents))
            for _, vectors in cut.groups(self.lanes)
        ]


def grouped_vectors(queries: int, lanes: int, most: int) -> int:
    """The vectors of a group for queries of which at most `most` vectors should be in flight, or one more at the end."""
    vectors = -(-queries // lanes)
    return vectors if vectors <= most + 1 else most


def rows_in_flight(extent: int, vectors: int, registers: int) -> int:
    """How many rows of `vectors` accumulators `registers` hold: a divisor of `extent` where one serves well."""
    most = max(1, min(extent, (registers - 1 - vectors) // vectors))
    serving = [
        d for d in divisors(extent) if d <= most and 2 * d > most and d * vectors >= _LATENCY_X_THROUGHPUT
    ]
    return serving[-1] if serving else most
