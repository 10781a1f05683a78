"""Each alignment rule by the cases of the paper, and each off when it is switched off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning import operators
from tilewright.compiler.tuning.roller import RULES, ConstructOptions
from tilewright.compiler.tuning.roller.alignment import (
    AXIS_RULES,
    TILE_RULES,
    Space,
    bank_padding,
    candidate_sizes,
    matrix_shape,
    memory_transaction,
    tensor_shape,
    vector_lanes,
    warps,
)
from tilewright.compiler.tuning.roller.device import Device


def space(workload: Workload, target: str = "v100", epsilon: float = 0.0, **options) -> Space:
    chosen = ConstructOptions(**options)
    device = Device.of(resolve(target), workload.inputs[0].dtype, chosen.matrix_unit)
    return Space(workload, device, chosen, epsilon)


def test_bank_padding_of_figure_5() -> None:
    # A [3, 4] tile in 4 banks, read by a [3, 1] tile: one element of padding.
    assert bank_padding(4, 1, banks=4) == 1


@pytest.mark.parametrize(
    ("leading", "read", "banks", "width", "expected"),
    [(32, 1, 32, 1, 1), (33, 1, 32, 1, 0), (32, 4, 32, 1, 4), (40, 4, 32, 1, 28), (64, 3, 32, 2, 4)],
)
def test_bank_padding(leading: int, read: int, banks: int, width: int, expected: int) -> None:
    assert bank_padding(leading, read, banks, width) == expected


@given(st.integers(1, 500), st.integers(1, 64), st.sampled_from([4, 16, 32]), st.sampled_from([1, 2]))
def test_padded_rows_start_where_the_last_read_ended(leading: int, read: int, banks: int, width: int) -> None:
    padding = bank_padding(leading, read, banks, width)
    assert 0 <= padding < banks * width
    assert (leading + padding - width * -(-read // width)) % (banks * width) == 0


def test_tensor_shape_bounds_waste_by_epsilon() -> None:
    sizes = np.asarray([7, 8, 11, 12, 16])
    assert tensor_shape(space(operators.matmul(64, 11, 8)), 1, 1, sizes).tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]
    # (S - N mod S) / N: 12 wastes 1 of 11, 7 wastes 3, 8 wastes 5, 16 wastes 5.
    loose = space(operators.matmul(64, 11, 8), epsilon=0.3)
    assert tensor_shape(loose, 1, 1, sizes).tolist() == [True, False, True, True, False]


def test_memory_transactions_are_whole() -> None:
    here = space(operators.matmul(64, 64, 64))
    sizes = np.asarray([4, 8, 12, 16])
    # 32 bytes are eight f32 along n (of B and C) and k (of A); m leads nothing.
    assert memory_transaction(here, 1, 1, sizes).tolist() == [False, True, False, True]
    assert memory_transaction(here, 1, 2, sizes).tolist() == [False, True, False, True]
    assert memory_transaction(here, 1, 0, sizes).all()
    assert memory_transaction(here, 0, 1, sizes).all()


def test_an_axis_shorter_than_a_transaction_is_taken_whole() -> None:
    here = space(operators.matmul(64, 64, 2))
    assert memory_transaction(here, 1, 2, np.asarray([1, 2])).tolist() == [False, True]


def test_transactions_are_the_device_s_own() -> None:
    sizes = np.asarray([8, 16])
    assert memory_transaction(space(operators.matmul(64, 64, 64), "mi50"), 1, 1, sizes).tolist() == [
        False,
        True,
    ]


def test_registers_of_a_cpu_hold_whole_vectors() -> None:
    here = space(operators.matmul(64, 64, 64), "x86-64-v4")
    assert here.vector_axis == 1
    assert vector_lanes(here, 0, 1, np.asarray([8, 16, 24, 32])).tolist() == [False, True, False, True]
    assert vector_lanes(here, 0, 0, np.asarray([3, 5])).all()
    assert vector_lanes(here, 1, 1, np.asarray([3, 5])).all()


def test_row_sums_run_along_rows() -> None:
    assert space(operators.reduction([64, 256], [1]), "x86-64-v4").vector_axis == 1


def test_blocks_fill_warps_on_all_schedulers() -> None:
    here = space(operators.matmul(64, 64, 64))
    threads = np.asarray([1, 4, 24, 32, 96, 128, 192, 256])
    assert warps(here, 1, threads).tolist() == [True, True, False, True, False, True, False, True]


def test_matrix_units_want_whole_instructions() -> None:
    here = space(operators.matmul(256, 256, 256, "f16"), matrix_unit=True)
    sizes = np.asarray([8, 16, 32, 40])
    for axis in range(3):
        assert matrix_shape(here, 0, axis, sizes).tolist() == [False, True, True, False]
    assert matrix_shape(space(operators.matmul(256, 256, 256)), 0, 0, sizes).all()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_functions_and_can_be_switched_off(rule: str) -> None:
    assert AXIS_RULES[rule] or rule in TILE_RULES or rule == "memory_bank"
    assert ConstructOptions(rules=frozenset(RULES) - {rule}).rules


def test_sizes_are_those_that_all_rules_allow() -> None:
    assert candidate_sizes(space(operators.matmul(64, 24, 64)), 1, 1, 1).tolist() == [8, 24]
    free = space(operators.matmul(64, 24, 64), rules=frozenset({"tensor_shape"}))
    assert candidate_sizes(free, 1, 1, 1).tolist() == [1, 2, 3, 4, 6, 8, 12, 24]
    assert candidate_sizes(space(operators.matmul(64, 24, 64), epsilon=0.4), 1, 1, 1).tolist() == [8, 16, 24]


def test_no_size_is_larger_than_the_first_that_covers_the_axis() -> None:
    assert candidate_sizes(space(operators.matmul(64, 20, 64), epsilon=1.0), 1, 1, 1).max() == 24


def test_a_rule_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown alignment rule `banks`; the rules are: memory_transaction"):
        ConstructOptions(rules=frozenset({"banks"}))
