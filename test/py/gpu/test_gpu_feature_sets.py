"""Sets of features of GPU schedules: the same columns for every workload and kernel, and searches that learn from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dispatch_runs import dispatches
from test_gpu_features import MMA, product, workload_and_schedules
from test_schedules_obeyed import CASES

from tilewright.compiler.driver import import_model
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask, dispatch_tasks
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.phases import run_phases
from tilewright.compiler.profiler.schedule_search import SearchOptions, search_schedules
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cost_models.registry import make_cost_model
from tilewright.compiler.tuning.cost_models.static_analyser import StaticAnalyser
from tilewright.compiler.tuning.features.feature_set import Steps, Table
from tilewright.compiler.tuning.features.gpu_sets import gpu_features
from tilewright.compiler.tuning.features.loop_context import STATEMENT
from tilewright.compiler.tuning.model.micro_performance import predict
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice
from tilewright.compiler.tuning.search.tuner import tune

SETS = frozenset(
    {"micro-performance", "statement", "data-flow", "loop-context", "context-relation", "static-analysis"}
)


@pytest.mark.parametrize("target", ["cuda:sm_70", "cuda:sm_80", "cuda:sm_90a"])
def test_columns_are_the_same_for_every_workload_and_kernel(target: str) -> None:
    names: dict[str, set] = {}
    for case in CASES:
        every = [(w, s) for w, _, own in workload_and_schedules(case, target, 3) for s in own]
        schedules = [schedule for _, schedule in every]
        found = gpu_features(every[0][0], schedules, resolve(target), SETS)
        for name, features in found.items():
            values = features.matrix if isinstance(features, Table) else features.values
            assert np.isfinite(values).all(), (case, name)
            assert len(features) == len(schedules)
            names.setdefault(name, set()).add((features.names, features.units))
    assert {name: len(found) for name, found in names.items()} == dict.fromkeys(SETS, 1)


def test_times_are_those_of_the_model() -> None:
    schedules = [Schedule(gpu=MMA)]
    table = gpu_features(product(), schedules, resolve("a100"), SETS)["micro-performance"]
    assert isinstance(table, Table)
    (us,) = predict(product(), schedules, resolve("a100")).us
    assert table.matrix[0, table.names.index("us")] == us


@pytest.mark.parametrize("case", ["mma", "softmax", "attention", "transpose"])
def test_loops_are_nested_as_their_contexts_say(case: str) -> None:
    for workload, _, schedules in workload_and_schedules(case, "cuda:sm_80", 6):
        steps = gpu_features(workload, schedules, resolve("a100"), SETS)["loop-context"]
        assert isinstance(steps, Steps)
        column = steps.names.index
        for rows, length in zip(steps.values, steps.lengths.tolist()):
            nest = rows[:length]
            assert not rows[length:].any()
            assert nest[0, column("loop of blocks")] == 1 and nest[:, column(STATEMENT)].sum() == 1
            assert (np.diff(nest[:, column("iterations")]) >= -1e-9).all()
            for name in ("points", "touched", "touched of operand 1"):
                assert (np.diff(nest[:, column(name)]) <= 1e-9).all(), name


def test_movements_are_in_the_order_of_time() -> None:
    found = gpu_features(product(), [Schedule(gpu=MMA)], resolve("a100"), SETS)["data-flow"]
    assert isinstance(found, Steps)
    kinds = ["into shared", "into registers", "arithmetic", "into global"]
    said = found.values[0][:, [found.names.index(kind) for kind in kinds]]
    assert (said.sum(axis=1) == 1).all()
    assert [kinds[i] for i in said.argmax(axis=1)] == [
        *["into shared"] * 2, *["into registers"] * 2, "arithmetic", "into global"
    ]  # fmt: skip


def test_penalties_are_those_of_the_schedule() -> None:
    """Of the static analyser's reading: the fetch of both factors, the arithmetic, the store."""
    target = resolve("a100")
    plain = Schedule(gpu=MMA)
    found = gpu_features(product(), [plain], target, SETS)["static-analysis"]
    assert isinstance(found, Steps) and found.values.shape == (1, 4, 8)
    column = dict(zip(found.names, found.values[0].T))
    compute = 2 * 256 * 192 * 128 / (target.peak_gflops["f16"] * target.mma_share * 1e3)
    assert column["compute"].tolist() == pytest.approx([0, 0, compute, 0])
    assert column["memory"][3] == pytest.approx(
        0.35 * 256 * 192 * 2 / (target.memory[0].bandwidth_gbps * 1e3)
    )
    assert StaticAnalyser().latency_us(found)[0] > column["memory"].sum() + compute


def test_other_sets_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"GPUs have the features .+, found pixels"):
        gpu_features(product(), [], resolve("a100"), frozenset({"pixels"}))


def tasks_of(case: str, target: str) -> tuple[object, DispatchTask]:
    function, args, _, _ = CASES[case]
    module, _ = dispatches(function, args, target)
    return module, max(dispatch_tasks(module, resolve(target)), key=lambda task: task.workload.flops)


def modelled(task, points: np.ndarray) -> np.ndarray:
    table = task.features(points, frozenset({"micro-performance"}))["micro-performance"]
    return table.matrix[:, table.names.index("us")]


# AutoTVM begins nowhere: of the points of `softmax` one in some hundred does not divide its short rows among blocks.
@pytest.mark.parametrize(
    ("case", "strategy"),
    [
        ("mma", "pruner"),
        ("softmax", "pruner"),
        ("variance", "pruner"),
        ("mma", "autotvm"),
        ("variance", "autotvm"),
    ],
)
def test_searches_learn_on_targets_that_nobody_has(case: str, strategy: str) -> None:
    """On a device that runs nothing: what the model says, and a term that only the shape of blocks explains."""
    _module, task = tasks_of(case, "cuda:sm_80")

    def us(own, points: np.ndarray) -> np.ndarray:
        found = gpu_features(own.workload, own.schedules(points), own.target, frozenset({"statement"}))
        table = found["statement"]
        assert isinstance(table, Table)
        return modelled(own, points) * (1 + table.matrix[:, table.names.index("steps")] / 8)

    result = tune([task], SimulatedDevice(us, noise=0.01), strategy, trials=48, seed=0)
    (found,) = result.tasks
    constructed = us(task, task.space.point(task.space.default())[None])[0]
    rng = np.random.default_rng(0)
    drawn = np.median([us(task, task.space.sample(48, rng)).min() for _ in range(5)])
    assert found.best_us <= 1.02 * constructed
    assert found.best_us < 1.1 * drawn


@pytest.mark.parametrize("name", ["tree-gru", "mlp", "pacm", "trees", "static-analyser", "micro-performance"])
def test_every_cost_model_reads_schedules_of_gpus(name: str) -> None:
    _module, task = tasks_of("mma", "cuda:sm_80")
    result = tune(
        [task], SimulatedDevice(modelled, noise=0.0), "pruner", trials=24, seed=0, model=make_cost_model(name)
    )
    assert result.trials == 24 and result.tasks[0].chosen is not None


def test_the_kernels_of_one_space_are_compared() -> None:
    """Matrix units against lanes: the model tells them apart in one array of candidates."""
    _module, task = tasks_of("mma", "cuda:sm_80")
    points = task.space.sample(64, np.random.default_rng(2))
    assert (task.space.legal(points) == KEPT).all()
    us = modelled(task, points)
    kinds = np.asarray([(s.gpu or GpuTile()).kernel for s in task.schedules(points)])
    assert set(kinds) == {"mma", "simt"}
    assert us[kinds == "mma"].min() < us[kinds == "simt"].min()


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(48, 80), torch.nn.Linear(80, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.last(torch.relu(self.first(x))), 1)


def test_whole_models_are_searched_on_a_simulated_device() -> None:
    """What `tilewright tune --strategy pruner` does for a GPU, with another device in its place."""
    module = import_model(Small().eval(), (torch.randn(33, 48),)).module
    target = resolve("cuda:sm_80")
    run_phases(module, target)
    options = SearchOptions(seconds=None, trials=36, strategy="pruner")
    found = search_schedules(
        module, target, options, make_device=lambda *_: SimulatedDevice(modelled, noise=0.01)
    )
    assert found.result.trials == 36 and len(found.result.tasks) >= 3
    for task in found.result.tasks:
        assert task.chosen is not None
        own = task.task
        constructed = modelled(own, own.space.point(own.space.default())[None])[0]
        assert modelled(own, np.asarray(task.chosen.point)[None])[0] <= 1.02 * constructed
