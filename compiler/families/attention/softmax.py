"""The online softmax of attention, on the scores that one thread holds: rows of it are shared by neighbouring lanes.

For each row, with scores in powers of two:

    top' = max(top, max of scores)
    weight = 2^(score - top');  total = total * 2^(top - top') + sum of weights;  results are scaled alike

Source: T. Dao, "FlashAttention-2", 2023, algorithm 1, with the final division of its §3.1.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.families.attention.problem import AttentionProblem
from tilewright.compiler.families.block_loops import apply_region
from tilewright.compiler.gpu.builder import (
    Kernel,
    Operand,
    Value,
    constant,
    load,
    minimum,
    select,
    shuffle_xor,
)
from tilewright.compiler.ir import arith
from tilewright.compiler.ir import math as math_dialect

LOG2_E = math.log2(math.e)


@dataclass
class Rows:
    """What is kept of a thread's rows between blocks of keys: greatest scores, and the thread's part of the totals."""

    tops: list[Value]
    totals: list[Value]

    @property
    def values(self) -> list[Value]:
        return [*self.tops, *self.totals]

    @classmethod
    def of(cls, values: Sequence[Value]) -> Rows:
        half = len(values) // 2
        return cls(list(values[:half]), list(values[half:]))


class Softmax:
    """Changes scores as the operation says and weighs them; `exchange` are the distances of lanes that share a row."""

    def __init__(
        self,
        problem: AttentionProblem,
        written: Kernel,
        batch: Sequence[Operand],
        block: tuple[int, int],
        exchange: Sequence[int],
    ):
        self.problem, self.written, self.batch = problem, written, list(batch)
        self.attention, self.real = problem.attention, problem.real
        self.block_rows, self.block_columns = block
        self.exchange = tuple(exchange)
        self.lowest = constant(self.real, -math.inf)
        self.zero = constant(self.real, 0.0)

    def start(self, rows: int) -> Rows:
        """The state before any key was seen."""
        return Rows([self.lowest] * rows, [self.zero] * rows)

    def weigh(
        self, scores: Sequence[Sequence[Value]], rows: Sequence[Value], columns: Sequence[Value], state: Rows
    ) -> tuple[list[list[Value]], list[Value], Rows]:
        """Weights of products of queries and keys [row][column], what results so far are scaled by, and the new state."""
        weights, factors, after = [], [], Rows([], [])
        for products, row, top, total in zip(scores, rows, state.tops, state.totals):
            changed = [self.changed(product, row, column) for product, column in zip(products, columns)]
            most = changed[0]
            for score in changed[1:]:
                most = Value(arith.maxnumf(most.value, score.value))
            for distance in self.exchange:
                most = Value(arith.maxnumf(most.value, shuffle_xor(most, distance).value))
            most = Value(arith.maxnumf(most.value, top.value))
            # A row that has seen no key yet has no greatest score; zero keeps its weights zeros.
            base = select(most.equals(self.lowest), self.zero, most)
            found = [self.power(score - base) for score in changed]
            factor = self.power(top - base)
            total = total * factor
            for weight in found:
                total = total + weight
            weights.append(found)
            factors.append(factor)
            after.tops.append(most)
            after.totals.append(total)
        return weights, factors, after

    def divisors(self, state: Rows) -> list[Value]:
        """What results of each row are multiplied by at last; NaN, or 0 where that is asked for, for rows without keys."""
        found = []
        for total in state.totals:
            for distance in self.exchange:
                total = total + shuffle_xor(total, distance)
            inverse = constant(self.real, 1.0) / total
            if self.attention.zero_empty:
                found.append(select(total.equals(0.0), self.zero, inverse))
            else:
                # 0 / 0 and not 0 * inf, which is the same NaN, and stays so under any rewriting.
                found.append(select(total.equals(0.0), constant(self.real, math.nan), inverse))
        return found

    def changed(self, product: Value, row: Value, column: Value) -> Value:
        """A score in powers of two; -inf behind the last key, and where the causal mask hides it."""
        attention = self.attention
        score = self.modified(product, row, column)
        if attention.causal is not None:
            later = row + attention.causal if attention.causal >= 0 else row
            column_then = column if attention.causal >= 0 else column - attention.causal
            score = select(column_then > later, self.lowest, score)
        if attention.columns % self.block_columns:
            score = select(column < attention.columns, score, self.lowest)
        return score

    def modified(self, product: Value, row: Value, column: Value) -> Value:
        """A score in powers of two as the operation's region gives it."""
        attention = self.attention
        if attention.keeps_scores:
            score = product * (attention.scale * LOG2_E)
        else:
            given = self.elements(row, column)
            score = product if attention.scale == 1.0 else product * attention.scale
            (found,) = apply_region(
                attention.body, [score.value, *(v.value for v in given), row.value, column.value]
            )
            score = Value(found) * LOG2_E
        return score

    def elements(self, row: Value, column: Value) -> list[Value]:
        """The elements of other tensors that the region reads for a score; the last row's or key's for those behind it."""
        attention, extras = self.attention, self.problem.accesses[3:-1]
        if attention.rows % self.block_rows:
            row = _at_most(row, attention.rows - 1)
        if attention.columns % self.block_columns:
            column = _at_most(column, attention.columns - 1)
        return [
            load(self.written.buffers[extra.buffer], *extra.at([*self.batch, row, column, 0, 0]))
            for extra in extras
        ]

    def power(self, value: Value) -> Value:
        return Value(math_dialect.exp2(value.value))


def _at_most(value: Value, number: int) -> Value:
    found = minimum(value, number)
    assert isinstance(found, Value)
    return found


def seen_steps(problem: AttentionProblem, first_row: Value, rows: int, columns: int) -> Operand:
    """Blocks of `columns` keys that any of `rows` queries from `first_row` on sees."""
    attention = problem.attention
    blocks = -(-attention.columns // columns)
    if attention.causal is None or attention.causal < 0:
        return blocks
    last = minimum(first_row + (rows - 1), attention.rows - 1)
    return minimum((last + attention.causal) // columns + 1, blocks)
