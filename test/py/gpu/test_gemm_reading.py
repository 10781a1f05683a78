"""Dispatches read as matrix products: loops by group, strides, epilogues, and what is refused."""

from __future__ import annotations

import pytest
from gemm_dispatches import Case, convolution, matmul

from tilewright.compiler.families.contraction.problem import Contraction, NotContraction, read_contraction
from tilewright.compiler.ir import functions, parse


def read(case: Case | str) -> Contraction:
    module = parse(case if isinstance(case, str) else case.text())
    (function,) = functions(module)
    return read_contraction(function)


def loops(contraction: Contraction) -> list[tuple[int, str]]:
    return [(loop.extent, loop.group) for loop in contraction.loops]


def test_a_matmul_has_rows_columns_and_a_depth() -> None:
    contraction = read(matmul(7, 5, 3, epilogue="bias_relu"))
    assert loops(contraction) == [(7, "m"), (5, "n"), (3, "k")]
    assert [x.strides for x in contraction.accesses] == [(3, 0, 1), (0, 1, 5), (0, 1, 0), (5, 1, 0)]
    assert contraction.flops == 2 * 7 * 5 * 3


@pytest.mark.parametrize(("a", "b"), [("mk", "kn"), ("km", "kn"), ("mk", "nk"), ("km", "nk")])
def test_transposed_factors_have_other_strides(a: str, b: str) -> None:
    left, right = read(matmul(7, 5, 3, a, b)).accesses[:2]
    assert left.strides == ((3, 0, 1) if a == "mk" else (1, 0, 7))
    assert right.strides == ((0, 1, 5) if b == "kn" else (0, 3, 1))


def test_columns_are_what_the_result_is_contiguous_along() -> None:
    contraction = read(Case({"m": 7, "n": 5, "k": 3}, ("m", "k"), ("k", "n"), ("n", "m")))
    assert loops(contraction) == [(5, "m"), (7, "n"), (3, "k")]
    assert contraction.accesses[0].buffer == 1
    assert contraction.accesses[2].strides == (7, 1, 0)


def test_a_convolution_is_a_product_whose_window_rows_merge_with_channels() -> None:
    contraction = read(convolution(2, (5, 6), 4, 8, window=3))
    assert loops(contraction) == [(2, "m"), (5, "m"), (6, "m"), (8, "n"), (3, "k"), (12, "k")]
    assert contraction.accesses[0].strides == (7 * 8 * 4, 8 * 4, 4, 0, 8 * 4, 1)
    assert contraction.accesses[1].strides == (0, 0, 0, 1, 12 * 8, 8)


def test_a_pointwise_convolution_is_one_product_of_three_loops() -> None:
    assert loops(read(convolution(2, (5, 6), 4, 8, window=1))) == [(60, "m"), (8, "n"), (4, "k")]


def test_dilation_and_stride_keep_window_loops_apart() -> None:
    contraction = read(convolution(1, (5, 6), 4, 8, window=3, stride=2, dilation=2))
    assert loops(contraction) == [(5, "m"), (6, "m"), (8, "n"), (3, "k"), (3, "k"), (4, "k")]
    assert contraction.accesses[0].strides == (2 * 15 * 4, 2 * 4, 0, 2 * 15 * 4, 2 * 4, 1)


def test_groups_are_a_batch() -> None:
    contraction = read(convolution(1, (5, 6), 4, 8, groups=3))
    assert loops(contraction)[0] == (3, "batch")
    assert contraction.extent("m") == 30
    assert contraction.accesses[0].strides[0] == 4


def test_packed_factors_split_their_loops() -> None:
    case = Case(
        {"m": 6, "n": 8, "k": 12},
        ("m floordiv 2", "k", "m mod 2"),
        ("n floordiv 4", "k", "n mod 4"),
        ("m", "n"),
    )
    contraction = read(case)
    assert loops(contraction) == [(3, "m"), (2, "m"), (2, "n"), (4, "n"), (12, "k")]
    assert contraction.accesses[0].strides == (24, 1, 0, 0, 2)
    assert contraction.accesses[1].strides == (0, 0, 48, 1, 4)


def test_a_packed_loop_that_is_dense_after_all_is_one_loop() -> None:
    case = Case({"m": 6, "n": 8, "k": 12}, ("m floordiv 2", "m mod 2", "k"), ("k", "n"), ("m", "n"))
    assert loops(read(case)) == [(6, "m"), (8, "n"), (12, "k")]


def test_strides_of_buffers_count() -> None:
    contraction = read(matmul(7, 5, 3, strides={0: (11, 1), 2: (64, 1)}))
    assert contraction.accesses[0].strides == (11, 0, 1)
    assert contraction.accesses[2].strides == (64, 1, 0)
    assert contraction.buffers[0].span == 6 * 11 + 3


def test_vectors_need_alignment_of_buffers_rows_and_lengths() -> None:
    inner = 1
    assert read(matmul(7, 64, 8)).vector(1, inner) == 4
    assert read(matmul(7, 62, 8)).vector(1, inner) == 2
    assert read(matmul(7, 61, 8)).vector(1, inner) == 1
    assert read(matmul(7, 64, 8, strides={1: (66, 1)})).vector(1, inner) == 2
    assert read(matmul(7, 64, 8, alignments={1: 4})).vector(1, inner) == 1
    assert read(matmul(7, 64, 8, dtype="f16")).vector(1, inner) == 8


def test_widening_is_exact_other_conversions_are_kept() -> None:
    assert read(matmul(7, 5, 3, dtype="f16")).convert_a is None
    shifted = matmul(7, 5, 3, dtype="i8").text().replace(
        "%p = arith.muli %x1, %y1", "%c = arith.constant 3 : i32\n %x2 = arith.subi %x1, %c : i32\n %p = arith.muli %x2, %y1"
    )  # fmt: skip
    contraction = read(shifted)
    assert contraction.convert_a is not None
    assert contraction.convert_b is None


def test_depthwise_convolutions_are_for_another_family() -> None:
    case = Case(
        {"n": 1, "h": 4, "w": 4, "c": 8, "i": 3, "j": 3}, ("n", "h + i", "w + j", "c"), ("i", "j", "c"), ("n", "h", "w", "c")
    )  # fmt: skip
    with pytest.raises(NotContraction, match="depthwise"):
        read(case)


def test_a_division_of_a_sum_is_refused() -> None:
    case = Case({"m": 6, "n": 8, "k": 12}, ("(m + k) floordiv 2", "k"), ("k", "n"), ("m", "n"))
    with pytest.raises(NotContraction, match="no sum of loops, their quotients and remainders"):
        read(case)


def test_a_body_that_only_adds_is_refused() -> None:
    with pytest.raises(NotContraction, match=r"no sum of products|0 contractions"):
        read(matmul(6, 5, 4).text().replace("arith.addf %z, %p", "arith.maximumf %z, %p"))


def test_elements_gathered_by_the_epilogue_are_refused() -> None:
    text = matmul(6, 5, 4, epilogue="residual").text()
    gathered = text.replace(
        "%v = arith.addf %s, %e : f32",
        "%i = linalg.index 0 : index\n %g = tensor.extract %extra[%i, %i] : tensor<6x5xf32>\n %v = arith.addf %s, %g : f32",
    )
    with pytest.raises(NotContraction, match=r"tensor\.extract"):
        read(gathered)
