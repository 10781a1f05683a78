"""The spaces of every family of GPU kernels: legal points are the kernels that they say, others are refused by field and rule."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod

import numpy as np
import pytest
import torch
from dispatch_runs import dispatches, dtype_of, launched, run
from test_schedules_obeyed import CASES, asked_of, r, schedule_of

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.gpu import families
from tilewright.compiler.families.gpu.dispatch_space import completed_kernels, dispatch_space
from tilewright.compiler.families.gpu.families import Completed
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import KEPT, Space
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.targets.target import resolve

TARGETS = ("cuda:sm_70", "cuda:sm_80", "cuda:sm_90a")
SAMPLES = 3
SMALL = {
    "ragged": "elementwise", "two results": "elementwise", "depthwise": "windows", "pooling": "rows", "scatter": "scatter",
    "softmax": "rows", "sort": "sort", "scan": "scan", "skinny": "skinny", "simt": "simt",
}  # fmt: skip
"""Cases that an emulator runs in no time, and the kernel of each that is run."""


@cache
def kernels(case: str, target: str) -> tuple[ir.Module, dict[str, tuple[Completed, Space]]]:
    """By kernel, a complete schedule of the case's dispatch and the space around it, the constructed one first."""
    function, args, _, kernel = CASES[case]
    module, found = dispatches(function, args, target)
    others = [f for f in found.values() if schedule_attribute.read(f)]
    of_it = [f for f in others if asked_of(f).kernel == kernel]
    dispatch = (of_it or [f for f in others if asked_of(f).kernel != "elementwise"] or others)[-1]
    described, schedule = resolve(target), schedule_attribute.read(dispatch)
    assert schedule is not None
    completed = completed_kernels(dispatch, described, schedule)
    return module, {name: (own, families.space_of(own, described)) for name, own in completed.items()}


def emitted(completed: Completed, schedule: Schedule, target: str) -> ir.Module:
    return families.emit(replace(completed, schedule=schedule), resolve(target))


def body_of(kernel: ir.Module) -> str:
    """A kernel's text without the schedule that it says it has."""
    del kernel_of(kernel).attributes["tilewright.schedule"]
    return str(kernel)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_constructed_schedules_are_the_defaults(case: str, target: str) -> None:
    _module, found = kernels(case, target)
    for completed, space in found.values():
        assert space.default() == completed.schedule
        point = space.point(completed.schedule)
        assert space.schedule(point) == completed.schedule
        assert space.legal(point[None])[0] == KEPT
    first, _ = next(iter(found.values()))
    whole = dispatch_space(first.function, resolve(target), first.schedule)
    assert first.schedule in whole and whole.default() == first.schedule
    labels = whole.columns(whole.draw(64 * len(found), np.random.default_rng(0)))["kernel"]
    assert set(labels.tolist()) == set(found), "every kernel is drawn from"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_candidates_are_members(case: str, target: str) -> None:
    """What models propose for measurements, once families have completed it."""
    _module, found = kernels(case, target)
    (first, _), described = next(iter(found.values())), resolve(target)
    construct = replace(ConstructSchedules.for_target(described), top_k=10)
    with first.function.context, first.function.location:
        offered = construct.candidates_or_none(first.function) or []
    for candidate in offered:
        made = families.constructed(first.function, candidate.schedule, described)
        assert made.gpu is not None
        _, space = found[made.gpu.kernel]
        point = space.point(replace(made, levels=()))
        assert space.legal(point[None])[0] == KEPT


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_legal_schedules_are_kernels_of_their_own(case: str, target: str) -> None:
    """Two legal points are two kernels, and each says that it is made of just what its point says."""
    _module, found = kernels(case, target)
    for completed, space in found.values():
        points = space.sample(SAMPLES, np.random.default_rng(len(case)))
        texts = {}
        for schedule in {space.default(), *map(space.schedule, points)}:
            kernel = emitted(completed, schedule, target)
            assert schedule_of(kernel) == schedule
            texts.setdefault(body_of(kernel), []).append(schedule.text())
        assert all(len(same) == 1 for same in texts.values()), texts.values()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_illegal_schedules_are_refused_by_field_and_rule(case: str, target: str) -> None:
    _module, found = kernels(case, target)
    for completed, space in found.values():
        points = space.draw(1000, np.random.default_rng(7))
        rules, first = np.unique(space.legal(points), return_index=True)
        for number, place in zip(rules, first):
            if number == KEPT:
                continue
            rule, schedule = space.rules[number], space.schedule(points[place])
            with pytest.raises(ScheduleError) as refusal:
                emitted(completed, schedule, target)
            assert f"gpu.{rule.field} is " in str(refusal.value) and rule.text in str(refusal.value)


@pytest.mark.parametrize("case", SMALL)
def test_legal_schedules_compute_what_the_default_computes(case: str) -> None:
    target = CASES[case][2]
    _module, found = kernels(case, target)
    completed, space = found[SMALL[case]]
    described, types = resolve(target), completed.function.attributes["function_type"].value
    rng = np.random.default_rng(0)
    operands = [
        np.abs(rng.integers(-3, 4, tuple(type_.shape))).astype(dtype_of(type_.element_type))
        for type_ in map(ir.ShapedType, types.inputs)
    ]
    schedules = [space.default(), *map(space.schedule, space.sample(2, rng))]
    results = []
    for schedule in schedules:
        kernel = emitted(completed, schedule, target)
        results.append(launched(completed.function, operands, [lambda *_, k=kernel: k], described)[0])
    for schedule, own in zip(schedules, results):
        np.testing.assert_allclose(own, results[0], rtol=1e-3, atol=1e-4, err_msg=schedule.text())


@pytest.mark.parametrize("case", ["mma", "wgmma", "softmax", "relu", "transpose"])
def test_neighbours_are_kernels_too(case: str) -> None:
    target = CASES[case][2]
    _module, found = kernels(case, target)
    completed, space = next(iter(found.values()))
    around = space.neighbours(space.point(space.default()))
    assert len(around) > 3 and (space.legal(around) == KEPT).all()
    schedule = space.schedule(around[len(around) // 2])
    assert schedule_of(emitted(completed, schedule, target)) == schedule


def test_the_fallback_has_a_space_of_tiles() -> None:
    """Every divisor of the loops that can be cut, where it is what computes the dispatch."""
    target = "cuda:sm_80"
    module, found = dispatches(lambda x: torch.relu(x) + 1, (r(6, 10),), target)
    (function,) = found.values()
    completed = families.complete(function, Schedule(gpu=GpuTile("fallback")), resolve(target))
    space = families.space_of(completed, resolve(target))
    assert completed.schedule in space
    every = [space.schedule(point) for point in space.every()[space.legal(space.every()) == KEPT]]
    tiles = {schedule.tile for schedule in every}
    assert () in tiles and len(tiles) * 6 == len(every)
    for tile in tiles:
        schedule = Schedule(tile, gpu=GpuTile("fallback", 64))
        assert schedule_of(emitted(completed, schedule, target)) == schedule
    assert module
    with pytest.raises(ScheduleError, match=r"tile is .7., which is not in its domain|tile.0. is 7"):
        space.point(Schedule((7,), gpu=GpuTile("fallback", 64)))


@pytest.mark.parametrize("thread", [(4, 1), (2, 1), (1, 1)])
def test_parts_of_k_are_summed_column_by_column(thread: tuple[int, int]) -> None:
    """A thread with one column has vectors of one sum, which go through the workspace as others do."""
    _module, found = kernels("simt", "cuda:sm_80")
    completed, _ = found["simt"]
    tile = GpuTile("simt", block=(16, 32, 16), thread=thread, stages=2, split_k=3, raster=1, resident=1)
    schedule = families.complete(completed.function, Schedule(gpu=tile), resolve("cuda:sm_80")).schedule
    assert schedule_of(emitted(completed, schedule, "cuda:sm_80")) == schedule


@pytest.mark.parametrize(
    ("function", "shape", "tile"),
    [
        (lambda x: x.sum(0), (7, 20), GpuTile("rows", 32, (32, 4), vector=4, split_k=1)),
        (lambda x: x.sum(0), (70, 20), GpuTile("rows", 64, (8, 32), vector=2, split_k=3)),
        (lambda x: x.var(1), (2, 30, 12), GpuTile("rows", 32, (16, 16), vector=4, split_k=1)),
        (lambda x: torch.softmax(x, 0), (9, 52), GpuTile("rows", 64, (32, 16), vector=4, split_k=1)),
        (lambda x: torch.nn.functional.max_pool2d(x, 2), (1, 4, 12, 12), GpuTile("windows", 96, (9216,), thread=(6, 16), vector=16)),
        (lambda x: torch.nn.functional.avg_pool2d(x, 3, 1), (1, 1, 6, 8), GpuTile("windows", 32, (512,), thread=(4, 4), vector=4)),
        (lambda x: x.sum(-1), (9, 12), GpuTile("rows", 32, (8, 32), vector=1, split_k=1)),
        (lambda x: torch.softmax(x, -1), (5, 16), GpuTile("rows", 32, (16, 24), vector=4, split_k=1)),
        (lambda x: torch.tanh(x), (7, 5), GpuTile("elementwise", 32, (64,), vector=2)),
    ],
)  # fmt: skip
def test_vectors_past_the_end_lie_inside(function, shape: tuple[int, ...], tile: GpuTile) -> None:
    """Where blocks, threads or vectors do not come out even, those that have nothing to do read what others read."""
    x = torch.arange(prod(shape)).reshape(shape).mul(0.37).sin()

    def emit(dispatch: ir.Operation, schedule: Schedule, target) -> ir.Module:
        return families.emit(families.complete(dispatch, Schedule(gpu=tile), target), target)

    (found,) = run(function, (x,), emit, target="a100")
    torch.testing.assert_close(found, function(x), rtol=1e-5, atol=1e-5)
