"""The layered drawing: layers follow edges, nothing overlaps, sweeps only remove crossings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.explain.graph_drawing import crossings, draw, layers_of

SIZE, GAP = (100.0, 30.0), (10.0, 20.0)


@st.composite
def graphs(draw_from) -> tuple[list[int], dict[int, list[int]]]:
    count = draw_from(st.integers(1, 25))
    before = {
        node: draw_from(st.lists(st.integers(0, node - 1), max_size=3, unique=True)) if node else []
        for node in range(count)
    }
    return list(range(count)), before


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_edges_go_down_and_boxes_keep_apart(graph) -> None:
    nodes, before = graph
    drawing = draw(nodes, before, SIZE, GAP)
    for node in nodes:
        x, y = drawing.centres[node]
        assert SIZE[0] / 2 - 1e-6 <= x <= drawing.width - SIZE[0] / 2 + 1e-6
        assert SIZE[1] / 2 - 1e-6 <= y <= drawing.height - SIZE[1] / 2 + 1e-6
        for source in before[node]:
            assert drawing.centres[source][1] < y
            assert drawing.edges[source, node][0] == drawing.centres[source]
            assert drawing.edges[source, node][-1] == (x, y)
        for other in range(node):
            ox, oy = drawing.centres[other]
            assert abs(ox - x) >= SIZE[0] + GAP[0] - 1e-6 or abs(oy - y) >= SIZE[1]


def test_long_edges_bend_once_per_layer_they_pass() -> None:
    drawing = draw([0, 1, 2, 3], {1: [0], 2: [1], 3: [2, 0]}, SIZE, GAP)
    assert len(drawing.edges[0, 3]) == 4
    assert len(drawing.edges[2, 3]) == 2


def test_a_source_sits_just_above_its_first_reader() -> None:
    assert layers_of(["a", 0, 1, "late", 2], {0: ["a"], 1: [0], 2: [1, "late"]})["late"] == 2


def test_a_later_predecessor_is_refused() -> None:
    with pytest.raises(ValueError, match="0 reads 1, which does not come before it"):
        layers_of([0, 1], {0: [1]})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), unique=True, max_size=15))
def test_crossings_are_counted_pair_by_pair(pairs: list[tuple[int, int]]) -> None:
    rows = [[f"a{i}" for i in range(6)], [f"b{i}" for i in range(6)]]
    expected = sum((a - c) * (b - d) < 0 for i, (a, b) in enumerate(pairs) for c, d in pairs[i + 1 :])
    assert crossings(rows, [(f"a{a}", f"b{b}") for a, b in pairs]) == expected


def test_a_crossing_that_can_be_removed_is() -> None:
    nodes, before = ["a", "b", "x", "y"], {"x": ["b"], "y": ["a"]}
    assert crossings([["a", "b"], ["x", "y"]], [("b", "x"), ("a", "y")]) == 1
    drawing = draw(nodes, before, SIZE, GAP)
    left_is_a = drawing.centres["a"][0] < drawing.centres["b"][0]
    assert (drawing.centres["y"][0] < drawing.centres["x"][0]) == left_is_a


def test_nothing_to_draw() -> None:
    assert draw([], {}, SIZE, GAP).centres == {}
