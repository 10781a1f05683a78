"""Quasi-affine indices agree with plain integer arithmetic at every value of their variables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.analysis.affine_access import composed, evaluate
from tilewright.compiler.ir import context, ir
from tilewright.compiler.nouns.quasi_affine import (
    NotQuasiAffine,
    QuasiAffine,
    Range,
    Term,
    boundaries,
    parts,
    strides,
)

MANY = settings(max_examples=200, derandomize=True, deadline=None)
EXTENTS = (6, 4, 8)
DIVISORS = st.sampled_from([1, 2, 3, 4, 6])
MODULI = st.sampled_from([0, 0, 1, 2, 3, 4])
TERMS = st.builds(Term, st.integers(0, 2), st.integers(-6, 12), DIVISORS, MODULI)
INDICES = st.builds(QuasiAffine.summed, st.lists(TERMS, max_size=4), st.integers(-9, 9))

Index = QuasiAffine[int]


def points(extents: tuple[int, ...] = EXTENTS) -> Iterator[tuple[int, ...]]:
    return product(*map(range, extents))


def at(index: Index, point: tuple[int, ...]) -> int:
    """The value at a point, term by term."""
    total = index.offset
    for term in index.terms:
        value = point[term.variable] // term.divisor
        total += term.scale * (value % term.modulus if term.modulus else value)
    return total


def range_of(loop: int) -> Range:
    return Range(0, EXTENTS[loop] - 1)


@MANY
@given(INDICES, INDICES, st.integers(-4, 4))
def test_sums_differences_and_multiples(one: Index, other: Index, factor: int) -> None:
    for point in points():
        assert at(one + other, point) == at(one, point) + at(other, point)
        assert at(one - other, point) == at(one, point) - at(other, point)
        assert at(one.scaled(factor), point) == factor * at(one, point)
        assert at(one.shifted(factor), point) == factor + at(one, point)
        assert at(one.merged(), point) == at(one, point)


@MANY
@given(st.lists(TERMS, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_summands_makes_no_difference(terms: list[Term[int]], random) -> None:
    shuffled = list(terms)
    random.shuffle(shuffled)
    assert QuasiAffine.summed(terms) == QuasiAffine.summed(shuffled)
    total: Index = QuasiAffine()
    for term in shuffled:
        total += QuasiAffine.summed([term])
    assert total == QuasiAffine.summed(terms)


@MANY
@given(INDICES)
def test_arrays_are_evaluated_as_integers_are(index: Index) -> None:
    grid = np.array(list(points()))
    wanted = [at(index, point) for point in points()]
    assert np.broadcast_to(index.evaluate(lambda loop: grid[:, loop]), len(grid)).tolist() == wanted
    assert [index.evaluate(point.__getitem__) for point in points()] == wanted


@MANY
@given(INDICES, st.integers(-6, 3), st.integers(0, 9), st.integers(1, 4))
def test_no_value_lies_outside_of_its_range(index: Index, low: int, count: int, multiple: int) -> None:
    own = Range(multiple * low, multiple * (low + count), multiple)
    found = index.range(lambda loop: own)
    for point in product(range(own.low, own.high + 1, multiple), repeat=3):
        value = at(index, point)
        assert found.low <= value <= found.high
        assert value % found.multiple == 0 if found.multiple else value == 0


@pytest.mark.parametrize(
    ("term", "of", "wanted"),
    [
        (Term(0, 3, 4), Range(0, 15, 8), Range(0, 9, 6)),
        (Term(0, 1, 1, 8), Range(0, 7, 4), Range(0, 7, 4)),
        (Term(0, 1, 1, 8), Range(0, 31, 12), Range(0, 7, 4)),
        (Term(0, 1, 1, 8), Range(17, 20), Range(1, 4)),
        (Term(0, -2, 1, 8), Range(-3, 2), Range(-14, 0, 2)),
    ],
)
def test_ranges_are_as_narrow_as_one_term_allows(term: Term[int], of: Range, wanted: Range) -> None:
    assert term.range(of) == wanted


@MANY
@given(INDICES, st.integers(1, 8))
def test_quotients_and_remainders(index: Index, divisor: int) -> None:
    for found in (index.divided(divisor), index.divided(divisor, range_of)):
        if found is not None:
            for point in points():
                assert tuple(at(part, point) for part in found) == divmod(at(index, point), divisor)


@pytest.mark.parametrize(
    ("index", "divisor", "quotient", "remainder"),
    [
        ("a0", 4, "a0 floordiv 4", "a0 mod 4"),
        ("a2 floordiv 2", 2, "a2 floordiv 4", "a2 floordiv 2 mod 2"),
        ("a0 mod 12", 4, "a0 floordiv 4 mod 3", "a0 mod 4"),
        ("a0 * 8 + 5", 4, "a0 * 2 + 1", "1"),
        ("a0 * 4 + a1", 4, "a0", "a1"),
        ("a2 * 9 + a0 mod 3 + a0 floordiv 3 * 3", 9, "a2", "a0"),
    ],
)
def test_quotients_that_are_found(index: str, divisor: int, quotient: str, remainder: str) -> None:
    found = read(index).divided(divisor, range_of)
    assert found is not None
    assert tuple(part.text() for part in found) == (quotient, remainder)


@pytest.mark.parametrize("index", ["a0 * 3", "a0 + 1", "a0 + a1", "a0 mod 6"])
def test_quotients_that_are_no_such_sums(index: str) -> None:
    assert read(index).divided(4) is None


def read(text: str) -> Index:
    """The inverse of `QuasiAffine.text`."""
    from tilewright.compiler.tuning.model.statements import read_index

    return QuasiAffine.summed(read_index(text).terms, read_index(text).offset)


@MANY
@given(INDICES, st.lists(INDICES, min_size=3, max_size=3))
def test_substitution_is_composition(index: Index, values: list[Index]) -> None:
    try:
        found = index.substituted(values.__getitem__)
    except NotQuasiAffine as error:
        assert "quotient" in str(error) or "remainder" in str(error)
        return
    for point in points():
        assert at(found, point) == at(index, tuple(at(value, point) for value in values))


@st.composite
def affine_expressions(draw, depth: int = 3) -> str:
    """Expressions of three loops; divisors and moduli are positive."""
    kind = draw(st.sampled_from(["dim", "dim", "constant", "sum", "product", "floordiv", "mod"]))
    if depth == 0 or kind == "dim":
        return f"d{draw(st.integers(0, 2))}"
    if kind == "constant":
        return str(draw(st.integers(-5, 5)))
    left = draw(affine_expressions(depth=depth - 1))
    if kind == "sum":
        return f"({left} + {draw(affine_expressions(depth=depth - 1))})"
    if kind == "product":
        return f"({left}) * {draw(st.integers(-4, 4))}"
    return f"(({left}) {kind} {draw(st.integers(1, 6))})"


def parsed(expr: str) -> ir.AffineExpr:
    (found,) = ir.AffineMapAttr.parse(f"affine_map<(d0, d1, d2) -> ({expr})>").value.results
    return found


@MANY
@given(affine_expressions())
def test_affine_expressions_are_read_as_what_they_compute(text: str) -> None:
    with context():
        expr = parsed(text)
        loops = [QuasiAffine.of(loop) for loop in range(3)]
        try:
            found = composed(expr, loops, lambda index, divisor: index.divided(divisor, range_of))
        except NotQuasiAffine as error:
            assert "is no sum of loops" in str(error)
            return
        for point in points():
            assert at(found, point) == evaluate(expr, list(point))


def test_quotients_that_round_up_are_refused() -> None:
    with context(), pytest.raises(NotQuasiAffine, match="ceildiv"):
        composed(parsed("d0 ceildiv 4"), [QuasiAffine.of(0)])


@MANY
@given(st.lists(INDICES, min_size=1, max_size=3))
def test_cut_loops_make_indices_linear(indices: list[Index]) -> None:
    try:
        cuts = boundaries(indices, EXTENTS)
    except NotQuasiAffine as error:
        assert "is cut at" in str(error)
        return
    extents = [parts(own, extent) for own, extent in zip(cuts, EXTENTS)]
    assert [prod(own) for own in extents] == list(EXTENTS)
    flat = tuple(size for own in extents for size in own)
    for index in indices:
        found = strides(index, cuts, EXTENTS)
        for point, cut in zip(points(), points(flat), strict=True):
            assert at(index, point) == index.offset + sum(i * s for i, s in zip(cut, found))


@pytest.mark.parametrize(
    ("index", "wanted"),
    [("a1", 1), ("0", None), ("a1 + 1", None), ("a1 * 2", None), ("a1 mod 2", None), ("a0 + a1", None)],
)
def test_plain_variables(index: str, wanted: int | None) -> None:
    assert read(index).plain == wanted


def test_scales_are_those_of_whole_variables() -> None:
    index = read("a0 * 6 + a0 floordiv 2 * 5 + a1 mod 2")
    assert (index.scale_of(0), index.scale_of(1), index.scale_of(2)) == (6, 0, 0)
    assert index.variables == (0, 1)


def test_variables_of_several_kinds_add_up_in_one_order() -> None:
    number: QuasiAffine[int | str] = QuasiAffine.of(3)
    name: QuasiAffine[int | str] = QuasiAffine.of("row")
    assert number + name == name + number
    assert (number + name) - number == name
