"""The suite `cost-models`: how well models rank measured programs of operators that they have not seen.

    tilewright bench --suite cost-models --measured FOLDER [--models tile-trees,roller] [--target v100] [--quick] [-o FILE]

Whole operators are held out, `FOLDS` times, so that each is ranked once by a model that learned from the others. A seed decides
the folds, which programs are learned from, what the model draws and the debiased pools; every figure has its spread over seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.bench.baseline_models import Ranker
from tilewright.bench.ranking_scores import Spread, judge
from tilewright.bench.stored_programs import StoredOperator, read_operators
from tilewright.compiler.errors import TilewrightError

FOLDS, SEEDS = 5, 5
LEARNED = 400
"""Programs of each operator that a model learns from."""

Make = Callable[[str, int], Ranker]


@dataclass(frozen=True)
class Sizes:
    """How much is done: so many seeds, folds, and programs of each operator that are learned from."""

    seeds: int = SEEDS
    folds: int = FOLDS
    learned: int = LEARNED


@dataclass(frozen=True)
class Ranked:
    """A model on a device: its scores over seeds, by the names that `judge` gives, and what fitting and predicting took."""

    model: str
    device: str
    scores: dict[str, Spread]
    fit_s: float
    predict_s: float

    def to_json(self) -> dict:
        return {
            "model": self.model,
            "device": self.device,
            "scores": {name: spread.to_json() for name, spread in self.scores.items()},
            "fit_s": round(self.fit_s, 2),
            "predict_s": round(self.predict_s, 2),
        }


def files_of(folder: Path, devices: Sequence[str]) -> list[Path]:
    """The files of measured programs in a folder, or of some devices; raises TilewrightError where one is not there."""
    found = {path.name.removesuffix(".jsonl.xz"): path for path in sorted(folder.glob("*.jsonl.xz"))}
    for device in devices or ["DEVICE"] * (not found):
        if device not in found:
            raise TilewrightError(
                f"{folder}: expected files named {device}.jsonl.xz, found {', '.join(found) or 'none'}"
            )
    return [path for name, path in found.items() if not devices or name in devices]


def rank(operators: Sequence[StoredOperator], name: str, make: Make, sizes: Sizes) -> Ranked:
    """Ranks each operator's programs by a model that learned from other operators, for every seed.

    Raises TilewrightError where there are too few operators to hold some out.
    """
    found: dict[str, list[float]] = {}
    fit_s = predict_s = 0.0
    for seed in range(sizes.seeds):
        scores: list[np.ndarray] = [np.zeros(0)] * len(operators)
        started = time.perf_counter()
        for model, held in each_fold(operators, name, make, sizes, seed):
            fitted = time.perf_counter()
            for number in held:
                scores[number] = model.predict(operators[number].features(model.reads)).mean
            fit_s, predict_s = fit_s + fitted - started, predict_s + time.perf_counter() - fitted
            started = time.perf_counter()
        for key, value in judge(operators, scores, seed).items():
            found.setdefault(key, []).append(value)
    spreads = {key: Spread(tuple(values)) for key, values in found.items()}
    return Ranked(name, operators[0].target.name, spreads, fit_s, predict_s)


def each_fold(
    operators: Sequence[StoredOperator], name: str, make: Make, sizes: Sizes, seed: int
) -> Iterator[tuple[Ranker, list[int]]]:
    """A model that learned from the operators outside of a fold, and the numbers of those in it, for every fold.

    Raises TilewrightError where there are too few operators to hold some out.
    """
    if len(operators) < sizes.folds:
        raise TilewrightError(
            f"{sizes.folds} folds need as many operators with programs; found {len(operators)}"
        )
    rng = np.random.default_rng(seed)
    learned = [np.sort(rng.permutation(len(o))[: sizes.learned]) for o in operators]
    for fold in np.array_split(rng.permutation(len(operators)), sizes.folds):
        model, held = make(name, seed), sorted(fold.tolist())
        others = [n for n in range(len(operators)) if n not in held]
        model.fit([operators[n].samples(learned[n], model.reads) for n in others])
        yield model, held


def measured_operators(path: Path) -> list[StoredOperator]:
    """The operators of a file; raises TilewrightError where it has none that can be judged."""
    if not (operators := read_operators(path)):
        raise TilewrightError(f"{path}: no operator has enough valid programs with tiles")
    return operators
