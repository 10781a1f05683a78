"""Features of CPU schedules: from workloads alone, the same as what the generated loops are, for every kind of dispatch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from space_cases import CASES, Dispatch, dispatch_of, spread, waves
from torch.nn import functional as F

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.codegen.lower_cpu import lower
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.cut_reductions import Cuts
from tilewright.compiler.families.cpu.kinds import KINDS
from tilewright.compiler.nouns.schedule import GpuTile, Reduction, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.model.cpu_features import cpu_features
from tilewright.compiler.tuning.model.micro_performance import predict
from tilewright.compiler.tuning.model.roles import Along, Groups, Products, Windows, column_operand
from tilewright.compiler.tuning.model.statements import Statement, read_statements

TARGETS = ("cpu", "x86-64-v3", "sapphire-rapids")


def read(name: str, target: str = "cpu"):
    dispatch = dispatch_of(name, target)
    with dispatch.function.context, dispatch.function.location:
        # As a record keeps it: names of axes and operands are gone.
        return dispatch, Workload.from_text(workload_of(dispatch.function).to_text())


@pytest.mark.parametrize("name", CASES)
def test_every_legal_schedule_has_features(name: str) -> None:
    for target in TARGETS if name in ("dots", "winograd", "softmax", "groups") else TARGETS[:1]:
        dispatch, workload = read(name, target)
        schedules = [dispatch.space.default(), *spread(dispatch.space, 24, seed=3)]
        found = cpu_features(workload, schedules, dispatch.target)
        assert np.isfinite(found.matrix()).all() and (found.matrix() >= 0).all()
        # Winograd's algorithm needs fewer operations than those that count.
        if name != "winograd":
            assert (found["utilisation"] <= 1 + 1e-9).all()
        us = predict(workload, schedules, dispatch.target).us
        assert (us > 0).all() and np.isfinite(us).all()


@pytest.mark.parametrize("name", CASES)
def test_tasks_are_counted_as_they_are_started(name: str) -> None:
    dispatch, workload = read(name)
    schedules = spread(dispatch.space, 2, seed=4)
    found = cpu_features(workload, schedules, dispatch.target)["tasks"].tolist()
    for schedule, tasks in zip(schedules, found):
        other = dispatch.function.clone().operation
        schedule_attribute.write(other, schedule)
        assert lower(other, dispatch.target)[1].tasks == tasks, schedule.text()
        other.erase()


@pytest.mark.parametrize("name", CASES)
def test_many_at_once_are_one_by_one(name: str) -> None:
    dispatch, workload = read(name)
    schedules = [dispatch.space.default(), *spread(dispatch.space, 6, seed=5)]
    together = cpu_features(workload, schedules, dispatch.target)
    for row, schedule in enumerate(schedules):
        alone = cpu_features(workload, [schedule], dispatch.target)
        np.testing.assert_allclose(alone.matrix()[0], together.matrix()[row], err_msg=schedule.text())


def extents_of(statement: Statement, kind: str, extents: tuple[int, ...], lanes: int):
    """The largest sizes of a kind's loops, from the roles of a workload's axes."""
    size = lambda axis: 1 if axis is None else extents[axis]  # noqa: E731
    if kind in ("products", "dots"):
        roles = Products.of(statement, extents)
        if kind == "dots":
            roles = Products.of(statement, extents, column_operand(statement, roles.vector))
        return size(roles.unroll), size(roles.vector)
    if kind == "windows":
        roles = Windows.of(statement, extents)
        columns = 1 if roles.columns == roles.vector else size(roles.columns)
        return size(roles.rows), columns, -(-size(roles.vector) // lanes)
    if kind == "groups":
        return (size(Groups.of(statement, extents).row),)
    roles = Along.of(statement, extents)
    return size(roles.rows), size(roles.columns)


@pytest.mark.parametrize("name", CASES)
def test_roles_of_axes_are_those_of_the_generated_loops(name: str) -> None:
    dispatch, workload = read(name)
    reducing = [s for s in read_statements(workload) if s.reduction]
    for schedule in (dispatch.space.default(), *spread(dispatch.space, 6, seed=9)):
        with dispatch.function.context, dispatch.function.location:
            cuts = Cuts(dispatch.function).under(schedule.tile)
            task = [size or axis.extent for size, axis in zip((*schedule.tile, *[0] * 99), workload.axes)]
            for statement, cut in zip(reducing, cuts):
                for kind in KINDS:
                    loops = kind.read(cut, dispatch.target)
                    if loops is None or kind.name in ("scalar", "tiles", "attention", "winograd"):
                        continue
                    lanes = getattr(loops, "lanes", 1)
                    found = extents_of(statement, kind.name, tuple(task), lanes)
                    assert found == loops.most()[: len(found)], (schedule.text(), kind.name)


def test_what_a_schedule_leaves_out_is_refused_by_name() -> None:
    dispatch, workload = read("product")
    whole = dispatch.space.default()
    wrong = {
        "reductions has 0 entries": replace(whole, reductions=()),
        "unroll, vector and gpu": replace(whole, reductions=(), unroll=4),
        "complete schedules": replace(whole, gpu=GpuTile("simt")),
        r"tile\[2\] is 4": replace(whole, tile=(0, 0, 4)),
        r"tile\[0\] is 99": replace(whole, tile=(99,)),
        "reductions says windows": replace(whole, reductions=(Reduction("windows", (1, 1, 1)),)),
        "reductions says groups": replace(whole, reductions=(Reduction("groups", (1,)),)),
    }
    for text, schedule in wrong.items():
        with pytest.raises(ScheduleError, match=text):
            cpu_features(workload, [schedule], dispatch.target)


def test_workloads_without_reductions_take_empty_schedules() -> None:
    dispatch, workload = read("element-wise")
    found = cpu_features(workload, [Schedule()], dispatch.target)
    assert found["tasks"].tolist() == [1.0] and found["computed"].tolist() == [1.0]


def test_blocks_and_orders_change_what_caches_load() -> None:
    """A panel that L2 does not keep is loaded for every row of register tiles, unless it is summed in blocks."""
    target = resolve("x86-64-v4")
    dispatch = Dispatch.of(F.linear, "x86-64-v4", (waves(96, 4096), waves(128, 4096)), 1)
    with dispatch.function.context, dispatch.function.location:
        workload = workload_of(dispatch.function)
    own = target.level("L2").capacity_bytes
    whole = Schedule(reductions=(Reduction("products", (4, 64)),))
    assert own / 2 < 4096 * (64 + 4) * 4
    entries = [
        Reduction("products", (4, 64), depth, order)
        for depth in (0, 256, 32)
        for order in ("rows", "columns")
    ]
    found = cpu_features(workload, [replace(whole, reductions=(entry,)) for entry in entries], target)
    panel, rows, (weight, data) = 4096 * 64 * 4, 96 * 4096 * 4, ("traffic.L2.in1", "traffic.L2.in0")
    # All rows pass one panel, then the next: 24 register tiles load it, or one does.
    assert found[weight][0] >= 2 * 24 * panel and found[weight][2] < 3 * panel
    assert found[data][2] < 3 * rows
    assert found["starts"].tolist() == [48.0, 48.0, 768.0, 768.0, 6144.0, 6144.0]
    # Between blocks sums are loaded and stored.
    sums = 96 * 128 / 16
    np.testing.assert_allclose(found["loads"][2] - found["loads"][0], 15 * sums)
    np.testing.assert_allclose(found["stores"][[0, 2, 4]], [sums, 16 * sums, 128 * sums])
    # What columns pass is rows: a block of these stays, and of the panels each row of register tiles loads all.
    assert found["traffic.L1.in0"][5] < found["traffic.L1.in0"][4]
    assert found["traffic.L1.in1"][5] > found["traffic.L1.in1"][4]
    assert len({tuple(row) for row in found.matrix().tolist()}) == len(entries)


def test_features_refuse_blocks_that_are_no_whole_steps() -> None:
    dispatch, workload = read("convolution")
    schedule = Schedule(reductions=(Reduction("products", (1, 16), 7),))
    with pytest.raises(ScheduleError, match="depth is 7, no whole steps of its reduction's loops"):
        cpu_features(workload, [schedule], dispatch.target)


def test_reductions_are_numbered_in_the_order_that_results_need_them_in() -> None:
    """The pooling is written first, and read last: what is made of schedules and what is counted of them agree on which is which."""

    def added(x, w, v):
        pooled = F.avg_pool2d(x[:, :8], 3, 2, 1)
        return F.conv2d(F.conv2d(x, w, None, 2, 1, groups=16), v) + pooled

    arguments = (waves(1, 16, 17, 13), waves(16, 1, 3, 3), waves(8, 16, 1, 1))
    dispatch = Dispatch.of(added, "cpu", arguments, 3, joins=True)
    with dispatch.function.context, dispatch.function.location:
        workload = workload_of(dispatch.function)
    constructed = dispatch.space.default()
    assert [said.loops for said in constructed.reductions] == ["windows", "products", "windows"]
    schedules = [constructed, *spread(dispatch.space, 8, seed=1)]
    assert np.isfinite(predict(workload, schedules, dispatch.target).us).all()
    for schedule in schedules:
        np.testing.assert_allclose(dispatch.run(schedule)[0], added(*arguments).numpy(), rtol=2e-5, atol=2e-5)
