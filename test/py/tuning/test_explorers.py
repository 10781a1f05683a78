"""Explorers on a space whose fastest candidate is known: all keep to their contract, those that learn find more than chance."""

from __future__ import annotations

import numpy as np
import pytest
from bowl_task import BowlTask, KnobModel

from tilewright.compiler.errors import ScheduleError, TilewrightError
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT, Knob, Space
from tilewright.compiler.tuning.cost_models.cost_model import Prediction, Samples
from tilewright.compiler.tuning.search import acquisition, plain_explorers
from tilewright.compiler.tuning.search.candidates import crossed, drawn, fresh, moved
from tilewright.compiler.tuning.search.draft_then_verify import DraftThenVerify
from tilewright.compiler.tuning.search.explorer import SearchState
from tilewright.compiler.tuning.search.plain_explorers import Constructed, Exhaustive
from tilewright.compiler.tuning.search.search_task import Outcome
from tilewright.compiler.tuning.search.selection import Diverse, EpsilonGreedy, diverse
from tilewright.compiler.tuning.search.strategies import EXPLORERS, make_explorer

NAMES = [*EXPLORERS, *(f"roller+{name}" for name in EXPLORERS)]
SAMPLING = [name for name in NAMES if name.removeprefix("roller+") != "constructed"]
DETERMINED = ("exhaustive", "constructed", "draft-then-verify")
"""Without a model the draft alone decides, of a space that is listed whole."""
LEARNING = [n for n in EXPLORERS if "annealing" in n or n in ("genetic", "draft-then-verify")]


def searched(name: str, trials: int, seed: int = 0, batch: int = 8, model: KnobModel | None = None):
    """The candidates that an explorer proposes, and the state behind them, when all are measured without noise."""
    task = BowlTask()
    state = SearchState(task, np.random.default_rng(seed), model)
    explorer = make_explorer(name)
    while len(state.outcomes) < trials:
        points = explorer.propose(state, min(batch, trials - len(state.outcomes)))
        if not len(points):
            break
        assert points.shape[1] == 4 and points.dtype == np.int64
        assert (task.space.legal(points) == KEPT).all()
        asked = [tuple(map(int, point)) for point in points]
        assert len(set(asked)) == len(asked) and not state.tried().intersection(asked)
        state.outcomes += [Outcome("bowl", p, (float(us),)) for p, us in zip(asked, task.us(points))]
        if model is not None:
            measured = np.asarray([o.point for o in state.outcomes])
            us = np.asarray([o.us for o in state.outcomes])
            model.fit([Samples("bowl", task.features(measured, model.reads), us)])
    return task, state


@pytest.mark.parametrize("name", SAMPLING)
def test_every_candidate_of_a_space_is_proposed_once(name: str) -> None:
    task, state = searched(name, 10_000, batch=64, model=KnobModel())
    assert sorted(o.point for o in state.outcomes) == sorted(map(tuple, task.legal.tolist()))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_proposes_the_same(name: str) -> None:
    runs = [searched(name, 32, seed, model=KnobModel())[1].outcomes for seed in (3, 3)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", [n for n in EXPLORERS if n not in DETERMINED])
def test_another_seed_proposes_others(name: str) -> None:
    first, second = (searched(name, 32, seed)[1].outcomes for seed in (1, 2))
    assert {o.point for o in first} != {o.point for o in second}


@pytest.mark.parametrize("name", LEARNING)
def test_those_that_ask_a_model_find_more_than_chance(name: str) -> None:
    def best(explorer: str, seed: int) -> float:
        task, state = searched(explorer, 48, seed, model=KnobModel())
        assert state.best is not None
        return state.best.us / task.fastest_us

    seeds = range(4)
    assert np.mean([best(name, seed) for seed in seeds]) < np.mean([best("random", s) for s in seeds])
    assert np.mean([best(name, seed) for seed in seeds]) < 1.05


def test_the_genetic_search_needs_no_model() -> None:
    ratios = []
    for seed in range(4):
        task, state = searched("genetic", 96, seed)
        assert state.best is not None
        ratios.append(state.best.us / task.fastest_us)
    assert np.mean(ratios) < 1.1


def test_seeds_come_first_and_once() -> None:
    task, state = searched("roller+random", 32)
    assert [o.point for o in state.outcomes[:4]] == [tuple(p) for p in task.seeds(4).tolist()]
    _, state = searched("constructed", 32)
    assert [o.point for o in state.outcomes] == [tuple(p) for p in task.seeds(4).tolist()]


def test_what_is_in_flight_or_failed_for_good_is_not_proposed_again() -> None:
    task = BowlTask()
    state = SearchState(task, np.random.default_rng(0))
    lost, failed, flying = (tuple(map(int, p)) for p in task.legal[:3])
    state.outcomes = [
        Outcome("bowl", lost, error="lost", is_final=False),
        Outcome("bowl", failed, error="no"),
    ]
    state.in_flight = {flying}
    proposed = {tuple(map(int, p)) for p in Exhaustive().propose(state, 1000)}
    assert lost in proposed and not proposed & {failed, flying}


def test_a_space_that_is_too_large_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_explorers, "LISTED", 100)
    with pytest.raises(ScheduleError, match="`bowl` has 448 points, of which at most 100"):
        Exhaustive().propose(SearchState(BowlTask(), np.random.default_rng(0)), 1)


def test_an_explorer_that_is_not_known() -> None:
    with pytest.raises(TilewrightError, match="no explorer is named `oracle`; there are exhaustive, random"):
        make_explorer("roller+oracle")


class TestCandidates:
    def test_fresh_ones_keep_their_order(self) -> None:
        points = np.asarray([[3, 1], [0, 0], [3, 1], [2, 2]])
        assert fresh(points, {(0, 0), (9, 9)}).tolist() == [[3, 1], [2, 2]]
        assert fresh(points[:0], {(0, 0)}).shape == (0, 2)

    def test_moves_are_those_that_neighbours_lists(self) -> None:
        task, rng = BowlTask(), np.random.default_rng(0)
        start = np.asarray([5, 4, 2, 2])
        neighbours = {tuple(p) for p in task.space.neighbours(start).tolist()}
        found = {tuple(p) for p in moved(task.space, np.tile(start, (4000, 1)), rng).tolist()}
        assert found <= neighbours | {tuple(start.tolist())}
        # A step that would leave the domain turns around, so that each neighbour can still be reached.
        assert neighbours <= found

    def test_children_have_their_parents_knobs(self) -> None:
        task, rng = BowlTask(), np.random.default_rng(0)
        first, second = (np.tile(p, (200, 1)) for p in ([1, 2, 0, -1], [3, 4, 2, 3]))
        children = crossed(task.space, first, second, rng)
        assert (task.space.legal(children) == KEPT).all()
        assert set(children[:, 0]) == {1, 3} and set(children[:, 1]) == {2, 4}
        # Unroll means nothing but for blocks.
        assert ((children[:, 3] < 0) == (children[:, 2] != 2)).all()

    def test_a_space_of_one_point_cannot_move(self) -> None:
        space = Space((Knob("a", (1,)),), (), lambda v: Schedule(), lambda s: {"a": 1}, Schedule())
        assert moved(space, np.zeros((3, 1), dtype=np.int64), np.random.default_rng(0)).tolist() == [[0]] * 3
        assert len(drawn(space, 5, {(0,)}, np.random.default_rng(0))) == 0


class TestBatches:
    def test_diversity_is_bought_with_scores(self) -> None:
        points = np.asarray([[0, 0], [0, 1], [1, 0], [2, 2]])
        scores = np.asarray([1.0, 0.9, 0.8, 0.5])
        assert diverse(points, scores, 2, 0.0).tolist() == [0, 1]
        # Two new values of knobs are worth 0.6, one is worth 0.3.
        assert diverse(points, scores, 2, 0.3).tolist() == [0, 1]
        assert diverse(points, scores, 2, 0.5).tolist() == [0, 3]
        assert sorted(diverse(points, scores, 9, 0.5).tolist()) == [0, 1, 2, 3]

    def test_the_greedy_batch_is_near_the_best_one(self) -> None:
        """1 - 1/e of the best, which is what submodularity promises of non-negative values."""
        from itertools import combinations

        rng = np.random.default_rng(0)
        for _ in range(20):
            points, scores = rng.integers(3, size=(9, 3)), rng.random(9)

            def value(batch, points=points, scores=scores) -> float:
                batch = list(batch)
                return scores[batch].sum() + 0.3 * sum(len(set(column)) for column in points[batch].T)

            best = max(value(batch) for batch in combinations(range(9), 3))
            assert value(diverse(points, scores, 3, 0.3)) >= (1 - np.exp(-1)) * best

    def test_a_share_is_drawn(self) -> None:
        state = SearchState(BowlTask(), np.random.default_rng(0))
        assert EpsilonGreedy(Constructed(), 0.0).propose(state, 4).tolist() == BowlTask().seeds(4).tolist()
        replaced = EpsilonGreedy(Constructed(), 1.0).propose(state, 4)
        assert len(replaced) == 4 and replaced.tolist() != BowlTask().seeds(4).tolist()

    def test_without_a_model_a_diverse_batch_is_the_explorers(self) -> None:
        state = SearchState(BowlTask(), np.random.default_rng(0))
        assert Diverse(Exhaustive()).propose(state, 4).tolist() == BowlTask().legal[:4].tolist()


class TestAcquisition:
    measured = Prediction(np.asarray([0.0, 1.0]), np.zeros(2))

    def test_expected_improvement(self) -> None:
        """Of N(1, 1) over 1 it is 1 / sqrt(2 pi), of N(2, 0) it is 1; checked by drawing as well."""
        of = Prediction(np.asarray([1.0, 2.0, 0.5]), np.asarray([1.0, 0.0, 2.0]))
        found = acquisition.expected_improvement(of, self.measured)
        draws = np.random.default_rng(0).normal(of.mean, of.std, size=(400_000, 3))
        assert found[:2] == pytest.approx([1 / np.sqrt(2 * np.pi), 1.0])
        assert found == pytest.approx(np.maximum(draws - 1.0, 0).mean(axis=0), rel=0.02)

    def test_without_uncertainty_the_order_is_the_scores(self) -> None:
        of = Prediction(np.asarray([0.1, 0.9, 0.5]), np.zeros(3))
        assert np.argsort(acquisition.expected_improvement(of, self.measured)).tolist() == [0, 2, 1]

    def test_the_upper_bound_prefers_what_is_not_known(self) -> None:
        of = Prediction(np.asarray([1.0, 0.9]), np.asarray([0.0, 0.5]))
        assert acquisition.upper_bound(of, self.measured).tolist() == [1.0, 1.4]


class HintModel(KnobModel):
    """Scores by the set `micro-performance`."""

    reads = frozenset({"micro-performance"})

    def predict(self, features):
        us = features["micro-performance"].matrix[:, 0]
        return Prediction(-us, np.zeros(len(us)))


class TestDraftThenVerify:
    def test_the_model_is_shown_the_target_space_and_a_share(self) -> None:
        task = BowlTask()
        shown: list[int] = []

        class Counting(KnobModel):
            def predict(self, features):
                shown.append(len(features["knobs"]))
                return super().predict(features)

        state = SearchState(task, np.random.default_rng(0), Counting())
        state.outcomes = [Outcome("bowl", tuple(map(int, task.legal[0])), (1.0,))]
        explorer = DraftThenVerify(HintModel, sample=2000, target=40, share=0.1)
        assert len(explorer.propose(state, 8)) == 8
        rest = len(task.legal) - 1 - 40
        assert shown == [40 + int(np.ceil(0.1 * rest))]

    def test_before_anything_is_measured_the_draft_decides(self) -> None:
        task = BowlTask()
        state = SearchState(task, np.random.default_rng(0), KnobModel())
        points = DraftThenVerify(HintModel).propose(state, 5)
        same = task.legal.copy()
        same[:, 2] = 0
        order = np.argsort(task.us(same), kind="stable")
        assert points.tolist() == task.legal[order[:5]].tolist()
