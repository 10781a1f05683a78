"""Threads of one row combine their partial results, after which every one of them has the whole.

Neighbouring threads exchange values through shuffles, warps through shared memory; the order of every combination
is fixed, and the same in all threads, so that results do not differ from run to run or from thread to thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TypeVar

from tilewright.compiler.families.rows.combine import Combination
from tilewright.compiler.families.rows.layout import RowLayout
from tilewright.compiler.gpu.builder import (
    Value,
    barrier,
    for_,
    if_,
    load,
    shared,
    shuffle_idx,
    shuffle_up,
    shuffle_xor,
    store,
)
from tilewright.compiler.ir import arith, ir
from tilewright.compiler.nouns.schedule import WARP

Key = TypeVar("Key", bound=tuple)
_UNROLLED = 8


class Exchange:
    """`beside` is the number of a thread's row in the block (or of its group of rows), `across` its number in the row."""

    def __init__(self, layout: RowLayout, thread: Value, beside: Value, across: Value):
        self.layout, self.thread, self.beside, self.across = layout, thread, beside, across

    def all(self, partial: Mapping[Key, list[Value]]) -> dict[Key, list[Value]]:
        """Totals from every thread's partial results; a key is (anything, lane, combination)."""
        if self.layout.across == 1:
            return dict(partial)
        return self.contiguous(partial) if self.layout.contiguous else self.strided(partial)

    def contiguous(self, partial: Mapping[Key, list[Value]]) -> dict[Key, list[Value]]:
        layout = self.layout
        found = {key: shuffled(values, min(WARP, layout.across), key[2]) for key, values in partial.items()}
        warps = layout.across // WARP
        if warps <= 1:
            return found
        memory = {
            key: [self.memory([layout.beside, warps], v) for v in values] for key, values in found.items()
        }
        lane = self.thread % WARP
        with if_(lane.equals(0)):
            for key, values in found.items():
                for value, buffer in zip(values, memory[key]):
                    store(value, buffer, self.beside, self.across // WARP)
        barrier()
        return {
            key: shuffled([load(b, self.beside, lane % warps) for b in buffers], warps, key[2])
            for key, buffers in memory.items()
        }

    def strided(self, partial: Mapping[Key, list[Value]]) -> dict[Key, list[Value]]:
        layout = self.layout
        memory = {
            key: [self.memory([layout.across, layout.beside], v) for v in values]
            for key, values in partial.items()
        }
        for key, values in partial.items():
            for value, buffer in zip(values, memory[key]):
                store(value, buffer, self.across, self.beside)
        barrier()
        found = {}
        for key, buffers in memory.items():
            fold = folding(key[2])

            def row(number: Value | int, buffers: list[ir.Value] = buffers) -> list[Value]:
                return [load(buffer, number, self.beside) for buffer in buffers]

            if layout.across <= _UNROLLED:
                found[key] = reduce(fold, [row(number) for number in range(layout.across)])
            else:
                found[key] = for_(
                    1, layout.across, 1, row(0), lambda i, *own, f=fold, r=row: f(list(own), r(i))
                )
        return found

    def memory(self, shape: list[int], value: Value) -> ir.Value:
        return shared(shape, value.type)


def folding(combination: Combination) -> Callable[[list[Value], list[Value]], list[Value]]:
    """How two partial results become one."""

    def fold(left: list[Value], right: list[Value]) -> list[Value]:
        return [Value(v) for v in combination.combine([v.value for v in left], [v.value for v in right])]

    return fold


def shuffled(values: list[Value], threads: int, combination: Combination) -> list[Value]:
    """Partial results of `threads` neighbouring threads combined in all of them; a power of two up to a warp."""
    fold, distance = folding(combination), 1
    while distance < threads:
        values = fold(values, [exchanged(value, distance) for value in values])
        distance *= 2
    return values


def exchanged(value: Value, distance: int) -> Value:
    """The value of the thread whose number differs in the bit `distance`, whatever its type is."""
    return _in_words(value, lambda word: shuffle_xor(word, distance))


def moved_up(value: Value, distance: int) -> Value:
    """The value of the thread `distance` lanes below; its own for the first lanes."""
    return _in_words(value, lambda word: shuffle_up(word, distance))


def taken_from(value: Value, lane: Value) -> Value:
    """The value of a lane of the warp."""
    return _in_words(value, lambda word: shuffle_idx(word, lane))


def _in_words(value: Value, move: Callable[[Value], Value]) -> Value:
    """Moves a value of any type between threads, 32 bits at a time."""
    type_ = value.type
    i32, i64 = (ir.IntegerType.get_signless(width) for width in (32, 64))
    if isinstance(type_, ir.F32Type) or type_ == i32:
        return move(value)
    if isinstance(type_, ir.IndexType):
        return _in_words(value.to(i64), move).to(type_)
    if isinstance(type_, ir.FloatType):
        bits = ir.IntegerType.get_signless(type_.width)
        moved = _in_words(Value(arith.bitcast(bits, value.value)), move)
        return Value(arith.bitcast(type_, moved.value))
    if type_ == i64:
        low = move(value.to(i32)).to(i64)
        high = move((value >> 32).to(i32)).to(i64)
        return (high << 32) | low
    return move(value.to(i32)).to(type_)
