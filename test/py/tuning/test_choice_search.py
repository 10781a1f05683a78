"""Choices moved one at a time: which are measured, which are taken, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from bowl_task import BowlTask

from tilewright.compiler.errors import PassError, TilewrightError
from tilewright.compiler.nouns.choices import Choices, Value
from tilewright.compiler.nouns.space import Knob, Space, rule
from tilewright.compiler.tuning.search.choice_search import CANDIDATES, ChoiceResult, Graph, search_choices
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice

US = {"direct": 100.0, "winograd2": 60.0, "winograd4": 80.0, "joined": 50.0, "apart": 20.0, "tail": 45.0}
"""What the pieces of a network take: apart, the tail is a dispatch of its own."""


class Work(BowlTask):
    """Every candidate takes the same."""

    def us(self, points: np.ndarray) -> np.ndarray:
        return np.full(len(points), self.scale)


def work(name: str, us: float | None = None) -> Work:
    return Work(name, us or US[name])


class Network:
    """A convolution by one of three algorithms, twice, and a product with a tail that joins it, or does not.

    `predicted` is what is said of work before it is measured; `refuses` are values that the compiler has no graph for.
    """

    def __init__(self, predicted: Mapping[str, float] | None = None, refuses: Sequence[Value] = ()):
        self.predicted, self.refuses = {**US, **(predicted or {})}, refuses
        self.asked: list[dict[str, Value]] = []
        self.unmeasurable: set[str] = set()

    def __call__(self, asked: Sequence[Mapping[str, Value]]) -> list[Graph | TilewrightError]:
        return [self.graph(values) for values in asked]

    def graph(self, values: Mapping[str, Value]) -> Graph | TilewrightError:
        self.asked.append(dict(values))
        for value in values.values():
            if value in self.refuses:
                return PassError(f"no graph with {value}")
        calls = {str(values["conv_0.algorithm"]): 2}
        calls |= {"joined": 1} if values["add_0.joins"] else {"apart": 1, "tail": 1}
        tasks = {name: work(name) for name in calls if name not in self.unmeasurable}
        return Graph(tasks, calls, {name: self.predicted[name] for name in calls})


def space(*rules) -> Space[Choices]:
    return Space(
        (Knob("conv_0.algorithm", ("direct", "winograd2", "winograd4")), Knob("add_0.joins", (0, 1))),
        tuple(rules),
        lambda values: Choices(dict(values)),
        lambda choices: dict(choices.values),
        Choices({"conv_0.algorithm": "direct", "add_0.joins": 1}),
    )


def searched(network: Network, of: Space[Choices] | None = None, trials: int = 100, **device) -> ChoiceResult:
    simulated = SimulatedDevice(lambda task, points: task.us(points), **device)
    return search_choices(of or space(), network, simulated, trials=trials)


def move_to(result: ChoiceResult, value: Value):
    return next(move for move in result.moves if value in move.after.values())


def test_the_faster_graph_is_found_whatever_was_predicted() -> None:
    result = searched(Network(predicted={"direct": 55.0, "winograd2": 60.0}))
    assert result.values == {"conv_0.algorithm": "winograd2"}
    found = move_to(result, "winograd2")
    assert found.us == (200.0, 120.0) and found.is_taken and found.gain_us == 80.0
    assert found.before == {"conv_0.algorithm": "direct"} and found.text() == "conv_0.algorithm = winograd2"
    # One algorithm replaces the other: the slower of two that are faster is not taken beside it.
    other = move_to(result, "winograd4")
    assert other.us == (200.0, 160.0) and not other.is_taken
    # 50 joined, 65 apart.
    assert move_to(result, 0).us == (50.0, 65.0)


def test_equal_work_is_measured_once_and_the_best_candidate_counts() -> None:
    class Varied(Network):
        def graph(self, values):
            found = super().graph(values)
            assert isinstance(found, Graph)
            return replace(found, tasks={name: BowlTask(name, US[name]) for name in found.tasks})

    result = searched(Varied(), trials=1000)
    assert result.trials == 6 * CANDIDATES
    bowl = BowlTask("direct", US["direct"])
    best = float(bowl.us(bowl.seeds(CANDIDATES)).min())
    assert move_to(result, "winograd2").us == pytest.approx((2 * best, 2 * best * 0.6))


def test_differences_within_noise_take_nothing() -> None:
    of = {"direct": 100.0, "winograd2": 99.0, "winograd4": 98.5, "joined": 50.0, "apart": 30.0, "tail": 19.5}
    network = Network()
    network.graph = lambda values, own=network.graph: (  # type: ignore[method-assign]
        lambda found: replace(found, tasks={name: work(name, of[name]) for name in found.tasks})
    )(own(values))
    result = searched(network, noise=0.001)
    assert not result.values and len(result.measured) == 3


def test_what_is_predicted_to_be_hopeless_is_not_measured() -> None:
    result = searched(Network(predicted={"tail": 60.0}))
    assert move_to(result, 0).us is None and "predicted to be slower" in move_to(result, 0).why
    assert result.trials == 3 * CANDIDATES


def test_what_is_predicted_to_save_most_is_measured_first() -> None:
    network = Network(predicted={"winograd4": 10.0})
    result = searched(network, trials=2 * CANDIDATES)
    assert [move.after for move in result.measured] == [{"conv_0.algorithm": "winograd4"}]
    assert result.values == {"conv_0.algorithm": "winograd4"}
    assert {move.why for move in result.moves if move.us is None} == {"the budget was spent"}


def test_no_more_candidates_are_tried_than_allowed() -> None:
    for trials in range(1, 6 * CANDIDATES):
        assert searched(Network(), trials=trials).trials <= trials


def test_a_graph_that_the_compiler_refuses_is_a_reason() -> None:
    result = searched(Network(refuses=("winograd2",)))
    assert result.values == {"conv_0.algorithm": "winograd4"}
    assert move_to(result, "winograd2").why == "no graph with winograd2"


def test_the_error_of_the_default_is_raised() -> None:
    with pytest.raises(PassError, match="no graph with direct"):
        searched(Network(refuses=("direct",)))


def test_a_dispatch_that_no_search_measures_is_not_counted_as_free() -> None:
    network = Network()
    network.unmeasurable = {"tail"}
    found = move_to(searched(network), 0)
    assert found.us is None and "cannot be measured" in found.why


def test_candidates_that_all_fail_are_no_gain() -> None:
    result = searched(Network(), crashes=1.0)
    assert not result.values and not result.measured
    assert {move.why for move in result.moves} == {"no candidate of one of its dispatches ran"}


def test_a_move_is_taken_where_it_pays_behind_those_before_it() -> None:
    class Dependent(Network):
        """Apart is faster beside a direct convolution only, whose tail is then warm."""

        def graph(self, values):
            found = super().graph(values)
            assert isinstance(found, Graph)
            if values["add_0.joins"]:
                return found
            cold = values["conv_0.algorithm"] != "direct"
            name = "cold" if cold else "apart"
            calls = {name: 1, **{n: c for n, c in found.calls.items() if n not in ("apart", "tail")}}
            tasks = {n: work(n, 70.0 if n == "cold" else US[n]) for n in calls}
            return Graph(tasks, calls, dict.fromkeys(calls, 50.0))

    result = searched(Dependent())
    assert move_to(result, 0).us == (50.0, 20.0) and not move_to(result, 0).is_taken
    assert result.values == {"conv_0.algorithm": "winograd2"}


def test_what_two_moves_are_together_keeps_the_rules() -> None:
    apart = rule(
        "add_0.joins",
        "only direct convolutions stand alone",
        lambda columns: (columns["add_0.joins"] == 0) & (columns["conv_0.algorithm"] != "direct"),
    )
    network = Network()
    network.graph = lambda values, own=network.graph: (  # type: ignore[method-assign]
        lambda found: replace(found, tasks={n: work(n, 10.0 if n == "tail" else US[n]) for n in found.tasks})
    )(own(values))
    of = space(apart)
    result = searched(network, of)
    assert move_to(result, 0).is_faster and not move_to(result, 0).is_taken
    assert Choices({**of.default().values, **result.values}) in of


def test_an_interrupted_search_says_so_and_keeps_what_it_measured() -> None:
    class Interrupted(SimulatedDevice):
        def outcomes(self):
            if self.measured > 2 * CANDIDATES - 1:
                raise KeyboardInterrupt
            yield from super().outcomes()

    device = Interrupted(lambda task, points: task.us(points))
    result = search_choices(space(), Network(), device, trials=100)
    assert result.is_interrupted and not result.values and len(result.measured) == 1


def test_a_budget_of_time_ends_it() -> None:
    device = SimulatedDevice(lambda task, points: task.us(points))
    result = search_choices(space(), Network(), device, seconds=1e-9)
    assert not result.measured and result.seconds < 1.0
    assert search_choices(space(), Network(), device, seconds=60.0).values == {
        "conv_0.algorithm": "winograd2"
    }


def test_a_search_without_an_end_is_refused() -> None:
    with pytest.raises(TilewrightError, match="a search needs an end"):
        search_choices(space(), Network(), SimulatedDevice(lambda task, points: task.us(points)))
