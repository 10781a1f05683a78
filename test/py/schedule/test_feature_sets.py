"""Sets of features of CPU schedules: the same columns whatever the workload, finite, and told apart by what they count."""

from __future__ import annotations

import numpy as np
import pytest
from space_cases import CASES, dispatch_of, spread

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.features.cpu_sets import cpu_features
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table
from tilewright.compiler.tuning.model.micro_performance import predict

SETS = frozenset({"micro-performance", "statement", "data-flow"})


def features_of(name: str, target: str, count: int = 12) -> tuple[Features, np.ndarray]:
    """The sets of `count` schedules of a dispatch, and their predicted microseconds."""
    dispatch = dispatch_of(name, target)
    schedules = spread(dispatch.space, count, seed=3)
    with dispatch.function.context, dispatch.function.location:
        workload = workload_of(dispatch.function)
    resolved = resolve(target)
    return cpu_features(workload, schedules, resolved, SETS), predict(workload, schedules, resolved).us


@pytest.mark.parametrize("target", ["x86-64-v3", "sapphire-rapids"])
def test_columns_are_the_same_for_every_workload(target: str) -> None:
    names: dict[str, set] = {}
    for case in CASES:
        found, us = features_of(case, target, count=4)
        for name, features in found.items():
            values = features.matrix if isinstance(features, Table) else features.values
            assert np.isfinite(values).all(), (case, name)
            assert len(features) == len(us)
            names.setdefault(name, set()).add((features.names, features.units))
    assert {name: len(found) for name, found in names.items()} == dict.fromkeys(SETS, 1)


def test_times_are_those_of_the_model() -> None:
    found, us = features_of("packed product", "cpu")
    table = found["micro-performance"]
    assert isinstance(table, Table)
    assert np.array_equal(table.matrix[:, table.names.index("us")], us)


def test_schedules_are_told_apart() -> None:
    found, _ = features_of("packed product", "cpu", count=40)
    table, steps = found["statement"], found["data-flow"]
    assert isinstance(table, Table) and isinstance(steps, Steps)
    assert len(np.unique(table.matrix, axis=0)) > 30
    assert len(np.unique(steps.values.reshape(len(steps), -1), axis=0)) > 20
    assert (steps.values[:, :, :3].sum(axis=2) == 1).all()


def test_other_sets_are_refused_by_name() -> None:
    dispatch = dispatch_of("packed product", "cpu")
    with dispatch.function.context, dispatch.function.location:
        workload = workload_of(dispatch.function)
    with pytest.raises(ValueError, match=r"found loop-context"):
        cpu_features(workload, [], resolve("cpu"), frozenset({"loop-context"}))
