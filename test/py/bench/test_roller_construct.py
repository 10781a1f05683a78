"""The roller119 suite, constructed: agreement with published times, the measured-programs reader, the command."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.bench import measured_programs, roller_construct
from tilewright.bench.suites import roller_rows
from tilewright.compiler.cli.main import main
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.roller import ConstructOptions


@pytest.fixture(scope="module")
def results() -> list[roller_construct.Constructed]:
    return roller_construct.construct_suite(resolve("v100"), ConstructOptions())


def test_all_operators_get_ten_programs(results: list[roller_construct.Constructed]) -> None:
    assert len(results) == 119
    assert all(len(r.programs) == 10 for r in results)


def test_predicted_times_agree_with_published_ones(results: list[roller_construct.Constructed]) -> None:
    summary = roller_construct.agreement(results)
    assert summary["all"]["spearman"] >= 0.96
    for kind in ("conv2d", "depthwise_conv2d", "relu", "avg_pool2d", "matmul"):
        assert summary[kind]["spearman"] >= 0.9, kind
    assert summary["all"]["within_20_percent"] >= 0.7
    assert 0.9 <= summary["all"]["geometric_mean_ratio"] <= 1.1
    assert (
        roller_construct.roofline_agreement(results, resolve("v100"))["spearman"] < summary["all"]["spearman"]
    )


def test_workloads_do_the_work_of_their_rows() -> None:
    for row in roller_rows():
        workload = roller_construct.workload_of(row)
        assert workload.operands[0].shape == tuple(row.get("input", (row.get("m"), row.get("k"))))
        if row["kind"] == "conv2d":
            height, width = row["output"]
            points = row["input"][0] * row["filters"] * height * width
            assert workload.flops == 2 * points * row["input"][1] * row["kernel"] ** 2


def test_spearman_shares_ranks_of_equal_values() -> None:
    assert roller_construct.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert roller_construct.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert roller_construct.spearman([1, 1, 2, 2], [1, 1, 2, 2]) == pytest.approx(1)
    assert math.isnan(roller_construct.spearman([1, 1, 1], [1, 2, 3]))


def record(ms: float | None, thread: int, k: int = 8) -> dict:
    return {
        "workload": ["matmul_layer", 128, 2048, 1000],
        "spatial": [[128, [1, 128 // thread, thread, 1]], [1000, [1, 8, 1, 1]]],
        "reduce": [[2048, [k, 1]]],
        "ms": ms,
    }


def write(folder: Path, records: list[dict]) -> Path:
    path = folder / "v100.jsonl.xz"
    with lzma.open(path, "wt") as file:
        file.writelines(json.dumps(r) + "\n" for r in records)
    return path


def test_measured_programs_are_read_and_ranked(tmp_path: Path) -> None:
    path = write(tmp_path, [record(0.9, 1), record(0.4, 4), record(0.5, 2), record(None, 8), record(3.0, 64)])
    (found,) = measured_programs.compare(path, resolve("v100"), ConstructOptions())
    assert (found.name, found.programs, found.best_ms) == ("M2", 4, 0.4)
    assert -1 <= found.spearman <= 1
    assert found.nearest in (1.0, 0.4 / 0.9, 0.4 / 0.5, 0.4 / 3.0)


def test_tiles_of_a_measured_program() -> None:
    workload = roller_construct.workload_of(next(r for r in roller_rows() if r["name"] == "M2"))
    assert measured_programs.tiles_of(record(1.0, 4, 16), workload) == ((4, 1, 1), (128, 8, 16))
    assert measured_programs.tiles_of({**record(1.0, 4), "reduce": [[9, [1, 1]]]}, workload) is None


def test_the_command_writes_figures_and_a_plot(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    write(tmp_path, [record(0.9, 1), record(0.4, 4), record(0.5, 2)])
    arguments = [
        "bench",
        "--suite",
        "roller119",
        "--construct-only",
        "--cases",
        "M2,E9,D5",
        "-o",
        str(output),
    ]
    ran = CliRunner().invoke(main, [*arguments, "--measured", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    data = json.loads(output.read_text())
    assert [row["name"] for row in data["operators"]] == ["D5", "E9", "M2"]
    assert data["fewest_programs"] == 10
    assert data["measured_programs"]["v100"]["summary"]["matmul"]["programs"] == 3
    assert output.with_suffix(".png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "gemm", "--construct-only"], "--construct-only is for --suite roller119"),
        (["--suite", "roller119", "--construct-only", "--target", "z80"], "unknown target `z80`"),
        (
            ["--suite", "roller119", "--construct-only", "--cases", "Q1"],
            "suite `roller119` has no operator Q1",
        ),
        (["--suite", "roller119", "--measured", "."], "--measured needs --construct-only"),
        (
            ["--suite", "roller119", "--construct-only", "--cases", "M2", "--measured", "."],
            "expected files named",
        ),
    ],
)
def test_what_the_command_refuses(arguments: list[str], message: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path) if a == "." else a for a in arguments]
    ran = CliRunner().invoke(main, ["bench", *arguments])
    assert ran.exit_code != 0
    assert message in ran.output + str(ran.exception)


def test_alignment_pays(results: list[roller_construct.Constructed]) -> None:
    rows = roller_construct.ablation(resolve("v100"), 10)
    assert [row["rules"] for row in rows] == [list(roller_construct.TABLE3[:n]) for n in range(5)]
    assert rows[0]["mean_speedup"] == 1
    assert rows[-1]["mean_speedup"] > 1.4
