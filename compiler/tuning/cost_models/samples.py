"""Measured candidates as matrices: the columns that a model reads, side by side, and what it is to say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models.cost_model import Samples
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table


@dataclass(frozen=True)
class Training:
    """All samples together: `matrix` [n, columns], `speeds` [n] over the fastest of each task and device, `groups` [n]."""

    columns: tuple[str, ...]
    matrix: np.ndarray
    speeds: np.ndarray
    groups: np.ndarray


def columns_of(features: Features, reads: frozenset[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The tables that a model reads side by side: their names as `set: column`, and [n, columns].

    Raises CostModelError for a set that is missing or is no table.
    """
    names: list[str] = []
    matrices = []
    for name in sorted(reads):
        table = features.get(name)
        if not isinstance(table, Table):
            found = ", ".join(sorted(features)) or "none"
            raise CostModelError(f"the model reads the table `{name}`; the candidates have {found}")
        names += [f"{name}: {column}" for column in table.names]
        matrices.append(table.matrix)
    return tuple(names), np.concatenate(matrices, axis=1)


def steps_of(features: Features, name: str) -> Steps:
    """The sequences of a set; raises CostModelError where it is missing or a table."""
    found = features.get(name)
    if not isinstance(found, Steps):
        raise CostModelError(f"the model reads the steps `{name}`; the candidates have no such steps")
    return found


def joined(samples: Sequence[Samples], reads: frozenset[str]) -> Training:
    """Samples of any tasks as one matrix; one task on one device is one group. Raises CostModelError as `columns_of`."""
    names: tuple[str, ...] | None = None
    matrices, speeds, groups = [], [], []
    for number, (task, device) in enumerate(sorted({(s.task, s.device) for s in samples})):
        own = [s for s in samples if (s.task, s.device) == (task, device)]
        us = np.concatenate([s.us for s in own])
        best = us.min(initial=np.inf)
        for s in own:
            found, matrix = columns_of(s.features, reads)
            names = names or found
            if found != names:
                raise CostModelError(
                    f"task `{task}` has other columns than the tasks before it; a model of several tasks reads sets whose "
                    "columns are the same for all, which `knobs` are not"
                )
            matrices.append(matrix)
            speeds.append(np.zeros(len(s)) if np.isinf(best) else best / s.us)
            groups.append(np.full(len(s), number))
    if names is None:
        return Training((), np.zeros((0, 0)), np.zeros(0), np.zeros(0, dtype=np.int64))
    return Training(names, np.concatenate(matrices), np.concatenate(speeds), np.concatenate(groups))
