"""Storage orders: every rule is checked against numpy moving real elements."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.rewriting import storage_order as so


@st.composite
def ordered_shapes(draw, most=5):
    shape = tuple(draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=most)))
    return shape, tuple(draw(st.permutations(range(len(shape)))))


def elements(shape):
    return np.arange(np.prod(shape)).reshape(shape)


def memory(array, order):
    return array.transpose(order).ravel().tolist()


def grouped(draw, rank):
    """`rank` consecutive dimensions cut into groups."""
    cuts = sorted(draw(st.sets(st.integers(1, rank - 1)))) if rank > 1 else []
    return [list(range(a, b)) for a, b in zip([0, *cuts], [*cuts, rank], strict=True)]


@given(ordered_shapes(), st.data())
def test_conversion_permutes_stored_tensors(case, data):
    shape, source = case
    target = tuple(data.draw(st.permutations(range(len(shape)))))
    array = elements(shape)
    moved = array.transpose(source).transpose(so.conversion(source, target))
    assert (moved == array.transpose(target)).all()
    assert so.permuted(so.permuted(shape, source), so.inverted(source)) == shape


@given(ordered_shapes(), st.data())
def test_same_bytes_is_equality_in_memory(case, data):
    shape, one = case
    other = tuple(data.draw(st.permutations(range(len(shape)))))
    # Distinct extents above one make memory equal only where the orders are.
    distinct = [1 if extent == 1 else 2 + dim for dim, extent in enumerate(shape)]
    array = elements(distinct)
    assert so.same_bytes(one, other, shape) == (memory(array, one) == memory(array, other))


@given(ordered_shapes(), st.data())
def test_transposes_share_bytes(case, data):
    shape, order = case
    permutation = tuple(data.draw(st.permutations(range(len(shape)))))
    array = elements(shape)
    after = so.after_transpose(order, permutation)
    assert memory(array.transpose(permutation), after) == memory(array, order)
    assert so.before_transpose(after, permutation) == order


@given(st.data())
def test_expanding_shares_bytes(data):
    shape, _ = data.draw(ordered_shapes())
    groups = grouped(data.draw, len(shape))
    whole = [int(np.prod([shape[d] for d in group])) for group in groups]
    order = tuple(data.draw(st.permutations(range(len(groups)))))
    array = elements(shape)
    after = so.after_expand(order, groups)
    assert memory(array, after) == memory(array.reshape(whole), order)
    before = so.before_expand(after, groups, shape)
    assert before is not None and so.same_bytes(before, order, whole)


@settings(max_examples=200)
@given(ordered_shapes(), st.data())
def test_collapsing_shares_bytes_of_the_nearest_order(case, data):
    shape, order = case
    groups = grouped(data.draw, len(shape))
    whole = [int(np.prod([shape[d] for d in group])) for group in groups]
    array = elements(shape)
    source, result = so.collapsible(order, groups, shape)
    assert memory(array, source) == memory(array.reshape(whole), result)
    before = so.before_expand(order, groups, shape)
    if before is None:
        assert not so.same_bytes(source, order, shape)
    else:
        assert memory(array, order) == memory(array.reshape(whole), before)


@given(ordered_shapes(), st.data())
def test_dropping_unit_dimensions_keeps_the_rest_in_order(case, data):
    shape, order = case
    units = [dim for dim, extent in enumerate(shape) if extent == 1]
    dropped = data.draw(st.sets(st.sampled_from(units))) if units else set()
    array = elements(shape)
    assert memory(array.squeeze(tuple(dropped)), so.without(order, dropped)) == memory(array, order)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_reshape_pairs_hold_equal_products(source, data):
    target = data.draw(st.permutations(source))
    groups = grouped(data.draw, len(target))
    target = [int(np.prod([target[d] for d in group])) for group in groups]
    pairs = so.reshape(source, target)
    assert [dim for left, _ in pairs for dim in left] == list(range(len(source)))
    assert [dim for _, right in pairs for dim in right] == list(range(len(target)))
    for left, right in pairs:
        assert left and right
        assert np.prod([source[d] for d in left]) == np.prod([target[d] for d in right])


def test_reshape_of_nothing_is_one_pair():
    assert so.reshape([2, 0, 3], [0, 6]) == [([0, 1, 2], [0, 1])]
    assert so.reshape([], [1, 1]) == so.reshape([1], []) == []
    with pytest.raises(ValueError, match="different numbers"):
        so.reshape([2, 3], [7])


@given(st.integers(1, 6), st.data())
def test_merged_keeps_the_preferred_order_and_loses_nothing(count, data):
    preferred = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    order = so.merged(preferred, count)
    assert sorted(order) == list(range(count))
    assert [item for item in order if item in preferred] == preferred
    assert so.merged([], count) == so.identity(count)


def test_merged_puts_the_others_behind_their_predecessors():
    assert so.merged([0, 2, 1], 5) == (0, 2, 3, 4, 1)
    assert so.merged([2], 3) == (0, 1, 2)


def test_orders_are_plain_data():
    path = Path(so.__file__)
    imports = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom | ast.Import)
    ]
    names = [getattr(node, "module", None) or node.names[0].name for node in imports]
    assert names and not any("tilewright" in name or "mlir" in name for name in names)
