"""Cuts of attention cover every query within the registers; indices followed back name the element they started from."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.analysis.element_source import Loops
from tilewright.compiler.families.cpu.vector_transpose import transpose_square
from tilewright.compiler.nouns.attention_cut import (
    AttentionCut,
    AttentionLoops,
    AttentionShape,
    rows_in_flight,
)
from tilewright.compiler.nouns.quasi_affine import QuasiAffine
from tilewright.compiler.tuning.cpu.attention_cut import attention_cuts


@settings(deadline=None)
@given(
    st.integers(1, 64),
    st.integers(8, 3000),
    st.integers(1, 3000),
    st.sampled_from([(16, 32, 4), (8, 32, 8), (8, 16, 4), (4, 16, 8)]),
    st.booleans(),
)
def test_groups_cover_an_rtask_and_blocks_fit(heads, rows, columns, machine, causal):
    lanes, registers, item_bytes = machine
    shape = AttentionShape(heads, rows, columns, 64, 80, causal)
    loops = AttentionLoops(rows, columns, 80, lanes, registers)
    for cut in attention_cuts(shape, 2, lanes, registers, item_bytes):
        sizes = (cut.queries, cut.vectors, cut.keys, cut.registers)
        assert all(1 <= size <= most for size, most in zip(sizes, loops.most()))
        assert loops.rule(sizes) is None and loops.accumulators(sizes) < registers
        groups = cut.groups(lanes)
        assert all(count for count, _ in groups)
        vectors = sum(count * width for count, width in groups)
        assert (vectors - 1) * lanes < cut.queries <= vectors * lanes
        widest = max(width for _, width in groups)
        assert max(8, cut.keys - 3) * widest * lanes * item_bytes <= max(
            32768, 8 * widest * lanes * item_bytes
        )


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 120), st.integers(1, 300), st.integers(1, 128), st.data())
def test_legal_cuts_are_different_loops(queries, keys, width, data):
    """What registers hold rises with them, so the least number that says so is one; groups differ with vectors."""
    loops = AttentionLoops(queries, keys, width, 16, 32)
    taken, block = data.draw(st.integers(1, queries)), data.draw(st.integers(1, keys))
    found = {}
    for vectors in range(1, -(-taken // 16) + 1):
        for registers in range(1, 65):
            cut = AttentionCut(taken, vectors, block, registers)
            if loops.rule((taken, vectors, block, registers)) is None:
                held = [
                    rows_in_flight(extent, group, registers)
                    for _, group in cut.groups(16)
                    for extent in (block, keys % block or block, width)
                ]
                assert found.setdefault((cut.groups(16), tuple(held)), cut) == cut
            assert loops.rule((taken, vectors, block, loops.least(cut).registers)) is None or (
                vectors + 1 == -(-taken // 16)
            )
    assert found


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(8, 500))
def test_few_lanes_are_idle(heads, rows):
    cut, *_ = attention_cuts(AttentionShape(heads, rows, rows, 64, 64, False), 2, 16, 32, 4)
    pieces, vectors = -(-rows // cut.queries), sum(count * width for count, width in cut.groups(16))
    tasks = heads * pieces
    busiest = -(-tasks // 2) * vectors * 16
    # Never worse than one head per rTask or one vector of queries per rTask, by the model's own penalties at most.
    assert busiest <= 1.3 * min(-(-heads // 2) * -(-rows // 16) * 16, -(-heads * -(-rows // 16) // 2) * 16)


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_digits_and_rows_are_inverse(extents, data):
    """A loop over a whole collapsed dimension, taken apart as its parts need, visits the same elements in order."""
    loops = Loops()
    whole = math.prod(extents)
    expr = loops.new(whole, splittable=True)
    digits = loops.digits(expr, extents)
    assert digits is not None
    back = loops.resolved(loops.row_major(digits, extents))
    assert back == loops.resolved(expr)
    parts = [(loops.extents[term.variable], term.scale) for term in loops.terms(back)]
    assert math.prod(extent for extent, _ in parts) == whole
    inner = 1
    for extent, stride in reversed(parts):
        assert stride == inner
        inner *= extent
    offset = data.draw(st.integers(0, whole - 1))
    found = loops.digits(QuasiAffine((), offset), extents)
    assert found is not None and loops.row_major(found, extents) == QuasiAffine((), offset)


def test_what_crosses_a_dimension_is_refused():
    loops = Loops()
    fixed = loops.fixed(6)
    assert loops.digits(fixed, (2, 3)) is None, "a loop that must stay whole"
    seven = loops.new(7, splittable=True)
    assert loops.digits(seven, (3, 3)) is None, "no boundary of 7 falls on one of 3"
    assert loops.digits(loops.new(3).shifted(1), (2, 3)) is None, "1 to 3 runs into the next row"
    assert loops.digits(loops.new(2).shifted(4), (2, 3)) == [QuasiAffine((), 1), QuasiAffine.of(3).shifted(1)]


def test_squares_are_powers_of_two():
    with pytest.raises(ValueError, match="power of two"):
        transpose_square([])
