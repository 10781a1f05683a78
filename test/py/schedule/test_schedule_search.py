"""`O2` and locks: schedules that a search found are put on dispatches, and come from a lock again to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from space_cases import dispatch_of

import tilewright
from tilewright.compiler import driver, phases
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import LockError, TilewrightError
from tilewright.compiler.families.cpu.dispatch_space import order_knobs
from tilewright.compiler.families.tasks.dispatch_task import dispatch_tasks
from tilewright.compiler.nouns.schedule import ONE_ORDER, Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.options import check_options, seconds_of
from tilewright.compiler.profiler.schedule_search import (
    Searched,
    SearchOptions,
    apply_lock,
    search_schedules,
)
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.lockfile import Lock, Locked
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice
from tilewright.compiler.tuning.search.tune_result import TuneEvent

TRIALS = SearchOptions(seconds=None, trials=24, strategy="random")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(48, 80), torch.nn.Linear(80, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.last(torch.relu(self.first(x))), 1)


def model() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Model().eval(), (torch.randn(33, 48),)


def scheduled(target: str = "cpu"):
    """The module of the model with a schedule on every dispatch."""
    module = driver.import_model(*model()).module
    phases.run_phases(module, resolve(target))
    return module


def by_hash(task, points: np.ndarray) -> np.ndarray:
    """Times that no schedule has a reason for: the constructed one is the slowest."""
    constructed = task.space.point(task.space.default())
    us = 10.0 + (points @ np.arange(1, 1 + points.shape[1])) % 7
    return np.where((points == constructed).all(axis=1), 100.0, us)


def search(module, options: SearchOptions = TRIALS, **given) -> Searched:
    return search_schedules(
        module,
        resolve("cpu"),
        options,
        make_device=lambda target, measuring: SimulatedDevice(by_hash),
        **given,
    )


def schedules(module) -> dict[str, Schedule]:
    with module.context:
        tasks = dispatch_tasks(module, resolve("cpu"))
        return {task.key: schedule_attribute.read(task.function) for task in tasks}  # type: ignore[misc]


class TestSearch:
    def test_the_best_schedules_are_put_on_dispatches_and_told(self) -> None:
        module, events = scheduled(), list[TuneEvent]()
        before = schedules(module)
        found = search(module, on_event=events.append)
        after = schedules(module)
        assert found.result.trials == 24 == events[-1].all_trials
        assert set(after) == set(before) and all(after[key] != before[key] for key in before)
        for task in found.result.tasks:
            assert task.chosen is not None and task.chosen.us == task.best_us < 100.0
            decision = found.decisions[task.task.name]
            assert decision.schedule == after[task.task.key]

    def test_a_search_ends_where_nothing_gets_faster(self) -> None:
        module = scheduled()
        options = SearchOptions(seconds=None, patience=20, strategy="random")
        found = search(module, options)
        assert {task.stopped for task in found.result.tasks} <= {"patience", "exhausted"}
        assert all(task.trials >= 20 for task in found.result.tasks if task.stopped == "patience")

    def test_what_runs_nowhere_leaves_the_constructed_schedule(self) -> None:
        module = scheduled()
        before = schedules(module)
        found = search_schedules(
            module,
            resolve("cpu"),
            TRIALS,
            make_device=lambda target, measuring: SimulatedDevice(by_hash, crashes=1.0),
        )
        assert schedules(module) == before
        assert all(task.chosen is None and task.failures == task.trials for task in found.result.tasks)
        assert {entry.us for entry in found.lock(resolve("cpu")).dispatches.values()} == {None}

    def test_the_constructed_schedule_races_and_wins_where_nothing_is_faster(self) -> None:
        module = scheduled()
        before = schedules(module)
        search_schedules(
            module,
            resolve("cpu"),
            TRIALS,
            make_device=lambda target, measuring: SimulatedDevice(lambda t, p: 110.0 - by_hash(t, p)),
        )
        # None of 24 random trials need be the constructed schedule.
        assert schedules(module) == before


class TestLock:
    def test_a_lock_puts_the_same_schedules_there_again(self) -> None:
        module = scheduled()
        lock = search(module).lock(resolve("cpu"))
        again = scheduled()
        decisions = apply_lock(again, resolve("cpu"), Lock.from_text(lock.to_text()))
        assert schedules(again) == schedules(module)
        assert all(decision.schedule for decision in decisions.values())

    def test_a_lock_of_something_else_is_refused_by_name(self) -> None:
        lock = search(scheduled()).lock(resolve("cpu"))
        key, entry = next(iter(lock.dispatches.items()))
        others = {k: e for k, e in lock.dispatches.items() if k != key}
        with pytest.raises(LockError, match=rf"says nothing of `{entry.name}`"):
            apply_lock(scheduled(), lock.target, Lock(lock.target, "", others))
        with pytest.raises(LockError, match=r"is of `other` .+no such dispatch"):
            apply_lock(
                scheduled(),
                lock.target,
                Lock(lock.target, "", {**lock.dispatches, "f" * 64: Locked("other", entry.schedule)}),
            )
        with pytest.raises(LockError, match=f"schedule of `{entry.name}`"):
            wrong = Locked(entry.name, Schedule((3, 3, 3, 3, 3)))
            apply_lock(scheduled(), lock.target, Lock(lock.target, "", {**lock.dispatches, key: wrong}))
        with pytest.raises(LockError, match="is for the target `x86-64-v3`"):
            apply_lock(scheduled(), lock.target, Lock(resolve("x86-64-v3"), "", lock.dispatches))

    def test_compiled_from_a_lock_a_model_is_the_same_bytes(self, tmp_path: Path) -> None:
        module, inputs = model()
        imported = driver.import_model(module, inputs)
        tuned = driver.tune_imported(imported, options={"trials": 12, "strategy": "random"})
        tuned.lock.write(tmp_path / "model.tune.lock")
        again = tilewright.compile(module, inputs, lock=tmp_path / "model.tune.lock")
        once, twice = tuned.model.executable.package, again.executable.package
        assert [kernel.object for kernel in once.kernels] == [kernel.object for kernel in twice.kernels]
        assert once.main == twice.main
        assert torch.equal(tuned.model(*inputs), again(*inputs))
        torch.testing.assert_close(again(*inputs), module(*inputs))

    def test_a_lock_names_the_target_that_its_model_is_compiled_for(self) -> None:
        module, inputs = model()
        imported = driver.import_model(module, inputs)
        target = resolve("x86-64-v3")
        phases.run_phases(imported.module, target)
        entries = {
            task.key: Locked(task.name, task.space.schedule(task.space.point(task.constructed)))
            for task in dispatch_tasks(imported.module, target)
        }
        compiled = tilewright.compile(module, inputs, lock=Lock(target, "", entries))
        assert compiled.executable.package.target == "x86-64-v3"
        with pytest.raises(LockError, match="leave the target out"):
            tilewright.compile(module, inputs, target="x86-64-v4", lock=Lock(target, "", entries))


class TestBitwise:
    NAMES = (
        "packed product",
        "dots",
        "depthwise",
        "groups",
        "winograd",
        "softmax",
        "attention",
        "column sums",
    )

    @pytest.mark.parametrize("name", NAMES)
    @settings(max_examples=5, deadline=None)
    @given(seed=st.integers(0, 1 << 16))
    def test_a_held_space_keeps_the_order_of_sums(self, name: str, seed: int) -> None:
        whole = dispatch_of(name, "cpu").space
        space = whole.held(order_knobs(whole))
        points = space.sample(32, np.random.default_rng(seed))
        default = space.default()
        assert (space.legal(points) == KEPT).all() and default in space
        for schedule in map(space.schedule, points):
            assert schedule in whole
            for own, constructed in zip(schedule.reductions, default.reductions, strict=True):
                assert own.loops == constructed.loops
                assert own.loops in (*ONE_ORDER, "attention") or own.sizes == constructed.sizes
            moved = space.neighbours(space.point(schedule))
            assert (space.legal(moved) == KEPT).all()

    @pytest.mark.parametrize("name", NAMES)
    def test_schedules_of_one_order_compute_the_same_bits(self, name: str) -> None:
        dispatch = dispatch_of(name, "cpu")
        space = dispatch.space.held(order_knobs(dispatch.space))
        wanted, _ = dispatch.run(space.default())
        for point in space.sample(4, np.random.default_rng(1)):
            schedule = space.schedule(point)
            found, _ = dispatch.run(schedule)
            assert found.tobytes() == wanted.tobytes(), schedule.text()

    def test_models_that_are_tuned_so_compute_the_same_bits(self) -> None:
        module, inputs = model()
        imported = driver.import_model(module, inputs)
        tuned = driver.tune_imported(imported, options={"trials": 16, "strategy": "random", "bitwise": True})
        plain = tilewright.compile(module, inputs)
        assert torch.equal(tuned.model(*inputs), plain(*inputs))

    def test_kernels_of_gpus_are_refused(self) -> None:
        module = driver.import_model(*model()).module
        phases.run_phases(module, resolve("h100"))
        with pytest.raises(TilewrightError, match=r"bitwise: .+ found `h100`"):
            dispatch_tasks(module, resolve("h100"), bitwise=True)


class TestOptions:
    @pytest.mark.parametrize(
        ("budget", "seconds"),
        [
            (90, 90.0),
            (1.5, 1.5),
            ("90", 90.0),
            ("90s", 90.0),
            ("10m", 600.0),
            ("2 min", 120.0),
            ("0.5h", 1800.0),
        ],
    )
    def test_budgets_are_times(self, budget, seconds: float) -> None:
        assert seconds_of(budget) == seconds
        assert check_options({"opt": "O2", "budget": budget})["budget"] == seconds

    @pytest.mark.parametrize("budget", [0, -1, True, None, "", "m", "ten", "10d", "1e400", [1], float("nan")])
    def test_other_budgets_are_refused(self, budget) -> None:
        with pytest.raises(
            TilewrightError, match="budget: expected seconds > 0, or a time like 90s, 10m or 1h"
        ):
            check_options({"opt": "O2", "budget": budget})

    def test_o2_has_a_budget_unless_trials_end_it(self) -> None:
        assert check_options({"opt": "O2"})["budget"] == 60.0
        assert "budget" not in check_options({"opt": "O2", "trials": 5})

    @pytest.mark.parametrize(
        "name", ["budget", "trials", "patience", "strategy", "cost_model", "seed", "bitwise"]
    )
    @pytest.mark.parametrize("opt", ["O0", "O1"])
    def test_levels_that_search_nothing_take_no_options_of_searches(self, name: str, opt: str) -> None:
        value = {"strategy": "random", "cost_model": "trees", "bitwise": True}.get(name, 5)
        with pytest.raises(TilewrightError, match=f"{name}: opt {opt} searches nothing"):
            check_options({"opt": opt, name: value})

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"strategy": "best"}, "no strategy is named `best`; there are pruner,"),
            ({"cost_model": "best"}, "`best`"),
            ({"trials": 0}, "trials: expected an integer >= 1, found `0`"),
            ({"trials": 1.5}, "trials: expected an integer >= 1"),
            ({"patience": 0}, "patience: expected an integer >= 1, found `0`"),
            ({"seed": -1}, "seed: expected an integer >= 0"),
            ({"bitwise": 1}, "bitwise: expected True or False, found `1`"),
            ({"lock": 5}, "lock: expected the path of a lockfile"),
            ({"lock": "absent.lock"}, "cannot read the lockfile `absent.lock`"),
            ({"budgets": 5}, "unknown option `budgets`; the options are: bitwise, budget"),
        ],
    )
    def test_other_values_are_refused_by_name(self, options: dict, said: str) -> None:
        with pytest.raises(TilewrightError) as refusal:
            check_options({"opt": "O2", **options})
        assert said in str(refusal.value)

    def test_o3_searches_schedules_and_says_so(self) -> None:
        with pytest.warns(UserWarning, match="layouts are not searched yet, compiled as O2"):
            assert check_options({"opt": "O3"})["opt"] == "O2"

    def test_a_lock_goes_with_no_level_that_measures(self) -> None:
        text = Lock(resolve("cpu"), "", {}).to_text()
        assert json.loads(check_options({"lock": text})["lock"])["dispatches"] == {}
        with pytest.raises(TilewrightError, match="lock: it says which schedules are used, and opt O1"):
            check_options({"opt": "O1", "lock": text})
