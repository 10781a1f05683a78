"""What is read off an index map agrees with evaluating it at every point."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.analysis.affine_access import (
    dims,
    evaluate,
    is_contiguous_along,
    is_dim,
    loop_extents,
    map_dims,
    packing,
    terms,
)
from tilewright.compiler.ir import context, ir

LOOPS = 3
Point = tuple[int, ...]


def affine_map(results: str) -> ir.AffineMap:
    """The map (d0, d1, d2) -> (results)."""
    return ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<(d0, d1, d2) -> ({results})>", context())).value


@st.composite
def expressions(draw, depth: int = 3) -> tuple[str, Callable[[Point], int]]:
    """An affine expression as MLIR's text and as a Python function of the loops."""
    kind = draw(st.sampled_from(["loop", "sum", "scaled", "floordiv", "mod", "ceildiv"])) if depth else "loop"
    if kind == "loop":
        loop = draw(st.integers(0, LOOPS - 1))
        return f"d{loop}", lambda point: point[loop]
    text, value = draw(expressions(depth - 1))
    if kind == "sum":
        other, addend = draw(expressions(depth - 1))
        return f"({text} + {other})", lambda point: value(point) + addend(point)
    if kind == "scaled":
        factor = draw(st.integers(-4, 4))
        return f"({text} * {factor})", lambda point: value(point) * factor
    by = draw(st.integers(1, 9))
    operations: dict[str, Callable[[int], int]] = {
        "floordiv": lambda x: x // by,
        "mod": lambda x: x % by,
        "ceildiv": lambda x: -(-x // by),
    }
    return f"({text} {kind} {by})", lambda point: operations[kind](value(point))


points = st.tuples(*[st.integers(0, 40)] * LOOPS)


@settings(deadline=None)
@given(expressions(), points)
def test_evaluate(expression, point):
    text, value = expression
    assert evaluate(affine_map(text).results[0], list(point)) == value(point)


@settings(deadline=None)
@given(expressions(), points, st.integers(0, LOOPS - 1), st.integers(0, 40))
def test_loops_that_are_not_among_the_dims_change_nothing(expression, point, loop, other):
    text, value = expression
    if loop not in dims(affine_map(text).results[0]):
        assert value(point) == value((*point[:loop], other, *point[loop + 1 :]))


@settings(deadline=None)
@given(expressions(), points)
def test_terms_sum_up(expression, point):
    text, value = expression
    assert sum(evaluate(term, list(point)) for term in terms(affine_map(text).results[0])) == value(point)


def test_dims_of_maps():
    assert map_dims(affine_map("d0 floordiv 4, d2 + 1")) == {0, 2}
    assert map_dims(affine_map("0")) == set()
    (plain, shifted) = affine_map("d1, d1 + 1").results
    assert is_dim(plain)
    assert is_dim(plain, 1)
    assert not is_dim(plain, 0)
    assert not is_dim(shifted)


def consecutive(map_: ir.AffineMap, position: int, lanes: int) -> bool:
    """Whether lanes from every aligned start are neighbours in memory, by trying them all on a large tensor."""
    for others in itertools.product(range(3), repeat=LOOPS - 1):
        for start in range(0, 4 * lanes, lanes):
            places = []
            for lane in range(lanes):
                point = [*others]
                point.insert(position, start + lane)
                *outer, last = (evaluate(expr, point) for expr in map_.results)
                places.append((tuple(outer), last))
            outer, first = places[0]
            if places != [(outer, first + lane) for lane in range(lanes)]:
                return False
    return True


accesses = st.one_of(
    st.sampled_from(
        ["d0", "d1", "d2", "d0 + d1", "d1 * 2 + d2", "d2 * 2", "0", "d1 + d1 mod 8", "d1 floordiv 8"]
    ),
    st.tuples(st.integers(0, 2), st.sampled_from(["mod", "floordiv"]), st.sampled_from([4, 6, 8])).map(
        lambda packed: f"d{packed[0]} {packed[1]} {packed[2]}"
    ),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(accesses, min_size=1, max_size=3), st.integers(0, 2), st.sampled_from([2, 3, 4, 8]))
def test_contiguous_accesses_are(results, position, lanes):
    """Never true where two lanes are not neighbours; this is what makes a vector load right."""
    map_ = affine_map(", ".join(results))
    if is_contiguous_along(map_, position, lanes):
        assert consecutive(map_, position, lanes)
    if is_contiguous_along(map_, position):
        assert consecutive(map_, position, lanes) and consecutive(map_, position, 13)


@pytest.mark.parametrize(
    "results, position, lanes, expected",
    [
        ("d0, d1", 1, 16, True),
        ("d0, d1", 0, 16, False),
        ("d0, d1 * 2 + d2", 2, 16, True),  # a window without dilation
        ("d0, d1 * 2 + d2", 1, 16, False),  # its stride
        ("d1 floordiv 32, d2, d1 mod 32", 1, 16, True),
        ("d1 floordiv 32, d2, d1 mod 32", 1, 32, True),
        ("d1 floordiv 32, d2, d1 mod 32", 1, 24, False),  # crosses a block
        ("d1 floordiv 32, d2, d1 mod 32", 1, 64, False),
        ("d1 floordiv 32, d2, d1 mod 32", 2, 16, False),
        ("d0, d1", 1, None, True),
        ("d1 floordiv 32, d2, d1 mod 32", 1, None, False),  # some run crosses a block
        ("d0, d1 mod 8", 1, None, False),  # repeats itself
        ("d1, d1", 1, 4, False),  # a diagonal
        ("d0", 1, 4, False),  # does not move
    ],
)
def test_accesses_of_kernels(results, position, lanes, expected):
    assert is_contiguous_along(affine_map(results), position, lanes) is expected


def test_packing():
    assert packing(affine_map("d1 floordiv 32, d2, d1 mod 32"), 1) == 32
    assert packing(affine_map("d1 floordiv 32, d2, d1 mod 32"), 2) is None
    assert packing(affine_map("d2, d1"), 1) is None


@given(st.permutations(range(LOOPS)), st.tuples(*[st.integers(1, 50)] * LOOPS))
def test_extents_come_from_plain_dimensions(order, extents):
    """Also where an operand reads with an offset, as the windows of a convolution do."""
    window = affine_map("d0 + d1, d2 * 2")
    plain = affine_map(", ".join(f"d{loop}" for loop in order))
    shapes = [(extents[0] + extents[1] - 1, 2 * extents[2] - 1), tuple(extents[loop] for loop in order)]
    assert loop_extents([window, plain], shapes) == extents
