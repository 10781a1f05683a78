"""The layout noun: shapes and indices go there and back through every primitive, and bad ones are refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.nouns.layout import (
    DecoupleAt,
    Fold,
    Fuse,
    Layout,
    Pad,
    Reorder,
    Split,
    StoreAt,
    Unfold,
    Unpad,
)


def indices(shape):
    return itertools.product(*map(range, shape))


@st.composite
def primitives(draw, shape):
    dim = draw(st.integers(0, len(shape) - 1))
    extent = shape[dim]
    kind = draw(st.sampled_from(["split", "reorder", "fuse", "unfold", "pad", "store_at"]))
    if kind == "split":
        factor = draw(st.sampled_from([f for f in range(1, extent + 1) if extent % f == 0]))
        return Split(dim, (extent // factor, factor))
    if kind == "reorder":
        return Reorder(tuple(draw(st.permutations(range(len(shape))))))
    if kind == "fuse":
        return Fuse(dim, draw(st.integers(1, len(shape) - dim)))
    if kind == "unfold":
        tile = draw(st.integers(1, extent))
        return Unfold(dim, tile, draw(st.integers(1, tile)))
    if kind == "pad":
        return Pad(dim, draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    return StoreAt(dim)


@st.composite
def layouts(draw):
    layout = Layout(tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 4))):
        layout = layout.then(draw(primitives(layout.stored_shape)))
    return layout


@settings(max_examples=300, deadline=None)
@given(layouts())
def test_every_element_has_its_own_place_and_comes_back(layout):
    places = {}
    for index in indices(layout.shape):
        place = layout.store(index)
        assert all(0 <= p < extent for p, extent in zip(place, layout.stored_shape, strict=True))
        assert layout.load(place) == index
        places[place] = index
    assert len(places) == np.prod(layout.shape)


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_the_inverse_undoes_the_shape_and_the_text_reads_back(layout):
    assert layout.inverse().stored_shape == layout.shape
    assert layout.inverse().inverse() == layout
    assert Layout.parse(layout.shape, str(layout)) == layout


@settings(max_examples=100, deadline=None)
@given(layouts())
def test_arrays_of_indices_map_as_single_ones_do(layout):
    every = list(indices(layout.shape))
    columns = layout.store(tuple(np.array(column) for column in zip(*every, strict=True)))
    stored = list(zip(*(np.broadcast_to(c, len(every)).tolist() for c in columns), strict=True))
    assert stored == [layout.store(index) for index in every]


def test_basic_primitives_as_the_paper_writes_them():
    # §4.1.1: NHWO -> fuse -> split -> reorder gives N (O/4) (HW) 4, with e = h(WO) + wO + o.
    n, h, w, o = 2, 3, 5, 8
    layout = Layout((n, h, w, o)).then(Fuse(1, 3), Split(1, (o // 4, 4, h * w)), Reorder((0, 1, 3, 2)))
    assert layout.stored_shape == (n, o // 4, h * w, 4)
    e = 1 * (w * o) + 4 * o + 6
    assert layout.store((1, 1, 4, 6)) == (1, e // (h * w * 4), e % (h * w), e // (h * w) % 4)


def test_unfold_overlaps_tiles():
    # §4.1.2: {1,2,3,4,5} unfolds to {{1,2,3},{3,4,5}} with a tile of 3 and a stride of 2.
    unfold = Unfold(0, 3, 2)
    assert unfold.shape((5,)) == (2, 3)
    back = Layout((5,), (unfold,)).inverse()
    assert [[back.store((t, i))[0] + 1 for i in range(3)] for t in range(2)] == [[1, 2, 3], [3, 4, 5]]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_windows_find_their_elements_in_one_tile(step, size, per_tile, tiles):
    unfold = Unfold(0, step * (per_tile - 1) + size, step * per_tile)
    if unfold.stride > unfold.tile:
        return
    extent = unfold.stride * (tiles - 1) + unfold.tile
    fold = unfold.inverse((extent,))
    for i, r in indices((per_tile * tiles, size)):
        tile, offset = unfold.window(i, r, step, size)
        assert 0 <= tile < tiles and 0 <= offset < unfold.tile
        assert fold.index((tiles, unfold.tile), (tile, offset)) == (step * i + r,)


def test_a_window_that_straddles_tiles_is_refused():
    with pytest.raises(ValueError, match="the stride must be 4"):
        Unfold(0, 6, 3).window(0, 0, 1, 3)


def test_store_at_gives_the_guest_a_place_of_its_own():
    shape = (4, 3)
    primitive = StoreAt(0)
    hosts = {primitive.index(shape, index) for index in indices(shape)}
    guests = {primitive.guest_index(shape, index) for index in indices((3,))}
    assert guests == {(4, 0), (4, 1), (4, 2)} and not hosts & guests
    assert hosts | guests == set(indices(primitive.shape(shape)))


def test_places_that_hold_no_element_load_outside_the_shape():
    layout = Layout((5,)).then(Pad(0, 1, 2))
    loaded = [layout.load((place,))[0] for place in range(8)]
    assert loaded == [-1, 0, 1, 2, 3, 4, 5, 6]


def test_order_is_the_composition_of_reorders_only():
    layout = Layout((2, 3, 4, 5)).then(Reorder((0, 2, 3, 1)), Reorder((3, 0, 1, 2)))
    assert layout.order == (1, 0, 2, 3)
    assert Layout((4,)).order == (0,)
    assert Layout((4,)).then(Split(0, (2, 2))).order is None


@pytest.mark.parametrize(
    ("shape", "primitive", "message"),
    [
        ((6,), Split(0, (4, 2)), "product must be 6"),
        ((6,), Split(0, ()), "product must be 6"),
        ((6,), Split(1, (6,)), "no 1 dimension"),
        ((6, 2), Reorder((0, 0)), "not a permutation of the 2 dimensions"),
        ((6, 2), Fuse(1, 2), "no 2 dimension"),
        ((6, 2), Fuse(0, 0), "at least one"),
        ((6,), Unfold(0, 7, 1), "stride <= tile <= 6"),
        ((6,), Unfold(0, 2, 3), "stride <= tile <= 6"),
        ((6,), Fold(0, 6, 1), "no 2 dimension"),
        ((6,), Pad(0, -1, 0), "must not be negative"),
        ((6,), Unpad(0, 3, 3), "nothing is left"),
        ((1,), DecoupleAt(0), "holds no guest"),
    ],
)
def test_a_primitive_that_does_not_fit_is_refused(shape, primitive, message):
    with pytest.raises(ValueError, match=message):
        Layout(shape, (primitive,))


@pytest.mark.parametrize("text", ["swap(1)", "split(1 [2, 2]", "reorder([0, 1]) x", "split(1)"])
def test_text_that_is_no_layout_is_refused_with_the_column(text):
    with pytest.raises(ValueError, match="column"):
        Layout.parse((4, 4), text)
