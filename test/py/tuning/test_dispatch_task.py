"""The dispatches of a module as tasks: what there is to choose, what to begin with, and what none can be faster than."""

from __future__ import annotations

import numpy as np
import pytest
from faulty_task import MODEL

from tilewright.compiler import driver, phases
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask, dispatch_tasks
from tilewright.compiler.ir import ir, parse
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.features.cpu_sets import cpu_features

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def tasks() -> list[DispatchTask]:
    """Two layers of one shape and one of another."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(128, 48)).eval()
    module = driver.import_model(model, (torch.randn(64, 128),)).module
    phases.run_phases(module, resolve("cpu"), "graph", "schedule")
    with module.context, ir.Location.unknown(module.context):
        found = dispatch_tasks(module, resolve("cpu"))
        assert [task.function.name for task in found]
        return found


def test_a_dispatch_that_is_called_twice_is_one_task(tasks):
    assert sorted((task.calls, len(task.functions)) for task in tasks) == [(1, 1), (2, 1)]
    assert len({task.key for task in tasks}) == len(tasks)


def test_seeds_are_legal_distinct_and_begin_with_the_constructed_one(tasks):
    for task in tasks:
        seeds = task.seeds(6)
        assert 1 <= len(seeds) <= 6
        assert (task.space.legal(seeds) == KEPT).all()
        assert len(np.unique(seeds, axis=0)) == len(seeds)
        assert (seeds[0] == task.space.point(task.space.default())).all()
        assert len(task.seeds(1)) == 1


def test_nothing_is_faster_than_the_peak(tasks):
    target = resolve("cpu")
    for task in tasks:
        at_peak = task.workload.flops / (max(target.peak_gflops.values()) * 1e3)
        assert 0 < at_peak <= task.limit_us
        # All operands go through the nearest cache at least once.
        fastest = max(level.bandwidth_gbps for level in target.memory)
        assert task.limit_us >= task.workload.nbytes / (fastest * 1e3)


def test_convolutions_may_take_fewer_products_than_they_count():
    """With Winograd's transforms a fourth for F(4, 3): the same layer without them may not be as fast."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False).eval()
    limits = {}
    for name, keep in (("winograd", None), ("direct", driver.keep_direct)):
        module = driver.import_model(conv, (torch.randn(1, 64, 56, 56),)).module
        if keep is not None:
            keep(module)
        phases.run_phases(module, resolve("cpu"), "graph", "schedule")
        (task,) = (t for t in dispatch_tasks(module, resolve("cpu")) if t.name.startswith("conv"))
        limits[name] = task.limit_us
    assert limits["winograd"] < limits["direct"]


def test_features_are_those_that_are_asked_for(tasks):
    task = tasks[0]
    points = task.space.sample(5, np.random.default_rng(0))
    found = task.features(points, frozenset({"knobs", "statement", "data-flow"}))
    assert set(found) == {"knobs", "statement", "data-flow"}
    assert {len(of) for of in found.values()} == {5}
    assert np.array_equal(found["knobs"].matrix, task.space.encode(points))
    expected = cpu_features(task.workload, task.schedules(points), task.target, frozenset({"statement"}))
    assert np.array_equal(found["statement"].matrix, expected["statement"].matrix)


def test_equal_work_under_two_names_is_one_task_with_one_schedule():
    call = "%r = call @double(%x) : (tensor<64xf32>) -> tensor<64xf32>"
    again = call.replace("%r", "%s").replace("@double(%x)", "@again(%r)")
    other = MODEL[MODEL.index("func.func private") :].replace("@double", "@again")
    module = parse(MODEL.replace(call, f"{call}\n  {again}").replace("return %r", "return %s", 1) + other)
    with module.context, ir.Location.unknown(module.context):
        (task,) = dispatch_tasks(module, resolve("cpu"))
        assert task.calls == len(task.functions) == 2
        schedule = next(
            task.space.schedule(point)
            for point in task.space.sample(50, np.random.default_rng(0))
            if task.space.schedule(point).tile != task.constructed.tile
        )
        task.apply(schedule)
        assert [schedule_attribute.read(function) for function in task.functions] == [schedule] * 2


def test_a_schedule_that_is_none_of_the_space_was_written_by_hand():
    module = parse(MODEL.replace("{tile = []}", "{tile = [37]}"))
    with module.context, ir.Location.unknown(module.context):
        assert dispatch_tasks(module, resolve("cpu")) == []
