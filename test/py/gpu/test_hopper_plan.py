"""Plans of wgmma kernels: boxes cover products, units of work cover tiles and k, choices fit the device."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from tilewright.compiler.analysis.placement import dense_strides
from tilewright.compiler.families.contraction.element_values import Summed
from tilewright.compiler.families.contraction.problem import Access, Buffer, Contraction, Loop, Store
from tilewright.compiler.families.tile_space import broken_rules
from tilewright.compiler.families.wgmma import choice as hopper_choice
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.families.wgmma.plan import Grid, Plan, make_plan, row_major_boxes
from tilewright.compiler.families.wgmma.producer import b_pieces
from tilewright.compiler.families.wgmma.rules import tile_rules
from tilewright.compiler.families.wgmma.schedule import TileSchedule
from tilewright.compiler.families.wgmma.split import Workspace
from tilewright.compiler.families.wgmma.tile import REGISTERS, SHARED_BYTES, HopperTile
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.launch_rules import broken_map_rule
from tilewright.runtime.program import TensorMap


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


def convolution(
    batch: int, size: int, channels: int, filters: int, window: int, stride: int, dilation: int = 1
) -> Contraction:
    """A convolution of NHWC data of [batch, size, size, channels] without padding, as dispatches are read.

    Window columns and channels are one loop where they run through memory as one.
    """
    out = (size - dilation * (window - 1) - 1) // stride + 1
    row, plane = size * channels, channels * filters
    k_loops = [
        (window, dilation * row, window * plane),
        (window, dilation * channels, plane),
        (channels, 1, filters),
    ]
    if dilation == 1:
        k_loops[1:] = [(window * channels, 1, filters)]
    loops = (
        Loop(batch, "m"), Loop(out, "m"), Loop(out, "m"), Loop(filters, "n"), *(Loop(extent, "k") for extent, _, _ in k_loops),
    )  # fmt: skip
    accesses = (
        Access(0, (size * row, stride * row, stride * channels, 0, *(own for _, own, _ in k_loops))),
        Access(1, (0, 0, 0, 1, *(own for _, _, own in k_loops))),
        Access(2, (out * out * filters, out * filters, filters, 1, *(0 for _ in k_loops))),
    )
    shapes = (
        (batch, size, size, channels),
        (window, window, channels, filters),
        (batch, out, out, filters),
    )
    buffers = tuple(Buffer(shape, dense_strides(shape), "f16") for shape in shapes)
    return Contraction("conv", buffers, loops, accesses, (Store(2, Summed()),), "f32")


def rows_of_two_loops(outer: int, inner: int, strides: tuple[int, int], k: int = 64) -> Contraction:
    """[outer, inner, k] x [k, 64], the first factor with these strides and its elements 16 in each row left out."""
    loops = (Loop(outer, "m"), Loop(inner, "m"), Loop(64, "n"), Loop(k, "k"))
    accesses = (
        Access(0, (*strides, 0, 1), offset=16),
        Access(1, (0, 0, 1, 64)),
        Access(2, (inner * 64, 64, 1, 0)),
    )
    buffers = (
        Buffer((16 + (outer - 1) * strides[0] + (inner - 1) * strides[1] + k,), (1,), "f16"),
        Buffer((k, 64), (64, 1), "f16"),
        Buffer((outer, inner, 64), (inner * 64, 64, 1), "f16"),
    )
    return Contraction("rows", buffers, loops, accesses, (Store(2, Summed()),), "f32")


def one_row_of_pixels(pixels: int, stride: int) -> Contraction:
    """x[stride * w + j, c] with windows of five pixels of 16 channels, which run through memory as one loop."""
    width = stride * (pixels - 1) + 5
    loops = (Loop(pixels, "m"), Loop(64, "n"), Loop(5 * 16, "k"))
    accesses = (Access(0, (stride * 16, 0, 1)), Access(1, (0, 1, 64)), Access(2, (64, 1, 0)))
    shapes = ((width, 16), (5 * 16, 64), (pixels, 64))
    buffers = tuple(Buffer(shape, dense_strides(shape), "f16") for shape in shapes)
    return Contraction("line", buffers, loops, accesses, (Store(2, Summed()),), "f32")


def windows_of_nine() -> Contraction:
    """Rows whose k loop runs through three windows of 9 elements, 8 apart: none of them is whole for TMA."""
    loops = (Loop(64, "m"), Loop(64, "n"), Loop(3, "k"), Loop(9, "k"))
    accesses = (Access(0, (32, 0, 8, 1)), Access(1, (0, 1, 9 * 64, 64)), Access(2, (64, 1, 0, 0)))
    buffers = tuple(Buffer(shape, dense_strides(shape), "f16") for shape in ((64, 32), (27, 64), (64, 64)))
    return Contraction("windows", buffers, loops, accesses, (Store(2, Summed()),), "f32")


def taken(tensor: TensorMap, start: list[int]) -> np.ndarray:
    """Numbers of the buffer's elements that a box brings, outermost dimension first; -1 where it lies outside.

    As `cuTensorMapEncodeTiled` says: every `elementStrides[i]`-th element from the start on.
    """
    place, is_inside = np.zeros((), np.int64), np.ones((), bool)
    item = {"f16": 2, "i8": 1}[tensor.dtype]
    strides = (1, *(stride // item for stride in tensor.strides_bytes))
    for at, size, copied, step, stride in reversed(
        list(zip(start, tensor.shape, tensor.copied, tensor.steps, strides))
    ):
        own = at + step * np.arange(copied)
        place = place[..., None] + own * stride
        is_inside = is_inside[..., None] & (own >= 0) & (own < size)
    return np.where(is_inside, place, -1)


def inside(plan: Plan, starts: dict, steps: dict) -> dict | None:
    """The position of every loop, `steps` behind `starts`; None where a loop has ended before."""
    found = {loop: starts[loop] + steps[loop] for loop in starts}
    return found if all(at < plan.contraction.loops[loop].extent for loop, at in found.items()) else None


def element(plan: Plan, access: int, position: dict) -> int:
    """The number of the buffer's element at a position of the loops."""
    found = plan.contraction.accesses[access]
    return found.offset + sum(found.strides[loop] * at for loop, at in position.items())


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
    sizes = row_major_boxes(extents, size, range(len(extents), 0, -1))
    assert math.prod(sizes) == size
    waste = [math.prod(-(-e // s) * s for e, s in zip(extents, own)) for own in (sizes, expected)]
    assert waste[0] <= waste[1]


@pytest.mark.parametrize("extents", [(5, 7, 9), (3, 100), (70,)])
def test_boxes_cover_every_step_once(extents):
    """All rows of all boxes of a grid are all steps of its loops, each once, and some outside."""
    grid = Grid(tuple(range(len(extents))), extents, row_major_boxes(extents, 64, range(len(extents), 0, -1)))
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


PROBLEMS = {
    **{f"{a}{b}": matmul(136, 72, 104, a, b, batch=2) for a in "km" for b in "kn"},
    "bordered": rows_of_two_loops(9, 40, (48 * 80, 80)),
    "crossed": rows_of_two_loops(12, 20, (80, 12 * 80)),
    "line of 256": one_row_of_pixels(200, 2),
    "line of 384": one_row_of_pixels(200, 3),
    "odd": convolution(3, 9, 32, 40, 3, 1),
    "stride": convolution(2, 15, 48, 64, 3, 2),
    "even": convolution(1, 16, 64, 64, 4, 2),
    "dilated": convolution(2, 17, 72, 24, 3, 1, 2),
    "stride and dilation": convolution(1, 20, 16, 64, 3, 3, 2),
    "pixels": convolution(2, 13, 128, 64, 1, 2),
    "patches": convolution(2, 16, 8, 64, 4, 4),
    "wide": convolution(1, 24, 64, 64, 7, 2),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_boxes_bring_what_the_loops_say(name):
    """Every row of a stage has the elements of its position, zeros behind the end of k, and copies keep the rules."""
    problem = PROBLEMS[name]
    plan = make_plan(problem, HopperTile(2, 64, 2), "f16")
    a_map, b_map, *results = plan.tensor_maps
    for tensor in plan.tensor_maps:
        assert broken_map_rule(tensor) is None
    boxes = plan.tile.warpgroups if plan.whole_row_box else 1
    for k in range(plan.depths.total):
        start = plan.depths.starts(k)
        steps = [
            inside(plan, start, {**dict.fromkeys(start, 0), plan.chunk: own}) for own in range(plan.depth)
        ]
        for number in range(plan.batch.total):
            batch = plan.batch.starts(number)
            for box in range(0, plan.rows.total, boxes):
                place = plan.rows.starts(box)
                found = taken(a_map, plan.a.coordinates({**place, **start, **batch}))
                found = found.reshape(64 * boxes, -1) if plan.a_major == "k" else found.reshape(-1, 64).T
                check_stage(
                    plan,
                    0,
                    found,
                    [inside(plan, place, plan.rows.inside(r)) for r in range(64 * boxes)],
                    steps,
                    batch,
                )
            for box in range(plan.columns.total):
                place = plan.columns.starts(box)
                ((_, at),) = b_pieces(plan, {**place, **start, **batch}, 0)
                found = taken(b_map, plan.b.coordinates(at))
                found = found.reshape(64, -1) if plan.b_major == "k" else found.reshape(-1, 64).T
                check_stage(
                    plan,
                    1,
                    found,
                    [inside(plan, place, plan.columns.inside(c)) for c in range(64)],
                    steps,
                    batch,
                )
    check_results(plan, results)


def check_stage(plan: Plan, access: int, found: np.ndarray, rows: list, steps: list, batch: dict) -> None:
    """Rows that are none may have anything but behind the end of k, where all is zero."""
    for own, row in zip(found, rows):
        for value, step in zip(own, steps, strict=True):
            if step is None:
                assert value == -1
            elif row is not None:
                assert value == element(plan, access, {**row, **step, **batch})


def check_results(plan: Plan, maps: list[TensorMap]) -> None:
    """Boxes that leave write every element of the result once, and nothing else."""
    (store,) = plan.c
    assert store is not None
    written: Counter = Counter()
    for box, column, number in product(
        range(plan.rows.total), range(plan.columns.total), range(plan.batch.total)
    ):
        starts = {**plan.rows.starts(box), **plan.columns.starts(column), **plan.batch.starts(number)}
        written.update(own for own in taken(maps[0], store.coordinates(starts)).flat if own >= 0)
    assert written == Counter(range(plan.contraction.buffers[2].span))


def test_all_rows_of_a_block_are_one_box_where_that_is_not_too_large():
    """128 rows of every second pixel span 256, as much as a box may; of every third they are copied by consumer."""
    for name, is_whole, spans in (("line of 256", True, 256), ("line of 384", False, 64 * 3)):
        plan = make_plan(PROBLEMS[name], HopperTile(2, 64, 2), "f16")
        assert plan.whole_row_box == is_whole
        assert plan.tensor_maps[0].box == (64, spans)


def test_dimensions_are_those_in_memory():
    """A 3x3 convolution of stride 2 has four, as its tensor; pixels are every other one, windows begin at their place."""
    plan = make_plan(convolution(4, 57, 64, 128, 3, 2), HopperTile(2, 128, 4), "f16")
    assert plan.a.shape == (64, 57, 57, 4)
    assert plan.a.strides_bytes == (64 * 2, 57 * 64 * 2, 57 * 57 * 64 * 2)
    (tensor, weights, *_) = plan.tensor_maps
    assert tensor.element_strides == (1, 2, 2, 1)
    assert math.prod(tensor.copied) == 64 * 64
    assert tensor.box == (64, *(2 * own for own in plan.rows.sizes[:0:-1]), plan.rows.sizes[0])
    assert weights.shape == (128, 64, 3, 3)
    (n, h, w), (i, j, c) = plan.rows.numbers, plan.depths.numbers
    assert plan.a.coordinates({n: 1, h: 8, w: 16, i: 2, j: 1, c: 0}) == [0, 33, 18, 1]


def test_plain_products_have_a_dimension_per_loop():
    """Nothing is skipped where nothing overlaps: maps are those of the matrices, batches their last dimension."""
    plan = make_plan(matmul(200, 136, 72, "k", "n", batch=3), HopperTile(2, 64, 2), "f16")
    a, b, c = plan.tensor_maps
    assert (a.shape, a.strides_bytes, a.box) == ((72, 200, 3), (144, 28800), (64, 128, 1))
    assert (b.shape, b.strides_bytes, b.box) == ((136, 72, 3), (272, 19584), (64, 64, 1))
    assert (c.shape, c.strides_bytes, c.box) == ((136, 200, 3), (272, 54400), (64, 64, 1))
    assert not any(own.element_strides for own in (a, b, c))


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
        (convolution(1, 100, 64, 64, 10, 9), "f16", "every 9th element"),
        (rows_of_two_loops(8, 8, (80, 16)), "f16", "would run along one dimension"),
        (windows_of_nine(), "f16", "shares its dimension"),
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
    assert rule_of(tile, b_major) is None
    assert tile.shared_bytes(plan.panels) <= SHARED_BYTES


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
    said = GpuTile("wgmma", block=(64, 128, 64), raster=3)
    made = hopper_choice.complete(matmul(4096, 4096, 4096), Schedule(gpu=said), resolve("h100")).gpu
    assert made is not None
    assert (made.block, made.cluster, made.split_k, made.raster, made.stages) == ((64, 128, 64), 1, 1, 3, 8)


def rule_of(tile: HopperTile, b_major: str) -> str | None:
    """The first rule of tiles of f16 that a tile breaks."""
    rules = tile_rules("f16", b_major)
    said = GpuTile("wgmma", block=(tile.rows, tile.columns), stages=tile.stages, cluster=tile.cluster)
    (number,) = broken_rules(rules, [said])
    found = [rule for constraint in rules for rule in constraint.rules]
    return None if number == KEPT else f"{found[number].field}: {found[number].text}"


@pytest.mark.parametrize(
    ("tile", "rule"),
    [
        (HopperTile(5, 64, 2), "block[0]: it is a multiple of 64 up to 256"),
        (HopperTile(1, 12, 2), "block[1]: columns of f16 are 8 to 256"),
        (HopperTile(4, 256, 2), "block[1]: so many sums"),
        (HopperTile(1, 64, 2, cluster=3), "cluster: clusters"),
        (HopperTile(1, 8, 2, cluster=2), "cluster: clusters"),
        (HopperTile(1, 64, 1), "stages: a pipeline has at least 2"),
    ],
)
def test_broken_rules_are_named(tile, rule):
    """Every rule of a tile is found broken, and said."""
    assert rule in str(rule_of(tile, "k"))


def test_columns_that_are_contiguous_come_in_whole_panels():
    """wgmma's layouts of such a factor have 64 columns side by side, and no fewer."""
    assert "multiple of 64" in str(rule_of(HopperTile(1, 72, 2), "n"))
    assert rule_of(HopperTile(1, 72, 2), "k") is None
    problem = matmul(128, 72, 128)
    assert hopper_choice.choose(problem, "f16", "n", 132).columns % 64 == 0
