"""Targets in JSON files: read, built on presets, and refused with the entry that is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.compiler.cli.main import main
from tilewright.compiler.targets.target import PRESETS, Target, TargetDataError, resolve


def write(folder: Path, data: object, name: str = "mine.json") -> str:
    path = folder / name
    path.write_text(json.dumps(data))
    return str(path)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "cpu"])
def test_what_the_tool_shows_reads_back(name: str, tmp_path: Path) -> None:
    assert resolve(write(tmp_path, resolve(name).to_json())) == resolve(name)


def test_a_file_may_say_only_what_differs_from_a_preset(tmp_path: Path) -> None:
    path = write(tmp_path, {"base": "x86-64-v3", "name": "eight-cores", "num_cores": 8})
    assert resolve(path) == replace(resolve("x86-64-v3"), name="eight-cores", num_cores=8)


def test_a_base_may_be_a_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, {"base": "v100", "name": "first", "num_cores": 40}, "first.json")
    second = resolve(write(tmp_path, {"base": "first.json", "name": "second"}, "second.json"))
    assert (second.name, second.num_cores, second.warp_size) == ("second", 40, 32)


def test_files_that_build_on_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"base": "b.json", "name": "a"}, "a.json")
    path = write(tmp_path, {"base": "a.json", "name": "b"}, "b.json")
    with pytest.raises(
        TargetDataError, match=r"leads back to the file itself: b\.json -> a\.json -> b\.json"
    ):
        resolve(path)


WHOLE = resolve("v100").to_json()
LEVEL = WHOLE["memory"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([], "expected an object, found a list of 0"),
        ({"cores": 8}, "unknown field `cores`; the fields are: name, kind, arch, memory, num_cores"),
        ({"num_cores": 0}, "num_cores: expected an integer of at least 1, found `0`"),
        ({"num_cores": True}, "num_cores: expected an integer of at least 1, found `true`"),
        ({"num_cores": 2.5}, "num_cores: expected an integer of at least 1, found `2.5`"),
        ({"kind": "fpga"}, "kind: expected one of cpu, gpu, ipu, found `\"fpga\"`"),
        ({"name": ""}, "name: expected a text, found `\"\"`"),
        ({"clock_ghz": -1}, "clock_ghz: expected a number of at least 0, found `-1`"),
        ({"clock_ghz": float("nan")}, "clock_ghz: expected a number of at least 0, found `NaN`"),
        ({"peak_gflops": {"f64": 1.0}}, "peak_gflops: a rate for `f32` must be given"),
        ({"peak_gflops": {"f32": "fast"}}, "peak_gflops.f32: expected a number above 0, found `\"fast\"`"),
        ({"peak_gflops": {"float": 1.0}}, "peak_gflops: expected one of f64, f32"),
        ({"memory": {}}, "memory: expected a list, found an object"),
        ({"memory": [{"name": "L1"}]}, "memory[0]: the fields `capacity_bytes`, `bandwidth_gbps`, `transaction_bytes`"),
        ({"memory": [{**LEVEL, "size": 1}]}, "memory[0]: unknown field `size`"),
        ({"memory": [{**LEVEL, "capacity_bytes": "16G"}]}, "memory[0].capacity_bytes: expected an integer"),
        ({"memory": [LEVEL]}, "expected at least one level and then `registers`, found DRAM"),
        ({"memory": [*WHOLE["memory"][1:2] * 2, WHOLE["memory"][-1]]}, "each level's name may occur once"),
        ({"memory": [WHOLE["memory"][1], LEVEL, WHOLE["memory"][-1]]}, "memory runs from slow to fast, but L2 has"),
        ({"matrix_units": [{"name": "x", "dtype": "f16", "accumulator": "f32", "shape": [16, 16]}]},
         "matrix_units[0].shape: expected a list of 3, found a list of 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(change: dict | list, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, {**WHOLE, **change} if isinstance(change, dict) else change)
    with pytest.raises(TargetDataError) as refusal:
        resolve(path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert message in str(refusal.value)


def test_missing_fields_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(TargetDataError, match="the fields `kind`, `arch`, `memory`"):
        resolve(write(tmp_path, {"name": "mine"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[" * 100_000, "not JSON"), (" " * (2 << 20), "more than 1 MiB")],
)
def test_files_that_hold_no_target_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(TargetDataError, match=message):
        resolve(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TargetDataError, match=r"gone.json: cannot be read: No such file"):
        resolve(str(tmp_path / "gone.json"))


def test_json_of_the_noun_is_checked_too() -> None:
    with pytest.raises(TargetDataError, match="target: num_cores"):
        Target.from_json({**WHOLE, "num_cores": -1})


def test_the_tools_take_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, {"base": "cpu", "name": "mine", "num_cores": 1})
    assert "mine" in CliRunner().invoke(main, ["targets", path]).output
    program = tmp_path / "exp.mlir"
    program.write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>\n"
        "  return %y : tensor<4xf32>\n}\n"
    )
    artifact = tmp_path / "exp.twm"
    made = CliRunner().invoke(main, ["compile", str(program), "--target", path, "-o", str(artifact)])
    assert made.exit_code == 0, made.output
    assert artifact.exists()
    bad = CliRunner().invoke(
        main, ["compile", str(program), "--target", write(tmp_path, {}, "bad.json"), "-o", "x"]
    )
    assert bad.exit_code == 1 and "must be given" in bad.output
