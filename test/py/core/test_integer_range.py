"""Ranges of integers hold every number that the operations give, and are as narrow as storing weights needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.analysis.integer_range import Range, range_of
from tilewright.compiler.ir import context, ir

Step = tuple[str, int]


def computed(steps: list[Step]) -> tuple[str, int]:
    """Lines that carry out steps on %v0, a byte, with a number each, and the width of the last value."""
    lines, width = [], 8
    for number, (name, operand) in enumerate(steps):
        if name in ("extui", "extsi"):
            lines.append(f"%v{number + 1} = arith.{name} %v{number} : i{width} to i{2 * width}")
            width *= 2
        elif name in ("slt", "sle", "sgt", "sge"):
            lines.append(f"%c{number} = arith.constant {operand} : i{width}")
            lines.append(f"%b{number} = arith.cmpi {name}, %v{number}, %c{number} : i{width}")
            lines.append(f"%m{number} = arith.addi %v{number}, %c{number} : i{width}")
            lines.append(f"%v{number + 1} = arith.select %b{number}, %m{number}, %v{number} : i{width}")
        else:
            lines.append(f"%c{number} = arith.constant {operand} : i{width}")
            lines.append(f"%v{number + 1} = arith.{name} %v{number}, %c{number} : i{width}")
    return "\n".join(lines), width


def found(steps: list[Step]) -> Range:
    lines, width = computed(steps)
    text = f"""
#id = affine_map<(i) -> (i)>
func.func @main(%x: tensor<4xi8>) -> tensor<4xi{width}> {{
  %e = tensor.empty() : tensor<4xi{width}>
  %y = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel"]}} ins(%x : tensor<4xi8>) outs(%e : tensor<4xi{width}>) {{
  ^bb0(%v0: i8, %o: i{width}):
    {lines}
    linalg.yield %v{len(steps)} : i{width}
  }} -> tensor<4xi{width}>
  return %y : tensor<4xi{width}>
}}"""
    with context():
        module = ir.Module.parse(text)
        *_, generic, _ = module.body.operations[0].regions[0].blocks[0].operations
        return range_of(generic.results[0])


def signed(values: np.ndarray, width: int) -> np.ndarray:
    values = values & (1 << width) - 1
    return values - ((values >> width - 1) << width)


COMPARISONS = {"slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal}
OTHERS = {"minsi": np.minimum, "maxsi": np.maximum, "muli": np.multiply}


def carried_out(steps: list[Step]) -> np.ndarray:
    """What the steps make of all bytes, as signed numbers."""
    values, width = signed(np.arange(256), 8), 8
    for name, operand in steps:
        unsigned = values & (1 << width) - 1
        if name == "extui":
            values, width = unsigned, 2 * width
        elif name == "extsi":
            width *= 2
        elif name == "shrui":
            values = unsigned >> operand
        elif name == "shrsi":
            values = values >> operand
        elif name in COMPARISONS:
            values = np.where(COMPARISONS[name](values, operand), values + operand, values)
        else:
            rule = {
                "andi": np.bitwise_and,
                "addi": np.add,
                "subi": np.subtract,
                "xori": np.bitwise_xor,
                **OTHERS,
            }[name]
            values = rule(values, operand)
        values = signed(values, width)
    return values


SHIFTS = st.tuples(st.sampled_from(["shrui", "shrsi"]), st.integers(0, 7))
NUMBERS = st.tuples(
    st.sampled_from(["andi", "addi", "subi", "xori", *OTHERS, *COMPARISONS]), st.integers(-128, 127)
)
WIDER = st.tuples(st.sampled_from(["extui", "extsi"]), st.just(0))


@given(
    st.lists(st.one_of(SHIFTS, NUMBERS, WIDER), min_size=1, max_size=6).filter(
        lambda s: sum("ext" in n for n, _ in s) < 3
    )
)
def test_every_number_is_within(steps: list[Step]) -> None:
    range_, values = found(steps), carried_out(steps)
    assert range_.low <= values.min() and values.max() <= range_.high


@pytest.mark.parametrize(
    ("steps", "low", "high"),
    [
        ([("andi", 15)], 0, 15),
        ([("shrui", 4)], 0, 15),
        ([("shrsi", 4)], -8, 7),
        ([("shrui", 4), ("subi", 8)], -8, 7),
        ([("extui", 0), ("subi", 8)], -8, 247),
        ([("andi", 3), ("extui", 0), ("extui", 0), ("subi", 2)], -2, 1),
        ([("subi", 1)], -128, 127),
        ([("maxsi", 0), ("minsi", 7)], 0, 7),
        ([("andi", 3), ("muli", -5)], -15, 0),
        ([("andi", 7), ("slt", 0)], 0, 7),
        ([("andi", 7), ("sle", 7)], 7, 14),
        ([("andi", 7), ("sgt", 7)], 0, 7),
        ([("andi", 7), ("sge", 1)], 0, 8),
    ],
)
def test_ranges_are_narrow(steps: list[Step], low: int, high: int) -> None:
    assert found(steps) == Range(low, high)


@pytest.mark.parametrize(
    ("low", "high", "bits"), [(0, 15, 4), (-8, 7, 4), (0, 16, 5), (-1, 8, 5), (-2, 1, 2), (0, 3, 2)]
)
def test_bits(low: int, high: int, bits: int) -> None:
    assert Range(low, high).fits(bits) and not Range(low, high).fits(bits - 1)


def chain(length: int) -> str:
    """A function that adds a tensor's elements to themselves, bit by bit, `length` times."""
    steps = "\n".join(
        f"""
  %y{n + 1} = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}} ins(%y{n}, %y{n} : tensor<4xi8>, tensor<4xi8>) outs(%e : tensor<4xi8>) {{
  ^bb0(%a: i8, %b: i8, %o: i8):
    %v = arith.andi %a, %b : i8
    linalg.yield %v : i8
  }} -> tensor<4xi8>"""
        for n in range(length)
    )
    return f"""
#id = affine_map<(i) -> (i)>
func.func @main(%y0: tensor<4xi8>) -> tensor<4xi8> {{
  %e = tensor.empty() : tensor<4xi8>{steps}
  return %y{length} : tensor<4xi8>
}}"""


@pytest.mark.parametrize("length", [64, 3000])
def test_what_is_read_along_many_paths_is_followed_once_and_not_forever(length: int) -> None:
    with context():
        module = ir.Module.parse(chain(length))
        *_, last, _ = module.body.operations[0].regions[0].blocks[0].operations
        assert range_of(last.results[0]) == Range(-128, 127)


@pytest.mark.parametrize(
    "made",
    [
        "linalg.fill ins(%three : i32) outs(%e : tensor<4xi32>) -> tensor<4xi32>",
        """linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%e : tensor<4xi32>) {
  ^bb0(%o: i32):
    linalg.yield %three : i32
  } -> tensor<4xi32>""",
    ],
)
def test_what_one_number_fills_is_that_number(made: str) -> None:
    text = f"""
func.func @main(%any: i32) -> tensor<4xi32> {{
  %e = tensor.empty() : tensor<4xi32>
  %three = arith.constant 3 : i32
  %y = {made}
  return %y : tensor<4xi32>
}}"""
    for known, expected in (
        (text, Range(3, 3)),
        (text.replace("%three :", "%any :"), Range(-(2**31), 2**31 - 1)),
    ):
        with context():
            module = ir.Module.parse(known)
            *_, filled, _ = module.body.operations[0].regions[0].blocks[0].operations
            assert range_of(filled.results[0]) == expected
