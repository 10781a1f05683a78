"""Schedules survive the trip through the IR's text, and what does not fit a dispatch is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.schedule import ATTRIBUTE, PREDICTED, Schedule

sizes = st.integers(0, 2**40)
_ALIVE: list[ir.Module] = []
"""An operation dies with its module."""

levels = st.integers(1, 4).flatmap(
    lambda axes: st.dictionaries(
        st.sampled_from(["L1", "L2", "L3", "registers", "shared"]),
        st.lists(st.integers(1, 2**40), min_size=axes, max_size=axes).map(tuple),
    )
)
schedules = st.builds(
    Schedule,
    st.lists(sizes, max_size=6).map(tuple),
    sizes,
    sizes,
    levels.map(lambda found: tuple(found.items())),
)


def dispatch(attributes: str = "") -> ir.Operation:
    """A dispatch on tensors [8, 4], with attributes as text."""
    text = f"func.func private @d(%x: tensor<8x4xf32>) -> tensor<8x4xf32> attributes {{{attributes}}} {{ return %x : tensor<8x4xf32> }}"
    return first_function(text)


def first_function(text: str) -> ir.Operation:
    module = parse(text)
    _ALIVE.append(module)
    return next(functions(module))


@given(schedules)
def test_dictionaries_round_trip(schedule):
    assert Schedule.from_dict(schedule.as_dict()) == schedule


@given(schedules)
def test_attributes_round_trip_through_text(schedule):
    function = dispatch()
    with function.context:
        schedule_attribute.write(function, schedule)
    again = first_function(str(function))
    assert schedule_attribute.read(again) == schedule


@given(st.floats(0, 1e9), st.sampled_from(["compute", "L2"]))
def test_predictions_round_trip_through_text(us, bound):
    function = dispatch()
    assert schedule_attribute.read_prediction(function) is None
    with function.context:
        schedule_attribute.write_prediction(function, us, bound)
    assert schedule_attribute.read_prediction(first_function(str(function))) == (us, bound)


@pytest.mark.parametrize(
    "attribute", ["3", "{}", "{us = 1.0}", '{us = "1", bound = "L2"}', "{us = 1.0, bound = 2}"]
)
def test_a_prediction_of_another_form_is_none(attribute):
    assert schedule_attribute.read_prediction(dispatch(f"{PREDICTED} = {attribute}")) is None


def test_a_dispatch_without_one_has_none():
    assert schedule_attribute.read(dispatch()) is None


def test_fields_left_out_are_left_to_the_lowering():
    assert schedule_attribute.read(dispatch(f"{ATTRIBUTE} = {{}}")) == Schedule()
    assert schedule_attribute.read(dispatch(f"{ATTRIBUTE} = {{tile = [2, 0]}}")) == Schedule((2, 0), 0, 0)
    assert schedule_attribute.read(dispatch(f"{ATTRIBUTE} = {{vector = 16 : i32}}")) == Schedule((), 0, 16)


@pytest.mark.parametrize(
    "attribute, found",
    [
        ("[8, 0]", "must be a dictionary, found [8, 0]"),
        ("{tiles = [8]}", "unknown field `tiles`; a schedule has tile, unroll, vector and levels"),
        ("{tile = 8}", "tile is a list of integers >= 0"),
        ('{tile = "8"}', "tile is a list of integers >= 0"),
        ("{tile = [8.0]}", "tile is a list of integers >= 0"),
        ("{tile = [[8]]}", "tile is a list of integers >= 0"),
        ("{tile = [true]}", "tile is a list of integers >= 0"),
        ("{tile = [8, -1]}", "tile is a list of integers >= 0"),
        ("{tile = [8], unroll = [2]}", "unroll is an integer >= 0"),
        ("{tile = [8], vector = -16}", "vector is an integer >= 0"),
        ("{unroll = true}", "unroll is an integer >= 0"),
        ("{vector = 16.0}", "vector is an integer >= 0"),
        ("{levels = [8]}", "levels is a dictionary of tiles by memory level"),
        ("{levels = {L1 = 8}}", "the tile of level L1 is a list of integers >= 1"),
        ("{levels = {L1 = [0]}}", "the tile of level L1 is a list of integers >= 1"),
        ("{levels = {L1 = [8], L2 = [8, 8]}}", "tiles of levels have one size per axis"),
    ],
)
def test_malformed_ones_are_refused_with_their_place(attribute, found):
    with pytest.raises(ScheduleError) as refused:
        schedule_attribute.read(dispatch(f"{ATTRIBUTE} = {attribute}"))
    assert "@d" in str(refused.value)
    assert found in str(refused.value)
    assert refused.value.location is not None


@pytest.mark.parametrize(
    "schedule, rule",
    [
        (Schedule((4, 4, 4)), "it tiles 3 loops, the sink has 2"),
        (Schedule((4, 2)), "loop 1 is a reduction"),
        (Schedule((9, 0)), "tile 9 of loop 0 exceeds its extent 8"),
    ],
)
def test_illegal_ones_are_refused(schedule, rule):
    with pytest.raises(ScheduleError, match="dispatch @d: illegal schedule") as refused:
        schedule_attribute.check(dispatch(), schedule, (8, 4), ["parallel", "reduction"])
    assert rule in refused.value.reason


@pytest.mark.parametrize("schedule", [Schedule(), Schedule((8,)), Schedule((3, 0)), Schedule((0, 0), 7, 9)])
def test_legal_ones_pass(schedule):
    schedule_attribute.check(dispatch(), schedule, (8, 4), ["parallel", "reduction"])


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), max_size=4))
def test_the_number_of_tasks(loops):
    """As many as starting points, loop by loop."""
    extents = tuple(extent for extent, _ in loops)
    tile = tuple(min(size, extent) for extent, size in loops)
    expected = 1
    for extent, size in zip(extents, tile):
        expected *= len(range(0, extent, size)) if size else 1
    assert Schedule(tile).num_tasks(extents) == expected
