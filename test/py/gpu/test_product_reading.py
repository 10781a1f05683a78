"""Products read off workloads are those that kernels of contractions read off the IR."""

from __future__ import annotations

import pytest
from gemm_dispatches import Case, convolution, matmul

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.families.gpu import emitted_tiles
from tilewright.compiler.ir import functions
from tilewright.compiler.tuning.model.product import Product, read_product

CASES = {
    **{
        f"{a} {b} {dtype}": matmul(64, 48, 32, a, b, dtype=dtype)
        for a in ("mk", "km")
        for b in ("kn", "nk")
        for dtype in ("f32", "f16", "i8", "f64")
    },
    "odd with an epilogue": matmul(7, 5, 3, epilogue="bias_relu"),
    "bytes": matmul(33, 40, 64, "mk", "nk", dtype="i8"),
    "narrow": matmul(1, 64, 80),
    "one column": matmul(64, 1, 80, dtype="bf16", epilogue="gelu", result="bf16"),
    "strided": matmul(7, 64, 8, strides={1: (66, 1)}),
    "turned result": Case({"m": 7, "n": 5, "k": 3}, ("m", "k"), ("k", "n"), ("n", "m")),
    "batched": Case({"b": 3, "m": 16, "n": 8, "k": 12}, ("b", "m", "k"), ("b", "k", "n"), ("b", "m", "n")),
    "packed": Case(
        {"m": 6, "n": 8, "k": 12},
        ("m floordiv 2", "k", "m mod 2"),
        ("n floordiv 4", "k", "n mod 4"),
        ("m", "n"),
    ),
    "convolution": convolution(2, (5, 6), 4, 8),
    "convolution of halves": convolution(1, (8, 8), 64, 64, dtype="f16", epilogue="residual", result="f16"),
    "pointwise": convolution(2, (5, 6), 8, 8, window=1, dtype="f16"),
    "dilated": convolution(1, (5, 6), 4, 8, stride=2, dilation=2),
    "groups": convolution(1, (5, 6), 64, 8, groups=3, dtype="f16"),
}


def products(case: Case) -> tuple[Product | None, emitted_tiles.Product | None]:
    module = case.module()
    (function,) = functions(module)
    with function.context, function.location:
        return read_product(workload_of(function)), emitted_tiles.read_product(function)


@pytest.mark.parametrize("name", CASES)
def test_rows_columns_sums_and_accesses_are_those_of_kernels(name: str) -> None:
    found, emitted = products(CASES[name])
    assert found is not None and emitted is not None
    assert found.gemm == emitted.gemm


def test_factors_say_which_operand_they_are() -> None:
    found, _ = products(CASES["turned result"])
    assert found is not None
    # Columns are what the result is contiguous along: A is the second operand.
    assert [factor.operand.name for factor in found.factors] == ["in1", "in0"]
    assert [factor.along_k for factor in found.factors] == [False, True]


def test_a_factor_that_is_computed_is_told() -> None:
    text = CASES["bytes"].text().replace(
        "%p = arith.muli %x1, %y1", "%c = arith.constant 3 : i32\n %x2 = arith.subi %x1, %c : i32\n %p = arith.muli %x2, %y1"
    )  # fmt: skip

    class Shifted(Case):
        def text(self) -> str:
            return text

    case = CASES["bytes"]
    found, emitted = products(Shifted(case.loops, case.a, case.b, case.out, case.dtype))
    assert found is not None and emitted is not None
    assert [factor.converted for factor in found.factors] == [True, False]
    assert found.gemm == emitted.gemm and not found.gemm.matrix


def test_what_only_adds_is_no_product() -> None:
    text = matmul(6, 5, 4).text().replace("arith.addf %z, %p", "arith.maximumf %z, %p")

    class Largest(Case):
        def text(self) -> str:
            return text

    found, emitted = products(Largest({"m": 6, "n": 5, "k": 4}, ("m", "k"), ("k", "n"), ("m", "n")))
    assert found is None and emitted is None
