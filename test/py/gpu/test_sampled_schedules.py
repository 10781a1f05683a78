"""Sampled schedules of every family of GPU kernels: a legal one is the kernel that is written, others are refused by name."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest
from dispatch_runs import dtype_of, launched
from test_schedules_obeyed import CASES, asked_of, dispatch, schedule_of

from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import PassError, ScheduleError
from tilewright.compiler.families.gpu import families
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import resolve

SAMPLES = 32
FIXED = ("kernel", "instruction")
FOLLOWS = {
    "wgmma": ("threads", "warp", "instruction"),
    "windows": ("block", "thread"),
    "elementwise": ("block", "parts"),
    "attention": ("stages",),
    "skinny": (),
    "rows": (),
    "scan": ("threads", "block"),
}
"""Fields that follow from others, by kernel."""
NAMED = re.compile(
    r"gpu\.\w+|block_[mnkq]|\bthreads\b|\bstages?\b|\bwarps?\b|\bclusters?\b|\bblock is\b|shared memory|registers"
)
"""What a refusal calls the field that it is about."""
SMALL = ("ragged", "two results", "depthwise", "pooling", "scatter", "softmax", "sort", "scan", "skinny")
"""Cases that an emulator runs in no time."""


def sampled(made: GpuTile, seed: int, count: int) -> Iterator[GpuTile]:
    """Schedules around a constructed one: one to three fields halved, doubled or stepped.

    Half of them leave open what follows from other fields, so that more of them are legal.
    """
    numbers = random.Random(seed)
    said = [f.name for f in fields(GpuTile) if getattr(made, f.name) and f.name not in FIXED]
    follows = FOLLOWS.get(made.kernel, ("threads", "resident", "padding"))
    for number in range(count):
        own, found = said, made
        if number % 2:
            own = [name for name in said if name not in follows] or said
            opened = {f.name: f.default for f in fields(GpuTile) if f.name in follows and f.name not in own}
            found = replace(made, **opened)
        for name in numbers.sample(own, min(len(own), numbers.randint(1, 3))):
            found = replace(found, **{name: moved(getattr(found, name), numbers)})
        yield found


def moved(value: int | tuple[int, ...], numbers: random.Random) -> int | tuple[int, ...]:
    if isinstance(value, tuple):
        at = numbers.randrange(len(value))
        return tuple(moved_size(n, numbers) if i == at else n for i, n in enumerate(value))
    return moved_size(value, numbers)


def moved_size(size: int, numbers: random.Random) -> int:
    return max(1, numbers.choice((size * 2, size // 2, size // 2, size + 8, size - 1)))


def body_of(kernel: ir.Module) -> str:
    """A kernel's text without the schedule that it says it has."""
    del kernel_of(kernel).attributes["tilewright.schedule"]
    return str(kernel)


def legal(case: str, count: int) -> tuple[ir.Module, ir.Operation, dict[str, Schedule], list[ir.Module]]:
    """A dispatch, and its kernels of sampled schedules by their text, the constructed one first."""
    module, function = dispatch(case)
    target, kernels, written = resolve(CASES[case][2]), {}, []
    for tile in (asked_of(function), *sampled(asked_of(function), len(case), count)):
        try:
            completed = families.complete(function, Schedule(gpu=tile), target)
            schedule = completed.schedule
            if schedule in kernels.values():
                continue
            kernel = families.emit(completed, target)
        except (ScheduleError, PassError) as refusal:
            assert NAMED.search(str(refusal)), refusal
            continue
        assert families.complete(function, schedule, target).schedule == schedule
        assert schedule_of(kernel) == schedule
        text = body_of(kernel)
        assert text not in kernels, f"{schedule.text()} and {kernels[text].text()} are one kernel"
        kernels[text] = schedule
        written.append(kernel)
    return module, function, kernels, written


@pytest.mark.parametrize("case", CASES)
def test_sampled_schedules_are_written_exactly_or_refused(case: str) -> None:
    """Schedules that differ are kernels that differ, and what is refused is named."""
    _module, _, kernels, _ = legal(case, SAMPLES)
    assert len(kernels) > 1, "sampling reaches no other schedule"


@pytest.mark.parametrize("case", SMALL)
def test_sampled_schedules_compute_what_the_constructed_one_does(case: str) -> None:
    _module, function, _, written = legal(case, 10)
    target, types = resolve(CASES[case][2]), function.attributes["function_type"].value
    numbers = np.random.default_rng(0)
    operands = []
    for type_ in map(ir.ShapedType, types.inputs):
        drawn = numbers.integers(-3, 4, tuple(type_.shape))
        operands.append(np.abs(drawn).astype(dtype_of(type_.element_type)))
    (expected, *_), *others = [launched(function, operands, [lambda *_, k=k: k], target) for k in written]
    for (found, *_), kernel in zip(others, written[1:]):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=str(kernel)[:200])


@pytest.mark.parametrize("case", CASES)
def test_a_schedule_with_an_open_field_is_not_written(case: str) -> None:
    """What writes kernels fills nothing in: without completing, an open field is refused by its name."""
    _module, function = dispatch(case)
    target, made = resolve(CASES[case][2]), asked_of(function)
    completed = families.complete(
        function, Schedule(gpu=made) if made.kernel != "fallback" else Schedule(), target
    )
    for field in fields(GpuTile):
        if not getattr(made, field.name) or field.name == "kernel":
            continue
        open_tile = replace(made, **{field.name: field.default})
        with pytest.raises(ScheduleError, match=rf"gpu\.({field.name}|stages)|swizzled|other parts"):
            families.emit(replace(completed, schedule=Schedule(gpu=open_tile)), target)
