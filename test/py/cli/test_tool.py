"""The tool's commands, end to end on a tiny model, and what they say when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tilewright.compiler.cli import main as cli
from tilewright.compiler.cli.models import write_arrays

MODEL = "tiny_models:tiny"


def reference() -> np.ndarray:
    import tiny_models  # type: ignore[import-not-found]

    module, x = tiny_models.tiny()
    with torch.no_grad():
        return module(x).numpy()


def test_help_lists_every_command(tool) -> None:
    text = tool("--help").output
    assert all(f"  {name} " in text for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(tool, name: str) -> None:
    result = tool(name, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_the_version_is_the_package_s(tool) -> None:
    import tilewright

    assert tilewright.__version__ in tool("--version").output


class TestCompile:
    def test_says_what_came_out(self, tool) -> None:
        result = tool("compile", MODEL, "--timing")
        assert result.exit_code == 0, result.output
        assert "dispatches of" in result.output
        assert "import" in result.output and "lower" in result.output and "total" in result.output

    def test_an_artifact_runs(self, tool, folder: Path) -> None:
        assert tool("compile", MODEL, "-o", "tiny.twm").exit_code == 0
        np.savez(folder / "in.npz", np.ones((2, 8), np.float32))
        result = tool("run", "tiny.twm", "in.npz", "-o", "out.npz")
        assert result.exit_code == 0, result.output
        with np.load("out.npz") as outputs:
            np.testing.assert_allclose(outputs["output"], reference(), rtol=1e-5, atol=1e-6)

    def test_phases_stop_and_go_on(self, tool, folder: Path) -> None:
        assert tool("compile", MODEL, "--to", "dispatch", "-o", "d.mlir").exit_code == 0
        text = (folder / "d.mlir").read_text()
        assert "func.func" in text and "tilewright.schedule" not in text
        result = tool("compile", "d.mlir", "--from", "schedule", "--to", "schedule")
        assert result.exit_code == 0, result.output
        assert "tilewright.schedule" in result.output
        result = tool("compile", "d.mlir", "--from", "schedule")
        assert result.exit_code == 0, result.output
        assert "kernels compile" in result.output

    def test_edited_ir_becomes_an_artifact_with_the_model_s_weights(self, tool) -> None:
        assert tool("compile", MODEL, "--to", "dispatch", "-o", "d.mlir").exit_code == 0
        refused = tool("compile", "d.mlir", "--from", "schedule", "-o", "tiny.twm")
        assert "-o with --from needs --weights MODEL" in refused.output
        result = tool("compile", "d.mlir", "--from", "schedule", "--weights", MODEL, "-o", "tiny.twm")
        assert result.exit_code == 0, result.output
        np.savez("in.npz", np.ones((2, 8), np.float32))
        assert tool("run", "tiny.twm", "in.npz", "-o", "out.npz").exit_code == 0
        with np.load("out.npz") as outputs:
            np.testing.assert_allclose(outputs["output"], reference(), rtol=1e-5, atol=1e-6)

    def test_import_is_the_first_phase(self, tool) -> None:
        result = tool("compile", MODEL, "--to", "import")
        assert result.exit_code == 0, result.output
        assert "linalg." in result.output and "tilewright.role" in result.output

    def test_an_exported_program_compiles(self, tool, folder: Path) -> None:
        import tiny_models  # type: ignore[import-not-found]

        module, x = tiny_models.tiny()
        torch.export.save(torch.export.export(module, (x,)), folder / "tiny.pt2")
        result = tool("run", "tiny.pt2", "-o", "out.npz")
        assert result.exit_code == 0, result.output
        with np.load("out.npz") as outputs:
            np.testing.assert_allclose(outputs["output"], reference(), rtol=1e-5, atol=1e-6)

    def test_an_onnx_file_compiles_for_given_inputs(self, tool, folder: Path) -> None:
        onnx = pytest.importorskip("onnx")
        helper, kind = onnx.helper, onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "relu",
            [helper.make_tensor_value_info("x", kind, ["batch", 3])],
            [helper.make_tensor_value_info("y", kind, ["batch", 3])],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "relu.onnx")
        x = np.array([[-1, 0, 2]], np.float32)
        np.savez(folder / "in.npz", x)
        assert tool("compile", "relu.onnx", "--inputs", "in.npz", "-o", "relu.twm").exit_code == 0
        result = tool("run", "relu.onnx", "in.npz", "-o", "out.npz")
        assert result.exit_code == 0, result.output
        with np.load("out.npz") as outputs:
            (found,) = outputs.values()
            np.testing.assert_array_equal(found, np.maximum(x, 0))

    @pytest.mark.parametrize("name", ["names.onnx", "names.ONNX", "names"])
    def test_an_onnx_file_keeps_its_names(self, tool, folder: Path, name: str) -> None:
        onnx = pytest.importorskip("onnx")
        helper, kind = onnx.helper, onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            [helper.make_node("Relu", ["self"], ["file"]), helper.make_node("Neg", ["self"], ["/out/0"])],
            "names",
            [helper.make_tensor_value_info("self", kind, [3])],
            [helper.make_tensor_value_info(n, kind, [3]) for n in ("/out/0", "file", "self")],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        (folder / name).write_bytes(made.SerializeToString())
        x = np.array([-1, 0, 2], np.float32)
        write_arrays(folder / "in.npz", {"self": x})
        assert tool("compile", name, "-o", "names.twm").exit_code == 0
        for model in (name, "names.twm"):
            result = tool("run", model, "in.npz", "-o", "out.npz")
            assert result.exit_code == 0, result.output
            with np.load("out.npz") as outputs:
                assert list(outputs) == ["/out/0", "file", "self"]
                np.testing.assert_array_equal(outputs["file"], np.maximum(x, 0))
                np.testing.assert_array_equal(outputs["self"], x)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("nope",), "unknown model `nope`; expected module:function or one of: resnet18"),
            (("nope.onnx",), "`nope.onnx`: there is no such file"),
            (("some.twm",), "`some.twm` is compiled already: call it by `tilewright run`"),
            (("no_such_module:f",), "No module named 'no_such_module'; run where `no_such_module` lies"),
            (("tiny_models:missing",), "module `tiny_models` has no `missing`"),
            (("tiny_models:torch",), "`tiny_models:torch` is module; expected a function that returns"),
            (("tiny_models:no_pair",), "returned ReLU; expected (module, example inputs)"),
            ((MODEL, "--target", "z80"), "unknown target `z80`; the presets are: cpu"),
            ((MODEL, "--to", "bake"), "the phases are import, graph"),
            ((MODEL, "--from", "schedule"), "--from schedule continues from IR: expected an .mlir file"),
            ((MODEL, "--opt", "O9"), "'O9' is not one of 'O0'"),
            ((MODEL, "--weights", MODEL), "--weights goes with --from"),
            ((MODEL, "--to", "graph", "--weights", MODEL), "--weights goes with --from"),
            ((MODEL, "--to", "schedule", "--opt", "O1"), "--opt is of a whole compilation"),
            ((MODEL, "-o", "."), "`.` is a folder; name a file"),
            ((MODEL, "-o", "missing/file"), "there is no folder `missing`; make it first"),
        ],
    )
    def test_refusals(self, tool, arguments: tuple[str, ...], message: str) -> None:
        result = tool("compile", *arguments)
        assert result.exit_code != 0
        assert message in " ".join(result.output.split())

    @pytest.mark.parametrize("command", ["compile", "run", "explain", "tune"])
    def test_places_that_cannot_be_written_are_refused_before_any_work(
        self, tool, folder: Path, command: str
    ) -> None:
        (folder / "taken.dir").mkdir()
        option = "--html" if command == "explain" else "-o"
        missing = tool(command, "nope", option, "missing/out.bin")
        assert missing.exit_code == 2
        assert "there is no folder `missing`; make it first" in " ".join(missing.output.split())
        taken = tool(command, "nope", option, "taken.dir")
        assert taken.exit_code == 2
        assert "`taken.dir` is a folder; name a file" in " ".join(taken.output.split())
        assert "unknown model `nope`" in tool(command, "nope", option, "out.bin").output

    def test_phases_in_the_wrong_order(self, tool, folder: Path) -> None:
        assert tool("compile", MODEL, "--to", "graph", "-o", "g.mlir").exit_code == 0
        result = tool("compile", "g.mlir", "--from", "schedule", "--to", "graph")
        assert result.exit_code != 0
        assert "--to graph comes before --from schedule" in result.output

    @pytest.mark.parametrize("phases", [(), ("--from", "graph"), ("--from", "dispatch", "--to", "dispatch")])
    def test_schedules_that_earlier_phases_would_lose_are_refused(
        self, tool, phases: tuple[str, ...]
    ) -> None:
        assert tool("compile", MODEL, "--to", "schedule", "-o", "s.mlir").exit_code == 0
        assert tool("compile", "s.mlir", "--from", "schedule").exit_code == 0
        result = tool("compile", "s.mlir", *phases)
        assert result.exit_code == 1
        assert "has a schedule, and phase" in " ".join(result.output.split())

    @pytest.mark.parametrize("phases", [("--from", "packing"), ("--from", "dispatch", "--to", "dispatch")])
    def test_dispatches_are_made_once(self, tool, phases: tuple[str, ...]) -> None:
        assert tool("compile", MODEL, "--to", "dispatch", "-o", "d.mlir").exit_code == 0
        assert tool("compile", "d.mlir", "--from", "schedule").exit_code == 0
        result = tool("compile", "d.mlir", *phases)
        assert result.exit_code == 1
        assert "is a dispatch already, and phase" in " ".join(result.output.split())

    @pytest.mark.parametrize(("option", "value"), [("--precision", "bf16"), ("--choices", "{}.json")])
    def test_what_phases_before_obeyed_is_refused(self, tool, option: str, value: str) -> None:
        assert tool("compile", MODEL, "--to", "layout", "-o", "l.mlir").exit_code == 0
        result = tool("compile", "l.mlir", "--from", "packing", option, value)
        assert result.exit_code == 2
        assert f"{option} is obeyed by phase" in " ".join(result.output.split())

    def test_a_file_that_is_no_program(self, tool, folder: Path) -> None:
        (folder / "bad.pt2").write_bytes(b"not a program")
        result = tool("compile", "bad.pt2")
        assert result.exit_code == 1
        assert "`bad.pt2` is no exported program" in result.output

    def test_without_torch_the_zoo_says_what_to_install(self, tool, monkeypatch: pytest.MonkeyPatch) -> None:
        from tilewright.bench import models

        def build(name: str):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

        monkeypatch.setattr(models, "build", build)
        result = tool("compile", "resnet18")
        assert result.exit_code == 1
        assert "`resnet18` needs `torch`, which is not installed: pip install" in result.output

    def test_debugging_shows_the_traceback(self, tool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
        assert type(tool("compile", "nope").exception).__name__ == "ModelImportError"


class TestRun:
    def test_a_model_on_its_example_inputs(self, tool) -> None:
        result = tool("run", MODEL, "--repeat", "3")
        assert result.exit_code == 0, result.output
        assert "2x4" in result.output and "median of 3 calls" in result.output
        assert f"{reference().max():.5g}" in result.output

    def test_an_artifact_without_inputs_gets_seeded_ones(self, tool) -> None:
        assert tool("compile", MODEL, "-o", "tiny.twm").exit_code == 0
        first, second = tool("run", "tiny.twm", "-o", "a.npz"), tool("run", "tiny.twm", "-o", "b.npz")
        assert first.exit_code == second.exit_code == 0, first.output
        assert "inputs: seeded" in first.output
        with np.load("a.npz") as a, np.load("b.npz") as b:
            np.testing.assert_array_equal(a["output"], b["output"])

    def test_a_wrong_shape_is_refused(self, tool, folder: Path) -> None:
        assert tool("compile", MODEL, "-o", "tiny.twm").exit_code == 0
        np.savez(folder / "in.npz", np.ones((2, 9), np.float32))
        result = tool("run", "tiny.twm", "in.npz")
        assert result.exit_code == 1
        assert "9" in result.output and "Traceback" not in result.output

    def test_names_that_no_argument_has_are_refused(self, tool, folder: Path) -> None:
        assert tool("compile", MODEL, "-o", "tiny.twm").exit_code == 0
        np.savez(folder / "in.npz", zz=np.ones((2, 8), np.float32))
        result = tool("run", "tiny.twm", "in.npz")
        assert result.exit_code == 2
        assert "in.npz: argument" in result.output and "is missing" in result.output

    @pytest.mark.parametrize(
        "option", [("--target", "x86-64-v3"), ("--opt", "O1"), ("--precision", "bf16"), ("--seeds", "2")]
    )
    def test_what_an_artifact_cannot_obey_is_refused(self, tool, option: tuple[str, str]) -> None:
        assert tool("compile", MODEL, "-o", "tiny.twm").exit_code == 0
        result = tool("run", "tiny.twm", *option)
        assert result.exit_code == 2
        assert option[0] in result.output

    @pytest.mark.parametrize("content", ["nothing", "", "array"])
    def test_a_file_without_arrays_is_refused(self, tool, folder: Path, content: str) -> None:
        (folder / "in.npz").write_text(content)
        if content == "array":
            with (folder / "in.npz").open("wb") as file:
                np.save(file, np.ones(3))
        result = tool("run", MODEL, "in.npz")
        assert result.exit_code == 1
        assert "expected an .npz file of arrays" in result.output

    def test_gaps_in_positions_are_refused(self, tool, folder: Path) -> None:
        np.savez(folder / "in.npz", arr_0=np.ones(1), arr_2=np.ones(1))
        result = tool("run", MODEL, "in.npz")
        assert "without gaps, found [0, 2]" in result.output

    def test_a_missing_artifact(self, tool) -> None:
        assert "there is no such file" in tool("run", "gone.twm").output


class TestExplain:
    def test_a_table_a_page_and_json(self, tool, folder: Path) -> None:
        result = tool("explain", MODEL, "--html", "page.html", "--json", "report.json", "--repeats", 2)
        assert result.exit_code == 0, result.output
        report = json.loads((folder / "report.json").read_text())
        assert report["dispatches"] and report["total_us"] > 0
        assert sum(d["share"] for d in report["dispatches"]) == pytest.approx(1)
        page = (folder / "page.html").read_text()
        assert all(d["operator"] in page for d in report["dispatches"])

    def test_what_an_artifact_cannot_obey_is_refused(self, tool) -> None:
        assert tool("compile", MODEL, "-o", "tiny.twm").exit_code == 0
        assert "--precision is of models" in tool("explain", "tiny.twm", "--precision", "bf16").output

    @pytest.mark.skipif(torch.cuda.is_available(), reason="wants a machine without a GPU")
    def test_kernels_of_a_gpu_that_is_not_here_are_not_measured(self, tool) -> None:
        result = tool("explain", MODEL, "--target", "cuda:sm_80")
        assert result.exit_code == 1
        assert "which does not run here" in " ".join(result.output.split())

    def test_only_the_slowest_are_listed(self, tool) -> None:
        result = tool("explain", MODEL, "--top", 1, "--repeats", 1)
        assert result.exit_code == 0, result.output
        assert "slowest dispatches" in result.output

    @pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
    def test_spaces_are_listed_with_their_defaults(self, tool, target: str) -> None:
        result = tool("explain", MODEL, "--space", "--target", target)
        assert result.exit_code == 0, result.output
        assert f"schedules of {MODEL}" in result.output and " legal" in result.output
        assert "reductions[0]" in result.output and "products, scalar" in result.output
        assert "its own schedule is not one of them" not in result.output
        assert result.output.index(f"choices of {MODEL}") < result.output.index(f"schedules of {MODEL}")

    def test_choices_that_are_listed_can_be_given_back(self, tool, folder: Path) -> None:
        result = tool("explain", MODEL, "--space", "--json", folder / "choices.json")
        assert result.exit_code == 0, result.output
        choices = json.loads((folder / "choices.json").read_text())
        knob = next(knob for knob, value in choices.items() if knob.endswith(".joins") and value)
        (folder / "choices.json").write_text(json.dumps({**choices, knob: 0}))
        result = tool("compile", MODEL, "--choices", folder / "choices.json", "--to", "packing")
        assert result.exit_code == 0, result.output
        assert f'joins = false, name = "{knob.partition(".")[0]}"' in result.output
        (folder / "wrong.json").write_text(json.dumps({"matmul_99.block": 16}))
        result = tool("compile", MODEL, "--choices", folder / "wrong.json")
        assert result.exit_code == 1 and "there is no operation `matmul_99`" in result.output
        result = tool("compile", MODEL, "--choices", folder / "wrong.json", "--target", "hip:gfx90a")
        assert result.exit_code == 1 and "there is no operation `matmul_99`" in result.output

    def test_spaces_of_a_gpu_are_listed_by_kernel(self, tool) -> None:
        result = tool("explain", MODEL, "--space", "--target", "cuda:sm_80")
        assert result.exit_code == 0, result.output
        assert "by simt: " in result.output and "split_k" in result.output
        assert "its own schedule is not one of them" not in result.output

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (["--target", "mi50"], "--space is of CPUs and NVIDIA GPUs"),
            (["--html", "spaces.html"], "leave out --html"),
            (["--choices", "choices.json"], "leave out --html"),
            (["--opt", "O1"], "leave out --html"),
        ],
    )
    def test_spaces_that_are_not_listed(self, tool, options: list[str], says: str) -> None:
        result = tool("explain", MODEL, "--space", *options)
        assert result.exit_code == 2 and says in result.output


class TestTargets:
    def test_json_reads_back(self, tool) -> None:
        from tilewright.compiler.targets.target import PRESETS, Target, resolve

        data = json.loads(tool("targets", "--json").output)
        assert list(data) == list(PRESETS)
        assert Target.from_json(data["v100"]) == resolve("v100")

    def test_a_table_of_the_named_ones(self, tool) -> None:
        text = tool("targets", "v100").output
        assert "14,131" in text and "900" in text and "a100" not in text

    def test_an_unknown_name(self, tool) -> None:
        result = tool("targets", "z80")
        assert result.exit_code == 1
        assert "unknown target `z80`" in result.output


def test_help_needs_no_torch() -> None:
    code = "import sys; from tilewright.compiler.cli import main; main.run(['--help']); sys.exit('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr.decode()
