"""Cuts into rTasks are legal, fill the workers where they can, and stop where tasks get too small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.tuning.cut import Cuttable, cut, pieces, total


@given(st.integers(1, 3000), st.integers(1, 300), st.booleans())
def test_pieces_of_a_loop(extent, step, exact):
    sizes = pieces(extent, step, exact)
    assert sizes[0] == extent
    assert sizes == sorted(set(sizes), reverse=True)
    assert all(1 <= size <= extent for size in sizes)
    if exact:
        assert all(extent % size == 0 for size in sizes)
    if extent % step == 0:
        assert all(size % step == 0 for size in sizes) or step == 1


@given(st.integers(1, 3000))
def test_free_pieces_are_even(extent):
    """One task more always makes the tile smaller, and the last tile overlaps its neighbour by less than a task."""
    for size in pieces(extent, 1, False):
        count = -(-extent // size)
        assert size == -(-extent // count)


@st.composite
def dispatches(draw):
    extents = tuple(draw(st.lists(st.integers(1, 200), min_size=1, max_size=4)))
    loops = tuple(sorted(draw(st.sets(st.integers(0, len(extents) - 1)))))
    steps = tuple(draw(st.sampled_from([1, 1, 4, 16])) for _ in extents)
    work = float(draw(st.integers(0, 10**9)))
    return Cuttable(extents, loops, steps, draw(st.booleans()), work, float(draw(st.integers(1, 10**6))))


@given(dispatches(), st.integers(1, 64))
def test_cuts_are_legal(dispatch, max_tasks):
    tile = cut(dispatch, max_tasks)
    assert len(tile) == len(dispatch.extents)
    for loop, (size, extent) in enumerate(zip(tile, dispatch.extents)):
        assert size == 0 or (loop in dispatch.loops and 0 < size < extent)
        assert not (size and dispatch.exact) or extent % size == 0
    tasks = total(dispatch.extents, tile)
    assert tasks == 1 or tasks < 2 * min(max_tasks, dispatch.work / dispatch.minimum_work)


@given(dispatches(), st.integers(1, 63))
def test_more_workers_never_get_fewer_tasks(dispatch, max_tasks):
    first, second = (total(dispatch.extents, cut(dispatch, n)) for n in (max_tasks, max_tasks + 1))
    assert first <= second or len(dispatch.loops) > 1


def test_the_outer_loop_is_cut_first():
    dispatch = Cuttable((64, 1000), (0, 1), (1, 1), False, 1e9, 1.0)
    assert cut(dispatch, 16) == (4, 0)
    assert cut(dispatch, 128) == (1, 500)


def test_a_loop_that_cannot_be_cut_is_left():
    assert cut(Cuttable((64, 1000), (1,), (1, 1), False, 1e9, 1.0), 10) == (0, 100)


def test_small_work_stays_one_task():
    assert cut(Cuttable((64, 1000), (0, 1), (1, 1), False, 64e3, 50e3), 16) == (0, 0)


def test_accumulating_sinks_are_cut_into_divisors():
    assert cut(Cuttable((60,), (0,), (1,), True, 1e9, 1.0), 7) == (10,)
    assert cut(Cuttable((60,), (0,), (1,), False, 1e9, 1.0), 7) == (9,)


def test_total_counts_partial_tasks():
    assert total((50, 7), (16, 0)) == 4
    assert total((50, 7), (16, 2)) == 16
