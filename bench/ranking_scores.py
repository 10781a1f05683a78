"""How rankings of an operator's measured programs are judged: three pools of them, and two scores.

| pool | holds |
| --- | --- |
| `whole` | every program; most are near the best, for a tuner measured what it believed in |
| `debiased` | at most 20 drawn of each bin of slowdown (`BINS`), and the best |
| `first128` | the first 128 that the tuner measured: nearly drawn at random, as what a draft sees |

`top(us, scores, q)` is the best time of a pool over the best among the q ranked first, `trials_to(us, scores, share)` how many
of a ranking are measured until one reaches that share of the best speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.bench.stored_programs import FEWEST, StoredOperator

POOLS = ("whole", "debiased", "first128")
BINS = (1.05, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Slowdowns over an operator's best that part its programs."""
PER_BIN, FIRST = 20, 128
TOPS = (1, 5, 16)
SHARES = (0.95, 0.98)


def pool(operator: StoredOperator, kind: str, seed: int) -> np.ndarray:
    """The places of a pool's programs, ascending; only `debiased` depends on the seed."""
    if kind == "whole":
        return np.arange(len(operator))
    if kind == "first128":
        return np.flatnonzero(operator.order < FIRST)
    if kind != "debiased":
        raise ValueError(f"there is no pool {kind}; there are {', '.join(POOLS)}")
    rng, slowdown = np.random.default_rng(seed), operator.us / operator.us.min()
    bins = np.digitize(slowdown, BINS)
    drawn = [rng.permutation(np.flatnonzero(bins == b))[:PER_BIN] for b in range(len(BINS) + 1)]
    return np.unique(np.concatenate([*drawn, [int(operator.us.argmin())]]))


def top(us: np.ndarray, scores: np.ndarray, count: int) -> float:
    """The best of `us` over the best of the `count` with the highest scores, the earlier ones of equals; 1 is perfect."""
    first = np.argsort(-scores, kind="stable")[:count]
    return float(us.min() / us[first].min())


def trials_to(us: np.ndarray, share: float) -> int:
    """Trials until one of `us` [n], in the order in which they are measured, has at least this share of the best speed."""
    return int(np.flatnonzero(us.min() >= share * us)[0]) + 1


@dataclass(frozen=True)
class Spread:
    """The figure of each seed; mean, and the standard deviation of a sample, over them."""

    seeds: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.seeds))

    @property
    def std(self) -> float:
        return float(np.std(self.seeds, ddof=1)) if len(self.seeds) > 1 else 0.0

    def to_json(self) -> dict:
        return {
            "mean": round(self.mean, 4),
            "std": round(self.std, 4),
            "seeds": [round(s, 4) for s in self.seeds],
        }


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers."""
    return float(np.exp(np.log(np.asarray(values, dtype=float)).mean()))


def judge(operators: Sequence[StoredOperator], scores: Sequence[np.ndarray], seed: int) -> dict[str, float]:
    """Scores [n] of each operator's programs, as `POOL top-Q` (means over operators) and `whole trials-SHARE` (geometric)."""
    found: dict[str, float] = {}
    for kind in POOLS:
        judged = [
            (o.us[at], s[at]) for o, s in zip(operators, scores) if len(at := pool(o, kind, seed)) >= FEWEST
        ]
        if not judged:
            continue
        for count in TOPS:
            found[f"{kind} top-{count}"] = float(np.mean([top(us, s, count) for us, s in judged]))
        if kind == "whole":
            for share in SHARES:
                trials = [trials_to(us[np.argsort(-s, kind="stable")], share) for us, s in judged]
                found[f"{kind} trials-{share:.0%}"] = geometric_mean(trials)
    return found
