"""Winograd's transforms in exact arithmetic, their straight-line form, and what the choice promises."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.nouns.winograd_transforms import straight_line, supported, transforms
from tilewright.compiler.tuning.cpu.winograd_choice import (
    WinogradMachine,
    WinogradProblem,
    choose_winograd,
    direct_us,
    estimate,
    ranked_tiles,
)

FORMS = [(2, 3), (4, 3), (2, 5), (3, 2)]
numbers = st.fractions(min_value=-100, max_value=100, max_denominator=64)
MACHINE = WinogradMachine(2, 16, 32, 200.0, 34.0, 83.2, 1 << 20)


def times(matrix, vector: list[Fraction]) -> list[Fraction]:
    return [sum((x * y for x, y in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


@pytest.mark.parametrize(("outputs", "taps"), FORMS)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_transforms_convolve(outputs: int, taps: int, data) -> None:
    """In rational arithmetic the algorithm is exact."""
    t = transforms(outputs, taps)
    d = data.draw(st.lists(numbers, min_size=t.points, max_size=t.points))
    g = data.draw(st.lists(numbers, min_size=taps, max_size=taps))
    products = [a * b for a, b in zip(times(t.filter, g), times(t.data, d), strict=True)]
    direct = [sum((g[k] * d[i + k] for k in range(taps)), Fraction(0)) for i in range(outputs)]
    assert times(t.output, products) == direct


@pytest.mark.parametrize(("outputs", "taps"), FORMS)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_straight_line_is_the_matrix(outputs: int, taps: int, data) -> None:
    t = transforms(outputs, taps)
    for matrix in (t.data, t.output, t.filter):
        program = straight_line(matrix)
        vector = data.draw(st.lists(numbers, min_size=program.inputs, max_size=program.inputs))
        made = list(vector)
        for step in program.steps:
            made.append((0 if step.left is None else made[step.left]) + step.factor * made[step.right])
        assert [made[i] if i is not None else 0 for i in program.results] == times(matrix, vector)


def test_straight_line_shares() -> None:
    """Points of both signs share their halves: 12 operations instead of the 23 and 17 that the entries ask for."""
    t = transforms(4, 3)
    assert len(straight_line(t.data).steps) == 12
    assert len(straight_line(t.output).steps) == 12


def test_planes_are_both_sides_at_once() -> None:
    t = transforms(2, 3)
    assert len(t.planes) == 16 and all(len(row) == 9 for row in t.planes)
    assert t.planes[5][4] == float(t.filter[1][1] * t.filter[1][1])


def test_unknown_forms_are_refused() -> None:
    assert not supported(6, 3) and not supported(1, 3)
    with pytest.raises(ValueError, match=r"F\(6, 3\): points are known for"):
        transforms(6, 3)


extents = st.integers(1, 40)


@given(n=st.integers(1, 6), h=extents, w=extents, blocks=st.integers(1, 6), c=st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_cuts_are_legal(n: int, h: int, w: int, blocks: int, c: int) -> None:
    """Whole blocks of filters, images that divide; no cuts exactly where a tile does not fit."""
    problem = WinogradProblem(n, h, w, 32 * blocks, 3, c, 32)
    for m in (2, 4):
        choices = ranked_tiles(problem, MACHINE, m)
        assert bool(choices) == (min(h, w) >= m)
        for choice in choices:
            images, rows, columns, filters = choice.tile
            assert n % images == 0 and problem.filters % filters == 0 and filters % 32 == 0
            # Where rTasks overlap, their tiles coincide: every output is rounded in one way.
            coincide = h % m == 0 and w % m == 0
            assert h % rows == 0 or (coincide and rows % m == 0 and rows < h)
            assert w % columns == 0 or (coincide and columns % m == 0 and columns < w)
            whole = estimate(problem, MACHINE, m, (n, h, w, problem.filters))
            assert choices[0].us <= whole.us


def test_what_is_chosen() -> None:
    """Many tiles take F(4, 3); filters beyond the shared cache's reach F(2, 3); few channels stay direct."""
    layer = WinogradProblem(1, 56, 56, 64, 3, 64, 64)
    chosen = choose_winograd(layer, MACHINE)
    assert chosen is not None and chosen.outputs == 4 and chosen.us < direct_us(layer, MACHINE)
    late = choose_winograd(WinogradProblem(1, 7, 7, 512, 3, 512, 32), MACHINE)
    assert late is not None and late.outputs == 2
    assert choose_winograd(replace(layer, channels=1), MACHINE) is None
    assert choose_winograd(replace(layer, taps=7), MACHINE) is None


def test_filters_that_come_from_memory_are_waited_for_less_by_fewer_products() -> None:
    """7 x 7 x 512 of ResNet-18 (578 us directly, 487 with F(2) on a Zen 5): both wait for filters, F(2) multiplies less."""
    problem = WinogradProblem(1, 7, 7, 512, 3, 512, 32)
    machine = WinogradMachine(2, 16, 32, 534.0, 46.9, 242.0, 1 << 20)
    choice = choose_winograd(problem, machine)
    assert choice is not None and choice.outputs == 2
    assert direct_us(problem, machine) == pytest.approx(578, rel=0.1)
    assert choice.us == pytest.approx(487, rel=0.1)
    nowhere = replace(machine, memory_gbps=1e6)
    assert direct_us(problem, nowhere) < direct_us(problem, machine)
    assert estimate(problem, nowhere, 2, choice.tile).us < choice.us
