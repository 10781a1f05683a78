"""Orders of dispatches respect every hazard, keep weights near where caches are small, and the arena within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_programs import MEMORIES, SHAPE, programs, reads_of

from tilewright.compiler.nouns.accesses import Accesses, Memory, Region, dependences, is_order
from tilewright.compiler.package.plan import plan_arena
from tilewright.compiler.targets.target import KIB, resolve
from tilewright.compiler.tuning.dispatch_order import Cache, Decision, caches, decide, read_us, recent_first

FAR = Cache(1 << 40, 10.0)


def decided(
    steps: Sequence[Accesses], memories: Sequence[Memory], levels: Sequence[Cache]
) -> tuple[Decision, int, int]:
    """The decision, and the bytes of arena before and after."""

    def arena_bytes(order: Sequence[int]) -> int:
        return plan_arena([steps[i] for i in order], memories)[1]

    decision = decide(steps, memories, levels, arena_bytes)
    return decision, arena_bytes(range(len(steps))), arena_bytes(decision.order)


@settings(max_examples=200, deadline=None)
@given(programs(), st.integers(1, 600), st.integers(0, 3))
def test_results_and_bounds_hold_for_any_program(steps, capacity, temporary):
    memories = [Memory(48, 4, 0 < number <= temporary) for number in range(MEMORIES)]
    assert memories[0].nbytes == 4 * SHAPE[0] * SHAPE[1]
    levels = [FAR, Cache(capacity, 100.0)]
    decision, before, after = decided(steps, memories, levels)
    assert is_order(steps, decision.order)
    assert reads_of(steps, decision.order) == reads_of(steps, range(len(steps)))
    assert decision.read_us == read_us(steps, memories, levels, decision.order)
    assert decision.given_us == read_us(steps, memories, levels, range(len(steps)))
    assert decision.read_us <= decision.given_us
    assert after <= before + capacity // 4
    assert decided(steps, memories, levels)[0] == decision
    if not decision.window:
        assert decision.order == tuple(range(len(steps)))


def recurrence(
    layers: int, length: int, weight: int, state: int
) -> tuple[list[Accesses], list[Memory], list[int]]:
    """Cells of a deep recurrence, time by time: each reads its layer's weight, its state and the layer below.

    The steps, the memories, and the layer of each step.
    """
    memories = [Memory(weight, 1, False) for _ in range(layers)]
    steps, layer_of, states = [], [], {}
    for time in range(length):
        for layer in range(layers):
            reads = [Region(layer, 0, (weight,), (1,))]
            reads += [states[key] for key in ((time, layer - 1), (time - 1, layer)) if key in states]
            states[time, layer] = Region(len(memories), 0, (state,), (1,))
            memories.append(Memory(state, 1, True))
            steps.append(Accesses(tuple(reads), (states[time, layer],)))
            layer_of.append(layer)
    return steps, memories, layer_of


@pytest.mark.parametrize("layers, length", [(2, 2), (3, 7), (10, 20)])
def test_weights_of_which_one_fits_are_read_layer_by_layer(layers, length):
    steps, memories, layer_of = recurrence(layers, length, weight=10_000, state=10)
    decision, _, _ = decided(steps, memories, [FAR, Cache(15_000, 100.0)])
    assert [layer for layer, _ in groupby(layer_of[i] for i in decision.order)] == list(range(layers))
    # All but the first read of each weight find it near.
    assert decision.read_us < 1e-3 * 10_000 * layers * (1 / 10 + (length - 1) / 100 + 0.01)


@pytest.mark.parametrize("capacity", [9_000, 35_000, 1_000_000], ids=["none fits", "all fit", "plenty"])
def test_the_given_order_stays_where_another_saves_nothing(capacity):
    steps, memories, _ = recurrence(3, 7, weight=10_000, state=10)
    decision, _, _ = decided(steps, memories, [FAR, Cache(capacity, 100.0)])
    assert decision == Decision(tuple(range(len(steps))), decision.given_us, decision.given_us, 0)


def test_the_given_order_stays_on_a_machine_without_caches():
    steps, memories, _ = recurrence(3, 7, weight=10_000, state=10)
    assert decided(steps, memories, [FAR])[0].window == 0


def test_a_cache_further_out_counts_too():
    """Three levels: one weight fits the nearest, some fit the next, all fit memory."""
    steps, memories, _ = recurrence(4, 8, weight=10_000, state=10)
    levels = [FAR, Cache(25_000, 50.0), Cache(12_000, 400.0)]
    decision, _, _ = decided(steps, memories, levels)
    assert decision.read_us < 0.3 * decision.given_us


def test_steps_that_read_nothing_twice_go_with_the_step_that_needs_them():
    """Two weights by turns, and before each product with one a step that brings its rows."""
    weights = [Region(number, 0, (1000,), (1,)) for number in range(2)]
    memories = [Memory(1000, 1, False)] * 2 + [Memory(10, 1, True)] * 8
    rows = [Region(2 + number, 0, (10,), (1,)) for number in range(8)]
    steps = []
    for number in range(8):
        steps.append(Accesses((), (rows[number],)))
        steps.append(Accesses((weights[number % 2], rows[number]), ()))
    decision, _, _ = decided(steps, memories, [FAR, Cache(1500, 100.0)])
    assert sorted(decision.order) == list(range(16))
    assert [i // 2 % 2 for i in decision.order if i % 2] == [0] * 4 + [1] * 4


def test_no_step_is_left_out_whose_anchor_another_one_of_it_did_not_touch():
    """Steps 0 to 2 go with step 3, which reads what only the first of them wrote."""
    wholes = [Region(number, 0, (12,), (1,)) for number in range(3)]
    steps = [Accesses((), (wholes[0],)), Accesses((), (wholes[1],)), Accesses((), (wholes[2],), True)]
    steps.append(Accesses((wholes[0],), (wholes[1],), True))
    order = recent_first(steps, [Memory(48, 4, False)] * 3, dependences(steps), range(4))
    assert is_order(steps, order)


def test_where_the_arena_would_grow_too_much_windows_of_steps_are_ordered():
    """Layer by layer, the states of all steps live at once: 400 of 500 bytes beside a cache of 15,000."""
    steps, memories, layer_of = recurrence(4, 400, weight=10_000, state=500)
    decision, before, after = decided(steps, memories, [FAR, Cache(15_000, 100.0)])
    assert 0 < decision.window < len(steps)
    assert after <= before + 15_000 // 4
    assert decision.read_us < 0.7 * decision.given_us
    runs = [len(list(run)) for _, run in groupby(layer_of[i] for i in decision.order)]
    assert max(runs) <= decision.window


def test_caches_of_all_cores_count_together():
    cpu = replace(resolve("x86-64-v3"), num_cores=4)
    levels = {level.capacity_bytes for level in caches(cpu)[1:]}
    private, shared = cpu.level("L2"), cpu.level("L3")
    assert (private.shared_by, shared.shared_by) == (1, 4)
    assert {4 * private.capacity_bytes, shared.capacity_bytes} <= levels


def test_what_kernels_start_without_counts_for_nothing():
    gpu = resolve("h100")
    assert [level.capacity_bytes for level in caches(gpu)] == [
        gpu.level(name).capacity_bytes for name in ("DRAM", "L2")
    ]
    silent = replace(gpu, memory=tuple(replace(level, bandwidth_gbps=0.0) for level in gpu.memory))
    assert caches(silent) == []


def test_a_cpu_whose_weights_fit_keeps_the_order():
    """The rule follows from the target: the same program is left alone where its weights stay near anyway."""
    steps, memories, _ = recurrence(10, 20, weight=1024 * KIB, state=4 * KIB)
    target = resolve("x86-64-v3")
    large = replace(target, memory=tuple(replace(level, capacity_bytes=1 << 34) for level in target.memory))
    assert decided(steps, memories, caches(target))[0].window
    assert not decided(steps, memories, caches(large))[0].window
