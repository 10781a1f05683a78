"""The loop of a search on a simulated device: its end, its tasks, its faults, and what a second run starts from."""

from __future__ import annotations

import math
import os
import signal
from contextlib import suppress
from functools import cached_property

import numpy as np
import pytest
from bowl_task import BowlTask, KnobModel, bowl_us

from tilewright.compiler.errors import CostModelError, TilewrightError
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT, Knob, Space
from tilewright.compiler.tuning.search.finalists import TIE
from tilewright.compiler.tuning.search.search_task import Outcome
from tilewright.compiler.tuning.search.simulated_device import FAULTS, SimulatedDevice
from tilewright.compiler.tuning.search.strategies import STRATEGIES, Strategy, strategy_named
from tilewright.compiler.tuning.search.task_scheduler import gain
from tilewright.compiler.tuning.search.task_search import TaskSearch
from tilewright.compiler.tuning.search.tuner import tune


def strategy(name: str) -> Strategy:
    """A strategy that asks a model of this test where it asks any, so that no extra is needed."""
    found = STRATEGIES[name]
    return _Own(found.name, found.explorer, found.model, found.batch)


class _Own(Strategy):
    def make_model(self, seed: int):
        return KnobModel() if self.model else None


def simulated(**given) -> SimulatedDevice:
    return SimulatedDevice(bowl_us, **given)


def points_of(result) -> list[list[tuple[int, ...]]]:
    return [[outcome.point for outcome in found.outcomes] for found in result.tasks]


@pytest.mark.parametrize("name", STRATEGIES)
class TestEveryStrategy:
    def test_the_same_seed_gives_the_same_search(self, name: str) -> None:
        runs = [
            tune(
                [BowlTask("a"), BowlTask("b", 3.0)], simulated(noise=0.02), strategy(name), trials=96, seed=7
            )
            for _ in range(2)
        ]
        assert points_of(runs[0]) == points_of(runs[1])
        assert [t.chosen for t in runs[0].tasks] == [t.chosen for t in runs[1].tasks]

    def test_no_candidate_is_tried_twice_and_the_budget_is_kept(self, name: str) -> None:
        result = tune([BowlTask()], simulated(), strategy(name), trials=50)
        (points,) = points_of(result)
        assert len(set(points)) == len(points) == (4 if name == "roller" else 50)
        assert result.trials == len(points)

    def test_faults_are_outcomes_and_the_search_goes_on(self, name: str) -> None:
        device = simulated(crashes=0.1, hangs=0.1, is_wrong=0.1, is_lost=0.1, is_shuffled=True, seed=1)
        (found,) = tune([BowlTask()], device, strategy(name), trials=400).tasks
        if name != "roller":
            assert {o.error for o in found.outcomes} == {"", *FAULTS.values()}
            assert 0 < found.failures < found.trials
        assert found.chosen is not None and found.chosen.rounds_us

    def test_the_order_of_outcomes_changes_nothing(self, name: str) -> None:
        runs = [
            tune([BowlTask("a"), BowlTask("b")], simulated(is_shuffled=s), strategy(name), trials=80)
            for s in (False, True)
        ]
        assert points_of(runs[0]) == points_of(runs[1])


def test_a_space_without_further_candidates_ends_the_search() -> None:
    task = BowlTask()
    (found,) = tune([task], simulated(), "exhaustive", trials=10_000).tasks
    assert found.stopped == "exhausted" and found.trials == len(task.legal)
    assert found.best_us == pytest.approx(task.fastest_us)
    assert found.curve() == sorted(found.curve(), reverse=True) and len(found.curve()) == found.trials


def test_a_search_ends_in_time() -> None:
    result = tune([BowlTask()], simulated(), "random", seconds=1e-9)
    assert result.trials == 0 and result.tasks[0].chosen is None and result.tasks[0].stopped == "budget"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give it trials, seconds or patience"),
        ({"patience": 0}, "expected patience > 0, found 0"),
        ({"trials": 0}, "expected trials > 0, found 0"),
        ({"seconds": -1.0}, "expected seconds > 0, found -1.0"),
        ({"trials": 1, "seed": -1}, "expected seed >= 0, found -1"),
    ],
)
def test_a_search_without_an_end_or_a_seed_is_refused(given: dict, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        tune([BowlTask()], simulated(), "random", **given)


def test_a_task_that_no_trial_makes_faster_ends() -> None:
    """Its last trials are as many as its patience, and none of them is faster than those before by more than a tie."""
    results = tune([BowlTask()], simulated(noise=0.002), "random", patience=40)
    (found,) = results.tasks
    us = [outcome.us for outcome in found.outcomes]
    assert found.stopped == "patience" and 40 < len(us) < len(BowlTask().legal)
    assert min(us[-40:]) * TIE >= min(us[:-40])
    # No trial before was the last of so many in vain.
    longest = tune([BowlTask()], simulated(noise=0.002), "random", patience=41).tasks[0]
    assert [o.point for o in longest.outcomes[: len(us)]] == [o.point for o in found.outcomes]


def test_what_a_task_leaves_is_for_the_others() -> None:
    flat, bowl = BowlTask("flat"), BowlTask("bowl")

    def us(task, points: np.ndarray) -> np.ndarray:
        return np.full(len(points), 50.0) if task.key == flat.key else bowl_us(task, points)

    result = tune([flat, bowl], SimulatedDevice(us), "random", trials=200, patience=10)
    first, second = result.tasks
    # The first trial is faster than none; ten more bring nothing.
    assert first.stopped == "patience" and first.trials == 11
    assert second.trials > first.trials


def test_tasks_that_all_fail_end_too() -> None:
    (found,) = tune([BowlTask()], simulated(crashes=1.0), "random", patience=9).tasks
    assert found.stopped == "patience" and found.trials == 9 and found.chosen is None


def test_trials_on_record_count_for_patience() -> None:
    (found,) = tune([BowlTask()], simulated(), "random", patience=25).tasks
    again = tune([BowlTask()], simulated(), "random", patience=25, records={found.task.key: found.outcomes})
    assert again.trials == found.trials and again.tasks[0].stopped == "patience"


def test_names_and_models_that_are_not_known() -> None:
    with pytest.raises(TilewrightError, match="no strategy is named `oracle`; there are pruner, autotvm"):
        tune([BowlTask()], simulated(), "oracle", trials=1)
    with pytest.raises(TilewrightError, match="`random` asks no cost model, `trees` was given"):
        strategy_named("random").with_model("trees")
    with pytest.raises(CostModelError, match="no cost model is named `oracle`"):
        strategy_named("pruner").with_model("oracle").make_model(0)


def test_tasks_with_one_key_are_refused() -> None:
    with pytest.raises(TilewrightError, match="two tasks have the same key"):
        tune([BowlTask(), BowlTask()], simulated(), "random", trials=1)


def test_a_task_without_further_candidates_leaves_its_trials_to_the_others() -> None:
    class Small(BowlTask):
        @cached_property
        def space(self):
            return Space(
                (Knob("unroll", (1, 2, 4)),),
                (),
                lambda values: Schedule(unroll=int(values["unroll"])),
                lambda schedule: {"unroll": schedule.unroll},
                Schedule(unroll=1),
            )

        def us(self, points):
            return 1e6 + points[:, 0]

    small, large = tune([Small("small"), BowlTask("large")], simulated(), "random", trials=200).tasks
    assert (small.stopped, small.trials) == ("exhausted", 3)
    assert (large.stopped, large.trials) == ("budget", 197)
    device = simulated()
    result = tune([Small("a"), Small("b")], device, "random", seconds=3600)
    assert [found.stopped for found in result.tasks] == ["exhausted"] * 2 and device.measured == 6


class TestTasks:
    def test_the_task_that_counts_gets_the_trials(self) -> None:
        tasks = [BowlTask("a", calls=20), BowlTask("b", calls=1)]
        often, seldom = tune(tasks, simulated(), "random", trials=320).tasks
        assert often.trials > seldom.trials >= 16

    def test_trials_by_gain_find_more_than_equal_shares(self, monkeypatch) -> None:
        """Five tasks, one of which is most of a model's time, and one of which is near its limit from the start."""

        def left_us() -> float:
            found = []
            for seed in range(10):
                tasks = [
                    *(BowlTask("often", 5.0, calls=12), BowlTask("near", 20.0, limit_us=195.0)),
                    *(BowlTask(f"seldom {n}", 0.5 * n) for n in (1, 2, 3)),
                ]
                result = tune(tasks, simulated(), "genetic", trials=160, seed=seed)
                found.append(result.us - sum(task.calls * task.fastest_us for task in tasks))
            return float(np.mean(found))

        by_gain = left_us()
        monkeypatch.setattr(
            TaskSearch, "gain", property(lambda s: -len(s.state.outcomes) - len(s.state.in_flight))
        )
        assert by_gain < 0.7 * left_us()

    def test_a_task_at_its_limit_gets_little(self) -> None:
        near = BowlTask("near")
        near.limit_us = near.fastest_us
        far = BowlTask("far", limit_us=0.1)
        (at_limit, open_) = tune([near, far], simulated(), strategy("genetic"), trials=480).tasks
        assert at_limit.best_us == pytest.approx(near.limit_us, rel=0.2)
        assert open_.trials > 1.2 * at_limit.trials

    def test_a_task_of_which_nothing_runs_does_not_hold_up_the_others(self) -> None:
        def us(task, points):
            return np.where(task.key == "broken", np.inf, task.us(points))

        class Failing(SimulatedDevice):
            def _run(self, task, point, rounds, purpose):
                if task.key == "broken":
                    return Outcome(task.key, tuple(map(int, point)), error="crashed")
                return super()._run(task, point, rounds, purpose)

        broken, fine = tune([BowlTask("broken"), BowlTask("fine")], Failing(us), "random", trials=320).tasks
        assert broken.chosen is None and math.isinf(broken.best_us)
        assert broken.trials <= 4 * 16 and fine.trials >= 256

    @pytest.mark.parametrize("name", ["autotvm", "pruner"])
    def test_a_model_of_knobs_is_one_of_each_task(self, name: str) -> None:
        result = tune([BowlTask("a"), BowlTask("b", 1.5)], simulated(), strategy(name), trials=240)
        assert all(found.best_us < 1.1 * found.task.fastest_us for found in result.tasks)

    def test_a_model_of_knobs_that_knows_a_task_is_refused_for_two(self) -> None:
        with pytest.raises(TilewrightError, match="`knob-model` reads knobs, which differ from task to task"):
            tune([BowlTask("a"), BowlTask("b")], simulated(), "autotvm", trials=1, model=KnobModel())


class TestGain:
    def test_is_infinite_before_anything_is_known(self) -> None:
        assert math.isinf(gain(1, [], [], 1.0))
        assert math.isinf(gain(1, [math.inf], [16], 1.0)) and gain(1, [math.inf] * 3, [16, 32, 48], 1.0) == 0

    def test_by_hand(self) -> None:
        """0.2 * (100 - 60) / (48 - 16) + 0.8 * min(60 / 48, 60 - 59), twice."""
        assert gain(2, [100.0, 80.0, 60.0], [16, 32, 48], 59.0) == pytest.approx(2 * (0.2 * 1.25 + 0.8 * 1.0))

    def test_falls_to_nothing_at_the_limit(self) -> None:
        assert gain(1, [10.0] * 9, list(range(16, 160, 16)), 10.0) == 0

    def test_looks_back_a_window(self) -> None:
        long_ago = gain(1, [1000.0, 10, 10, 10, 10, 10], [1, 2, 3, 4, 5, 6], 10.0)
        assert long_ago == 0


class TestResuming:
    def test_what_is_on_record_is_not_measured_again(self) -> None:
        task, device = BowlTask(), simulated(noise=0.02)
        first = tune([task], device, "genetic", trials=64, seed=1).tasks[0]
        again = simulated(noise=0.02)
        second = tune([task], again, "genetic", trials=96, seed=1, records={task.key: first.outcomes}).tasks[
            0
        ]
        assert second.outcomes[:64] == first.outcomes and second.trials == 96 and again.measured == 32

    def test_a_budget_that_is_spent_measures_nothing(self) -> None:
        task, device = BowlTask(), simulated()
        first = tune([task], device, "random", trials=64).tasks[0]
        again = simulated()
        (found,) = tune([task], again, "random", trials=64, records={task.key: first.outcomes}).tasks
        assert again.measured == 0 and found.chosen == first.chosen

    def test_rounds_of_one_candidate_come_together_and_a_failure_stays(self) -> None:
        records = {
            "bowl": [
                Outcome("bowl", (5, 4, 2, 2), (12.0,)),
                Outcome("bowl", (5, 4, 2, 2), (11.0,)),
                Outcome("bowl", (0, 0, 0, -1), (1.0,)),
                Outcome("bowl", (0, 0, 0, -1), error="wrong"),
                Outcome("bowl", (1, 0, 0, -1), error="lost", is_final=False),
            ]
        }
        (found,) = tune([BowlTask()], simulated(), "random", trials=2, records=records).tasks
        assert [(o.point, o.rounds_us, o.error) for o in found.outcomes] == [
            ((5, 4, 2, 2), (12.0, 11.0), ""),
            ((0, 0, 0, -1), (), "wrong"),
        ]

    @pytest.mark.parametrize("at", [1, 15, 16, 17, 40])
    def test_an_interrupt_keeps_everything(self, at: int) -> None:
        class Interrupted(SimulatedDevice):
            def outcomes(self):
                for number, outcome in enumerate(super().outcomes()):
                    if number == at:
                        raise KeyboardInterrupt
                    yield outcome

        result = tune([BowlTask("a"), BowlTask("b")], Interrupted(bowl_us), "random", trials=100)
        assert result.is_interrupted and result.trials == at
        assert all(found.stopped == "interrupted" for found in result.tasks)
        assert all((found.chosen is None) == (not found.trials) for found in result.tasks)

    @pytest.mark.parametrize(
        "became", [TypeError("as numpy makes of it"), None], ids=["another error", "nothing"]
    )
    def test_an_interrupt_that_is_lost_on_its_way_ends_the_search(self, became: Exception | None) -> None:
        class Losing(SimulatedDevice):
            def outcomes(self):
                for number, outcome in enumerate(super().outcomes()):
                    if number == 20:
                        with suppress(KeyboardInterrupt):
                            os.kill(os.getpid(), signal.SIGINT)
                        if became is not None:
                            raise became
                    yield outcome

        before = signal.getsignal(signal.SIGINT)
        result = tune([BowlTask()], Losing(bowl_us), "random", trials=100)
        assert result.is_interrupted and 20 <= result.trials <= 21 and result.tasks[0].chosen is not None
        assert signal.getsignal(signal.SIGINT) is before

    def test_an_error_without_an_interrupt_is_raised(self) -> None:
        class Failing(SimulatedDevice):
            def outcomes(self):
                raise TypeError("no such device")

        with pytest.raises(TypeError, match="no such device"):
            tune([BowlTask()], Failing(bowl_us), "random", trials=100)

    def test_an_interrupt_while_it_is_told_keeps_everything(self) -> None:
        def stop(event) -> None:
            raise KeyboardInterrupt

        result = tune([BowlTask()], simulated(), "random", trials=100, on_event=stop)
        assert result.is_interrupted and result.trials == 16

    def test_an_interrupt_keeps_what_was_lost_before(self) -> None:
        """Of 16 candidates the lost ones are asked for again: what is found then is no older outcome of the same point."""
        given, found = [], []

        class Interrupted(SimulatedDevice):
            def outcomes(self):
                for outcome in super().outcomes():
                    if len(given) == 28:
                        raise KeyboardInterrupt
                    given.append(outcome)
                    yield outcome

        result = tune([BowlTask()], Interrupted(bowl_us, is_lost=0.5), "exhaustive", trials=100)
        found = list(result.tasks[0].outcomes)
        lost = {outcome.point for outcome in given if not outcome.is_final}
        assert any(outcome.point in lost for outcome in given[16:] if outcome.is_final)
        assert found == given

    def test_an_interrupt_while_it_learns_from_records_keeps_them(self) -> None:
        class Slow(KnobModel):
            def fit(self, samples) -> None:
                raise KeyboardInterrupt

        (found,) = tune([BowlTask()], simulated(), "random", trials=16).tasks
        records = {"bowl": found.outcomes}
        again = Strategy("slow", strategy("autotvm").explorer, "slow")
        model = Slow()
        result = tune([BowlTask()], simulated(), again, trials=32, records=records, model=model)
        assert result.is_interrupted and result.trials == 16 and result.tasks[0].chosen is not None


class TestEvents:
    def test_tell_what_is_known(self) -> None:
        events = []
        result = tune([BowlTask()], simulated(), strategy("autotvm"), trials=64, on_event=events.append)
        assert [event.trials for event in events] == [16, 32, 48, 64]
        assert events[-1].best_us == result.tasks[0].best_us
        assert events[0].model_error is None and all(0 <= event.model_error <= 1 for event in events[1:])
        assert events[-1].all_trials == 64 and [o for e in events for o in e.batch] == list(
            result.tasks[0].outcomes
        )

    def test_a_model_that_is_given_is_updated(self) -> None:
        model = KnobModel()
        tune([BowlTask()], simulated(), "autotvm", trials=32, model=model)
        assert model.fits == 2


class TestDevicesThatBreakTheirWord:
    def test_one_that_loses_candidates(self) -> None:
        class Losing(SimulatedDevice):
            def outcomes(self):
                yield from list(super().outcomes())[:3]

        with pytest.raises(TilewrightError, match="`simulated` lost 13 candidates without a word"):
            tune([BowlTask()], Losing(bowl_us), "random", trials=16)

    def test_one_that_answers_for_others(self) -> None:
        class Inventing(SimulatedDevice):
            def outcomes(self):
                yield Outcome("bowl", (99, 0, 0, 0), (1.0,))

        with pytest.raises(TilewrightError, match="which nobody asked for"):
            tune([BowlTask()], Inventing(bowl_us), "random", trials=16)


class TestExplorersThatBreakTheirWord:
    @pytest.mark.parametrize("points", [[[0, 0, 0, -1]] * 2, [[7, 7, 0, -1]]])
    def test_are_refused(self, points) -> None:
        class Wrong:
            def propose(self, state, count):
                return np.asarray(points)

        with pytest.raises(TilewrightError, match="Wrong proposed"):
            tune([BowlTask()], simulated(), Strategy("wrong", Wrong), trials=16)


class TestSimulatedDevice:
    @pytest.mark.parametrize("given", [{"noise": -0.1}, {"crashes": 1.5}, {"seed": -1}])
    def test_what_is_no_share_and_no_seed_is_refused(self, given: dict) -> None:
        with pytest.raises(TilewrightError, match=f"expected {next(iter(given))} "):
            simulated(**given)

    def test_a_candidate_fares_the_same_whenever_it_is_asked_for(self) -> None:
        task = BowlTask()
        forward, backward = simulated(noise=0.1, crashes=0.3), simulated(noise=0.1, crashes=0.3)
        forward.submit(task, list(task.legal))
        backward.submit(task, list(task.legal[::-1]))
        first, second = list(forward.outcomes()), list(backward.outcomes())
        assert first == second[::-1]
        assert 0.2 < np.mean([not o.rounds_us for o in first]) < 0.4
        assert all(o.us >= task.us(np.asarray([o.point]))[0] for o in first)

    def test_what_was_lost_may_be_found(self) -> None:
        task, device = BowlTask(), simulated(is_lost=0.5)
        device.submit(task, list(task.legal))
        lost = [o.point for o in device.outcomes() if not o.is_final]
        device.submit(task, [np.asarray(p) for p in lost])
        assert any(o.rounds_us for o in device.outcomes())
        assert (task.space.legal(task.legal) == KEPT).all()
