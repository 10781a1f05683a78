"""The space of every kind of CPU dispatch: what it calls legal compiles, computes the same and is a kernel of its own."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from space_cases import CASES, Dispatch, dispatch_of, one_for_each_rule, spread

from tilewright.compiler import phases
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules

OTHERS = ("x86-64-v3", "sapphire-rapids")
ONE_OF_A_KIND = (
    "packed product",
    "dots",
    "depthwise",
    "groups",
    "winograd",
    "softmax",
    "attention",
    "transposition",
)
EVERYWHERE = [(name, "cpu") for name in CASES] + [(name, t) for name in ONE_OF_A_KIND for t in OTHERS]
SAMPLES = 4

SAYS = {
    "no such loops": "no such loops|does not fit the tiles|smaller than one tile|rTasks overlap|is cut|start from values",
    "over its loop": r"{size} is \d+, its loop has \d+",
    "crosses the blocks": r"{size} \d+ crosses the blocks",
    "accumulators for each": r"its sizes take \d+ accumulators",
    "no dense rows": "stream is true, .* no dense rows",
    "from registers": r"stream is true, but reductions\[\d+\] says `.*`, which stores its results from registers",
    "nothing that is packed": r"prefetch is \d+, but no reduction multiplies by an operand that is packed",
    "does not go with the other sizes": r"{size} is \d+, ",
    "go along rows too": r"order is \w+, .* which go along rows too",
}
"""What compiling says of a broken rule, by what the space says of it."""


@pytest.mark.parametrize(("name", "target"), EVERYWHERE)
def test_constructed_schedules_are_members(name: str, target: str) -> None:
    """Those of O1 too; the one that the dispatch has stands first, and is the default."""
    dispatch = dispatch_of(name, target)
    space, function = dispatch.space, dispatch.function
    with function.context, function.location:
        offered = [c.schedule for c in phases.candidates(function, dispatch.target)]
    assert not offered or offered[0] == space.default()
    for schedule in (space.default(), *offered):
        point = space.point(schedule)
        assert space.legal(point[None])[0] == KEPT
        again = space.schedule(point)
        assert again == replace(schedule, levels=())


@pytest.mark.parametrize("name", CASES)
def test_legal_schedules_are_kernels_that_compute_the_same(name: str) -> None:
    dispatch, case = dispatch_of(name, "cpu"), CASES[name]
    chosen = spread(dispatch.space, SAMPLES, seed=7)
    assert len(chosen) == SAMPLES or len(chosen) == dispatch.space.size
    expected = (
        case.function(*(a.double() if a.is_floating_point() else a for a in case.arguments)).double().numpy()
    )
    objects = set()
    for schedule in chosen:
        found, kernel = dispatch.run(schedule)
        message = schedule.text()
        np.testing.assert_allclose(found, expected, rtol=case.tolerance, atol=case.tolerance, err_msg=message)
        objects.add(kernel)
    assert len(objects) == len(chosen)


@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_legal_schedules_compile_for_other_cpus(name: str, target: str) -> None:
    dispatch = dispatch_of(name, target)
    chosen = spread(dispatch.space, SAMPLES, seed=11)
    assert len({dispatch.lowered(schedule) for schedule in chosen}) == len(chosen)


@pytest.mark.parametrize("name", CASES)
def test_illegal_schedules_are_refused_by_field_and_rule(name: str) -> None:
    dispatch = dispatch_of(name, "cpu")
    for number, schedule in one_for_each_rule(dispatch.space, seed=13).items():
        rule = dispatch.space.rules[number]
        says = next(text for words, text in SAYS.items() if words in rule.text)
        with pytest.raises(ScheduleError, match=says.format(size=rule.field.split(".")[-1])) as refusal:
            dispatch.lowered(schedule)
        for reduction in map(int, re.findall(r"\[(\d+)\]", rule.field)):
            assert schedule.reductions[reduction].text() in str(refusal.value)


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_neighbours_are_kernels_too(name: str) -> None:
    dispatch = dispatch_of(name, "cpu")
    space = dispatch.space
    start = space.point(space.default())
    around = space.neighbours(start)
    assert len(around) > 3 and (space.legal(around) == KEPT).all()
    rng = np.random.default_rng(17)
    chosen = [space.schedule(point) for point in around[rng.permutation(len(around))[:2]]]
    codes = {dispatch.lowered(schedule) for schedule in (space.default(), *chosen)}
    assert len(codes) == 1 + len(chosen)


def test_what_cannot_be_cut_has_one_schedule() -> None:
    dispatch = Dispatch.of(lambda x: x.flatten().cumsum(0), "cpu", CASES["row sums"].arguments)
    assert dispatch.space.size == 1 and dispatch.space.default() in dispatch.space
    default = replace(dispatch.space.default(), levels=())
    assert [dispatch.space.schedule(point) for point in dispatch.space.every()] == [default]


def test_thousands_of_points_are_judged_at_once() -> None:
    """The loops of a reduction are read once for each of its extents, not for each point."""
    space = dispatch_of("convolution", "cpu").space
    points = space.draw(5000, np.random.default_rng(0))
    one_by_one = [space.legal(point[None])[0] for point in points[:300]]
    np.testing.assert_array_equal(space.legal(points)[:300], one_by_one)


def test_a_constructed_candidate_beyond_the_first_is_a_member() -> None:
    """With other rules of construction tiles are others: what knows nothing of the machine is in the space as well."""
    dispatch = dispatch_of("product", "cpu")
    plain = ConstructSchedules.for_target(dispatch.target)
    for off in ("tensor_shape", "execution_unit"):
        changed = type(plain)(**{**plain.__dict__, off: False, "top_k": 5})
        with dispatch.function.context, dispatch.function.location:
            offered = changed.candidates_or_none(dispatch.function)
        assert all(candidate.schedule in dispatch.space for candidate in offered)
