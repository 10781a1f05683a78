"""Roller's recursion through the spaces of what is no contraction on GPUs: few points, and among them one as fast as any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from dispatch_runs import dispatches, dtype_of, launched, run
from family_kernels import emitter
from test_gpu_proposers import TARGETS, UNCUT, assert_legal, proposed, scheduled, subject_of
from test_schedules_obeyed import CASES, r
from torch.nn.functional import scaled_dot_product_attention

from tilewright.compiler.families.gpu import families
from tilewright.compiler.families.gpu.proposals import read_dispatch
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.proposers import roller_gpu
from tilewright.compiler.tuning.roller.options import RULES, ConstructOptions

STREAMS = (
    "relu", "ragged", "halves", "two results", "depthwise", "pooling", "transpose", "softmax", "long rows", "columns",
    "variance",
)  # fmt: skip
ATTENTION = ("attention", "attention, f32", "attention, wgmma")


def gpu_of(schedule: Schedule) -> GpuTile:
    assert schedule.gpu is not None
    return schedule.gpu


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", (*STREAMS, *ATTENTION, *UNCUT))
def test_the_first_is_predicted_as_fast_as_what_is_enumerated_and_what_families_choose(
    case: str, target: str
) -> None:
    _module, function = scheduled(case, target)
    others = [] if case in UNCUT else proposed(function, target, "aligned")
    others += proposed(function, target, "default")
    first, *_ = proposed(function, target, "roller")
    subject = subject_of(function, target)
    with function.context, function.location:
        least = subject.predictions([candidate.schedule for candidate in others]).us.min()
    assert first.us <= 1.02 * least + 1e-3, first.schedule.text()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", ("relu", "columns", "transpose", "attention"))
def test_the_recursion_visits_no_more_than_some_points_and_finds_the_best_of_them(
    case: str, target: str
) -> None:
    """Of all points that conform, the fastest is constructed, or one that is as fast."""
    _module, function = scheduled(case, target)
    subject, options = subject_of(function, target), ConstructOptions()
    with function.context, function.location:
        for space in subject.rivals.values():
            lattice = roller_gpu._lattice(subject, space, options)
            made = roller_gpu._constructed(subject, space, options)
            assert min(own.us for own in made) <= 1.02 * lattice.features.us.min()
            assert len({own.schedule for own in made}) == len(made)


@pytest.mark.parametrize("off", RULES)
@pytest.mark.parametrize("case", ("relu", "softmax", "transpose", "depthwise", "attention"))
def test_rules_of_alignment_can_be_left_out(case: str, off: str) -> None:
    _module, function = scheduled(case, "cuda:sm_80")
    options = ConstructOptions(rules=frozenset(RULES) - {off})
    subject = subject_of(function, "cuda:sm_80")
    with function.context, function.location:
        assert_legal(function, "cuda:sm_80", roller_gpu.propose(subject, 6, options))


def test_rules_decide_which_sizes_are_aligned() -> None:
    """Whole transactions, and no more padding than 5% where blocks follow each other."""
    module, found = dispatches(lambda x: x.permute(1, 0).contiguous(), (r(1100, 1100),), "cuda:sm_80")
    (own,) = found.values()
    target = resolve("cuda:sm_80")
    with module.context, own.location:
        subject = read_dispatch(own, target)
        space = subject.rivals["transpose"]
        aligned = roller_gpu._lattice(subject, space, ConstructOptions())
        free = roller_gpu._lattice(subject, space, ConstructOptions(rules=frozenset()))
    assert aligned.loaded.max() <= 1.05 * aligned.loaded.min() < free.loaded.max()
    waves = aligned.features["tasks"] > target.num_cores
    assert aligned.features["computed"][waves].max() <= 1.05 < free.features["computed"].max()


def test_blocks_of_a_multiprocessor_have_a_warp_for_every_scheduler() -> None:
    """Blocks of one warp that leave no shared memory for three others are not aligned."""
    function = scaled_dot_product_attention
    module, found = dispatches(function, (r(1, 2, 100, 128),) * 3, "cuda:sm_70")
    own, target = list(found.values())[-1], resolve("cuda:sm_70")
    with module.context, own.location:
        subject = read_dispatch(own, target)
        (space,) = subject.rivals.values()
        warps = {}
        for rules in (frozenset(RULES), frozenset(RULES) - {"execution_unit"}):
            features = roller_gpu._lattice(subject, space, ConstructOptions(rules=rules)).features
            warps[rules] = (features["warps"] * features["resident"]).min()
    aligned, free = warps.values()
    assert free < target.schedulers <= aligned


def test_long_rows_are_divided_where_blocks_are_few() -> None:
    module, found = dispatches(lambda x: x.sum(-1), (r(4, 60000),), "cuda:sm_80")
    (own,) = found.values()
    with module.context, own.location:
        subject = read_dispatch(own, resolve("cuda:sm_80"))
        (space,) = subject.rivals.values()
        lattice = roller_gpu._lattice(subject, space, ConstructOptions())
        few = np.flatnonzero((lattice.features["split"] == 1) & (lattice.features["tasks"] == 4)).tolist()
        points = roller_gpu._divided(space, lattice, few, subject.target)
        divided = roller_gpu._Lattice.of(subject, space, points)
        first, *_ = roller_gpu.propose(subject, 1, ConstructOptions())
    cores = subject.target.num_cores
    # Four rows among 108 multiprocessors: 27 blocks for each, or two or four times as many.
    assert set(divided.features["split"].tolist()) == {cores // 4, cores // 2, cores}
    assert (divided.features.us < lattice.features.us[few].min()).any()
    assert gpu_of(first.schedule).split_k > 1 and first.us <= divided.features.us.min() + 1e-3


def test_blocks_that_wait_for_each_other_pay_for_it() -> None:
    """Sums that others in the dispatch need cost a round through memory each, where rows are divided."""
    _module, function = scheduled("softmax", "cuda:sm_80")
    subject = subject_of(function, "cuda:sm_80")
    with function.context, function.location:
        first, *_ = roller_gpu.propose(subject, 1, ConstructOptions())
        whole = GpuTile("rows", 128, (1, 512), vector=4, split_k=1)
        us = subject.predictions([Schedule(gpu=whole), Schedule(gpu=replace(whole, split_k=2))]).us
        assert us[1] > us[0]
    assert gpu_of(first.schedule).split_k == 1


def test_what_a_dispatch_computes_beside_keeps_its_threads() -> None:
    """Parts of other sizes: the knobs of theirs stay as the family chose them."""
    module, found = dispatches(lambda x, y: (x * 2, y[:7] + 1), (r(64, 48), r(16)), "cuda:sm_80")
    with_parts = [f for f in found.values() if ir.DictAttr(f.attributes["tilewright.schedule"])]
    for function in with_parts:
        subject = subject_of(function, "cuda:sm_80")
        with module.context, function.location:
            for space in subject.rivals.values():
                points = roller_gpu._legal(space)
                assert (space.legal(points) == KEPT).all()
                held = [i for i, k in enumerate(space.knobs) if k.name.startswith("parts")]
                default = space.point(space.default())
                assert (points[:, held] == default[held]).all()


@pytest.mark.parametrize("case", ("depthwise", "pooling", *UNCUT))
def test_whatever_is_constructed_computes_what_the_family_chooses(case: str) -> None:
    """Every proposal, in the emulator, of the kernels that windows, scatters, sorts and scans have."""
    _module, function = scheduled(case, CASES[case][2])
    target, types = resolve(CASES[case][2]), function.attributes["function_type"].value
    numbers = np.random.default_rng(0)
    operands = []
    for type_ in map(ir.ShapedType, types.inputs):
        drawn = numbers.integers(-3, 4, tuple(type_.shape))
        operands.append(np.abs(drawn).astype(dtype_of(type_.element_type)))

    def results(schedule: Schedule) -> list[np.ndarray]:
        kernel = families.emit(families.complete(function, schedule, target), target)
        return launched(function, operands, [lambda *_: kernel], target)

    with function.context, function.location:
        expected = results(proposed(function, CASES[case][2], "default")[0].schedule)
        for candidate in proposed(function, CASES[case][2], "roller"):
            for found, known in zip(results(candidate.schedule), expected, strict=True):
                np.testing.assert_allclose(found, known, rtol=1e-4, err_msg=candidate.schedule.text())


@pytest.mark.parametrize(("count", "value"), [(2, 0), (32, -3)])
def test_windows_of_a_single_result_and_of_many_parts_are_constructed(count: int, value: int) -> None:
    """A search counts what lies before a value: one result, and beside it as many checks as there are steps."""
    args = (torch.linspace(-2, 2, count),)
    module, found = dispatches(lambda x: torch.searchsorted(x.sort().values, value), args, "cuda:sm_90a")
    for function in found.values():
        subject = subject_of(function, "cuda:sm_90a")
        with module.context, function.location:
            assert roller_gpu.propose(subject, 3, ConstructOptions())
    (result,) = run(
        lambda x: torch.searchsorted(x.sort().values, value), args, emitter("elementwise"), emitter("rows")
    )
    assert result == torch.searchsorted(args[0], value)


def test_shrinking_ends_where_every_multiprocessor_has_a_block() -> None:
    _module, function = scheduled("relu", "cuda:sm_80")
    subject = subject_of(function, "cuda:sm_80")
    few = replace(subject, target=replace(subject.target, num_cores=8))
    with function.context, function.location:
        for own in (subject, few):
            (space,) = own.rivals.values()
            lattice = roller_gpu._lattice(own, space, ConstructOptions())
            layers = roller_gpu._Layers(space, lattice, own.target)
            largest = max(layers.rows, key=lambda levels: (len(levels), *map(np.prod, levels[::-1])))
            tasks = [
                lattice.features["tasks"][layers.row(each)] for each in roller_gpu._shrunk(layers, largest)
            ]
            assert tasks == sorted(tasks)
            assert all(count < own.target.num_cores for count in tasks[:-1])
