"""Simulated annealing on a cost model: chains that walk in parallel, and go on from batch to batch where they stopped.

Source: AutoTVM (NeurIPS'18), §3.3: a batch of parallel Markov chains whose states persist across updates of the model.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.tuning.search.acquisition import Acquisition, mean, worth
from tilewright.compiler.tuning.search.candidates import drawn, fresh, moved
from tilewright.compiler.tuning.search.explorer import SearchState


class Annealing:
    """`chains` walks of `steps` moves a batch, by what a candidate is worth; candidates are drawn where there is no model.

    A move to a worse candidate is taken with probability exp(difference / temperature). The temperature falls linearly from
    `temperature` times the deviation of the chains' scores to 0.
    """

    def __init__(
        self,
        chains: int = 64,
        steps: int = 16,
        temperature: float = 1.0,
        acquisition: Acquisition = mean,
    ):
        self._chains, self._steps, self._temperature = chains, steps, temperature
        self._acquisition = acquisition
        self._points: np.ndarray | None = None

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        space, rng, tried = state.task.space, state.rng, state.tried()
        if state.model is None or not state.outcomes:
            return drawn(space, count, tried, rng)
        points = self._points if self._points is not None else space.sample(self._chains, rng)
        scores = worth(state, points, self._acquisition)
        seen, worths = [points], [scores]
        hottest = self._temperature * float(scores.std())
        for step in range(self._steps):
            others = moved(space, points, rng)
            theirs = worth(state, others, self._acquisition)
            temperature = hottest * (1.0 - step / self._steps)
            taken = rng.random(len(points)) < _chance(theirs - scores, temperature)
            points, scores = np.where(taken[:, None], others, points), np.where(taken, theirs, scores)
            seen.append(others)
            worths.append(theirs)
        self._points = points
        every, value = np.concatenate(seen), np.concatenate(worths)
        best = fresh(every[np.argsort(-value, kind="stable")], tried)[:count]
        if len(best) == count:
            return best
        taken_too = tried | {tuple(map(int, point)) for point in best}
        return np.concatenate([best, drawn(space, count - len(best), taken_too, rng)])


def _chance(gain: np.ndarray, temperature: float) -> np.ndarray:
    """The probability that a move is taken: 1 for one to a candidate that is not worse: [n]."""
    if temperature <= 0:
        return (gain >= 0).astype(float)
    return np.exp(np.minimum(gain, 0.0) / temperature)
