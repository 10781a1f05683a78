"""Positions as quasi-affine indices agree with plain integer arithmetic, lane by lane."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.families.elementwise.positions import (
    Flat,
    Opaque,
    Position,
    at_lane,
    bounds,
    digits_of,
    divided,
    is_uniform,
    lane_steps,
    loop_digits,
)
from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term

MANY = settings(max_examples=200, derandomize=True, deadline=None)
EXTENTS = st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 12]), min_size=1, max_size=4)
LANES = st.sampled_from([1, 2, 4, 8])


def value(position: Position, base: int) -> int:
    """A position of one lane, where points start at `base`."""

    def point(variable: Flat | Opaque) -> int:
        assert isinstance(variable, Flat)
        return base + variable.lane

    return position.evaluate(point)


def loops_of(point: int, extents: list[int]) -> list[int]:
    found = []
    for extent in reversed(extents):
        point, digit = divmod(point, extent)
        found.append(digit)
    return found[::-1]


def bases(extents: list[int], lanes: int) -> range:
    return range(0, math.prod(extents) - lanes + 1, lanes)


@MANY
@given(
    extents=EXTENTS,
    lanes=LANES,
    strides=st.lists(st.integers(-9, 40), min_size=4, max_size=4),
    offset=st.integers(-3, 9),
)
def test_every_lane_is_where_its_loops_say(
    extents: list[int], lanes: int, strides: list[int], offset: int
) -> None:
    loops = loop_digits(Flat(0, math.prod(extents), lanes), tuple(extents))
    position: Position = QuasiAffine((), offset)
    for loop, stride in zip(loops, strides):
        position += loop.scaled(stride)
    steps = lane_steps(position.merged(), lanes)
    for base in bases(extents, lanes):
        for lane in range(lanes):
            wanted = offset + sum(i * s for i, s in zip(loops_of(base + lane, extents), strides))
            assert value(at_lane(position, lane), base) == wanted
            assert value(at_lane(position.merged(), lane), base) == wanted
            assert bounds(position).low <= wanted <= bounds(position).high
            if steps is not None:
                assert wanted == value(at_lane(position, 0), base) + steps[lane]
        first = value(at_lane(position, 0), base)
        multiple = bounds(at_lane(position, 0)).multiple
        assert first % multiple == 0 if multiple else first == 0


@MANY
@given(extents=EXTENTS, divisor=st.integers(1, 12), lanes=LANES)
def test_quotients_and_remainders(extents: list[int], divisor: int, lanes: int) -> None:
    loops = loop_digits(Flat(0, math.prod(extents), lanes), tuple(extents))
    position: Position = QuasiAffine()
    for loop, extent in zip(loops, extents):
        position = position.scaled(extent) + loop
    found = divided(position, divisor)
    if found is None:
        return
    for base in bases(extents, lanes):
        for lane in range(lanes):
            quotient, remainder = (value(at_lane(p, lane), base) for p in found)
            assert (quotient, remainder) == divmod(base + lane, divisor)


def test_digits_that_move_together_become_one() -> None:
    flat = Flat(0, 24, 4)
    outer, inner = loop_digits(flat, (3, 8))
    assert (outer.scaled(8) + inner).merged() == QuasiAffine((Term(flat, 1, 1, 24),))
    apart = outer.scaled(9) + inner
    assert apart.merged() == apart


@pytest.mark.parametrize(
    ("extent", "steps"), [(8, (0, 1, 2, 3)), (6, None), (2, (0, 1, 0, 1)), (1, (0, 0, 0, 0))]
)
def test_steps_of_lanes_along_rows_of_any_length(extent: int, steps: tuple[int, ...] | None) -> None:
    """Rows of six hold no whole number of vectors of four: lanes differ in their row."""
    _, inner = loop_digits(Flat(0, 12 * extent, 4), (12, extent))
    assert lane_steps(inner, 4) == steps


def test_what_is_the_same_for_all_lanes() -> None:
    outer, inner = digits_of(loop_digits(Flat(0, 32, 4), (4, 8)))[::-1]
    assert is_uniform(outer)
    assert not is_uniform(inner)


def test_what_is_known_at_run_time_only_is_divided_where_code_is_written() -> None:
    number: Position = QuasiAffine.of(Opaque(0, -7, 40))
    assert divided(number, 4) is None
    assert divided(number.scaled(4).shifted(3), 4) == (number, QuasiAffine((), 3))
    small: Position = QuasiAffine.of(Opaque(1, 0, 3))
    assert divided(number.scaled(4) + small, 4) == (number, small)
