"""Blocks of a reduction's steps and the order of its register tiles: whole steps, named once, and the same results to the bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from space_cases import Dispatch, waves
from torch.nn import functional as F

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.reduction_blocks import (
    FEWEST_STEPS,
    ORDERS,
    depth_rule,
    depths,
    order_rule,
    same_as_rows,
    split,
)
from tilewright.compiler.nouns.schedule import Reduction, Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.targets.target import resolve

EXTENTS = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@given(EXTENTS, st.integers(1, 3000))
def test_blocks_are_runs_of_steps_in_their_order(extents: list[int], depth: int) -> None:
    """Cutting one loop, with single steps of those around it, walks all steps in order, `depth` at a time."""
    cut = split(extents, depth)
    assert (cut is None) == (depth_rule(extents, depth) is not None)
    if cut is None:
        return
    position, size = cut
    around, inside = extents[:position], prod(extents[position + 1 :])
    starts = range(0, extents[position], size)
    counts = [min(size, extents[position] - start) * inside for _ in range(prod(around)) for start in starts]
    assert sum(counts) == prod(extents) and len(counts) > 1
    assert max(counts) == depth


@given(
    st.lists(st.integers(1, 700), min_size=1, max_size=3),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_offered_blocks_are_legal_and_few(extents: list[int], group: int, alike: bool) -> None:
    offered = depths(extents, group, alike)
    assert offered[0] == 0 and len(set(offered)) == len(offered) < 16 * len(extents)
    assert all(depth_rule(extents, depth, group, alike) is None for depth in offered)
    assert all(depth >= FEWEST_STEPS for depth in offered[1:])
    cuts = [split(extents, depth) for depth in offered[1:]]
    assert not alike or all(extents[position] % size == 0 for position, size in cuts)
    innermost = [size for position, size in cuts if position == len(extents) - 1]
    assert all(size % group == 0 == extents[-1] % group for size in innermost)


def test_blocks_cut_no_instruction() -> None:
    assert "cuts the 4 steps that one instruction takes" in str(depth_rule([3, 64], 34, 4))
    assert "cuts the 2 steps that one instruction takes" in str(depth_rule([3, 63], 32, 2))
    assert depth_rule([3, 63], 63, 2) is None and depth_rule([3, 64], 48, 4) is None
    assert "use blocks that are all alike" in str(depth_rule([3, 64], 48, 4, alike=True))


def test_an_order_that_has_another_name_is_refused() -> None:
    for order, rows, columns, others in product(ORDERS, (1, 2, 5), (1, 2, 5), (1, 7)):
        refused = order_rule(order, rows, columns, others) is not None
        assert refused == bool(same_as_rows(order, rows, columns, others))
        assert not (refused and order == "rows")
    assert order_rule("columns", 1, 4, 9) and order_rule("panels", 4, 1, 9) and order_rule("panels", 4, 4, 1)


def test_an_entry_of_a_schedule_says_its_blocks() -> None:
    said = Reduction("products", (4, 32), 256, "columns")
    assert said.as_dict() == {"products": [4, 32], "depth": 256, "order": "columns"}
    assert Reduction.from_dict(said.as_dict()) == said
    assert said.text() == "products 4x32 in depths of 256, columns first"
    plain = Reduction("products", (4, 32))
    assert plain.as_dict() == {"products": [4, 32]} and Reduction.from_dict(plain.as_dict()) == plain


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"products": [4, 32], "depth": -1}, "depth is an integer >= 0, found -1"),
        ({"products": [4, 32], "order": "diagonals"}, "order is rows, columns or panels, found diagonals"),
        (
            {"along": [1, 1, 1], "depth": 8},
            "depth is a field of products, dots, tiles, winograd; leave it out of along",
        ),
        ({"scalar": [], "order": "columns"}, "order is a field of products; leave it out of scalar"),
        ({"depth": 8}, "an entry of reductions is one kind of loops"),
    ],
)
def test_malformed_blocks_are_refused_by_field(entry: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Reduction.from_dict(entry)


DISPATCHES = {
    "linear": (
        lambda x, w, b: torch.relu(F.linear(x, w, b)),
        (waves(23, 150), waves(192, 150), waves(192)),
        (5, 8),
    ),
    "long epilogue": (
        lambda x, w: F.gelu(F.linear(x, w)),
        (waves(21, 130), waves(96, 130)),
        (4, 8),
    ),
    "two inputs": (lambda x: x[:, :70] @ x[:70], (waves(87, 104),), (4, 32)),
    "convolution": (
        lambda x, w: torch.relu(F.conv2d(x, w, stride=2)),
        (waves(2, 40, 11, 13), waves(48, 40, 3, 3)),
        (3, 8),
    ),
    # In parts, of which each block is one: whole numbers sum to the same in any order.
    "long": (
        lambda x, w: x @ w.round(),
        ((waves(23, 8200) * 2).round(), waves(8200, 96) * 2),
        (5, 16),
    ),
    "double": (lambda x: x[:, :70] @ x[:70], (waves(87, 104).double(),), (3, 8)),
}


DOTS = {
    "packed": (F.linear, (waves(23, 150), waves(192, 150)), (5, 16)),
    "interleaved": (lambda x: x[:, :70] @ x[:70, 8:], (waves(87, 104),), (4, 32)),
    "convolution": (
        lambda x, w: F.conv2d(x, w, stride=2),
        (waves(2, 40, 11, 13), waves(48, 40, 3, 3)),
        (3, 16),
    ),
    "odd": (lambda x, w: F.conv2d(x, w), (waves(1, 35, 7, 7), waves(32, 35, 3, 3)), (3, 16)),
}


@pytest.mark.skipif(
    "avx512bf16" not in resolve("cpu").cpu_features, reason="this CPU has no dot products of bf16"
)
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", DOTS)
def test_dot_products_do_not_depend_on_blocks(name: str, ragged: bool) -> None:
    """An odd number of channels has blocks of whole taps only."""
    function, arguments, sizes = DOTS[name]
    dispatch = Dispatch.of(function, "cpu", tuple(a.bfloat16() for a in arguments), 1)
    plain = replace(dispatch.space.default(), reductions=(Reduction("dots", sizes),), prefetch=0)
    if ragged:
        plain = replace(plain, tile=_ragged(dispatch, plain))
    expected, kernel = dispatch.run(plain)
    exact = function(*(a.bfloat16().double() for a in arguments)).numpy()
    np.testing.assert_allclose(expected, exact, rtol=2e-2, atol=2e-2 * abs(exact).max())
    domain = next(k.domain for k in dispatch.space.knobs if k.name == "reductions[0].dots.depth")
    kernels = [kernel]
    for depth in domain[1:]:
        found, kernel = dispatch.run(replace(plain, reductions=(Reduction("dots", sizes, depth),)))
        np.testing.assert_array_equal(found, expected, err_msg=str(depth))
        kernels.append(kernel)
    assert len(set(kernels)) == len(kernels) >= 2
    assert name != "odd" or all(depth % 35 == 0 for depth in domain)


@pytest.mark.parametrize("stage", ["tiles", "images"])
def test_winograds_products_do_not_depend_on_blocks_of_channels(stage: str) -> None:
    """To the bit, epilogue included: the transforms are the same, and every sum of products is one chain."""
    arguments = waves(2, 96, 12, 14), waves(64, 96, 3, 3)

    def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.conv2d(x, w, padding=1))

    dispatch = Dispatch.of(convolve, "cpu", arguments, 1)
    usual = dispatch.space.default()
    (said,) = usual.reductions
    assert said.loops == "winograd" and not said.depth
    said = replace(said, sizes=(7, 32))
    tile = (0, 0, 4, 0) if stage == "tiles" else (1, 0, 0, 0)
    plain = replace(usual, tile=tile, reductions=(said,), prefetch=0)
    expected, kernel = dispatch.run(plain)
    np.testing.assert_allclose(expected, convolve(*(a.double() for a in arguments)), rtol=1e-3, atol=1e-3)
    domain = next(k.domain for k in dispatch.space.knobs if k.name == "reductions[0].winograd.depth")
    assert domain == (0, 32, 48, 64)
    kernels = [kernel]
    for depth in domain[1:]:
        schedule = replace(plain, reductions=(replace(said, depth=depth),))
        found, kernel = dispatch.run(schedule)
        np.testing.assert_array_equal(found, expected, err_msg=schedule.text())
        kernels.append(kernel)
    assert len(set(kernels)) == len(kernels)
    with pytest.raises(ScheduleError, match="depth is 96, its reduction has 96 steps; use fewer"):
        dispatch.run(replace(plain, reductions=(replace(said, depth=96),)))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", DISPATCHES)
def test_results_do_not_depend_on_blocks_and_orders(name: str, ragged: bool) -> None:
    """To the bit, with epilogues, on ragged blocks and on rTasks that overlap, which sum in memory of their own."""
    function, arguments, sizes = DISPATCHES[name]
    dispatch = Dispatch.of(function, "cpu", arguments, 1)
    plain = replace(dispatch.space.default(), reductions=(Reduction("products", sizes),), prefetch=0)
    if ragged:
        plain = replace(plain, tile=_ragged(dispatch, plain))
    expected, kernel = dispatch.run(plain)
    exact = function(*(a.double() for a in arguments)).numpy()
    np.testing.assert_allclose(expected, exact, rtol=2e-4, atol=2e-4)
    few, *_, many = next(k.domain for k in dispatch.space.knobs if k.name.endswith(".depth"))[1:]
    kernels = [kernel]
    for depth, order in (
        *((0, "columns"), (0, "panels"), (few, "rows"), (few, "columns")),
        *((many, "rows"), (many, "panels")),
    ):
        schedule = replace(plain, reductions=(Reduction("products", sizes, depth, order),))
        try:
            found, kernel = dispatch.run(schedule)
        except ScheduleError as refusal:
            assert "go along rows too" in str(refusal)
            continue
        np.testing.assert_array_equal(found, expected, err_msg=schedule.text())
        kernels.append(kernel)
    assert len(set(kernels)) == len(kernels) >= 4


def _ragged(dispatch: Dispatch, plain: Schedule) -> tuple[int, ...]:
    """A tile that does not divide the first loop which can be cut so."""
    for knob in dispatch.space.knobs:
        sizes = [size for size in knob.domain[:-1] if knob.domain[-1] % size]
        if knob.name.startswith("tile[") and sizes:
            found = replace(plain, tile=(*(0 for _ in range(int(knob.name[5]))), sizes[-1]))
            assert dispatch.space.legal(dispatch.space.point(found)[None])[0] == KEPT
            return found.tile
    raise AssertionError("every size divides its loop")
