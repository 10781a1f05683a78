"""Schedules survive the trip through the IR's text, and what does not fit a dispatch is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.reduction_blocks import ORDERS
from tilewright.compiler.nouns.schedule import ATTRIBUTE, KERNELS, PREDICTED, GpuTile, Reduction, Schedule

sizes = st.integers(0, 2**40)
_ALIVE: list[ir.Module] = []
"""An operation dies with its module."""

levels = st.integers(1, 4).flatmap(
    lambda axes: st.dictionaries(
        st.sampled_from(["L1", "L2", "L3", "registers", "shared"]),
        st.lists(st.integers(1, 2**40), min_size=axes, max_size=axes).map(tuple),
    )
)
positive = st.integers(1, 4096)
gpu_tiles = st.builds(
    GpuTile,
    kernel=st.sampled_from(("", *KERNELS)),
    threads=st.integers(0, 32).map(lambda warps: 32 * warps),
    block=st.just(()) | st.tuples(positive, positive) | st.tuples(positive, positive, positive),
    warp=st.just(()) | st.tuples(positive, positive),
    thread=st.just(()) | st.tuples(positive, positive),
    instruction=st.sampled_from(["", "mma.m16n8k16", "wgmma.m64n256k8.tf32"]),
    stages=st.integers(0, 8),
    split_k=st.integers(0, 64),
    padding=st.integers(0, 16),
)
reductions = st.builds(
    Reduction, st.just("products"), st.tuples(positive, positive), sizes, st.sampled_from(ORDERS)
) | st.builds(Reduction, st.just("along"), st.tuples(positive, positive, positive))
schedules = st.builds(
    Schedule,
    st.lists(sizes, max_size=6).map(tuple),
    sizes,
    sizes,
    levels.map(lambda found: tuple(found.items())),
    st.none() | gpu_tiles,
) | st.builds(
    Schedule,
    st.lists(sizes, max_size=6).map(tuple),
    reductions=st.lists(reductions, min_size=1, max_size=3).map(tuple),
)


def dispatch(attributes: str = "") -> ir.Operation:
    """A dispatch on tensors [8, 4], with attributes as text."""
    text = f"func.func private @d(%x: tensor<8x4xf32>) -> tensor<8x4xf32> attributes {{{attributes}}} {{ return %x : tensor<8x4xf32> }}"
    return first_function(text)


def first_function(text: str) -> ir.Operation:
    module = parse(text)
    _ALIVE.append(module)
    return next(functions(module))


@given(schedules)
def test_dictionaries_round_trip(schedule):
    assert Schedule.from_dict(schedule.as_dict()) == schedule


@given(schedules)
def test_attributes_round_trip_through_text(schedule):
    function = dispatch()
    with function.context:
        schedule_attribute.write(function, schedule)
    again = first_function(str(function))
    assert schedule_attribute.read(again) == schedule


@given(st.floats(0, 1e9), st.sampled_from(["compute", "L2"]))
def test_predictions_round_trip_through_text(us, bound):
    function = dispatch()
    assert schedule_attribute.read_prediction(function) is None
    with function.context:
        schedule_attribute.write_prediction(function, us, bound)
    assert schedule_attribute.read_prediction(first_function(str(function))) == (us, bound)


@pytest.mark.parametrize(
    "attribute", ["3", "{}", "{us = 1.0}", '{us = "1", bound = "L2"}', "{us = 1.0, bound = 2}"]
)
def test_a_prediction_of_another_form_is_none(attribute):
    assert schedule_attribute.read_prediction(dispatch(f"{PREDICTED} = {attribute}")) is None


def test_a_dispatch_without_one_has_none():
    assert schedule_attribute.read(dispatch()) is None


def test_a_schedule_without_a_gpu_says_nothing_of_one():
    """The text of CPU kernels, which their cache keys hash, is as it was."""
    assert Schedule((2, 0), 3, 8).as_dict() == {"tile": [2, 0], "unroll": 3, "vector": 8}
    function = dispatch()
    schedule_attribute.write(function, Schedule((2, 0)))
    assert "gpu" not in str(function.attributes[ATTRIBUTE])


def test_the_text_names_what_a_kernel_is_built_from():
    tile = GpuTile("mma", 128, (128, 128, 32), (64, 64), instruction="mma.m16n8k16", stages=4, split_k=2)
    assert Schedule(gpu=tile).text() == (
        "mma.m16n8k16 128x128x32, warps 64x64, 4 stages, split K by 2, 128 threads"
    )
    rows = Schedule((4, 0), gpu=GpuTile("rows", 256, vector=4))
    assert rows.text() == "tile [4, 0], rows, 4 per access, 256 threads"
    assert Schedule((0, 0)).text() == "whole"


def test_fields_left_out_are_left_to_the_lowering():
    assert schedule_attribute.read(dispatch(f"{ATTRIBUTE} = {{}}")) == Schedule()
    assert schedule_attribute.read(dispatch(f"{ATTRIBUTE} = {{tile = [2, 0]}}")) == Schedule((2, 0), 0, 0)
    assert schedule_attribute.read(dispatch(f"{ATTRIBUTE} = {{vector = 16 : i32}}")) == Schedule((), 0, 16)


@pytest.mark.parametrize(
    "attribute, found",
    [
        ("[8, 0]", "must be a dictionary, found [8, 0]"),
        (
            "{tiles = [8]}",
            "unknown field `tiles`; a schedule has tile, unroll, vector, levels, gpu, reductions, stream and prefetch",
        ),
        ("{tile = 8}", "tile is a list of integers >= 0"),
        ('{tile = "8"}', "tile is a list of integers >= 0"),
        ("{tile = [8.0]}", "tile is a list of integers >= 0"),
        ("{tile = [[8]]}", "tile is a list of integers >= 0"),
        ("{tile = [true]}", "tile is a list of integers >= 0"),
        ("{tile = [8, -1]}", "tile is a list of integers >= 0"),
        ("{tile = [8], unroll = [2]}", "unroll is an integer >= 0"),
        ("{tile = [8], vector = -16}", "vector is an integer >= 0"),
        ("{unroll = true}", "unroll is an integer >= 0"),
        ("{vector = 16.0}", "vector is an integer >= 0"),
        ("{levels = [8]}", "levels is a dictionary of tiles by memory level"),
        ("{levels = {L1 = 8}}", "the tile of level L1 is a list of integers >= 1"),
        ("{levels = {L1 = [0]}}", "the tile of level L1 is a list of integers >= 1"),
        ("{levels = {L1 = [8], L2 = [8, 8]}}", "tiles of levels have one size per axis"),
        ("{gpu = 3}", "gpu is a dictionary, found 3"),
        ("{gpu = {blocks = [8, 8]}}", "unknown field `blocks` of gpu; it has kernel, threads, block, warp,"),
        ("{gpu = {block = 8}}", "gpu.block is a list of integers >= 1, found 8"),
        ("{gpu = {block = [8, 0]}}", "gpu.block is a list of integers >= 1"),
        ("{gpu = {block = [8, 8, 8, 8]}}", "gpu.block has 1 or 2 or 3 sizes, found [8, 8, 8, 8]"),
        ("{gpu = {warp = [8, 8, 8]}}", "gpu.warp has 2 sizes, found [8, 8, 8]"),
        ("{gpu = {kernel = 8}}", "gpu.kernel is a string, found 8"),
        ('{gpu = {kernel = "wmma"}}', 'gpu.kernel is "wmma"; the kernels are simt, mma, wgmma,'),
        ("{gpu = {threads = 48}}", "gpu.threads is a multiple of 32 and at most 1024, found 48"),
        ("{gpu = {threads = 2048}}", "gpu.threads is a multiple of 32 and at most 1024, found 2048"),
        ("{gpu = {stages = -1}}", "gpu.stages is an integer >= 0, found -1"),
    ],
)
def test_malformed_ones_are_refused_with_their_place(attribute, found):
    with pytest.raises(ScheduleError) as refused:
        schedule_attribute.read(dispatch(f"{ATTRIBUTE} = {attribute}"))
    assert "@d" in str(refused.value)
    assert found in str(refused.value)
    assert refused.value.location is not None


@pytest.mark.parametrize(
    "schedule, rule",
    [
        (Schedule((4, 4, 4)), "it tiles 3 loops, the sink has 2"),
        (Schedule((4, 2)), "loop 1 is a reduction"),
        (Schedule((9, 0)), "tile 9 of loop 0 exceeds its extent 8"),
    ],
)
def test_illegal_ones_are_refused(schedule, rule):
    with pytest.raises(ScheduleError, match="dispatch @d: illegal schedule") as refused:
        schedule_attribute.check(dispatch(), schedule, (8, 4), ["parallel", "reduction"])
    assert rule in refused.value.reason


@pytest.mark.parametrize("schedule", [Schedule(), Schedule((8,)), Schedule((3, 0)), Schedule((0, 0), 7, 9)])
def test_legal_ones_pass(schedule):
    schedule_attribute.check(dispatch(), schedule, (8, 4), ["parallel", "reduction"])


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), max_size=4))
def test_the_number_of_tasks(loops):
    """As many as starting points, loop by loop."""
    extents = tuple(extent for extent, _ in loops)
    tile = tuple(min(size, extent) for extent, size in loops)
    expected = 1
    for extent, size in zip(extents, tile):
        expected *= len(range(0, extent, size)) if size else 1
    assert Schedule(tile).num_tasks(extents) == expected
