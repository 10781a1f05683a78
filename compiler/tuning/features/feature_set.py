"""The form that features have, whichever they are: of n candidates of one workload, by the name of the set.

    features["statement"].matrix          // [n, columns]: a `Table`
    features["data-flow"].values          // [n, steps, columns], zeros past `lengths`: a `Steps`

| set | source |
| --- | --- |
| `knobs` | `Space.encode`: the values of the knobs; means nothing for another space |
| `loop-context` | the loops with their context. AutoTVM (NeurIPS'18), §3.1 and its supplement, a `Steps` |
| `context-relation` | thresholds of loop contexts against each other, the same columns for all operators. AutoTVM, §4, a `Table` |
| `statement` | counts per statement, as Ansor (OSDI'20), appendix B has them, a `Table` |
| `data-flow` | movement between buffer levels in temporal order. Pruner (ASPLOS'25), §4, a `Steps` |
| `micro-performance` | what the model of complete schedules reads, a `Table` |
| `static-analysis` | work and penalties of each innermost statement of a GPU program. Pruner, §2.3, a `Steps` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Table:
    """One row per candidate: `matrix` [n, columns], with a name and a unit for each column."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    matrix: np.ndarray

    def __post_init__(self) -> None:
        _check(self.names, self.units, self.matrix, 2)

    def __len__(self) -> int:
        return len(self.matrix)

    def rows(self, places: np.ndarray) -> Table:
        """The candidates at these places, or where this mask is true."""
        return Table(self.names, self.units, self.matrix[places])


@dataclass(frozen=True)
class Steps:
    """A sequence per candidate: `values` [n, steps, columns], of which `lengths` [n] are meant; what follows is 0."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    values: np.ndarray
    lengths: np.ndarray

    def __post_init__(self) -> None:
        _check(self.names, self.units, self.values, 3)
        if self.lengths.shape != (len(self.values),):
            raise ValueError(f"expected {len(self.values)} lengths, found {self.lengths.shape}")

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, places: np.ndarray) -> Steps:
        """The candidates at these places, or where this mask is true."""
        return Steps(self.names, self.units, self.values[places], self.lengths[places])


def joined_tables(*tables: Table) -> Table:
    """The columns of several tables of the same candidates."""
    return Table(
        tuple(name for table in tables for name in table.names),
        tuple(unit for table in tables for unit in table.units),
        np.concatenate([table.matrix for table in tables], axis=1),
    )


Features = Mapping[str, Table | Steps]
"""By the name of the set; all of the same candidates in the same order."""


def rows(features: Features, places: np.ndarray) -> dict[str, Table | Steps]:
    """The features of the candidates at these places."""
    return {name: found.rows(places) for name, found in features.items()}


def _check(names: Sequence[str], units: Sequence[str], values: np.ndarray, rank: int) -> None:
    if len(names) != len(units) or values.ndim != rank or values.shape[-1] != len(names):
        raise ValueError(
            f"expected {rank} dimensions, a name and a unit for each of {values.shape[-1]} columns, "
            f"found {values.ndim} dimensions, {len(names)} names and {len(units)} units"
        )
