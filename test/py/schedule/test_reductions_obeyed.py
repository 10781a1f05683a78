"""A CPU schedule says what the loops of every reduction are made of: the kernel has exactly that, or it is refused."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import prod

import numpy as np
import pytest
import torch
from space_cases import Function
from torch.nn import functional as F

from tilewright.compiler import phases
from tilewright.compiler.codegen import lower_cpu as lower
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.reduction_attribute import broken
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu import complete_schedule
from tilewright.compiler.families.cpu.dispatch_space import dispatch_space
from tilewright.compiler.importers import Imported
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.attention_cut import AttentionCut, AttentionLoops
from tilewright.compiler.nouns.schedule import LOOPS, Reduction, Schedule
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel

TARGETS = ("x86-64-v3", "x86-64-v4")


def images(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, prod(shape)).reshape(shape).sin()


FUNCTIONS: dict[str, tuple[Callable, tuple[torch.Tensor, ...], tuple[str, ...]]] = {
    "depthwise": (
        lambda x, w: torch.relu(F.conv2d(x, w, groups=40)),
        (images(1, 40, 11, 13), images(40, 1, 3, 3)),
        ("windows",),
    ),
    "strided depthwise": (
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=24),
        (images(1, 24, 17, 9), images(24, 1, 3, 3)),
        ("windows",),
    ),
    "pooling": (
        lambda x, w: F.max_pool2d(F.conv2d(x, w), 3, 2),
        (images(2, 3, 15, 17), images(20, 3, 1, 1)),
        ("windows",),
    ),
    "average": (
        lambda x, w: F.avg_pool2d(F.conv2d(x, w), (4, 1), (2, 1)),
        (images(1, 3, 30, 3), images(33, 3, 1, 1)),
        ("windows",),
    ),
    "pooling of rows": (lambda x: F.max_pool2d(x, 3, 2, 1), (images(1, 6, 27, 116),), ("windows",)),
    "softmax": (lambda x: torch.softmax(x, -1), (images(7, 100),), ("along", "along")),
    "row sums": (lambda x: x.sum(-1), (images(9, 70),), ("along",)),
    "rows by rows": (lambda x: x[:3] @ x[3:].t(), (images(8, 64),), ("along",)),
    "column sums": (lambda x: x.sum(0), (images(9, 70),), ("products",)),
    "product": (torch.matmul, (images(13, 40), images(40, 72)), ("products",)),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x[0], x[1], x[2]),
        (images(3, 1, 2, 45, 16),),
        ("attention",),
    ),
    "groups": (
        lambda x, w: F.conv2d(x, w, groups=16),
        (images(1, 64, 9, 9), images(64, 4, 3, 3)),
        ("groups",),
    ),
}
"""Functions, their arguments, and the loops that the reductions of their last dispatch with some are computed by."""


@dataclass(frozen=True)
class Scheduled:
    """A model that was cut into dispatches and scheduled, and the one of its dispatches that is rescheduled."""

    imported: Imported
    function: ir.Operation
    target: str

    @property
    def schedule(self) -> Schedule:
        found = schedule_attribute.read(self.function)
        assert found is not None
        return found

    def code(self, schedule: Schedule) -> str:
        """LLVM IR of the dispatch under a schedule."""
        other = self.function.clone().operation
        try:
            schedule_attribute.write(other, schedule)
            return lower.lower(other, resolve(self.target))[0]
        finally:
            other.erase()

    def choices(self) -> list[complete_schedule.Choice]:
        return complete_schedule.choose(self.function, self.schedule.tile, resolve(self.target))


@cache
def scheduled(name: str, target: str) -> Scheduled:
    function, (x, *weights), _ = FUNCTIONS[name]
    imported = import_model(Function(function, *weights).eval(), (x,))
    phases.run_phases(imported.module, resolve(target))
    reducing = [
        f
        for f in functions(imported.module)
        if (found := schedule_attribute.read(f)) is not None and found.reductions
    ]
    return Scheduled(imported, reducing[-1], target)


def drawn(choice: complete_schedule.Choice, rng: random.Random) -> Reduction:
    """The loops with other sizes, which may break a rule."""
    if choice.loops is None:
        return choice.reduction()
    sizes = tuple(
        rng.randint(1, min(most, 48 if choice.kind == "attention" else 12)) for most in choice.loops.most()
    )
    if isinstance(choice.loops, AttentionLoops):
        cut = choice.loops.least(AttentionCut(*sizes))
        sizes = (cut.queries, cut.vectors, cut.keys, cut.registers)
    return Reduction(choice.kind, sizes)


def sampled(dispatch: Scheduled, count: int, seed: int) -> list[Schedule]:
    """Legal schedules, distinct, the constructed one first."""
    rng, choices, found = random.Random(seed), dispatch.choices(), [dispatch.schedule]
    for _ in range(20 * count):
        reductions = tuple(drawn(c, rng) for c in choices)
        schedule = replace(dispatch.schedule, reductions=reductions)
        legal = not any(
            c.loops is not None and broken(r, c.loops, resolve(dispatch.target).registers_per_thread)
            for c, r in zip(choices, reductions)
        )
        if legal and schedule not in found:
            found.append(schedule)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_constructed_schedules_say_all(name: str, target: str) -> None:
    dispatch = scheduled(name, target)
    assert tuple(r.loops for r in dispatch.schedule.reductions) == FUNCTIONS[name][2]
    assert (
        complete_schedule.complete(dispatch.function, dispatch.schedule, resolve(target)) == dispatch.schedule
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_distinct_schedules_are_distinct_kernels(name: str, target: str) -> None:
    dispatch = scheduled(name, target)
    schedules = sampled(dispatch, 6, seed=3)
    assert len(schedules) > 2
    assert len({dispatch.code(schedule) for schedule in schedules}) == len(schedules)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("field", range(4))
def test_a_size_beyond_its_loop_is_refused_by_name(name: str, field: int) -> None:
    dispatch = scheduled(name, TARGETS[1])
    for number, choice in enumerate(dispatch.choices()):
        if choice.loops is None or field >= len(LOOPS[choice.kind]):
            continue
        sizes = list(choice.reduction().sizes)
        sizes[field] = choice.loops.most()[field] + 1
        reductions = list(dispatch.schedule.reductions)
        reductions[number] = Reduction(choice.kind, tuple(sizes))
        with pytest.raises(
            ScheduleError, match=f"{choice.kind} .*{LOOPS[choice.kind][field]} is {sizes[field]}"
        ):
            dispatch.code(replace(dispatch.schedule, reductions=tuple(reductions)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_that_a_reduction_does_not_have_are_refused(name: str) -> None:
    """Scalar loops compute every reduction; of the others each computes its kinds, or says that it does not."""
    dispatch = scheduled(name, TARGETS[1])
    own = dispatch.schedule.reductions
    codes = {dispatch.code(dispatch.schedule)}
    for loops, names in LOOPS.items():
        other = Reduction(loops, (1,) * len(names))
        if other.loops == own[0].loops:
            continue
        try:
            codes.add(dispatch.code(replace(dispatch.schedule, reductions=(other, *own[1:]))))
        except ScheduleError as refusal:
            assert loops != "scalar" or own[0].loops == "attention"
            assert re.search(
                f"reductions say `{loops}.*(no such loops|transforms|tiles|loops of its own)", str(refusal)
            )
        else:
            assert loops in ("scalar", "products", "along")
    assert len(codes) >= 2 or own[0].loops == "attention"


SPREADS = ("depthwise", "strided depthwise", "pooling", "average", "pooling of rows", "softmax", "row sums")


@pytest.mark.parametrize("name", SPREADS)
def test_every_candidate_is_another_kernel(name: str) -> None:
    dispatch = scheduled(name, TARGETS[1])
    many = replace(ConstructSchedules.for_target(resolve(TARGETS[1])), top_k=16)
    other = dispatch.function.clone().operation
    candidates = many.candidates_or_none(other)
    other.erase()
    assert len(candidates) >= 8 and candidates[0].schedule == dispatch.schedule
    assert len({dispatch.code(candidate.schedule) for candidate in candidates}) == len(candidates)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sampled_schedules_compute_the_same(name: str) -> None:
    function, arguments, _ = FUNCTIONS[name]
    target = resolve("cpu")
    dispatch = scheduled(name, "cpu")
    expected = function(*(a.double() for a in arguments)).numpy()
    first = dispatch.schedule
    for schedule in sampled(dispatch, 3, seed=5):
        schedule_attribute.write(dispatch.function, schedule)
        package = phases.package_module(dispatch.imported.module, target, phases.Report())
        imported = dispatch.imported
        model = CompiledModel(
            Executable(package, list(imported.weights), 1),
            imported.signature,
            imported.state,
            imported.weights,
        )
        np.testing.assert_allclose(model(arguments[0]).numpy(), expected, rtol=2e-5, atol=2e-5)
    schedule_attribute.write(dispatch.function, first)


@pytest.mark.parametrize("field", ["unroll", "vector"])
@pytest.mark.parametrize("name", ["depthwise", "pooling", "softmax"])
def test_unroll_and_vector_are_short_for_register_tiles_only(name: str, field: str) -> None:
    dispatch = scheduled(name, TARGETS[1])
    short = Schedule(dispatch.schedule.tile, **{field: 8})
    with pytest.raises(ScheduleError, match=f"{field} is 8, but nothing in it has a register tile"):
        dispatch.code(short)
    assert dispatch.code(Schedule(dispatch.schedule.tile)) == dispatch.code(dispatch.schedule)


def _domain(dispatch: Scheduled, name: str) -> tuple[int, ...]:
    space = dispatch_space(dispatch.function, resolve(dispatch.target), dispatch.schedule)
    (knob,) = (knob for knob in space.knobs if knob.name == name)
    return tuple(map(int, knob.domain))


@pytest.mark.parametrize("target", TARGETS)
def test_unroll_and_vector_are_the_register_tile_of_a_product(target: str) -> None:
    dispatch = scheduled("product", target)
    tile = dispatch.schedule.tile
    widest = max(size for size in _domain(dispatch, "reductions[0].products.vector") if size % 8 == 0)
    for unroll, vector in ((1, 8), (2, widest), (3, 8)):
        long = replace(dispatch.schedule, reductions=(Reduction("products", (unroll, vector)),))
        assert dispatch.code(Schedule(tile, unroll, vector)) == dispatch.code(long)
    with pytest.raises(ScheduleError, match="unroll is 14, its loop has"):
        dispatch.code(Schedule(tile, 14))
