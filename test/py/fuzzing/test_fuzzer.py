"""The fuzzer itself: its programs are the same everywhere, and what is wrong is noticed and made small."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import pytest
import torch
from fuzz import execution, gradients, paths
from fuzz.cli import main
from fuzz.draw import PATHS, _by_exporters, draw
from fuzz.forms import written
from fuzz.generator import Growth, NoFit
from fuzz.minimise import minimise
from fuzz.oracle import difference, expected
from fuzz.outcome import Outcome
from fuzz.program import CONTAINERS, Program, Statement
from fuzz.tensors import DTYPES, LAYOUTS, Tensor, placed, values

from tilewright.runtime.model import CompiledModel

FUZZ = Path(__file__).parents[2] / "fuzz"


def program(*lines: str, rounding: str = "once", **inputs: Tensor) -> Program:
    """A program of lines `v0 = ...`, returning what the last one makes."""
    parts = [line.partition(" = ") for line in lines]
    statements = [Statement((target,), source, rounding) for target, _, source in parts]
    return Program(1, tuple(inputs.values()), (), tuple(statements), (parts[-1][0],))


def of(name: str, shape: tuple[int, ...] = (3, 4), dtype: str = "float32", fill: str = "normal") -> Tensor:
    return Tensor(name, shape, dtype, fill)


def bound_of(made: Program) -> tuple[torch.Tensor, torch.Tensor]:
    want = expected(made, lambda: made.build(made.seed))[0]
    return want.value, want.bound


class TestDrawing:
    def test_a_seed_is_the_same_program_in_every_process(self) -> None:
        seeds = range(40)
        code = f"import sys; sys.path[0] = {str(FUZZ.parent)!r}\nfrom fuzz.draw import draw\nfor s in {list(seeds)}: print(draw(s))"
        found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        assert found.stdout.splitlines() == [str(draw(seed)) for seed in seeds]

    def test_programs_are_plain_data(self) -> None:
        for seed in range(40):
            made = draw(seed)
            assert pickle.loads(pickle.dumps(made)) == made

    def test_programs_that_make_nothing_return_what_they_are_given(self) -> None:
        for seed in range(40):
            growth = Growth(seed)
            growth.inputs.append(Tensor("x0", (2,), "float32"))
            assert set(growth.program("compile").outputs) == {"x0"}

    def test_every_path_is_drawn(self) -> None:
        assert {draw(seed).path for seed in range(150)} == set(PATHS)

    @pytest.mark.parametrize("seed", range(12))
    def test_scripts_repeat_inputs(self, seed: int) -> None:
        made = replace(draw(seed), path="compile")
        lines = made.script().split("\ng = ")[0]
        names: dict = {}
        exec(lines.replace("import tilewright", ""), names)
        for tensor in made.inputs:
            built = made.build(made.seed)[tensor.name]
            if built.untyped_storage().nbytes() <= 512 * built.itemsize:
                assert names[tensor.name].stride() == built.stride() or built.numel() < 2
                torch.testing.assert_close(names[tensor.name], built, rtol=0, atol=0, equal_nan=True)


class TestForms:
    @pytest.mark.parametrize(
        "name", ["numbers", "rearranged", "statistics", "layers", "special", "apart", "sampled"]
    )
    def test_every_form_finds_operands(self, name: str) -> None:
        module = import_module(f"fuzz.operators_{name}")
        tables = [
            value
            for key, value in vars(module).items()
            if key[0] == "_" and key[1:].isupper() and not isinstance(value, str)
        ]
        assert tables
        for table in tables:
            for forms in table.values() if isinstance(table, dict) else [table]:
                for form in forms:
                    assert any(fits(form, seed) for seed in range(40)), form

    def test_a_place_is_filled_by_what_it_names(self) -> None:
        growth = Growth(1)
        first, second = re.split(" [-+] ", written(growth, "{float22} <+|-> {like}"))
        assert growth.values[first].is_floating_point()
        assert growth.values[first].dim() == 2
        assert growth.values[first].dtype == growth.values[second].dtype
        at = growth.values[written(growth, "{at:2,3;5}")]
        assert at.shape == (2, 3)
        assert at.dtype == torch.int64
        assert 0 <= int(at.min()) <= int(at.max()) < 5


def fits(form: str, seed: int) -> bool:
    growth = Growth(seed)
    try:
        growth.emit(written(growth, form), results=None)
    except NoFit:
        return False
    return True


class TestTensors:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (2, 3, 4, 5), (3, 0, 2)])
    def test_layouts_keep_the_shape_and_the_values(self, layout: str, shape: tuple[int, ...]) -> None:
        dense = values(shape, "float32", "normal", torch.Generator().manual_seed(1))
        found = placed(dense, layout)
        wanted = dense[:1].expand(shape) if layout == "expanded" and shape and shape[0] > 1 else dense
        assert torch.equal(found, wanted)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_special_values_hold_the_extremes(self, dtype: str) -> None:
        found = values((4000,), dtype, "special", torch.Generator().manual_seed(1))
        if found.is_floating_point():
            info = torch.finfo(found.dtype)
            assert found.isnan().any()
            assert found.isinf().any()
            assert ((found.abs() < info.smallest_normal) & (found != 0)).any()
            assert (found == info.max).any()
        elif found.dtype != torch.bool:
            info = torch.iinfo(found.dtype)
            assert (found == info.min).any()
            assert (found == info.max).any()


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

    def test_rests_of_what_is_near_a_multiple_may_be_zero(self) -> None:
        lines = ("v0 = (x0 * 7).round() * 0.1", "v1 = torch.remainder(v0, 0.1)", "v2 = v1 / v1")
        _, bound = bound_of(program(*lines, x0=of("x0", (40,))))
        assert bound.isnan().float().mean() > 0.5

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


class TestNoticing:
    """A compiler that is eager PyTorch with a fault."""

    def outcome(self, monkeypatch: pytest.MonkeyPatch, made: Program, fault) -> Outcome:
        monkeypatch.setitem(paths.COMPILERS, "compile", lambda function, args: fault(function))
        return execution.run(made)

    def test_right_results(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = program("v0 = x0.exp()", x0=of("x0"))
        assert self.outcome(monkeypatch, made, lambda f: f).kind == "ok"

    @pytest.mark.parametrize(
        "fault",
        [
            lambda f: lambda x: (f(x)[0] * 1.001,),
            lambda f: lambda x: (f(x)[0].flip(0),),
            lambda f: lambda x: (f(x)[0].double(),),
            lambda f: lambda x: (f(x)[0][:1],),
            lambda f: lambda x: (f(x)[0], x),
            lambda f: lambda x: (x.copy_(f(x)[0]),),
            lambda f: lambda x: f(x.add_(1)),
        ],
        ids=["values", "order", "dtype", "shape", "results", "memory", "mutation"],
    )
    def test_wrong_results(self, monkeypatch: pytest.MonkeyPatch, fault) -> None:
        made = program("v0 = x0.exp()", x0=of("x0"))
        assert self.outcome(monkeypatch, made, fault).kind == "wrong"

    @pytest.mark.parametrize("container", CONTAINERS)
    def test_other_containers(self, monkeypatch: pytest.MonkeyPatch, container: str) -> None:
        made = replace(program("v0 = x0.exp()", x0=of("x0")), container=container, keywords=True)
        assert self.outcome(monkeypatch, made, lambda f: f).kind == "ok"
        found = self.outcome(monkeypatch, made, lambda f: lambda x0: {"other": f(x0)})
        assert found.kind == "wrong"

    def test_a_second_call_that_is_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def remembering(function):
            first: list = []
            return lambda x: first.append(function(x)) or first[0]

        found = self.outcome(monkeypatch, program("v0 = x0.exp()", x0=of("x0")), remembering)
        assert found.kind == "wrong"
        assert found.detail.startswith("second call")

    @pytest.mark.parametrize("path", ["compile", "torch.compile"])
    def test_what_a_copy_of_the_example_lets_write(self, path: str) -> None:
        transposed = replace(of("x0", (4, 6)), layout="transposed")
        made = program("v0 = x0.reshape(-1)", "v1 = v0.mul_(2)", rounding="exact", x0=transposed)
        assert execution.run(replace(made, path=path)).kind == "ok"

    @pytest.mark.parametrize("call", ["torch.median(x0, 0)[0]", "x0.nanmedian(-2, True)[0]"])
    def test_medians_of_what_repeats_elements(self, call: str) -> None:
        repeated = replace(of("x0", (3, 4)), layout="expanded")
        assert execution.run(program(f"v0 = {call}", rounding="exact", x0=repeated)).kind == "ok"

    @pytest.mark.parametrize(
        "norm", ["layer_norm({}, (8,))", "group_norm({}, 2)", "instance_norm({}[None])[0]"]
    )
    def test_norms_whose_mean_is_rounded(self, norm: str) -> None:
        """Elements about a number a thousand times as large as their distances keep three digits fewer of them."""
        x0 = of("x0", (4, 8))
        found = {}
        for operand in ("x0", "(1 + 0.001 * x0)"):
            made = program(f"v0 = F.{norm.format(operand)}", rounding="sum", x0=x0)
            found[operand] = float(bound_of(made)[1].max())
        assert found["x0"] < 2e-5 < 1e-4 < found["(1 + 0.001 * x0)"] < 1e-2

    @pytest.mark.parametrize(("factor", "kind"), [(1.5, "invalid"), (2.0, "wrong"), (1.0, "ok")])
    def test_what_exporters_write_instead(
        self, monkeypatch: pytest.MonkeyPatch, factor: float, kind: str
    ) -> None:
        """An exporter that multiplies by 1.5."""
        exported = paths.exported
        monkeypatch.setattr(execution, "exported", lambda f, args: exported(lambda x: (f(x)[0] * 1.5,), args))
        monkeypatch.setitem(paths.COMPILERS, "onnx", lambda f, args: lambda x: (f(x)[0] * factor,))
        made = replace(program("v0 = x0.exp()", x0=of("x0")), path="onnx")
        assert execution.run(made).kind == kind

    def test_what_aot_autograd_makes_instead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A view of an input that a mask fills: AOTAutograd of PyTorch 2.13 leaves both as they were."""
        inputs = {"x0": of("x0", ()), "x1": of("x1", (), "bool")}
        made = program("v0 = x0.expand((2,))", "x0.masked_fill_(x1, 1)", rounding="exact", **inputs)
        made = replace(made, path="torch.compile", outputs=("v0",), seed=2)
        statements = (made.statements[0], Statement((), "x0.masked_fill_(x1, 1)", "exact"))
        made = replace(made, statements=statements)
        assert execution.run(made).kind in ("ok", "invalid")
        monkeypatch.setitem(
            paths.COMPILERS, "torch.compile", lambda f, args: lambda *given: [v * 2 for v in f(*given)]
        )
        assert execution.run(made).kind == "wrong"

    def test_buffers_that_may_be_anything_do_not_make_the_next_call_wrong(self) -> None:
        buffer = replace(of("w1", (4,)), role="parameter")
        made = program("v0 = w1.add_(x0 * 3e38 * 2)", rounding="sum", x0=of("x0", (4,)))
        assert execution.run(replace(made, weights=(buffer,))).kind == "ok"

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_what_saved_programs_write_into_their_own_buffers(
        self, monkeypatch: pytest.MonkeyPatch, dtype: str
    ) -> None:
        buffer = replace(of("w1", (2, 3), dtype), role="parameter")
        made = program("v0 = w1[:1].fill_(1)", rounding="exact", x0=of("x0"))
        made = replace(made, weights=(buffer,), path="saved")
        assert execution.run(made).kind == "ok"

        def forgetful(function, args):
            loaded = saved(function, args)
            return Forgetful(loaded.executable, loaded.signature, loaded.state)

        class Forgetful(CompiledModel):
            def __call__(self, *args):
                kept = [state.copy() for state in self.state]
                found = super().__call__(*args)
                for state, before in zip(self.state, kept):
                    state[...] = before
                return found

        saved = paths.COMPILERS["saved"]
        monkeypatch.setitem(paths.COMPILERS, "saved", forgetful)
        assert execution.run(made).kind == "wrong"

    def test_errors_that_are_no_refusals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def failing(function):
            raise StopIteration

        made = program("v0 = x0.exp()", x0=of("x0"))
        assert self.outcome(monkeypatch, made, failing).kind == "internal"

    def test_no_error_where_eager_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        index = Tensor("x1", (2,), "int64", "faulty:3")
        made = replace(program("v0 = x0[x1]", rounding="exact", x0=of("x0"), x1=index), fails=True)
        assert self.outcome(monkeypatch, made, lambda f: f).kind == "ok"
        found = self.outcome(monkeypatch, made, lambda f: lambda x, i: f(x, i.clamp(0, 2)))
        assert found.kind == "wrong"
        assert found.detail.startswith("first call: no error where eager raises")


def test_failures_are_made_small() -> None:
    """A check that takes any tangent of a transposed tensor for wrong leaves nothing else."""
    lines = ["v0 = x0 + x1", "v1 = v0.t()", "v2 = v1.tan()", "v3 = v2.sum(0)", "v4 = x1.exp()"]
    made = replace(program(*lines, x0=of("x0", (9, 8)), x1=of("x1", (9, 8))), outputs=("v3", "v4", "v2"))

    def check(candidate: Program) -> Outcome:
        text = candidate.source()
        return Outcome("wrong", "tangent") if ".t()" in text and ".tan()" in text else Outcome("ok")

    found = minimise(made, Outcome("wrong", "tangent"), check)
    assert [str(s.source) for s in found.statements] == ["x0.t()", "v1.tan()"]
    assert found.outputs == ("v2",)
    assert [t.shape for t in found.inputs] == [(1, 1)]


def test_the_summary_counts_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--programs", "3", "--paths", "compile", "--seed", "41", "-o", str(tmp_path)]) in (0, 1)
    assert len((tmp_path / "programs.jsonl").read_text().splitlines()) == 3
    shown = capsys.readouterr().out
    assert "compile" in shown
    assert "elements compared" in shown
