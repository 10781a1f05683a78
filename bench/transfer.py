"""What measurements on one device are worth on another: programs of a source device, and few or none of the target's.

Operators that are judged are held out on both devices. Of the others the source's programs are known, and on the target so
many programs in all as is said, `ROUND` of an operator that is drawn after those of another. What a model makes of the two:

| method | learns |
| --- | --- |
| `none` | the target's programs alone |
| `pooled` | both at once, as groups of their own |
| `fine-tuned` | the source's first, and the target's on top, an operator a round; of no program of the target, the source's alone |

What goes on is the model's affair: `tile-trees` add trees, `global-local` learns what it misses, networks `NAME-momentum` start
each round from their Siamese network, `NAME-resumed` are the same with a momentum of 0: from where the last round ended, and
`pacm-hasty` with rounds of as large and a third as many steps as what they learned from the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.bench.baseline_models import Ranker, make_model
from tilewright.bench.cost_models import Make, Sizes
from tilewright.bench.ranking_scores import Spread, judge, pool
from tilewright.bench.stored_programs import StoredOperator
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.cost_models.cost_model import Samples
from tilewright.compiler.tuning.cost_models.momentum import (
    MomentumPatternAwareModel,
    MomentumStatementNetwork,
)
from tilewright.compiler.tuning.cost_models.network import Network
from tilewright.compiler.tuning.features.feature_set import rows

COUNTS = (0, 16, 64)
"""Programs of the target in all."""
ROUND = 8
"""Programs that are learned from at once, all of one operator, for a ranking needs several of it; Pruner measures ten."""
METHODS = ("none", "pooled", "fine-tuned")
_LEARNED, _FOLDS = 64, 3
"""Programs of each operator of the source that are learned from, at most."""
_POOLS = ("debiased", "first128")
SCORES = ("debiased top-1", "debiased top-5", "first128 top-1", "first128 top-16")


@dataclass(frozen=True)
class Transferred:
    """A model, a method, and a number of the target's programs: its scores over seeds."""

    source: str
    target: str
    model: str
    method: str
    count: int
    scores: dict[str, Spread]
    seconds: float

    def to_json(self) -> dict:
        return {
            "source": self.source,
            "target": self.target,
            "model": self.model,
            "method": self.method,
            "programs": self.count,
            "scores": {name: spread.to_json() for name, spread in self.scores.items()},
            "seconds": round(self.seconds, 2),
        }


class _Hasty(MomentumPatternAwareModel):
    """PaCM with momentum, whose rounds take 200 steps at the rate of a network that learns from nothing."""

    def update(self, samples: Sequence[Samples]) -> None:
        self.steps, self.rate = (200 if self._siamese else Network.steps), Network.rate
        super().update(samples)


TRANSFERRED: dict[str, Callable[[int], Ranker]] = {
    "pacm-hasty": _Hasty,
    "pacm-resumed": lambda seed: MomentumPatternAwareModel(seed, momentum=0.0),
    "mlp-resumed": lambda seed: MomentumStatementNetwork(seed, momentum=0.0),
}
"""What is compared with momentum, besides the models that have names anyway."""


def make_transferred(name: str, seed: int) -> Ranker:
    """A model by its name, those of `TRANSFERRED` included; raises TilewrightError for one that there is not."""
    return TRANSFERRED[name](seed) if name in TRANSFERRED else make_model(name, seed)


def transfer(
    source: Sequence[StoredOperator], target: Sequence[StoredOperator], name: str, make: Make, sizes: Sizes,
    say: Callable[[str], object], methods: Sequence[str] = METHODS, counts: Sequence[int] = COUNTS,
) -> list[Transferred]:  # fmt: skip
    """Every method with every number of programs; raises TilewrightError where too few operators are left to learn from.

    Only what is fine-tuned says what it is worth with no program of the target, since there all methods learn the same.
    """
    if len(target) < _FOLDS + 1:
        raise TilewrightError(f"a transfer needs {_FOLDS + 1} operators of the target; found {len(target)}")
    found = []
    for method in methods:
        asked = [c for c in sorted(counts) if c or method == "fine-tuned"]
        started = time.perf_counter()
        figures: dict[int, dict[str, list[float]]] = {count: {} for count in asked}
        for seed in range(sizes.seeds):
            say(f"{name}: {method}, seed {seed}")
            learned = min(_LEARNED, sizes.learned)
            for count, scores in _scores(source, target, name, make, seed, asked, method, learned).items():
                for key, value in judge(target, scores, seed).items():
                    if key in SCORES:
                        figures[count].setdefault(key, []).append(value)
        seconds = time.perf_counter() - started
        devices = source[0].target.name, target[0].target.name
        for count, found_scores in figures.items():
            spreads = {key: Spread(tuple(values)) for key, values in found_scores.items()}
            found.append(Transferred(*devices, name, method, count, spreads, seconds / len(asked)))
    return found


def _scores(
    source: Sequence[StoredOperator], target: Sequence[StoredOperator], name: str, make: Make, seed: int,
    counts: Sequence[int], method: str, learned: int,
) -> dict[int, list[np.ndarray]]:  # fmt: skip
    """By the number of the target's programs: the scores of each operator's, minus infinity for those in no pool."""
    rng = np.random.default_rng(seed)
    drawn = [np.sort(rng.permutation(len(o))[:learned]) for o in source]
    scores = {count: [np.full(len(o), -np.inf) for o in target] for count in counts}
    for fold in np.array_split(rng.permutation(len(target)), _FOLDS):
        held = {target[number].name for number in fold}
        model = make(name, seed)
        drawn_rounds = rounds([o for o in target if o.name not in held], max(counts), rng)
        own = [o.samples(places, model.reads) for o, places in drawn_rounds]
        known = [o.samples(places, model.reads) for o, places in zip(source, drawn) if o.name not in held]
        before = None
        for count in counts:
            learn(model, method, known, own, before, count)
            before = count
            for number in fold:
                places = np.unique(np.concatenate([pool(target[number], kind, seed) for kind in _POOLS]))
                features = rows(target[number].features(model.reads), places)
                scores[count][number][places] = model.predict(features).mean
    return scores


def learn(
    model: Ranker, method: str, source: Sequence[Samples], own: Sequence[Samples], before: int | None, count: int
) -> None:  # fmt: skip
    """Gives a model that has learned from `before` programs of the target what it learns from `count`, by one of `METHODS`.

    `own` are its rounds. Raises ValueError for another method.
    """
    known = own[: -(-count // ROUND)]
    if method == "none":
        model.fit(known)
    elif method == "pooled":
        model.fit([*source, *known])
    elif method == "fine-tuned":
        if before is None:
            model.fit(source)
        for samples in known[-(-(before or 0) // ROUND) :]:
            model.update([samples])
    else:
        raise ValueError(f"there is no method {method}; there are {', '.join(METHODS)}")


def rounds(
    operators: Sequence[StoredOperator], count: int, rng: np.random.Generator
) -> list[tuple[StoredOperator, np.ndarray]]:
    """`count` programs in all, `ROUND` of each of so many operators that are drawn: the places of each round.

    More programs begin with those that fewer are; where operators run out, the first come again.
    """
    order = rng.permutation(len(operators))
    found = []
    for number in range(-(-count // ROUND)):
        operator = operators[int(order[number % len(order)])]
        found.append(
            (operator, np.sort(rng.permutation(len(operator))[: min(ROUND, count - number * ROUND)]))
        )
    return found
