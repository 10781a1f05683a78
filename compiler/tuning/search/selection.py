"""Batches out of more candidates than are measured: such that differ from each other, and with a share that is drawn."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.tuning.search.candidates import drawn
from tilewright.compiler.tuning.search.explorer import Explorer, SearchState


class Diverse:
    """Of `factor` times as many candidates of another explorer those that score well and differ in their knobs.

    Greedily maximises -sum of f(g(s)) + `alpha` * sum over knobs j of the distinct values s_j: AutoTVM (NeurIPS'18), §3.3,
    eq. 3. Scores are scaled by their deviation. The objective is submodular: greedy is within 1 - 1/e of the best batch.
    """

    def __init__(self, explorer: Explorer, factor: int = 3, alpha: float = 0.1):
        self._explorer, self._factor, self._alpha = explorer, factor, alpha

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        points = self._explorer.propose(state, self._factor * count)
        if state.model is None or len(points) <= count:
            return points[:count]
        scores = state.predict(points).mean
        spread = float(scores.std())
        return points[diverse(points, scores / spread if spread > 0 else scores, count, self._alpha)]


def diverse(points: np.ndarray, scores: np.ndarray, count: int, alpha: float) -> np.ndarray:
    """The places of `count` points that greedily maximise scores and `alpha` for every knob's value that is new: [count]."""
    is_new, is_left = np.ones(points.shape, dtype=bool), np.ones(len(points), dtype=bool)
    chosen = np.empty(min(count, len(points)), dtype=np.int64)
    for number in range(len(chosen)):
        gains = np.where(is_left, scores + alpha * is_new.sum(axis=1), -np.inf)
        place = int(gains.argmax())
        chosen[number], is_left[place] = place, False
        is_new &= points != points[place]
    return chosen


class EpsilonGreedy:
    """Another explorer's candidates, each replaced by one that is drawn with probability `epsilon`.

    The drawn ones stand last. TVM measures 5% so, TenSet and Pruner as well.
    """

    def __init__(self, explorer: Explorer, epsilon: float = 0.05):
        self._explorer, self._epsilon = explorer, epsilon

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        greedy = self._explorer.propose(state, count)
        replaced = int(state.rng.binomial(len(greedy), self._epsilon))
        kept = greedy[: len(greedy) - replaced]
        if not replaced:
            return kept
        proposed = state.tried() | {tuple(map(int, point)) for point in kept}
        return np.concatenate([kept, drawn(state.task.space, replaced, proposed, state.rng)])
