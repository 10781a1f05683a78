"""Register tiles fit the registers, keep to the blocks of packed operands, and grow with the machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.nouns.register_tiles import RegisterTile, divisors, packed_widths
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cpu.register_tile import (
    VECTOR_LOAD,
    Panel,
    choose_packing,
    choose_register_tile,
    dot_tiles,
    rows_in_one_set,
    vector_load,
)
from tilewright.compiler.tuning.model.overlap import exposed

extents = st.integers(1, 4096)
lane_counts = st.sampled_from([2, 4, 8, 16, 32])
register_counts = st.integers(4, 64)


def registers_needed(unroll: int, vector: int, lanes: int) -> int:
    """Accumulators, the vector operand, and one register to broadcast the other operand into."""
    vectors = -(-vector // lanes)
    return unroll * vectors + vectors + 1


@given(extents, extents, lane_counts, register_counts)
def test_never_takes_more_registers_than_there_are(rows, columns, lanes, registers):
    tile = choose_register_tile(rows, columns, lanes, registers)
    assert 1 <= tile.unroll <= rows
    assert 1 <= tile.vector <= columns
    assert registers_needed(tile.unroll, tile.vector, lanes) <= registers


@given(extents, st.integers(1, 512), lane_counts, register_counts)
def test_keeps_inside_the_blocks_of_a_packed_operand(rows, block, lanes, registers):
    widths = packed_widths(block, lanes)
    assert widths
    assert all(block % width == 0 for width in widths)
    tile = choose_register_tile(rows, block * 7, lanes, registers, widths)
    assert tile.vector in widths
    narrowest = registers_needed(1, widths[0], lanes)
    assert registers_needed(tile.unroll, tile.vector, lanes) <= max(registers, narrowest)


@given(extents, st.integers(2, 4096), lane_counts, register_counts)
def test_a_packing_divides_and_wastes_little(rows, columns, lanes, registers):
    tile = choose_packing(rows, columns, lanes, registers)
    if tile is None:
        return
    block = tile.vector
    assert columns % block == 0
    assert lanes <= block <= columns
    assert block / (-(-block // lanes) * lanes) >= 0.75
    assert registers_needed(1, block, lanes) <= registers


@given(lane_counts.map(lambda lanes: 64 * lanes), register_counts)
def test_round_shapes_are_packed(columns, registers):
    """A loop of 64 whole vectors can always be stored in blocks of whole vectors."""
    lanes = columns // 64
    tile = choose_packing(1024, columns, lanes, registers)
    assert tile is not None
    assert tile.vector % lanes == 0


def test_extents_without_a_good_divisor_are_not_packed():
    assert choose_packing(64, 509, 16, 32) is None  # a prime
    assert choose_packing(64, 2 * 17, 16, 32) is None  # 17 of 32 lanes would work
    assert choose_packing(64, 16, 16, 32) is None  # the operand is one block as it is


def test_a_block_too_wide_for_the_registers_is_not_packed():
    """122 = 2 x 61: eight AVX registers hold 61 columns, and eight more their accumulators, of sixteen."""
    assert choose_packing(64, 122, 8, 16) is None
    tile = choose_packing(64, 122, 8, 32)
    assert tile is not None and tile.vector == 61


def test_the_tiles_of_known_kernels():
    """On 16 AVX2 registers 4 x 24, as in oneDNN's f32 kernel; on 32 AVX-512 registers nearly all accumulate."""
    avx2 = choose_register_tile(1024, 1536, 8, 16)
    assert (avx2.unroll, avx2.vector) == (4, 24)
    avx512 = choose_register_tile(1000, 1536, 16, 32)
    assert 24 <= registers_needed(avx512.unroll, avx512.vector, 16) <= 32


@given(lane_counts, st.integers(11, 63))
def test_more_registers_load_less(lanes, registers):
    """Without remainders, the cost of loads per multiply-add never grows with the registers, once eight accumulate."""
    rows, columns = 27720, 27720 * lanes

    def loads(tile) -> float:
        vectors = tile.vector // lanes
        return (tile.unroll + VECTOR_LOAD * vectors) / (tile.unroll * vectors)

    fewer = choose_register_tile(rows, columns, lanes, registers)
    more = choose_register_tile(rows, columns, lanes, registers + 1)
    assert loads(more) <= loads(fewer)


@pytest.mark.parametrize("extent", [1, 2, 12, 97, 360, 4096])
def test_divisors_are_all_of_them(extent):
    assert divisors(extent) == [d for d in range(1, extent + 1) if extent % d == 0]


@given(extents, extents, st.integers(1, 300), register_counts, st.booleans())
def test_tiles_of_contiguous_reductions_fit_the_registers(rows, columns, steps, registers, reuses):
    tiles = dot_tiles(rows, columns, steps, registers, reuses)
    assert tiles and len(set(tiles)) == len(tiles)
    for tile in tiles:
        accumulators = tile.rows * tile.columns * tile.chains
        assert 1 <= tile.rows <= rows and 1 <= tile.columns <= columns
        assert tile.chains == 1 or tile.chains <= steps
        assert accumulators == 1 or accumulators + min(tile.rows, tile.columns) < registers


def test_a_single_contiguous_reduction_takes_turns_with_accumulators():
    assert dot_tiles(1, 1, 1000, 32, False)[0].chains == 8


def test_rows_that_share_a_set_of_the_cache_are_few():
    """Eight ways of 32 KiB, twelve of 48: two are left to what else is read."""
    zen4, xeon = resolve("x86-64-v4"), resolve("sapphire-rapids")
    assert rows_in_one_set(4096, zen4) == rows_in_one_set(3 * 4096, zen4) == 6
    assert rows_in_one_set(4096, xeon) == 10
    assert rows_in_one_set(2048, zen4) == 12
    assert rows_in_one_set(1024, zen4) is None
    assert rows_in_one_set(4096 + 64, xeon) is None
    assert choose_register_tile(1000, 1024, 16, 32, (32,), 6).unroll == 6


def test_vectors_cost_more_where_more_multiply_adds_pass_until_they_are_there():
    """Cores with two 512-bit units start 2.67 multiply-adds while L2 gives them a vector, others two."""
    assert [vector_load(resolve(name)) for name in ("x86-64-v3", "x86-64-v4")] == [VECTOR_LOAD, VECTOR_LOAD]
    load = vector_load(resolve("sapphire-rapids"))
    assert load == pytest.approx(VECTOR_LOAD * 4 / 3)
    widths = (32, 64)
    assert choose_register_tile(8, 256, 16, 32, widths) == RegisterTile(4, 64)
    assert choose_register_tile(8, 256, 16, 32, widths, vector_load=load) == RegisterTile(8, 32)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1))
def test_what_arrives_is_waited_for_but_for_the_first_part_of_the_work(compute, arrival, first):
    waited = exposed(compute, arrival, first)
    assert 0 <= waited <= arrival
    assert compute + exposed(compute, arrival, 1.0) == pytest.approx(max(compute, arrival))
    assert waited >= exposed(compute, arrival, 1.0)


def test_columns_that_come_from_far_are_narrow_and_met_by_many_rows():
    """196 rows by 256 columns of 256 steps. Measured on Zen 5: 420 GFLOP/s in tiles of 64 columns and 419 in 32 where weights are in the last cache, 464 and 484 with those of 160 such layers."""
    near = Panel(points=196, arrival=2.0, column_bytes=1024, own_bytes=1 << 20, overflow=3.0)
    far = Panel(points=196, arrival=22.0, column_bytes=1024, own_bytes=1 << 20, overflow=3.0)
    for panel, columns in ((near, 64), (far, 32)):
        tile = choose_packing(196, 256, 16, 32, panel=panel)
        assert tile is not None and tile.vector == columns


@given(st.integers(1, 400), st.sampled_from([256, 768, 1024]), st.integers(6, 16))
def test_panels_stay_in_the_cache_where_some_do(rows, columns, log_steps):
    """Six rows side by side, as where they lie multiples of a page apart: wider tiles would do more with them."""
    panel = Panel(rows, 0.0, 4 << log_steps, 1 << 20, 1e9)
    tile = choose_packing(rows, columns, 16, 32, 6, panel)
    assert tile is not None
    block = tile.vector
    assert block * panel.column_bytes <= panel.own_bytes or 16 * panel.column_bytes > panel.own_bytes


@pytest.mark.parametrize("target", [resolve(name) for name in ("x86-64-v3", "x86-64-v4", "sapphire-rapids")])
def test_weights_take_longer_to_come_from_memory_than_from_the_last_cache(target):
    near, far = (Panel.of(target, 49, 512, "f32", 4, in_memory) for in_memory in (False, True))
    assert near.arrival < far.arrival
    assert near.overflow == far.overflow >= 1
    assert near.own_bytes < target.memory[1].capacity_bytes
