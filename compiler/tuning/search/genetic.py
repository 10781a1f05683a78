"""A genetic search: parents by how fast they are, or are said to be, crossed knob by knob and mutated in one knob.

The cost model breeds generations between two batches where there is one (as Ansor, OSDI'20, §5.1 does); without one the
measured candidates are the parents, and each batch is a generation.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.tuning.search.acquisition import Acquisition, mean, worth
from tilewright.compiler.tuning.search.candidates import crossed, drawn, fresh, moved
from tilewright.compiler.tuning.search.explorer import SearchState


class Genetic:
    """`population` candidates over `generations`; of the children a share `mutated` has one knob moved.

    `elite` of the measured candidates are among the parents.
    """

    def __init__(
        self,
        population: int = 256,
        generations: int = 4,
        mutated: float = 0.6,
        elite: int = 32,
        acquisition: Acquisition = mean,
    ):
        self._population, self._generations, self._mutated, self._elite = (
            population,
            generations,
            mutated,
            elite,
        )
        self._acquisition = acquisition

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        space, rng, tried = state.task.space, state.rng, state.tried()
        parents, us = self._fastest(state)
        if not len(parents):
            return drawn(space, count, tried, rng)
        if state.model is None:
            children = fresh(self._children(state, parents, 1.0 / us, 8 * count), tried)[:count]
        else:
            children = fresh(self._bred(state, parents), tried)[:count]
        if len(children) == count:
            return children
        tried = tried | {tuple(map(int, point)) for point in children}
        return np.concatenate([children, drawn(space, count - len(children), tried, rng)])

    def _fastest(self, state: SearchState) -> tuple[np.ndarray, np.ndarray]:
        """The fastest candidates that were measured, and their microseconds: [elite, knobs] and [elite]."""
        ran = sorted((o for o in state.outcomes if o.rounds_us), key=lambda outcome: outcome.us)[
            : self._elite
        ]
        points = np.asarray([o.point for o in ran], dtype=np.int64)
        return points.reshape(len(ran), len(state.task.space.knobs)), np.asarray([o.us for o in ran])

    def _bred(self, state: SearchState, elite: np.ndarray) -> np.ndarray:
        """The candidates of all generations, best first by the model."""
        space, rng = state.task.space, state.rng
        others = space.sample(max(0, self._population - len(elite)), rng)
        points = np.concatenate([elite, others])
        seen, worths = [], []
        for generation in range(self._generations + 1):
            value = worth(state, points, self._acquisition)
            seen.append(points)
            worths.append(value)
            if generation < self._generations:
                ranks = np.empty(len(points))
                ranks[np.argsort(-value, kind="stable")] = np.arange(len(points))
                points = self._children(state, points, 1.0 / (1.0 + ranks), self._population)
        return np.concatenate(seen)[np.argsort(-np.concatenate(worths), kind="stable")]

    def _children(
        self, state: SearchState, parents: np.ndarray, fitness: np.ndarray, count: int
    ) -> np.ndarray:
        """Children of pairs that are drawn in proportion to their fitness: [count, knobs]."""
        space, rng = state.task.space, state.rng
        pairs = rng.choice(len(parents), size=(2, count), p=fitness / fitness.sum())
        children = crossed(space, parents[pairs[0]], parents[pairs[1]], rng)
        is_mutated = rng.random(count) < self._mutated
        # A child of a pair of equals is a parent again: it moves.
        is_mutated |= (children == parents[pairs[0]]).all(axis=1)
        return np.where(is_mutated[:, None], moved(space, children, rng), children)
