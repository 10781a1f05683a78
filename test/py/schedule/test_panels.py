"""Packed operands are fetched ahead of their use where both their way from memory and their products take time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from tilewright.compiler import phases
from tilewright.compiler.codegen import lower_cpu
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.families.cpu.panels import DISTANCES, prefetch_distance
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.targets.target import Target, resolve

TARGETS = ["x86-64-v3", "x86-64-v4", "sapphire-rapids"]


def scheduled(
    module: nn.Module, x: torch.Tensor, target: Target, operator: str = "matmul"
) -> tuple[ir.Module, ir.Operation]:
    """The module and its one product or convolution."""
    imported = import_model(module.eval(), (x,))
    phases.run_phases(imported.module, target)
    dispatches = [f for f in functions(imported.module) if "tilewright.operator" in f.attributes]
    (product,) = (f for f in dispatches if str(f.attributes["tilewright.operator"]) == f'"{operator}"')
    return imported.module, product


def schedule_of(dispatch: ir.Operation) -> Schedule:
    found = schedule_attribute.read(dispatch)
    assert found is not None
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("rows", "fetches"), [(1, False), (16, True), (4096, False)])
def test_products_of_some_rows_fetch_ahead(target: str, rows: int, fetches: bool) -> None:
    """A single row waits for memory in any case, and of thousands all but the first find panels in the cache."""
    machine = resolve(target)
    _, dispatch = scheduled(nn.Linear(256, 512), torch.empty(rows, 256), machine)
    assert schedule_of(dispatch).prefetch == fetches * prefetch_distance(machine)


def test_weights_that_stay_in_the_nearest_cache_are_not_fetched() -> None:
    _, dispatch = scheduled(nn.Linear(64, 96), torch.empty(16, 64), resolve("x86-64-v4"))
    assert schedule_of(dispatch).prefetch == 0


def test_small_images_under_many_filters_fetch_ahead_by_winograd_too() -> None:
    machine = resolve("x86-64-v4")
    for size, filters in ((7, 512), (14, 256)):
        _, dispatch = scheduled(
            nn.Conv2d(filters, filters, 3, padding=1), torch.empty(1, filters, size, size), machine, "conv"
        )
        assert schedule_of(dispatch).prefetch == prefetch_distance(machine)
        assert schedule_of(dispatch).reductions[0].loops in ("products", "winograd")


@pytest.mark.parametrize("target", TARGETS)
def test_the_distance_is_one_of_those_to_choose_of(target: str) -> None:
    assert prefetch_distance(resolve(target)) in DISTANCES


def test_a_slower_memory_is_asked_earlier() -> None:
    machine = resolve("x86-64-v4")
    dram, *others = machine.memory
    slow = replace(machine, memory=(replace(dram, latency_ns=400.0), *others))
    assert prefetch_distance(slow) == 4 * prefetch_distance(machine)


def test_candidates_have_it_both_ways() -> None:
    """Measuring decides between them."""
    machine = resolve("x86-64-v4")
    module, dispatch = scheduled(nn.Linear(256, 512), torch.empty(16, 256), machine)
    with module.context, ir.Location.unknown(module.context):
        found = ConstructSchedules.for_target(machine).candidates_or_none(dispatch)
    assert found is not None
    first, second, *_ = (candidate.schedule for candidate in found)
    assert schedule_of(dispatch) == first and first.prefetch
    assert second == replace(first, prefetch=0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_kernels_ask_as_far_ahead_as_their_schedule_says(target: str, precision: str) -> None:
    machine = resolve(target)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    for distance in (0, 8192):
        _, dispatch = scheduled(nn.Linear(256, 512, dtype=dtype), torch.empty(16, 256, dtype=dtype), machine)
        wanted = replace(schedule_of(dispatch), prefetch=distance)
        if wanted.reductions[0].loops not in ("products", "dots"):
            pytest.skip(f"{target} multiplies bf16 by {wanted.reductions[0].loops}")
        schedule_attribute.write(dispatch, wanted)
        assert ("@llvm.prefetch" in lower_cpu.lower(dispatch, machine)[0]) is bool(distance)
