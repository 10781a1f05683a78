"""The fuzzer itself: its programs are the same everywhere, and what is wrong is noticed and made small."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from fuzz import execution, paths
from fuzz.cli import main
from fuzz.draw import PATHS, draw
from fuzz.forms import written
from fuzz.generator import Growth, NoFit
from fuzz.minimise import minimise
from fuzz.outcome import Outcome
from fuzz.program import CONTAINERS, Program, Statement
from fuzz.tensors import DTYPES, LAYOUTS, Tensor, placed, values
from fuzz_programs import bound_of, of, program

from tilewright.runtime.model import CompiledModel

FUZZ = Path(__file__).parents[2] / "fuzz"


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
