"""Candidates out of candidates: those that are new, moved by one knob, crossed of two, and drawn, all as arrays of points."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tilewright.compiler.nouns.space import Space


def fresh(points: np.ndarray, tried: Collection[tuple[int, ...]]) -> np.ndarray:
    """The points [n, knobs] that were not tried, each once, where it first stands."""
    if not len(points):
        return points
    known = np.asarray(list(tried), dtype=np.int64).reshape(len(tried), points.shape[1])
    _, first = np.unique(np.concatenate([known, points]), axis=0, return_index=True)
    return points[np.sort(first[first >= len(known)]) - len(known)]


def drawn(
    space: Space, count: int, tried: Collection[tuple[int, ...]], rng: np.random.Generator
) -> np.ndarray:
    """At most `count` legal points that were not tried, each as likely as any other: [at most count, knobs]."""
    return fresh(space.sample(count + len(tried), rng), tried)[:count]


def moved(space: Space, points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each point [n, knobs] with one knob moved, or as it is where the move leads to no legal point.

    A number moves by 1, 2, 4, … places, a word to any other: what `Space.neighbours` lists, one of them drawn.
    """
    if not len(points):
        return points
    sizes = np.asarray([len(knob.domain) for knob in space.knobs])
    ordered = np.asarray([knob.is_ordered for knob in space.knobs])
    movable = (points >= 0) & (sizes > 1)
    knobs = np.where(movable, rng.random(points.shape), -1.0).argmax(axis=1)
    rows = np.arange(len(points))
    most, places = sizes[knobs], points[rows, knobs]
    shifts = rng.integers(np.maximum(1, np.ceil(np.log2(most)).astype(np.int64)))
    steps = np.left_shift(1, shifts) * rng.choice([-1, 1], size=len(points))
    # A step that leaves the domain goes the other way; one that leaves it both ways goes to its end.
    steps = np.where((places + steps < 0) | (places + steps >= most), -steps, steps)
    stepped = np.clip(places + steps, 0, most - 1)
    worded = (places + 1 + rng.integers(np.maximum(1, most - 1))) % most
    others = points.copy()
    others[rows, knobs] = np.where(ordered[knobs], stepped, worded)
    others = np.where(movable.any(axis=1, keepdims=True), others, points)
    return _legal_or(space, others, points)


def crossed(space: Space, first: np.ndarray, second: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each knob of one of two parents [n, knobs]; the first parent where that leads to no legal point."""
    of_second = rng.random(first.shape) < 0.5
    return _legal_or(space, np.where(of_second, second, first), first)


def _legal_or(space: Space, points: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    repaired, is_legal = space.repair(space.settled(points))
    return np.where(is_legal[:, None], repaired, otherwise)
