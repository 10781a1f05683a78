"""Searches replayed on stored programs: how many trials each needs until one has 95% or 98% of the best speed.

A search measures batches of a pool's programs. What chooses them is an explorer over a model's scores; the model may know other
operators before it begins, and may learn from what the search measured. Nothing is compiled or timed: a trial costs what
scoring and learning cost.
"""

from __future__ import annotations

import copy
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.bench.baseline_models import Ranker, RollerPrediction
from tilewright.bench.ranking_scores import SHARES, Spread, geometric_mean, pool
from tilewright.bench.stored_programs import FEWEST, ReplayDevice, StoredOperator, StoredTask
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.cost_models.cost_model import Prediction, Samples
from tilewright.compiler.tuning.features.feature_set import Table
from tilewright.compiler.tuning.search import acquisition
from tilewright.compiler.tuning.search.selection import diverse

BATCH, BUDGET = 8, 256
OPERATORS = 15
"""Operators that searches are replayed on: a pool of all programs of each takes a search seconds, not milliseconds."""
DRAFTS = {"whole": 128, "first128": 16}
"""Pools that are searched, and how many programs of each a draft keeps: about an eighth."""


@dataclass(frozen=True)
class Search:
    """How candidates are chosen: by the scores of `model`, all equal where it is "".

    One that `knows` other operators was fitted to their programs first; one that `learns` is updated with every batch. Of a
    `draft` only so many untried programs are scored by the model, those that Roller's prediction likes most, and beside
    them a share of all others: Pruner (ASPLOS'25), Algorithm 1, over a pool. `explored` is the share of a batch that is drawn.
    """

    name: str
    model: str = ""
    knows: bool = False
    learns: bool = False
    draft: int = 0
    explored: float = 0.1
    batch: int = BATCH
    worth: str = "mean"
    diverse: bool = False
    genetic: bool = False


_WORTH: dict[str, acquisition.Acquisition] = {
    "mean": acquisition.mean, "ei": acquisition.expected_improvement, "ucb": acquisition.upper_bound,
}  # fmt: skip
_ELITE, _MUTATED = 32, 0.6


def searches(model: str, draft: int = DRAFTS["whole"]) -> tuple[Search, ...]:
    """What is compared: chance, Roller's order, and the model alone, with a draft, with knowledge of other operators."""
    return (
        Search("random"),
        Search("roller", "roller", explored=0.0),
        Search(f"{model}", model, learns=True),
        Search(f"{model}, drafted", model, learns=True, draft=draft),
        Search(f"{model}, knows others", model, knows=True),
        Search(f"{model}, drafted, knows others", model, knows=True, draft=draft),
        Search(f"{model}, knows others and learns", model, knows=True, learns=True),
        Search(f"{model}, drafted, knows others and learns", model, knows=True, learns=True, draft=draft),
    )


def replay(
    task: StoredTask, search: Search, model: Ranker | None, seed: int, budget: int = BUDGET, goal: float = 1.0,
) -> np.ndarray:  # fmt: skip
    """The microseconds of what is measured, in that order, until one reaches the `goal` of the best speed: [trials]."""
    rng, device = np.random.default_rng([seed, zlib.crc32(task.name.encode())]), ReplayDevice()
    untried = np.ones(len(task.places), dtype=bool)
    us: list[float] = []
    points: list[tuple[int, ...]] = []
    good_enough = task.us.min() / goal
    while len(us) < min(budget, len(task.places)) and min(us, default=np.inf) > good_enough:
        count = min(search.batch, budget - len(us))
        if search.genetic and np.isfinite(us).any():
            chosen = _bred(task, untried, count, rng)
        else:
            chosen = _chosen(task, search, model, untried, count, rng)
        untried[chosen] = False
        device.submit(task, list(chosen[:, None]))
        for outcome in device.outcomes():
            us.append(outcome.us)
            points.append(outcome.point)
        if model is not None and search.learns:
            _learn(task, search, model, np.asarray(points), np.asarray(us))
    return np.asarray(us)


def _learn(task: StoredTask, search: Search, model: Ranker, points: np.ndarray, us: np.ndarray) -> None:
    if search.knows:
        latest = slice(-search.batch, None)
        measured = Samples(task.name, task.features(points[latest], model.reads), us[latest])
        # Grades are of the fastest known: that one stands beside every batch.
        best = int(us.argmin())
        if best < len(us) - search.batch:
            kept = np.concatenate([points[latest], points[[best]]])
            measured = Samples(task.name, task.features(kept, model.reads), np.append(us[latest], us[best]))
        model.update([measured])
        return
    model.fit([Samples(task.name, task.features(points, model.reads), us)])


def _chosen(
    task: StoredTask, search: Search, model: Ranker | None, untried: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:  # fmt: skip
    """The places of the next batch: [at most count]."""
    places = rng.permutation(np.flatnonzero(untried))
    if search.draft:
        liked = RollerPrediction().predict(task.features(places[:, None], RollerPrediction.reads)).mean
        first = np.argsort(-liked, kind="stable")
        places = np.concatenate([places[first[: search.draft]], places[first[search.draft :: 8]]])
    if model is None:
        return places[:count]
    tried = np.flatnonzero(~untried)
    known = Prediction(np.zeros(0), np.zeros(0))
    if len(tried) and search.worth != "mean":
        known = model.predict(task.features(tried[:, None], model.reads))
    scores = _WORTH[search.worth](model.predict(task.features(places[:, None], model.reads)), known)
    if np.ptp(scores) == 0:
        return places[:count]
    first = np.argsort(-scores, kind="stable")
    best = places[first]
    if search.diverse:
        wide = first[: 3 * count]
        spread = scores[wide].std() or 1.0
        best = places[wide[diverse(_knobs(task, places[wide]), scores[wide] / spread, len(wide), 0.1)]]
    drawn = int(rng.binomial(count, search.explored))
    rest = rng.permutation(best[count - drawn :])[:drawn]
    return np.concatenate([best[: count - drawn], rest])


def _knobs(task: StoredTask, places: np.ndarray) -> np.ndarray:
    found = task.features(places[:, None], frozenset({"knobs"}))["knobs"]
    assert isinstance(found, Table)
    return found.matrix


def _bred(task: StoredTask, untried: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The untried places that are nearest to children of the fastest that were measured: [at most count].

    A knob's distance is in places among its values in the pool, over how many there are.
    """
    tried, left = np.flatnonzero(~untried), rng.permutation(np.flatnonzero(untried))
    fastest = tried[np.argsort(task.us[tried], kind="stable")[:_ELITE]]
    knobs = _places_of_values(_knobs(task, np.arange(len(untried))))
    parents, others = knobs[fastest], knobs[left]
    chances = 1 / task.us[fastest]
    chances /= chances.sum()
    chosen: list[int] = []
    while len(chosen) < min(count, len(left)):
        mother, father = rng.choice(len(parents), size=2, p=chances)
        child = np.where(rng.random(parents.shape[1]) < 0.5, parents[mother], parents[father])
        if rng.random() < _MUTATED:
            knob = rng.integers(len(child))
            child[knob] = others[rng.integers(len(left)), knob]
        distance = np.abs(others - child).sum(axis=1)
        distance[chosen] = np.inf
        chosen.append(int(distance.argmin()))
    return left[chosen]


def _places_of_values(knobs: np.ndarray) -> np.ndarray:
    """Each value as its place, from 0 to 1, among all of its knob: [n, knobs]."""
    found = np.zeros(knobs.shape)
    for column in range(knobs.shape[1]):
        values, places = np.unique(knobs[:, column], return_inverse=True)
        found[:, column] = places.reshape(-1) / max(1, len(values) - 1)
    return found


def trials_to(us: np.ndarray, best: float, share: float, budget: int) -> int:
    """Trials until one of `us` has this share of the best speed; the budget where none has."""
    reached = np.flatnonzero(best >= share * us)
    return int(reached[0]) + 1 if len(reached) else budget


@dataclass(frozen=True)
class Replayed:
    """A search over all its operators: geometric means of the trials to each share, and how often the last was reached."""

    search: Search
    pool: str
    trials: dict[str, Spread]
    reached: float
    seconds: float

    def to_json(self) -> dict:
        return {
            "search": self.search.name,
            "pool": self.pool,
            "trials": {name: spread.to_json() for name, spread in self.trials.items()},
            "reached": round(self.reached, 4),
            "seconds": round(self.seconds, 2),
        }


def compare(
    operators: Sequence[StoredOperator], found: Sequence[Search], make: Callable[[str, int], Ranker], seeds: int,
    learned: int, say: Callable[[str], object], kind: str = "whole",
) -> list[Replayed]:  # fmt: skip
    """Each search on pools of a sample of the operators, for every seed; models that know others never saw the operator itself.

    Raises TilewrightError where no operator has `FEWEST` programs in such a pool.
    """
    judged = [n for n, operator in enumerate(operators) if len(pool(operator, kind, 0)) >= FEWEST]
    if not judged:
        raise TilewrightError("there are no operators to replay searches on")
    spread = np.unique(np.linspace(0, len(judged) - 1, min(OPERATORS, len(judged))).astype(int))
    chosen = np.asarray(judged)[spread]
    results = []
    for search in found:
        say(search.name)
        started, figures, reached = time.perf_counter(), {share: [] for share in SHARES}, []
        for seed in range(seeds):
            trials: dict[float, list[int]] = {share: [] for share in SHARES}
            for fold in np.array_split(np.random.default_rng(seed).permutation(chosen), 3):
                fitted = _model(operators, search, make, seed, fold, learned)
                for number in fold:
                    model = copy.deepcopy(fitted)
                    task = StoredTask(operators[number], pool(operators[number], kind, seed))
                    us = replay(task, search, model, seed, goal=max(SHARES))
                    for share in SHARES:
                        trials[share].append(trials_to(us, task.us.min(), share, BUDGET))
                    reached.append(bool((task.us.min() >= max(SHARES) * us).any()))
            for share in SHARES:
                figures[share].append(geometric_mean(trials[share]))
        spreads = {f"{share:.0%}": Spread(tuple(values)) for share, values in figures.items()}
        results.append(
            Replayed(search, kind, spreads, float(np.mean(reached)), time.perf_counter() - started)
        )
    return results


def _model(
    operators: Sequence[StoredOperator], search: Search, make: Callable[[str, int], Ranker], seed: int,
    held: np.ndarray, learned: int,
) -> Ranker | None:  # fmt: skip
    """The search's model as it begins: one that knows others was fitted to the programs of those that are not held out."""
    if not search.model:
        return None
    model = make(search.model, seed)
    if search.knows:
        rng = np.random.default_rng(seed)
        places = [np.sort(rng.permutation(len(o))[:learned]) for o in operators]
        others = [n for n in range(len(operators)) if n not in held]
        model.fit([operators[n].samples(places[n], model.reads) for n in others])
    return model
