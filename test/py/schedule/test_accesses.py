"""Steps keep their order exactly where memory says so: boxes against sets of items, programs against their reads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_programs import drawn_order, programs, reads_of

from tilewright.compiler.analysis.placement import dense_strides
from tilewright.compiler.nouns.accesses import Accesses, Region, dependences, is_order


def items(region: Region) -> set[int]:
    return {
        region.offset + sum(i * s for i, s in zip(index, region.strides))
        for index in itertools.product(*map(range, region.shape))
    }


small = st.integers(0, 4)
regions = st.lists(st.tuples(small, st.integers(0, 12)), max_size=3).flatmap(
    lambda dims: st.builds(
        Region,
        st.just(0),
        st.integers(0, 30),
        st.just(tuple(n for n, _ in dims)),
        st.just(tuple(s for _, s in dims)),
    )
)


@settings(max_examples=300)
@given(regions, regions)
def test_regions_that_share_an_item_meet(one, other):
    if items(one) & items(other):
        assert one.meets(other)
        assert other.meets(one)
    assert one.end > max(items(one), default=-1)


@st.composite
def boxes(draw):
    """Two boxes of one dense tensor."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    strides = dense_strides(shape)
    found = []
    for _ in range(2):
        low = [draw(st.integers(0, n - 1)) for n in shape]
        size = tuple(draw(st.integers(1, n - a)) for n, a in zip(shape, low))
        found.append(Region(0, sum(a * s for a, s in zip(low, strides)), size, strides))
    return found


@settings(max_examples=300)
@given(boxes())
def test_boxes_of_one_tensor_meet_exactly_where_they_share_an_item(pair):
    one, other = pair
    assert one.meets(other) == bool(items(one) & items(other))


def test_regions_of_different_memories_never_meet():
    assert not Region(0, 0, (4,), (1,)).meets(Region(1, 0, (4,), (1,)))


@settings(max_examples=150, deadline=None)
@given(programs(), st.data())
def test_every_order_that_is_allowed_reads_the_same(program, data):
    order = drawn_order(dependences(program), data.draw)
    assert is_order(program, order)
    assert reads_of(program, order) == reads_of(program, range(len(program)))


@settings(max_examples=100, deadline=None)
@given(programs())
def test_only_what_is_written_orders(program):
    """Without writes in common, and without checks, nothing is kept."""
    for number, before in enumerate(dependences(program)):
        for other in before:
            a, b = program[other], program[number]
            meeting = [
                (x, y)
                for x in (*a.reads, *a.writes)
                for y in (*b.reads, *b.writes)
                if (x in a.writes or y in b.writes) and x.meets(y)
            ]
            assert meeting or (a.is_fixed and b.is_fixed)


@pytest.mark.parametrize(
    "first, second",
    [("read", "write"), ("write", "read"), ("write", "write")],
    ids=["anti", "true", "output"],
)
def test_each_kind_of_hazard_orders(first, second):
    whole, part = Region(0, 0, (8,), (1,)), Region(0, 4, (2,), (1,))

    def step(kind, region):
        return Accesses((region,), ()) if kind == "read" else Accesses((), (region,))

    assert dependences([step(first, whole), step(second, part)]) == [[], [0]]
    assert dependences([step(first, part), step(second, whole)]) == [[], [0]]


def test_parts_of_one_tensor_are_written_in_any_order_and_before_it_is_read():
    left, right = Region(0, 0, (8, 2), (5, 1)), Region(0, 2, (8, 3), (5, 1))
    whole = Region(0, 0, (8, 5), (5, 1))
    steps = [Accesses((), (left,)), Accesses((), (right,)), Accesses((whole,), ())]
    assert dependences(steps) == [[], [], [0, 1]]


def test_checks_keep_their_order():
    steps = [Accesses((), (), True), Accesses((), ()), Accesses((), (), True), Accesses((), (), True)]
    assert dependences(steps) == [[], [], [0], [2]]
    assert is_order(steps, [1, 0, 2, 3])
    assert not is_order(steps, [2, 0, 1, 3])


@pytest.mark.parametrize("order", [[0], [0, 0], [0, 1, 2], [1, 2]])
def test_an_order_names_every_step_once(order):
    assert not is_order([Accesses((), ())] * 2, order)


def test_a_write_of_a_part_leaves_the_rest_to_the_write_before():
    whole, part, rest = (Region(0, at, (n,), (1,)) for at, n in ((0, 8), (0, 2), (4, 2)))
    steps = [Accesses((), (whole,)), Accesses((), (part,)), Accesses((rest,), ()), Accesses((part,), ())]
    assert dependences(steps) == [[], [0], [0], [0, 1]]


def test_what_is_written_over_entirely_orders_through_the_write_after_it():
    whole = Region(0, 0, (8,), (1,))
    steps = [Accesses((), (whole,)), Accesses((whole,), ()), Accesses((), (whole,)), Accesses((whole,), ())]
    assert dependences(steps) == [[], [0], [0, 1], [2]]
