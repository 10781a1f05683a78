"""A cheap model drafts, the learned one verifies: most of a sample is never shown to the model that is slow.

    sample of the space  ->  the `target` best by the draft model, and a share of all others  ->  the best by the cost model

Source: Pruner (ASPLOS'25), §3 and Algorithm 1: the draft model is a static analyser of programs that is not trained.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.compiler.nouns.space import ENUMERATED, KEPT
from tilewright.compiler.tuning.cost_models.cost_model import CostModel
from tilewright.compiler.tuning.search.acquisition import Acquisition, mean, worth
from tilewright.compiler.tuning.search.candidates import crossed, fresh, moved
from tilewright.compiler.tuning.search.explorer import SearchState

_ELITE = 16


class DraftThenVerify:
    """Samples `sample` candidates, a half of them bred from the fastest that were measured; whole spaces that are no larger.

    `target` of them are kept by the draft model, and `share` of what it did not keep. Where nothing was learned yet, the
    draft's order is taken.
    """

    def __init__(
        self,
        make_draft: Callable[[], CostModel],
        sample: int = 1024,
        target: int = 256,
        share: float = 0.1,
        acquisition: Acquisition = mean,
    ):
        self._draft = make_draft()
        self._sample, self._target, self._share, self._acquisition = sample, target, share, acquisition

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        points = fresh(self._sampled(state), state.tried())
        if not len(points):
            return points
        drafted = self._draft.predict(state.task.features(points, self._draft.reads)).mean
        order = np.argsort(-drafted, kind="stable")
        kept, rest = order[: max(self._target, count)], order[max(self._target, count) :]
        others = state.rng.permutation(rest)[: int(np.ceil(self._share * len(rest)))]
        if state.model is None or not any(outcome.is_final for outcome in state.outcomes):
            return points[kept[:count]]
        targets = points[np.concatenate([kept, others])]
        best = np.argsort(-worth(state, targets, self._acquisition), kind="stable")
        return targets[best[:count]]

    def _sampled(self, state: SearchState) -> np.ndarray:
        space, rng = state.task.space, state.rng
        if space.size <= min(self._sample, ENUMERATED):
            every = space.every()
            return every[space.legal(every) == KEPT]
        ran = sorted((o for o in state.outcomes if o.rounds_us), key=lambda outcome: outcome.us)[:_ELITE]
        if not ran:
            return space.sample(self._sample, rng)
        elite = np.asarray([o.point for o in ran], dtype=np.int64)
        bred = elite[rng.integers(len(elite), size=(2, self._sample // 2))]
        children = moved(space, crossed(space, bred[0], bred[1], rng), rng)
        return np.concatenate(
            [space.sample(self._sample - len(children) + len(state.outcomes), rng), children]
        )
