"""Constructed blocks of a reduction: as deep as a core's own cache keeps, from target data, and none where it keeps all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from space_cases import Dispatch, waves
from torch.nn import functional as F

from tilewright.compiler.families.cpu.proposals import cpu_proposals, read_dispatch
from tilewright.compiler.nouns.reduction_blocks import depth_rule
from tilewright.compiler.nouns.schedule import Reduction, Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.passes.schedule.schedule_winograd import winograd_candidates
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.model.cpu_features import cpu_features
from tilewright.compiler.tuning.model.footprints import KEPT_PAGES
from tilewright.compiler.tuning.proposers.first_choice import fastest, loads_least, shares_rows
from tilewright.compiler.tuning.roller.options import ConstructOptions

TARGETS = ("x86-64-v3", "x86-64-v4", "sapphire-rapids")


def proposed(dispatch: Dispatch, target: Target) -> list[Candidate]:
    with dispatch.function.context, dispatch.function.location:
        return cpu_proposals(dispatch.function, target, 4, ConstructOptions(top_k=4, candidates=40))


def with_own_cache(target: Target, capacity_bytes: int) -> Target:
    """The target with another size of the last cache that each core has for itself."""
    levels = list(target.memory)
    own = next(number for number, level in enumerate(levels) if number and level.shared_by == 1)
    levels[own] = replace(levels[own], capacity_bytes=capacity_bytes)
    return replace(target, memory=tuple(levels))


@pytest.mark.parametrize("name", TARGETS)
def test_long_reductions_are_summed_in_what_the_cache_keeps(name: str) -> None:
    target = with_own_cache(resolve(name), 1 << 20)
    dispatch = Dispatch.of(F.linear, name, (waves(96, 16384), waves(256, 16384)), 1)
    first, second, *_ = proposed(dispatch, target)
    (said,) = first.schedule.reductions
    step_bytes = 4 * sum(said.sizes)
    assert said.depth and depth_rule([16384], said.depth) is None
    assert (1 << 18) < step_bytes * said.depth <= (1 << 19) < step_bytes * 16384
    assert dispatch.space.legal(dispatch.space.point(first.schedule)[None])[0] == KEPT
    # Without blocks it stands next, so that O1 measures both.
    plain = replace(first.schedule, reductions=(replace(said, depth=0),), levels=second.schedule.levels)
    assert second.schedule == plain and first.schedule.levels != second.schedule.levels
    assert first.us < second.us


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_cache_keeps_is_summed_at_once(name: str) -> None:
    target = resolve(name)
    dispatch = Dispatch.of(F.linear, name, (waves(96, 16384), waves(256, 16384)), 1)
    short = Dispatch.of(F.linear, name, (waves(96, 512), waves(256, 512)), 1)
    large = proposed(dispatch, with_own_cache(target, 1 << 26))
    for candidate in (*large, *proposed(short, target)):
        assert all(not reduction.depth for reduction in candidate.schedule.reductions)


def test_one_row_of_register_tiles_has_no_use_for_blocks() -> None:
    """It loads its panel once, whatever the cache keeps."""
    target = with_own_cache(resolve("x86-64-v4"), 1 << 20)
    dispatch = Dispatch.of(F.linear, "x86-64-v4", (waves(2, 16384), waves(256, 16384)), 1)
    for candidate in proposed(dispatch, target):
        (said,) = candidate.schedule.reductions
        assert said.sizes[0] < 2 or not said.depth


@pytest.mark.parametrize("name", TARGETS)
def test_rows_in_pages_of_their_own_are_summed_in_as_many_as_addresses_are_kept_of(name: str) -> None:
    """Each row of an input lies in another page; of rows of a weight, which is packed, nothing is looked up."""
    dispatch = Dispatch.of(lambda x: x[:128] @ x[:, :1000], name, (waves(4032, 4032),), 1)
    first, second, *_ = proposed(dispatch, resolve(name))
    (said,) = first.schedule.reductions
    assert 0 < said.depth <= KEPT_PAGES and 4032 % said.depth == 0
    plain = replace(first.schedule, reductions=(replace(said, depth=0),), levels=second.schedule.levels)
    assert second.schedule == plain and first.us < 0.9 * second.us


@pytest.mark.parametrize(("name", "rows", "width"), [("x86-64-v3", 32, 4096), ("x86-64-v3", 96, 1024)])
def test_rows_that_share_sets_are_summed_in_as_many_as_these_hold(name: str, rows: int, width: int) -> None:
    """Of rows 16 KiB apart 384 addresses are kept, of rows 4 KiB apart 128 lines of 512 KiB."""
    dispatch = Dispatch.of(lambda x: x[:rows] @ x, name, (waves(width, width),), 1)
    first, *_ = proposed(dispatch, resolve(name))
    (said,) = first.schedule.reductions
    assert said.loops == "products" and 0 < said.depth <= 384 and width % said.depth == 0


@pytest.mark.parametrize("name", TARGETS)
def test_columns_are_summed_in_as_many_rows_as_addresses_are_kept_of(name: str) -> None:
    """Memory is waited for: blocks are worth as much as looking up the page of every row again."""
    dispatch = Dispatch.of(lambda x: x.sum(0), name, (waves(4096, 4096),), 1)
    first, *_ = proposed(dispatch, replace(resolve(name), num_cores=2))
    (said,) = first.schedule.reductions
    assert said.loops == "products" and 0 < said.depth <= 384


def test_pages_that_an_rtask_meets_for_less_than_their_bytes_are_looked_up_by_the_next_one_too() -> None:
    dispatch = Dispatch.of(lambda x: x.sum(0), "x86-64-v4", (waves(4096, 4096),), 1)
    with dispatch.function.context, dispatch.function.location:
        subject = read_dispatch(dispatch.function, resolve("x86-64-v4"))
    columns = [
        Schedule((0, width), reductions=(Reduction("products", (1, 128), depth=depth),))
        for width, depth in ((128, 0), (1024, 0), (1024, 256))
    ]
    narrow, wide, blocks = cpu_features(subject.described, columns, subject.target)["walks"]
    # Rows of 512 of 4,096 bytes, which may begin in one page and end in another; the wide rTask passes them eight times.
    assert 4096 * 7 / 8 <= narrow <= 4096
    assert 4096 * 7 <= wide <= 4096 * 8
    assert blocks <= 4096


def test_of_schedules_that_are_as_fast_the_one_is_chosen_whose_rtasks_load_least() -> None:
    """Blocks of 32 rows would pass all of the second operand four times."""
    target = replace(resolve("x86-64-v4"), num_cores=2)
    with_rows = Schedule((32, 0, 0), reductions=(Reduction("products", (8, 48), depth=1344),))
    with_columns = Schedule((0, 512, 0), reductions=(Reduction("products", (6, 64), depth=1344),))
    dispatch = Dispatch.of(lambda x: x[:128] @ x[:, :1000], "x86-64-v4", (waves(4032, 4032),), 1)
    with dispatch.function.context, dispatch.function.location:
        subject = read_dispatch(dispatch.function, target)
        candidates = [Candidate(schedule, 1.0, "compute") for schedule in (with_rows, with_columns)]
        assert loads_least(subject, candidates) == 1
        assert loads_least(subject, candidates[::-1]) == 0


def test_rows_by_rows_are_cut_so_that_a_cache_holds_those_of_one_rtask() -> None:
    """Each few rows of the first operand pass all rows of the second that an rTask has."""
    target = replace(resolve("x86-64-v4"), num_cores=2)
    dispatch = Dispatch.of(lambda x: F.linear(x[:32], x), "x86-64-v4", (waves(4096, 4096),), 1)
    found = proposed(dispatch, target)
    first, *_ = found
    assert first.schedule.reductions[0].loops == "along"
    assert first.schedule.tile[1] * 4096 * 4 < 4 * target.level("L2").capacity_bytes
    assert len({replace(c.schedule, levels=()) for c in found}) == len(found) > 1
    with dispatch.function.context, dispatch.function.location:
        subject = read_dispatch(dispatch.function, target)
        large, small = (replace(first.schedule, tile=(16, columns, 0)) for columns in (2048, 96))
        candidates = [Candidate(schedule, 1.0, "compute") for schedule in (large, small)]
        assert shares_rows(subject)
        assert fastest(subject, candidates) == 1 and fastest(subject, candidates[::-1]) == 0


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_blocks_of_channels_are_measured_and_not_taken_unseen(name: str) -> None:
    """Winograd's products may sum in blocks: those that are predicted to be the fastest stand second, of few channels none."""
    for channels in (256, 32):
        convolve = partial(F.conv2d, padding=1)
        dispatch = Dispatch.of(convolve, name, (waves(1, channels, 28, 28), waves(64, channels, 3, 3)), 1)
        with dispatch.function.context, dispatch.function.location:
            first, *blocked = winograd_candidates(dispatch.function, dispatch.target)
        (said,) = first.schedule.reductions
        assert said.loops == "winograd" and not said.depth and len(blocked) == (channels > 32)
        for other in blocked:
            (cut,) = other.schedule.reductions
            assert cut.depth and replace(cut, depth=0) == said and cut.depth < channels
            assert dispatch.space.legal(dispatch.space.point(other.schedule)[None])[0] == KEPT
