"""Plans of wgmma kernels: boxes cover products, units of work cover tiles and k, choices fit the device."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from tilewright.compiler.gpu.kernels import hopper_choice
from tilewright.compiler.gpu.kernels.contraction_problem import Access, Buffer, Contraction, Loop, Store
from tilewright.compiler.gpu.kernels.element_values import Summed
from tilewright.compiler.gpu.kernels.hopper_plan import Grid, NotHopper, make_plan, row_major_boxes
from tilewright.compiler.gpu.kernels.hopper_schedule import TileSchedule
from tilewright.compiler.gpu.kernels.hopper_split import Workspace
from tilewright.compiler.gpu.kernels.hopper_tile import REGISTERS, SHARED_BYTES, HopperTile
from tilewright.compiler.schedule import GpuTile


def matmul(
    m: int, n: int, k: int, a: str = "k", b: str = "n", dtype: str = "f16", batch: int = 1
) -> Contraction:
    """[batch, m, k] x [batch, k, n]; `a` and `b` name what the factors are contiguous along."""
    loops = [Loop(m, "m"), Loop(n, "n"), Loop(k, "k")]
    a_strides = (k, 0, 1) if a == "k" else (1, 0, m)
    b_strides = (0, k, 1) if b == "k" else (0, 1, n)
    strides = [a_strides, b_strides, (n, 1, 0)]
    if batch > 1:
        loops.insert(0, Loop(batch, "batch"))
        strides = [(size, *own) for size, own in zip((m * k, k * n, m * n), strides)]
    buffers = tuple(Buffer((batch, x, y), (x * y, y, 1), dtype) for x, y in ((m, k), (k, n), (m, n)))
    accesses = tuple(Access(i, own) for i, own in enumerate(strides))
    return Contraction("gemm", buffers, tuple(loops), accesses, (Store(2, Summed()),), "f32")


def convolution(batch: int, size: int, channels: int, filters: int, window: int, stride: int) -> Contraction:
    """A convolution of NHWC data of [batch, size, size, channels] without padding, window loops merged with channels."""
    out = (size - window) // stride + 1
    loops = (
        Loop(batch, "m"), Loop(out, "m"), Loop(out, "m"), Loop(filters, "n"), Loop(window, "k"), Loop(window * channels, "k"),
    )  # fmt: skip
    row = size * channels
    accesses = (
        Access(0, (size * row, stride * row, stride * channels, 0, row, 1)),
        Access(1, (0, 0, 0, 1, window * channels * filters, filters)),
        Access(2, (out * out * filters, out * filters, filters, 1, 0, 0)),
    )
    buffers = (
        Buffer((batch, size, size, channels), (size * row, row, channels, 1), "f16"),
        Buffer(
            (window, window, channels, filters),
            (window * channels * filters, channels * filters, filters, 1),
            "f16",
        ),
        Buffer((batch, out, out, filters), (out * out * filters, out * filters, filters, 1), "f16"),
    )
    return Contraction("conv", buffers, loops, accesses, (Store(2, Summed()),), "f32")


@pytest.mark.parametrize(
    ("extents", "size", "expected"),
    [
        ((1000,), 64, (64,)),
        ((8, 56, 56), 64, (1, 8, 8)),
        ((32, 7, 7), 64, (4, 4, 4)),
        ((64, 7, 7), 64, (64, 1, 1)),
    ],
)
def test_boxes_waste_little(extents, size, expected):
    """One loop is cut as it is; several are cut in powers of two that leave the least outside."""
    sizes = row_major_boxes(extents, size)
    assert math.prod(sizes) == size
    waste = [math.prod(-(-e // s) * s for e, s in zip(extents, own)) for own in (sizes, expected)]
    assert waste[0] <= waste[1]


@pytest.mark.parametrize("extents", [(5, 7, 9), (3, 100), (70,)])
def test_boxes_cover_every_step_once(extents):
    """All rows of all boxes of a grid are all steps of its loops, each once, and some outside."""
    grid = Grid(tuple(range(len(extents))), extents, row_major_boxes(extents, 64))
    found = Counter()
    for box in range(grid.total):
        start = grid.starts(box)
        for row in range(64):
            inside = grid.inside(row)
            found[tuple(start[i] + inside[i] for i in range(len(extents)))] += 1
    wanted = set(product(*(range(extent) for extent in extents)))
    assert wanted <= found.keys()
    assert set(found.values()) == {1}
    past = grid.starts(grid.total)
    assert past[0] >= extents[0]


@pytest.mark.parametrize("seed", range(40))
def test_units_cover_every_tile_and_step_once(seed):
    """Every tile's k loop is worked on exactly once, in one unit or in as many as its parts, whatever the raster."""
    random = np.random.default_rng(seed)
    m, n, k = (int(random.integers(1, most)) * 8 for most in (150, 100, 120))
    batch, cores = int(random.integers(1, 4)), int(random.choice([1, 2, 7, 16, 132]))
    tile = HopperTile(
        int(random.integers(1, 4)), int(random.choice([64, 128])), 3, int(random.choice([1, 2])),
        int(random.integers(1, 6)), int(random.integers(1, 9)),
    )  # fmt: skip
    plan = make_plan(matmul(m, n, k, batch=batch), tile, "f16")
    schedule = TileSchedule(plan, max(cores, tile.cluster))
    found: Counter = Counter()
    parts: dict[tuple, set] = {}
    for unit in range(schedule.units):
        for rank in range(tile.cluster):
            own = schedule.decode(unit, rank)
            place = (own.row_box, own.column_box, own.batch)
            for step in range(own.first, own.end):
                found[(*place, step)] += 1
            assert own.end > own.first
            if own.divided:
                parts.setdefault((own.slot, rank, place), set()).add(own.part)
    rows = range(0, plan.row_blocks * tile.cluster * tile.warpgroups, tile.warpgroups)
    wanted = set(product(rows, range(plan.columns.total), range(batch), range(plan.depths.total)))
    assert set(found) == wanted
    assert set(found.values()) == {1}
    assert all(own == set(range(schedule.split)) for own in parts.values())
    assert len({slot for slot, _, _ in parts}) == schedule.divided
    assert Workspace(schedule).bytes == 0 or schedule.divided


def test_whole_waves_are_not_divided():
    """Only tiles of the last, incomplete wave are cut along k."""
    plan = make_plan(matmul(128 * 20, 256, 4096), HopperTile(2, 256, 4, split=3), "f16")
    schedule = TileSchedule(plan, 16)
    assert (schedule.whole, schedule.divided, schedule.units) == (16, 4, 28)


def test_strided_windows_are_one_map():
    """A 3x3 convolution of stride 2 takes five dimensions: window row and channels are one, and overlap in memory."""
    plan = make_plan(convolution(4, 57, 64, 128, 3, 2), HopperTile(2, 128, 4), "f16")
    assert plan.a.shape == (192, 28, 28, 4, 3)
    assert plan.a.strides_bytes == (2 * 64 * 2, 2 * 57 * 64 * 2, 57 * 57 * 64 * 2, 57 * 64 * 2)
    assert math.prod(plan.rows.sizes) == 64


@pytest.mark.parametrize(
    ("problem", "type_", "reason"),
    [
        (matmul(64, 64, 60), "f16", "multiples of 16"),
        (matmul(64, 64, 64, dtype="f32"), "tf32", "only where both factors are contiguous along k"),
        (
            matmul(64, 64, 64, a="m", b="k", dtype="i8"),
            "i8",
            "only where both factors are contiguous along k",
        ),
        (convolution(2, 9, 3, 64, 3, 1), "f16", "multiples of 16"),
    ],
)
def test_what_tma_cannot_address_is_refused(problem, type_, reason):
    """Strides that are no multiples of 16 bytes, and majors that wgmma lacks."""
    with pytest.raises(NotHopper, match=reason):
        make_plan(problem, HopperTile(1, 64, 2), type_)


def test_tf32_is_rounded_as_it_is_loaded():
    """f32 factors have tensor maps of tf32, so that TMA rounds what wgmma would truncate; the result stays f32."""
    plan = make_plan(matmul(64, 64, 64, b="k", dtype="f32"), HopperTile(1, 64, 2), "tf32")
    assert (plan.a.dtype, plan.b.dtype, plan.a.strides_bytes) == ("tf32", "tf32", (256,))
    assert plan.c == (None,)


def test_unaligned_buffers_are_refused():
    """A factor that may start between multiples of 16 bytes is nothing for TMA; such a result is stored by threads."""
    problem = matmul(64, 64, 64)
    buffers = list(problem.buffers)
    buffers[2] = Buffer(buffers[2].shape, buffers[2].strides, "f16", alignment=8)
    stored = Contraction("gemm", tuple(buffers), problem.loops, problem.accesses, problem.stores, "f32")
    assert make_plan(stored, HopperTile(1, 64, 2), "f16").c == (None,)
    buffers[1] = buffers[2]
    moved = Contraction("gemm", tuple(buffers), problem.loops, problem.accesses, problem.stores, "f32")
    with pytest.raises(NotHopper, match="aligned to 8 B"):
        make_plan(moved, HopperTile(1, 64, 2), "f16")


@pytest.mark.parametrize("warpgroups", [2, 3, 4])
def test_registers_handed_over_are_there(warpgroups):
    """Producer and consumers together ask for no more than the block starts with, in multiples of 8."""
    tile = HopperTile(warpgroups, 64, 2)
    producer, consumer = tile.registers
    start = REGISTERS // tile.threads // 8 * 8
    assert producer % 8 == consumer % 8 == 0
    assert producer + warpgroups * consumer <= start * (warpgroups + 1)
    assert producer <= start <= consumer


@pytest.mark.parametrize("seed", range(12))
def test_chosen_tiles_are_legal(seed):
    """Whatever the shape, the chosen tile keeps all rules and fits shared memory, staging included."""
    random = np.random.default_rng(seed)
    m, n, k = (int(2 ** random.uniform(4, 13)) // 8 * 8 for _ in range(3))
    b_major = str(random.choice(["k", "n"]))
    problem = matmul(m, n, k, b=b_major)
    tile = hopper_choice.choose(problem, "f16", b_major, 132)
    plan = make_plan(problem, tile, "f16")
    assert tile.broken_rule(b_major, plan.panels) is None
    assert tile.shared_bytes(b_major, plan.panels) <= SHARED_BYTES


def test_large_products_take_large_tiles_in_clusters():
    """4096^3: 128x256, two blocks that share columns, four stages, as libraries have it."""
    tile = hopper_choice.choose(matmul(4096, 4096, 4096), "bf16", "n", 132)
    assert (tile.rows, tile.columns, tile.cluster, tile.stages, tile.split) == (128, 256, 2, 4, 1)


@pytest.mark.parametrize(("n", "columns"), [(20, 24), (36, 48), (64, 64)])
def test_integers_have_fewer_shapes(n, columns):
    """wgmma of 8-bit integers has n in steps of 8 up to 32 and of 16 from there on."""
    problem = matmul(512, n, 512, b="k", dtype="i8")
    assert hopper_choice.choose(problem, "i8", "k", 132).columns == columns
    with pytest.raises(NotHopper, match="no n of 40"):
        make_plan(problem, HopperTile(1, 40, 2), "i8")


def test_long_sums_of_few_tiles_are_divided():
    """Few tiles with a long k loop are cut along it, or most multiprocessors would have nothing to do."""
    assert hopper_choice.choose(matmul(128, 256, 16384), "f16", "n", 132).split > 1


def test_a_schedule_overrides_what_is_chosen():
    """What a schedule says is taken, and stages fill what is left of shared memory."""
    chosen = HopperTile(2, 256, 4, 2, 4)
    tile = hopper_choice.tile_of(GpuTile("wgmma", block=(64, 128, 64), raster=3), chosen, "k")
    assert (tile.rows, tile.columns, tile.cluster, tile.split, tile.raster, tile.stages) == (
        64,
        128,
        1,
        1,
        3,
        8,
    )


@pytest.mark.parametrize(
    ("tile", "rule"),
    [
        (HopperTile(5, 64, 2), "block_m"),
        (HopperTile(1, 12, 2), "block_n"),
        (HopperTile(4, 256, 2), "sums per thread"),
        (HopperTile(1, 64, 2, cluster=3), "clusters"),
        (HopperTile(1, 8, 2, cluster=2), "clusters"),
        (HopperTile(1, 64, 1), "2 stages"),
        (HopperTile(2, 256, 5), "use fewer"),
    ],
)
def test_broken_rules_are_named(tile, rule):
    """Every rule of a tile is found broken, and said."""
    assert rule in tile.broken_rule("k", 2)
