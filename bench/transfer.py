"""What measurements on one device are worth on another: programs of a source device, and few or none of the target's.

Operators that are judged are held out on both devices. Of the others the source's programs are known, and on the target so
many programs in all as `COUNTS` says, spread over a few operators. What a model makes of the two:

| method | learns |
| --- | --- |
| `none` | the target's programs alone |
| `source` | the source's programs alone |
| `pooled` | both at once, as groups of their own |
| `fine-tuned` | the source's first, and the target's on top |

A model of the registry whose name starts with `momentum` has its own way to go on (Pruner, ASPLOS'25): it is `fine-tuned`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.bench.baseline_models import Ranker
from tilewright.bench.cost_models import Make, Sizes
from tilewright.bench.ranking_scores import Spread, judge
from tilewright.bench.stored_programs import StoredOperator
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.cost_models.cost_model import Samples

COUNTS = (0, 16, 64)
"""Programs of the target in all."""
METHODS = ("none", "source", "pooled", "fine-tuned")
_LEARNED, _FOLDS, _GROUPS = 32, 3, {16: 4, 64: 8}
"""Programs of each operator of the source that are learned from, at most; operators that the target's programs are of, for so
many in all: a ranking needs several of one operator."""
_SCORES = ("debiased top-1", "debiased top-5", "first128 top-1", "first128 top-16")


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


def learn(model: Ranker, method: str, source: Sequence[Samples], target: Sequence[Samples]) -> None:
    """Fits a model by one of `METHODS`; raises ValueError for another one."""
    if method == "none":
        model.fit(target)
    elif method == "source":
        model.fit(source)
    elif method == "pooled":
        model.fit([*source, *target])
    elif method == "fine-tuned":
        model.fit(source)
        if target:
            model.update(target)
    else:
        raise ValueError(f"there is no method {method}; there are {', '.join(METHODS)}")


def methods(count: int) -> tuple[str, ...]:
    """Those that differ with so many programs of the target: with none of them only the source is left."""
    return METHODS if count else ("source",)


def transfer(
    source: Sequence[StoredOperator], target: Sequence[StoredOperator], name: str, make: Make, sizes: Sizes,
    say: Callable[[str], object],
) -> list[Transferred]:  # fmt: skip
    """Every method with every number of programs; raises TilewrightError where too few operators are left to learn from."""
    if len(target) < _FOLDS + 1:
        raise TilewrightError(f"a transfer needs {_FOLDS + 1} operators of the target; found {len(target)}")
    found = []
    for count in COUNTS:
        for method in methods(count):
            say(f"{name}: {method}, {count} programs")
            started, figures = time.perf_counter(), {}
            for seed in range(sizes.seeds):
                scores = _scores(
                    source, target, name, make, seed, count, method, min(_LEARNED, sizes.learned)
                )
                for key, value in judge(target, scores, seed).items():
                    if key in _SCORES:
                        figures.setdefault(key, []).append(value)
            spreads = {key: Spread(tuple(values)) for key, values in figures.items()}
            found.append(
                Transferred(
                    source[0].target.name,
                    target[0].target.name,
                    name,
                    method,
                    count,
                    spreads,
                    time.perf_counter() - started,
                )
            )
    return found


def _scores(
    source: Sequence[StoredOperator], target: Sequence[StoredOperator], name: str, make: Make, seed: int, count: int,
    method: str, learned: int,
) -> list[np.ndarray]:  # fmt: skip
    rng = np.random.default_rng(seed)
    drawn = [np.sort(rng.permutation(len(o))[:learned]) for o in source]
    scores: list[np.ndarray] = [np.zeros(0)] * len(target)
    for fold in np.array_split(rng.permutation(len(target)), _FOLDS):
        held = {target[number].name for number in fold}
        model = make(name, seed)
        own = few([o for o in target if o.name not in held], count, rng)
        known = [o.samples(places, model.reads) for o, places in zip(source, drawn) if o.name not in held]
        learn(model, method, known, [o.samples(places, model.reads) for o, places in own])
        for number in fold:
            scores[number] = model.predict(target[number].features(model.reads)).mean
    return scores


def few(
    operators: Sequence[StoredOperator], count: int, rng: np.random.Generator
) -> list[tuple[StoredOperator, np.ndarray]]:
    """`count` programs in all, evenly of a few operators that are drawn: the places of each."""
    groups = min(_GROUPS.get(count, max(1, count // 8)), len(operators), count)
    chosen = rng.permutation(len(operators))[:groups]
    sizes = [len(part) for part in np.array_split(np.arange(count), groups)] if groups else []
    return [
        (operators[number], np.sort(rng.permutation(len(operators[number]))[:size]))
        for number, size in zip(sorted(chosen), sizes)
    ]
