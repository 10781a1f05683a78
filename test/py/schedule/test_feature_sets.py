"""Sets of features of CPU schedules: the same columns whatever the workload, finite, and told apart by what they count."""

from __future__ import annotations

import numpy as np
import pytest
from space_cases import CASES, dispatch_of, spread

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.features.cpu_sets import cpu_features
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table
from tilewright.compiler.tuning.features.loop_context import STATEMENT, THRESHOLDS
from tilewright.compiler.tuning.model.micro_performance import predict

SETS = frozenset({"micro-performance", "statement", "data-flow", "loop-context", "context-relation"})


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
    with pytest.raises(ValueError, match=r"found static-analysis"):
        cpu_features(workload, [], resolve("cpu"), frozenset({"static-analysis"}))


@pytest.mark.parametrize("case", CASES)
def test_loops_are_nested_as_their_contexts_say(case: str) -> None:
    found, _ = features_of(case, "sapphire-rapids")
    steps = found["loop-context"]
    assert isinstance(steps, Steps)

    def column(name: str) -> int:
        return steps.names.index(name)

    for rows, length in zip(steps.values, steps.lengths.tolist()):
        tasks, *loops = rows[:length]
        assert tasks[column("loop of rTasks")] == 1 and not rows[length:].any()
        begins = [n for n, loop in enumerate(loops) if loop[column(STATEMENT)]]
        assert begins[0] == 0
        for first, last in zip(begins, [*begins[1:], len(loops)]):
            nest = np.stack(loops[first:last])
            assert (np.diff(nest[:, column("iterations")]) >= -1e-9).all()
            for name in ("points", "touched", "touched of operand 1"):
                assert (np.diff(nest[:, column(name)]) <= 1e-9).all(), name
            # All loops of a statement together have as many steps as its outermost one has points.
            points = 2 ** nest[:, column("length")].sum()
            assert np.log2(1 + points) == pytest.approx(nest[0, column("points")])


def test_relations_are_the_largest_of_loops_below_a_threshold() -> None:
    found, _ = features_of("packed product", "sapphire-rapids", count=30)
    steps, table = found["loop-context"], found["context-relation"]
    assert isinstance(steps, Steps) and isinstance(table, Table)
    iterations, touched = (steps.names.index(name) for name in ("iterations", "touched"))
    for threshold in THRESHOLDS:
        place = table.names.index(f"largest iterations where touched is below 2^{threshold}")
        for row, rows, length in zip(table.matrix, steps.values, steps.lengths.tolist()):
            below = [loop[iterations] for loop in rows[:length] if loop[touched] < threshold]
            assert row[place] == max(below, default=0.0)
    assert len(np.unique(table.matrix, axis=0)) > 20
