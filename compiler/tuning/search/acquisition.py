"""What a model's scores and their uncertainty are worth to a search: the mean, the upper bound, the expected improvement.

worth = acquisition(prediction of candidates [n], prediction of what was measured [m])   // [n], larger is better
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.compiler.tuning.cost_models.cost_model import Prediction
from tilewright.compiler.tuning.search.explorer import SearchState

Acquisition = Callable[[Prediction, Prediction], np.ndarray]
_SQRT_2 = math.sqrt(2.0)
_erf = np.frompyfunc(math.erf, 1, 1)


def mean(candidates: Prediction, measured: Prediction) -> np.ndarray:
    """The score alone."""
    return candidates.mean


def upper_bound(candidates: Prediction, measured: Prediction, kappa: float = 1.0) -> np.ndarray:
    """The score and `kappa` standard deviations: UCB."""
    return candidates.mean + kappa * candidates.std


def expected_improvement(candidates: Prediction, measured: Prediction) -> np.ndarray:
    """E[max(score - best, 0)] for normal scores, `best` the highest score of what was measured: EI.

    Where the model states no uncertainty for a candidate, the score over the best, negative too, so that the order stays.
    """
    best = measured.mean.max(initial=-np.inf)
    if np.isinf(best):
        return candidates.mean
    over, std = candidates.mean - best, candidates.std
    z = over / np.where(std > 0, std, 1.0)
    below = 0.5 * (1.0 + _erf(z / _SQRT_2).astype(float))
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return np.where(std > 0, over * below + std * density, over)


def worth(state: SearchState, points: np.ndarray, acquisition: Acquisition) -> np.ndarray:
    """What candidates [n, knobs] are worth to this search: [n]."""
    measured = Prediction(np.zeros(0), np.zeros(0))
    if acquisition is expected_improvement and state.model is not None:
        known = [outcome.point for outcome in state.outcomes if outcome.rounds_us]
        if known:
            measured = state.predict(np.asarray(known, dtype=np.int64))
    return acquisition(state.predict(points), measured)
