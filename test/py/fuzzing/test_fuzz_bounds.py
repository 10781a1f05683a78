"""How far results may lie from eager PyTorch's: as far as a program leaves open, and no further."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from fuzz import gradients
from fuzz.bounds import difference
from fuzz.draw import _by_exporters
from fuzz.oracle import expected
from fuzz.program import Program, Statement
from fuzz_programs import bound_of, of, program


class TestBounds:
    def test_are_a_few_ulp_of_one_rounding(self) -> None:
        value, bound = bound_of(program("v0 = x0 + x0", x0=of("x0")))
        assert (bound <= 30 * 1.2e-7 * value.abs() + 1e-40).all()
        assert (bound >= 1e-7 * value.abs()).all()

    def test_grow_where_numbers_cancel(self) -> None:
        lines = ("v0 = x0.exp() * 1000", "v1 = v0 + 0.001", "v2 = v1 - v0")
        value, bound = bound_of(program(*lines, x0=of("x0")))
        assert (bound > 0.01 * value.abs()).all()

    def test_what_may_cancel_to_zero_is_compared_with_nothing_where_that_is_divided(self) -> None:
        lines = ("v0 = x0.exp() * 3", "v1 = v0 - x0.exp() - x0.exp() * 2", "v2 = v1 / v1")
        _, bound = bound_of(program(*lines, x0=of("x0", (40,))))
        assert bound.isnan().float().mean() > 0.5

    def test_sums_of_equal_terms_are_as_far_off_as_partial_sums(self) -> None:
        """Every step of such a sum is rounded the same way; here the terms of both signs cancel."""
        lines = ("v0 = torch.cat((x0, -x0)).expand(33, -1)", "v1 = v0.sum()")
        bound = bound_of(program(*lines, rounding="sum", x0=of("x0", (33,))))[1]
        largest = 66 * of("x0", (33,)).build(1).abs().sum()
        assert bound >= 1.2e-7 * largest
        assert bound <= 1.2e-6 * largest

    def test_zeros_of_either_sign_are_open_where_they_are_divided_by(self) -> None:
        for name, is_open in (("softshrink", True), ("threshold", False)):
            lines = (f"v0 = F.{name}(x0{'' if is_open else ', 0.5, 0.0'})", "v1 = 2.5 / v0")
            value, bound = bound_of(program(*lines, x0=of("x0", (40,))))
            assert value.isinf().any()
            assert bool(bound[value.isinf()].isnan().all()) == is_open

    def test_rests_of_what_is_near_a_multiple_may_be_zero(self) -> None:
        lines = ("v0 = (x0 * 7).round() * 0.1", "v1 = torch.remainder(v0, 0.1)", "v2 = v1 / v1")
        _, bound = bound_of(program(*lines, x0=of("x0", (40,))))
        assert bound.isnan().float().mean() > 0.5

    def test_rests_of_quotients_that_overflow_have_any_order(self) -> None:
        """Eager PyTorch takes them for NaN, in vectors."""
        lines = (
            "x0.sign().abs() * 1.7976e308",
            "torch.stack((v0, x0 * 0 - 1))",
            "torch.remainder(v1, x1 * 0 - 0.93)",
            "v2.argsort(0, True)",
        )
        rounding = ("exact", "exact", "once", "exact")
        made = tuple(Statement((f"v{n}",), *of_line) for n, of_line in enumerate(zip(lines, rounding)))
        inputs = (of("x0", (40,), "float64"), of("x1", (1,), "float64"))
        assert bound_of(Program(1, inputs, (), made, ("v3",)))[1].isnan().all()

    def test_functions_with_a_number_in_single_precision_bound_by_it(self) -> None:
        made = program("v0 = F.hardsigmoid(x0)", x0=of("x0", (40,), "float64"))
        wanted = gradients._expected(replace(made, path="grad"))
        assert wanted is not None
        bound = wanted[1].bound / wanted[1].value.abs()
        assert (bound[wanted[1].value != 0] > 1e-8).all()
        assert (bound[wanted[1].value != 0] < 1e-6).all()

    def test_gradients_whose_terms_cancel_are_as_uncertain_as_the_terms(self) -> None:
        for line, size in (("v0 = x0 / x0", 1.0), ("v0 = F.layer_norm(x0, (2,))", 0.1)):
            wanted = gradients._expected(replace(program(line, x0=of("x0", (50, 2))), path="grad"))
            assert wanted is not None
            assert wanted[1].bound.median() > size * 1e-7

    def test_gradients_of_what_may_be_anything_are_open(self) -> None:
        made = program("v0 = (x0 * 1e30).sum() * 0 + x0.sum()", rounding="sum", x0=of("x0", (5,)))
        wanted = gradients._expected(replace(made, path="grad"))
        assert wanted is not None

    def test_norms_weighed_by_infinity_are_open_in_kind(self) -> None:
        made = program("v0 = F.instance_norm(x0, weight=x1 / 0)", x0=of("x0", (2, 3, 9)), x1=of("x1", (3,)))
        assert bound_of(made)[1].isnan().float().mean() > 0.3

    @pytest.mark.parametrize(
        "call", ["torch.polygamma(1, {})", "torch.special.polygamma(1, {})", "{}.polygamma(1)"]
    )
    def test_poles_of_trigamma_are_open_in_kind(self, call: str) -> None:
        """Eager PyTorch has 1.3e15 for trigamma(-7) in single precision."""
        for dtype in ("float32", "int16"):
            x0 = of("x0", (60,), dtype, "integers")
            value, bound = bound_of(program(f"v0 = {call.format('x0')}", x0=x0))
            whole = x0.build(1)
            assert torch.equal(bound.isnan(), (whole < 0) | ((whole == 0) & ~value.isinf()))

    def test_poles_of_trigamma_are_open_where_roundings_move_off_them(self) -> None:
        """Where a statement's operands are disturbed, none of the runs is at the pole itself."""
        made = program("v0 = torch.polygamma(1, x0)", rounding="inside", x0=of("x0", (60,), fill="integers"))
        value, bound = bound_of(made)
        whole = made.build(1)["x0"]
        assert (whole < 0).any() and bound[whole < 0].isnan().all()
        assert bound[whole > 0].isfinite().all() and value.shape == whole.shape

    def test_either_zero_is_the_largest(self) -> None:
        lines = ("v0 = F.max_pool2d(x0 * 0, 2)", "v1 = torch.signbit(v0)")
        _, bound = bound_of(program(*lines, rounding="exact", x0=of("x0", (1, 4, 4))))
        assert bound.isnan().all()

    def test_what_is_no_number_has_either_sign(self) -> None:
        """Eager PyTorch's `fmod` of infinity has the sign bit set, or not, by its loop."""
        lines = ("x0 / 0", "torch.fmod(v0, 3)", "v1.view(torch.int32)")
        made = tuple(
            Statement((f"v{n}",), *of_line) for n, of_line in enumerate(zip(lines, ("once", "once", "bits")))
        )
        _, bound = bound_of(Program(1, (of("x0", (40,)),), (), made, ("v2",)))
        assert bound.isnan().all()

    def test_rounded_operands_may_lie_on_poles(self) -> None:
        made = program("v0 = (x0 * 0 - 8388608.577).lgamma()", x0=of("x0"))
        value, bound = bound_of(made)
        assert bound.isnan().all() and value.shape == (3, 4)

    def test_what_depends_on_order_may_be_large_and_finite(self) -> None:
        """Of sums that overflow or not, by their order, numbers are left that limits of infinities do not reach."""
        lines = ("x0.sign() * 1.7e308", "v0.sum(-1)", "v1.nan_to_num(0, 9, -9).clamp(-99, 99)")
        rounding = ("exact", "sum", "exact")
        made = tuple(Statement((f"v{n}",), *of_line) for n, of_line in enumerate(zip(lines, rounding)))
        assert bound_of(Program(1, (of("x0", (4, 6), "float64"),), (), made, ("v2",)))[1].min() >= 90

    def test_what_depends_on_order_may_be_zero(self) -> None:
        """`2**127 + 88 - 2**127` is 0 or 88, by its order; that it is no zero, in eager PyTorch, says nothing."""
        lines = ("x0.sign() * 1.7e308", "v0.sum(-1)", "torch.logical_not(v1)")
        rounding = ("exact", "sum", "exact")
        made = tuple(Statement((f"v{n}",), *of_line) for n, of_line in enumerate(zip(lines, rounding)))
        assert bound_of(Program(1, (of("x0", (4, 6), "float64"),), (), made, ("v2",)))[1].isnan().all()

    def test_integers_are_rounded_before_they_are_added(self) -> None:
        lines = ("v0 = x0 * torch.tensor([2**50, -(2**50), 1])", "v1 = v0.mean(dtype=torch.float32)")
        value, bound = bound_of(program(*lines, rounding="sum", x0=of("x0", (3,), "int64", "ones")))
        assert value.dtype == torch.float32 and bound > 1e7

    def test_queries_that_are_no_numbers_are_open_in_kind(self) -> None:
        """Eager PyTorch's fused attention gives 0 for some of them, where its formula has NaN."""
        made = program(
            "v0 = F.scaled_dot_product_attention(x0 * (0 * inf), x1, x1, is_causal=True)",
            x0=of("x0", (1, 2, 3, 8)),
            x1=of("x1", (1, 2, 5, 8)),
        )
        value, bound = bound_of(made)
        assert torch.all(value.isnan() | bound.isnan())

    def test_masked_infinite_scores_are_open_in_kind(self) -> None:
        """Eager PyTorch adds the mask to them where keys are strided, and has NaN; its fused attention has none."""
        made = program(
            "v0 = F.scaled_dot_product_attention(x0, (x1 + x1.new_tensor([0, 0, 0, 0, inf])).mT, x2, is_causal=True)",
            x0=of("x0", (1, 2, 3, 8)),
            x1=of("x1", (1, 2, 8, 5)),
            x2=of("x2", (1, 2, 5, 8)),
        )
        value, bound = bound_of(made)
        assert value.isnan().all() and bound.isnan().all()

    def test_reductions_of_what_no_integer_is_are_open(self) -> None:
        """Eager PyTorch's product of infinities as bytes is 0 here and 255 there."""
        for factor, is_open in (("inf", True), ("0", False)):
            lines = (f"v0 = x0.abs() * {factor}", "v1 = v0.prod(0, dtype=torch.uint8)")
            _, bound = bound_of(program(*lines, rounding="exact", x0=of("x0", (3, 4))))
            assert bound.isnan().all() if is_open else not bound.any()

    def test_divisors_of_the_smallest_number_have_either_sign(self) -> None:
        """It has no magnitude in its own type: eager PyTorch has -2 for -128 and 6."""
        for number, is_open in ((-128, True), (-127, False)):
            lines = (f"v0 = x0 * 0 + ({number})", "v1 = v0.to(torch.int8)", "v2 = torch.gcd(v1, v1 * 0 + 6)")
            _, bound = bound_of(program(*lines, rounding="exact", x0=of("x0")))
            assert bound.isnan().all() if is_open else not bound.any()

    def test_exporters_compute_softmax_in_the_type_of_the_operand(self) -> None:
        line = "v0 = F.softmax(x0 * 0, -1, dtype=torch.float32)"
        made = program(line, rounding="sum", x0=of("x0", dtype="float16"))
        value, exact = bound_of(made)
        _, exported = bound_of(replace(made, path="onnx"))
        assert value.dtype == torch.float32
        assert (exact < 1e-5 * value).all()
        assert ((exported > 2e-4 * value) & (exported < 3e-2 * value)).all()

    def test_terms_that_cancel_in_place_bound_what_is_left(self) -> None:
        made = program("v0 = x0 / x0", "v1 = v0 / 2", rounding="exact", x0=of("x0"))
        write = Statement((), "v0.addcmul_(v1, v1, value=-4)", "sum")
        _, bound = bound_of(replace(made, statements=(*made.statements, write), outputs=("v0",)))
        assert (bound > 1e-7).all()
        assert (bound < 1e-5).all()

    @pytest.mark.parametrize("name", ["log1p", "expm1"])
    @pytest.mark.parametrize(("dtype", "eps"), [("float32", 1.2e-7), ("float64", 2.3e-16)])
    def test_exporters_add_one_and_take_one(self, name: str, dtype: str, eps: float) -> None:
        made = program(f"v0 = torch.{name}(x0 * 1e-4)", x0=of("x0", dtype=dtype))
        _, bound = bound_of(replace(made, statements=tuple(map(_by_exporters, made.statements))))
        assert (bound > eps / 2).all()
        assert (bound < 40 * eps).all()

    @pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
    def test_logarithms_of_sums_bound_by_their_largest_term(self, name: str) -> None:
        half = {"logaddexp": -0.6931472, "logaddexp2": -1.0}[name]
        made = program(f"v0 = torch.{name}(torch.full_like(x0, {half}), x0 * 0 + {half})", x0=of("x0"))
        _, bound = bound_of(made)
        assert bound.median() > 6e-8
        assert (bound < 1e-5).all()

    @pytest.mark.parametrize(("low", "high", "steps"), [(-1, 1, 7), (-3, 3, 15), (0, 5, 6)])
    def test_even_steps_are_as_far_off_as_the_end_that_they_are_taken_from(
        self, low: int, high: int, steps: int
    ) -> None:
        """Eager PyTorch has 5.6e-17 in the middle of -1 and 1, which is 0."""
        value, bound = bound_of(
            program(f"v0 = torch.linspace({low}, {high}, {steps}, dtype=torch.float64)", x0=of("x0"))
        )
        exact = torch.tensor(
            [float(low + Fraction(high - low) * i / (steps - 1)) for i in range(steps)], dtype=torch.float64
        )
        assert ((value - exact).abs() <= bound).all()
        assert (bound > 2.3e-16 * high).all()
        assert (bound < 40 * 2.3e-16 * high).all()

    @pytest.mark.parametrize(("dtype", "eps"), [("float32", 1.2e-7), ("float64", 2.3e-16)])
    @pytest.mark.parametrize("call", ["F.log_softmax(v0, 1)[:, 0]", "torch.logsumexp(v0, 1)"])
    def test_logarithms_of_sums_near_one_bound_by_the_sum(self, call: str, dtype: str, eps: float) -> None:
        lines = ("v0 = torch.cat((x0[:, :1] * 0, x0[:, 1:] * 0 - 9), 1)", f"v1 = {call}")
        made = program(*lines, rounding="exact", x0=of("x0", (30, 3), dtype))
        made = replace(made, statements=(made.statements[0], replace(made.statements[1], rounding="sum")))
        _, bound = bound_of(made)
        assert bound.median() > eps
        assert (bound < 40 * eps).all()

    def test_bits_of_zeros_that_arithmetic_made_are_open(self) -> None:
        made = program("v0 = F.softshrink(x0)", x0=of("x0", (60,)))
        read = Statement(("v1",), "v0.view(torch.int32)", "bits")
        value, bound = bound_of(replace(made, statements=(*made.statements, read), outputs=("v1",)))
        zero = (value & 0x7FFFFFFF) == 0
        assert zero.any()
        assert bound[zero].isnan().all()
        given = replace(
            program("v0 = x0.view(torch.int32)", rounding="bits", x0=of("x0", (60,), fill="special"))
        )
        assert (bound_of(given)[1] == 0).all()

    def test_integers_are_exact(self) -> None:
        _, bound = bound_of(program("v0 = x0 * 3", x0=of("x0", dtype="int32", fill="special")))
        assert (bound == 0).all()

    def test_leave_out_what_rounding_decides(self) -> None:
        _, bound = bound_of(program("v0 = x0 * 3 / 3", "v1 = v0 == x0", x0=of("x0")))
        assert bound.isnan().any()

    def test_leave_out_casts_of_what_does_not_fit(self) -> None:
        lines = ("v0 = x0.to(torch.int8)", "v1 = v0 * 2")
        value, bound = bound_of(program(*lines, x0=of("x0", (200,), fill="special")))
        assert bound.isnan().any()
        assert not bound[value == 2].isnan().any()

    def test_leave_out_sums_that_overflow_on_the_way(self) -> None:
        made = program("v0 = x0.sum()", rounding="sum", x0=of("x0", (60,), fill="finite"))
        _, bound = bound_of(made)
        assert bound.isnan().all()

    def test_know_nan_from_numbers(self) -> None:
        made = program("v0 = x0 + 1", x0=of("x0", (64,), fill="special"))
        want = expected(made, lambda: made.build(made.seed))[0]
        assert difference(want.value, want) is None
        assert difference(torch.nan_to_num(want.value), want) is not None
        assert difference(want.value.double(), want) == "dtype torch.float64, eager torch.float32"
        assert difference(want.value[:3], want) == "shape (3,), eager (64,)"

    def test_runs_in_float64_write_to_tensors_of_their_own(self) -> None:
        made = program("v0 = x0.add_(1)", x0=of("x0", dtype="float64", fill="normal"))
        assert torch.equal(bound_of(made)[0], made.build(made.seed)["x0"] + 1)

    def test_count_every_write_once(self) -> None:
        """A running mean in float64, where eager's memory must not be that of the other runs."""
        lines = ("v0 = F.batch_norm(x0, x1, x2, None, None, True)",)
        inputs = {"x0": of("x0", (6, 2), "float64"), "x1": of("x1", (2,), "float64")}
        made = program(*lines, rounding="sum", **inputs, x2=of("x2", (2,), "float64", "positive"))
        tensors = made.build(made.seed)
        mean = 0.9 * tensors["x1"] + 0.1 * tensors["x0"].mean(0)
        want = expected(made, lambda: made.build(made.seed))[2]
        torch.testing.assert_close(want.value, mean)
        assert (want.bound < 1e-12).all()
