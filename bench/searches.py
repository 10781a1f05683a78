"""The suite `searches`: searches on this CPU against an oracle that measured a sample of each space whole.

    tilewright bench --suite searches [--cases C3,C4] [--quick] [--records FILE] [-o FILE]

On the distinct convolutions of ResNet-18, as AutoTVM (NeurIPS'18, §6) has them: rank and regression as objectives, drafts, and
what C1 to C6 are worth on C7 to C9. A search chooses of the sample, in an order that its seed decides; what it would measure
was measured before, once, so that every search and every seed sees the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.bench.baseline_models import Ranker
from tilewright.bench.measured_dispatches import MeasuredDispatch
from tilewright.bench.ranking_scores import Spread, geometric_mean
from tilewright.bench.replay import Search, replay, trials_to
from tilewright.bench.stored_programs import StoredTask
from tilewright.compiler.tuning.cost_models.cost_model import Samples

SCHEDULES, QUICK_SCHEDULES = 192, 12
"""Schedules of each case that are measured."""
BATCH = 4
AFTER = (4, 8, 16, 32)
"""Trials after which the best speed is looked at."""
SHARES = (0.95, 0.98)
KNOWN, NEW = ("C1", "C2", "C3", "C4", "C5", "C6"), ("C7", "C8", "C9")
"""AutoTVM, §6.2: history from the first six operators, searches of the next three."""

SEARCHES = (
    Search("random", batch=BATCH),
    Search("roller", "roller", explored=0.0, batch=BATCH),
    Search("trees, rank", "trees", learns=True, batch=BATCH),
    Search("trees, regression", "trees-regression", learns=True, batch=BATCH),
    Search("trees, rank, drafted", "trees", learns=True, draft=16, batch=BATCH),
    Search("trees, LambdaMART", "trees-graded", learns=True, batch=BATCH),
    Search("genetic", genetic=True, batch=BATCH),
    Search("trees on relations, rank", "trees-relation", learns=True, batch=BATCH),
    Search("TreeGRU, rank", "tree-gru", learns=True, batch=BATCH),
    Search("TreeGRU, regression", "tree-gru-regression", learns=True, batch=BATCH),
    Search("trees, rank, diverse", "trees", learns=True, diverse=True, batch=BATCH),
    Search("bootstrapped trees, mean", "trees-bootstrap", learns=True, batch=BATCH),
    Search("bootstrapped trees, EI", "trees-bootstrap", learns=True, worth="ei", batch=BATCH),
    Search("bootstrapped trees, UCB", "trees-bootstrap", learns=True, worth="ucb", batch=BATCH),
)
TRANSFERS = (
    Search("random", batch=BATCH),
    Search("trees, nothing known", "trees", learns=True, batch=BATCH),
    Search("trees, C1 to C6 known", "trees", knows=True, batch=BATCH),
    Search("trees, C1 to C6 known, learns", "trees", knows=True, learns=True, batch=BATCH),
    Search("trees on relations, C1 to C6 known", "trees-relation", knows=True, batch=BATCH),
    Search("TreeGRU, C1 to C6 known", "tree-gru", knows=True, batch=BATCH),
)


@dataclass(frozen=True)
class Found:
    """A search over its cases: trials to each share of the oracle's best, geometric means for every seed; those of each case.

    `quarter` is the share of cases and seeds in which 98% was reached in a quarter of the oracle's trials; `best_at` the mean
    share of the best speed after the trials of `AFTER`.
    """

    search: Search
    trials: dict[str, Spread]
    by_case: dict[str, float]
    quarter: float
    best_at: dict[int, Spread]

    def to_json(self) -> dict:
        return {
            "search": self.search.name,
            "trials": {name: spread.to_json() for name, spread in self.trials.items()},
            "trials_to_98_by_case": {name: round(value, 2) for name, value in self.by_case.items()},
            "within_a_quarter": round(self.quarter, 3),
            "best_after": {str(count): spread.to_json() for count, spread in self.best_at.items()},
        }


def run_search(
    pools: Sequence[MeasuredDispatch], search: Search, make: Callable[[str, int], Ranker], seeds: int,
    known: Sequence[MeasuredDispatch] = (),
) -> Found:  # fmt: skip
    """One search on every pool, for every seed; with `known`, a model that knows others was fitted to those."""
    trials: dict[float, list[float]] = {share: [] for share in SHARES}
    by_case: dict[str, list[int]] = {pool.name: [] for pool in pools}
    best_at: dict[int, list[float]] = {count: [] for count in AFTER}
    quarter = []
    for seed in range(seeds):
        of_seed: dict[float, list[int]] = {share: [] for share in SHARES}
        shares: dict[int, list[float]] = {count: [] for count in best_at}
        for pool in pools:
            model = make(search.model, seed) if search.model else None
            if model is not None and search.knows:
                model.fit([_all(other, model) for other in known])
            task = StoredTask(pool, np.arange(len(pool)))
            us = replay(task, search, model, seed, budget=len(pool), goal=max(SHARES))
            best = float(task.us.min())
            for share in SHARES:
                of_seed[share].append(trials_to(us, best, share, len(pool)))
            by_case[pool.name].append(of_seed[max(SHARES)][-1])
            quarter.append(of_seed[max(SHARES)][-1] <= len(pool) / 4)
            for count in best_at:
                shares[count].append(best / float(us[:count].min()))
        for share in SHARES:
            trials[share].append(geometric_mean(of_seed[share]))
        for count, found in shares.items():
            best_at[count].append(float(np.mean(found)))
    return Found(
        search,
        {f"{share:.0%}": Spread(tuple(values)) for share, values in trials.items()},
        {name: geometric_mean(values) for name, values in by_case.items()},
        float(np.mean(quarter)),
        {count: Spread(tuple(values)) for count, values in best_at.items()},
    )


def _all(pool: MeasuredDispatch, model: Ranker) -> Samples:
    return pool.samples(np.arange(len(pool)), model.reads)
