"""What the model counts of windows, scatters, scans and sorts: by hand, in the text of their kernels, and as the assembler does."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
import torch
from dispatch_runs import dispatches
from test_schedules_obeyed import HALF, asked_of, r
from torch.nn import functional as F

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.codegen import lower_gpu, ptxas
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.families.gpu import families
from tilewright.compiler.families.gpu.dispatch_space import completed_kernels
from tilewright.compiler.families.gpu.proposals import gpu_proposals
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.model.gpu_features import gpu_features
from tilewright.compiler.tuning.model.gpu_windows import windows
from tilewright.compiler.tuning.roller.options import ConstructOptions


def rows_first(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


CASES = {
    "depthwise": (
        "windows",
        lambda x, w: F.conv2d(rows_first(x), w, groups=32, stride=2).permute(0, 2, 3, 1),
        (r(2, 25, 25, 32), r(32, 1, 3, 3)),
    ),
    "halves": (
        "windows",
        lambda x, w: F.conv2d(rows_first(x), w, groups=32).permute(0, 2, 3, 1),
        (r(1, 18, 18, 32, dtype=HALF), r(32, 1, 3, 3, dtype=HALF)),
    ),
    "pooling": ("windows", lambda x: F.max_pool2d(x, 3, 2, 1), (r(1, 64, 112, 112),)),
    "small pooling": ("windows", lambda x: F.max_pool2d(x, 3, 1, 1), (r(2, 16, 8, 8),)),
    "sort": ("sort", lambda x: x.sort(-1), (r(256, 1000),)),
    "best": ("sort", lambda x: x.topk(5, -1), (r(64, 20000),)),
    "long sort": ("sort", lambda x: x.sort(-1), (r(3, 40000),)),
    "scan": ("scan", lambda x: x.cumsum(-1), (r(64, 4096),)),
    "columns": ("scan", lambda x: x.cumsum(0), (r(512, 1000),)),
    "scatter": (
        "scatter",
        lambda x, i, s: x.index_add(0, i, s),
        (r(1000, 64), torch.arange(100), r(100, 64)),
    ),
    "scatter into lines": (
        "scatter",
        lambda x, i, s: x.scatter_add(1, i.unsqueeze(-1).expand(s.shape), s),
        (r(10, 100, 64), torch.arange(10).repeat(10, 1), r(10, 10, 64)),
    ),
}
WINDOWS = ("depthwise", "halves", "pooling", "small pooling")


@cache
def dispatch(case: str, target: str = "cuda:sm_80") -> tuple[ir.Module, ir.Operation, Workload, Space]:
    kernel, function, args = CASES[case]
    module, found = dispatches(function, args, target)
    own = [f for f in found.values() if schedule_attribute.read(f) and asked_of(f).kernel == kernel][-1]
    schedule = schedule_attribute.read(own)
    assert schedule is not None
    with own.context, own.location:
        completed = completed_kernels(own, resolve(target), schedule)[kernel]
        return module, own, workload_of(own), families.space_of(completed, resolve(target))


def counted(case: str, *tiles: GpuTile, target: str = "cuda:sm_80"):
    _module, _function, workload, _space = dispatch(case, target)
    return gpu_features(workload, [Schedule(gpu=tile) for tile in tiles], resolve(target))


def assembled(function: ir.Operation, schedule: Schedule, target: str):
    """The launch of a dispatch's kernel with a schedule, by the assembler."""
    own = function.clone().operation
    schedule_attribute.write(own, schedule)
    lowered = lower_gpu.assemble(lower_gpu.lower(own, resolve(target), "0" * 16), resolve(target))
    own.erase()
    launch = lowered.kernel.launch
    assert launch is not None
    return launch


def test_a_sort_is_counted_as_by_hand() -> None:
    one, two, idle = (
        GpuTile("sort", 512, (1, 1000)),
        GpuTile("sort", 512, (2, 1000)),
        GpuTile("sort", 1024, (1, 1000)),
    )
    found = counted("sort", one, two, idle)
    # Ten levels of a network of 1024 places: 55 layers of 512 pairs for each of 256 rows.
    pairs = 256 * 512 * 55
    assert found["arithmetic.fma"].tolist() == [pairs] * 3
    # Both places of a pair are read and written: values of 4 bytes, their numbers of 8, where they came from in 4.
    assert found["traffic.shared.in0"].tolist() == [4 * pairs * 4] * 3
    assert found["traffic.shared.in1"].tolist() == [4 * pairs * 8] * 3
    assert found["traffic.shared.out"].tolist() == [4 * pairs * 4] * 3
    # Pairs of the first layers lie so that two of a warp's lanes want one bank.
    assert (found["conflicts"] > 1).all() and (found["conflicts"] < 2).all()
    assert found["shared"].tolist() == [16000, 32000, 16000]
    assert found["traffic.DRAM"].tolist() == [256 * 1000 * (4 + 8) * 2] * 3
    # Two rows on as many threads take turns in every layer; threads without a pair wait for those with one.
    assert found.parts_us["latency"][1] > 1.3 * found.parts_us["latency"][0]
    assert found["instructions"][2] > found["instructions"][0]


def test_parts_of_long_lines_are_sorted_one_after_the_other() -> None:
    found = counted("best", GpuTile("sort", 512, (1, 1024)), GpuTile("sort", 512, (1, 2048)))
    # 1024 elements, then 1019 at a time beside the five best; 55 layers each time, or 66 of twice as many.
    assert found["steps"].tolist() == [1 + 19, 1 + 9]
    assert found["arithmetic.fma"].tolist() == [64 * 20 * 55 * 512, 64 * 10 * 66 * 1024]
    # Five of each row are written.
    assert found["traffic.DRAM.out"].tolist() == pytest.approx([64 * 5 * 4] * 2)


def test_lines_that_are_sorted_where_they_lie_go_through_l2_with_every_layer() -> None:
    found = counted("long sort", GpuTile("sort", 1024, (1,)))
    layers = 16 * 17 // 2
    assert found["traffic.L2.out"][0] == pytest.approx(3 * 40000 * 4 * (1 + 2 * layers))
    assert found["traffic.L2.in0"][0] == 3 * 40000 * 4 and found["shared"][0] == 0
    assert found.bound == ["L2"]


def test_pieces_of_a_scan_follow_each_other() -> None:
    tiles = [GpuTile("scan", across, (1, 4 * across), vector=4) for across in (256, 512, 1024)]
    found = counted("scan", *tiles)
    assert found["steps"].tolist() == [4, 2, 1]
    # Each waits for memory, for shuffles and for a barrier, and loads nothing ahead.
    waits = found.parts_us["latency"]
    assert waits[0] > 1.8 * waits[1] > 3 * waits[2]
    assert found["traffic.DRAM.in0"].tolist() == [64 * 4096 * 4] * 3
    assert found["sectors.in0"].tolist() == [1.0] * 3
    # Every warp adds up what all warps of its line have.
    assert found["traffic.shared.in0"].tolist() == [
        64 * 4 * 8 * 4 * 257,
        64 * 2 * 16 * 4 * 513,
        64 * 32 * 4 * 1025,
    ]


def test_a_line_for_each_thread_reads_neighbours_side_by_side() -> None:
    found = counted("columns", GpuTile("scan", 128, (128,)), GpuTile("scan", 1024, (1024,)))
    assert found["blocks"].tolist() == [8, 1] and found["computed"].tolist() == [1.024, 1.024]
    assert found["sectors.in0"].tolist() == found["sectors.out"].tolist() == [1.0, 1.0]
    # One multiprocessor brings all that eight bring.
    assert found.parts_us["L2"][1] == pytest.approx(8 * found.parts_us["L2"][0])


def test_blocks_of_a_scatter_compare_all_keys() -> None:
    few, many = GpuTile("scatter", 256, (100,)), GpuTile("scatter", 256, (5,))
    found = counted("scatter", few, many)
    assert found["blocks"].tolist() == [10, 200]
    assert found["traffic.L2.in1"].tolist() == [10 * 100 * 4, 200 * 100 * 4]
    # A wavefront for every warp and key, and the keys on their way in.
    assert found["traffic.shared.in1"].tolist() == [10 * 100 * (8 * 128 + 4), 200 * 100 * (8 * 128 + 4)]
    # What is hit is read and written again after the copy.
    assert found["traffic.L2.out"].tolist() == [1000 * 64 * 4 + 2 * 100 * 64 * 4] * 2
    assert found["instructions"][1] > 5 * found["instructions"][0]
    # Of more keys more updates hit, one after the other.
    assert found.parts_us["latency"][0] > 2 * found.parts_us["latency"][1]


def test_lines_of_a_scatter_change_nothing_of_what_blocks_do() -> None:
    tile = GpuTile("scatter", 256, (100,))
    one, several = counted("scatter", tile), counted("scatter into lines", tile)
    for what in ("blocks", "traffic.L2.in1", "traffic.shared.in1", "traffic.L2.out", "instructions"):
        assert one[what].tolist() == several[what].tolist(), what


def test_updates_may_be_constants() -> None:
    """Those of a histogram are ones, and no operand."""
    module, found = dispatches(lambda x: torch.histc(x, 7, -1, 3), (r(30),), "cuda:sm_80")
    assert module
    (function,) = (f for f in found.values() if asked_of(f).kernel == "scatter")
    with function.context, function.location:
        workload = workload_of(function)
    tile = GpuTile("scatter", 256, (4,))
    counts = gpu_features(workload, [Schedule(gpu=tile)], resolve("cuda:sm_80"))
    # Two blocks of at most four of eight places, seven and one for what lies outside, compare thirty keys.
    assert counts["blocks"][0] == 2
    assert counts["traffic.L2.in0"][0] == 2 * 30 * 4
    assert counts["arithmetic.fma"][0] == 30


def test_threads_beyond_the_last_result_compute_it_again() -> None:
    fits, idle = GpuTile("windows", 64, (1024,), thread=(4, 4), vector=4), GpuTile("windows", 384, (12288,), thread=(8, 4), vector=4)  # fmt: skip
    found = counted("small pooling", fits, idle)
    assert found["computed"].tolist() == [1.0, 6.0]
    assert found["instructions"][1] > 4 * found["instructions"][0]


@pytest.mark.parametrize("case", WINDOWS)
def test_loads_and_stores_of_windows_are_those_of_the_kernels_text(case: str) -> None:
    """Those of a thread, but where its lanes go on in the next row: there it is an upper bound."""
    _module, function, workload, space = dispatch(case)
    points = space.sample(8, np.random.default_rng(3))
    for schedule in dict.fromkeys([space.default(), *map(space.schedule, points)]):
        tile = schedule.gpu
        assert tile is not None
        deal = windows(workload, [tile])
        indices = 5 * len(workload.parallel)
        own = deal.issued[0] / (deal.blocks[0] * tile.threads) - indices
        text = assembled(function, schedule, "cuda:sm_80").ptx.decode()
        written = len(re.findall(r"\b(?:ld|st)\.global", text))
        if workload.extents[workload.parallel[-1]] % tile.vector:
            assert own >= 0.95 * written, schedule.text()
        else:
            # Neighbouring scalars may become one access, and a vector of which little is used some smaller ones.
            assert 0.8 * written <= own <= 1.6 * written, schedule.text()
            if case != "small pooling":
                assert own == written, schedule.text()


@pytest.mark.skipif(ptxas.find("sm_80") is None, reason="there is no assembler for sm_80")
def test_registers_of_windows_rank_as_the_assembler_counts_them() -> None:
    needed, taken, spilled, lacking = [], [], [], []
    for case in WINDOWS:
        _module, function, workload, space = dispatch(case)
        schedules = list(dict.fromkeys(map(space.schedule, space.sample(14, np.random.default_rng(3)))))
        found = gpu_features(workload, schedules, resolve("cuda:sm_80"))
        launches = [assembled(function, schedule, "cuda:sm_80") for schedule in schedules]
        needed += found["registers"].tolist()
        lacking += found["spilled"].tolist()
        taken += [launch.registers for launch in launches]
        spilled += [launch.spill_bytes for launch in launches]
    ranks = [np.argsort(np.argsort(values)) for values in (needed, taken)]
    # 0.85 with ptxas 12.9.
    assert np.corrcoef(ranks[0], ranks[1])[0, 1] > 0.8, list(zip(needed, taken))
    # What spills by more than a register or two was said to.
    assert all(lack for lack, nbytes in zip(lacking, spilled) if nbytes > 32)
    assert any(spilled) and sum(map(bool, lacking)) < len(lacking) / 4


@pytest.mark.parametrize("target", ["cuda:sm_70", "cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("case", ("depthwise", "pooling", "small pooling"))
def test_no_constructed_window_spills(case: str, target: str) -> None:
    """Registers are counted, so that no block of a small image is so large that its threads lack some."""
    if ptxas.find(resolve(target).arch) is None:
        pytest.skip(f"there is no assembler for {target}")
    _module, function, _workload, _space = dispatch(case, target)
    with function.context, function.location:
        found = gpu_proposals(function, resolve(target), 10, ConstructOptions())
    assert found[0].proposer == "roller"
    for candidate in found:
        launch = assembled(function, candidate.schedule, target)
        assert launch.spill_bytes == 0, (candidate.schedule.text(), launch.registers)


@pytest.mark.skipif(ptxas.find("sm_90a") is None, reason="there is no assembler for sm_90a")
def test_an_assembler_that_spills_with_registers_to_spare_is_asked_for_fewer_blocks() -> None:
    """ptxas 12.9 gives the threads of this pooling 32 registers each, and spills 80 B, where 94 are free."""
    function = lambda x: F.max_pool2d(x, 3, 2, 1)  # noqa: E731
    _module, found = dispatches(function, (r(1, 64, 56, 56, dtype=HALF),), "cuda:sm_90a")
    (own,) = (f for f in found.values() if asked_of(f).kernel == "windows")
    tile = GpuTile("windows", 64, (1024,), thread=(4, 4), vector=4)
    launch = assembled(own, Schedule(gpu=tile), "cuda:sm_90a")
    assert launch.spill_bytes == 0 and launch.registers <= 255
