"""Limits: the least time follows from rates and working sets; tables say how much of it is reached, and repeat."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from tilewright.bench import adapters, limits, report, result_tables
from tilewright.bench.adapters import OURS, Task
from tilewright.bench.harness import CaseResult, Outcome, best_competitor, best_mean, moved_bytes, run_case
from tilewright.bench.limits import Level, Limits, limits_of
from tilewright.bench.machine import machine
from tilewright.bench.measure import Budget
from tilewright.bench.suites import Case
from tilewright.compiler.targets import host as target_host
from tilewright.compiler.targets import measure as measure_target
from tilewright.compiler.targets.measurements import LevelRates, Measurements, PeakRates
from tilewright.compiler.targets.target import resolve

KB, MB = 1000, 1_000_000
LIMITS = Limits(
    2,
    {"f32": 200.0, "bf16": 400.0},
    (
        Level("DRAM", 100_000 * MB, 30.0, 70.0),
        Level("L3", 32 * MB, 200.0, 220.0),
        Level("L1", 64 * KB, 400.0, 480.0),
    ),
    "digest",
)


class TestBound:
    def test_is_the_peak_of_the_dtype_where_there_is_much_to_compute(self) -> None:
        assert LIMITS.bound(200 * MB, 1 * MB, 1 * MB) == (1000.0, "f32 peak")
        assert LIMITS.bound(200 * MB, 1 * MB, 1 * MB, "bf16") == (500.0, "bf16 peak")
        assert LIMITS.bound(200 * MB, 1 * MB, 1 * MB, "i8") == (1000.0, "i8 peak")

    def test_is_the_fastest_level_that_holds_all_bytes(self) -> None:
        assert LIMITS.bound(0, 24 * KB, 24 * KB) == (0.1, "L1")
        assert LIMITS.bound(0, 11 * MB, 11 * MB) == (100.0, "L3")
        # Copying reads at 35 GB/s, faster than reading alone was seen to.
        assert LIMITS.bound(0, 70 * MB, 70 * MB) == (2000.0, "DRAM")
        assert LIMITS.bound(0, 70 * MB, 0) == (2000.0, "DRAM")
        assert LIMITS.bound(0, 0, 70 * MB) == (1000.0, "DRAM")

    def test_takes_the_slowest_level_for_what_fits_none(self) -> None:
        assert LIMITS.bound(0, 10**15, 0)[1] == "DRAM"


class TestRates:
    TARGET = resolve("sapphire-rapids")
    FOUND = Measurements(
        "p",
        {"DRAM": LevelRates(10.0, 200.0, 12.0, 240.0, 90.0), "L3": LevelRates(20.0, 0.0, 22.0, 0.0, 30.0),
         "L1": LevelRates(100.0, 5000.0, 110.0, 5500.0, 1.0)},
        {"f32": PeakRates("multiply-add", 100.0, 5000.0)},
        1.0,
    )  # fmt: skip

    @pytest.mark.parametrize(("threads", "read"), [(1, 10.0), (4, 40.0), (56, 200.0), (99, 200.0)])
    def test_grow_with_threads_up_to_what_all_cores_do(self, threads: int, read: float) -> None:
        assert limits_of(self.TARGET, self.FOUND, threads).levels[0].read_gbps == read

    def test_count_private_caches_once_per_core_and_shared_ones_once(self) -> None:
        dram, l3, l1 = limits_of(self.TARGET, self.FOUND, 4).levels
        assert l1.capacity_bytes == 4 * self.TARGET.level("L1").capacity_bytes
        assert l3.capacity_bytes == self.TARGET.level("L3").capacity_bytes
        assert dram.capacity_bytes == self.TARGET.level("DRAM").capacity_bytes
        # What could not be measured for all cores is one core's times their number.
        assert l3.read_gbps == 80.0

    def test_measured_now_are_not_kept(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(measure_target, "measure", lambda target, say: self.FOUND)
        assert limits.find_or_measure(1, lambda text: None).digest == self.FOUND.digest
        assert not list(tmp_path.iterdir()) and not resolve("cpu").measured

    def test_kept_ones_are_taken(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from tilewright.bench.harness import cold_cache
        from tilewright.compiler.targets import measurements as target_measurements

        monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
        target_measurements.store(target_host.host(), self.FOUND)
        monkeypatch.setattr(measure_target, "measure", None)
        assert limits.find_or_measure(2, lambda text: None).digest == self.FOUND.digest
        with cold_cache():
            assert resolve("cpu").measured == self.FOUND.digest


def test_bytes_are_those_of_inputs_weights_and_outputs_once() -> None:
    module = torch.nn.Linear(4, 2)
    module.again = module.weight
    x = torch.ones(3, 4)
    assert moved_bytes(module, (x, x), [module(x).detach().numpy()]) == (4 * (8 + 2 + 12), 4 * 6)


def test_tables_that_are_only_looked_up_in_are_not_read_whole() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = torch.nn.Embedding(100, 8), torch.nn.Embedding(50, 8)
            self.head = torch.nn.Linear(8, 100, bias=False)
            self.head.weight = self.tokens.weight

    assert moved_bytes(Tied(), (torch.zeros(3, dtype=torch.int64),), []) == (4 * 800 + 8 * 3, 0)


def row(name: str, us: float, **others: tuple[str, float]) -> CaseResult:
    outcomes = {OURS: Outcome("ok", compile_s=0.5, error=1e-7, median_us=us, speed=1.0)}
    for other, (status, theirs) in others.items():
        outcomes[other] = Outcome(status, median_us=theirs, speed=theirs / us, error=0.0)
    return CaseResult(name, 2 * MB, {}, outcomes, "f32", 1000, 1000, us / 2, "f32 peak")


ROWS = [
    row("a", 100.0, eager=("ok", 400.0), openvino=("ok", 200.0)),
    row("b", 100.0, eager=("ok", 800.0), openvino=("wrong", 50.0)),
]


def test_the_best_competitor_is_the_fastest_that_was_right() -> None:
    assert [best_competitor(r) for r in ROWS] == ["openvino", "eager"]
    assert best_mean(ROWS) == 4.0
    assert best_competitor(row("c", 1.0)) is None
    assert best_mean([row("c", 1.0)]) is None


def test_cases_are_told_in_operations_or_bytes() -> None:
    product, copy = row("a", 100.0), row("b", 100.0)
    copy.flops = None
    assert (report.work(product), report.rate(product, 100.0)) == ("0.002 GFLOP", "20 GFLOP/s")
    assert (report.work(copy), report.rate(copy, 0.1)) == ("0.002 MB", "20 GB/s")
    depthwise = row("c", 100.0)
    depthwise.flops = 15_000
    assert report.work(depthwise) == "0.002 MB"


def test_a_run_says_how_much_of_the_limit_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("linear", lambda: (torch.nn.Linear(4, 2).eval(), (torch.ones(3, 4),)))
    budget = Budget(rounds=1, round_s=0.001, least_calls=1, warm_up_s=0.001)
    result = run_case(case, ["eager"], 1, budget, limits=LIMITS)
    assert (result.read_bytes, result.written_bytes, result.bound) == (4 * 22, 4 * 6, "f32 peak")
    assert result.limit_us == pytest.approx(0.0, abs=0.001)


@pytest.mark.parametrize(("precision", "dtype"), [("f32", "f32"), ("bf16", "bf16")])
def test_precision_reaches_contenders_and_the_reference_stays(
    monkeypatch: pytest.MonkeyPatch, precision: str, dtype: str
) -> None:
    seen: list[tuple[str, str]] = []
    real = adapters.load

    def spy(name: str):
        def prepare(task: Task):
            seen.append((name, task.precision))
            return real("eager")(task)

        return prepare

    monkeypatch.setattr(adapters, "load", spy)
    case = Case("linear", lambda: (torch.nn.Linear(4, 2).eval(), (torch.ones(3, 4),)))
    budget = Budget(rounds=1, round_s=0.001, least_calls=1, warm_up_s=0.001)
    result = run_case(case, [OURS], 1, budget, precision=precision)
    assert seen == [("eager", "f32"), (OURS, precision)]
    assert result.dtype == dtype


def test_a_model_in_bf16_is_told_as_such() -> None:
    module, inputs = torch.nn.Linear(4, 2).bfloat16().eval(), (torch.ones(3, 4).bfloat16(),)
    task = Task(module, inputs, 1, Path())
    assert task.dtype == "bf16"
    (array,) = adapters.load("eager")(task).outputs()
    assert array.dtype.name == "bfloat16" and array.shape == (3, 2)


@pytest.fixture
def record() -> dict:
    settings = {"threads": 2, "rounds": 7, "batch": 1, "opt": "O0", "precision": "f32", "quick": False}
    when = datetime(2026, 1, 2, tzinfo=UTC)
    return report.document("gemm", ROWS, [OURS, "eager", "openvino"], settings, when, machine(), LIMITS)


class TestTables:
    def test_hold_every_case_the_limits_and_the_command(self, record: dict) -> None:
        text = result_tables.table(record, "bench/results/r.json")
        lines = text.splitlines()
        assert "| a | 0.100 | 0.400 | 0.200 | 2.00x | 50% (f32 peak) | 0.5 | 1e-07 |" in lines
        assert "| b | 0.100 | 0.800 | 0.050 wrong | 8.00x | 50% (f32 peak) | 0.5 | 1e-07 |" in lines
        assert "| geometric mean, times ours | 1 | 5.66x | 2.00x | 4.00x |  |  |  |" in lines
        assert (
            "200 GFLOP/s f32" in text
            and "70 GB/s in DRAM" in text
            and "[record](bench/results/r.json)" in text
        )
        assert record["command"] in text

    @pytest.mark.parametrize(
        ("changes", "name"),
        [({}, "gemm"), ({"precision": "bf16"}, "gemm-bf16"), ({"threads": 1, "opt": "O1"}, "gemm-1t-O1")],
    )
    def test_are_named_for_what_was_run(self, record: dict, changes: dict, name: str) -> None:
        record["settings"] |= changes
        assert result_tables.name_of(record) == name

    def test_older_records_still_read(self, record: dict) -> None:
        del record["limits"], record["geometric_mean_best_times_ours"], record["settings"]["precision"]
        for case in record["cases"]:
            del case["limit_us"], case["bound"]
        assert "| a | 0.100 | 0.400 | 0.200 | 2.00x | 0.5 | 1e-07 |" in result_tables.table(record, "r.json")

    def test_only_the_newest_whole_record_of_a_suite_counts(self, record: dict, tmp_path: Path) -> None:
        for name, date, quick in (
            ("b", "2026-01-01", False),
            ("a", "2026-01-03", False),
            ("c", "2026-01-09", True),
        ):
            changed = {**record, "date": date, "settings": {**record["settings"], "quick": quick}}
            (tmp_path / f"{name}.json").write_text(json.dumps(changed))
        selection = {**record, "date": "2026-01-09", "cases": [{**record["cases"][0], "name": "another"}]}
        (tmp_path / "d.json").write_text(json.dumps(selection))
        (tmp_path / "other.json").write_text('{"suite": "gemm", "operators": []}')
        (tmp_path / "list.json").write_text("[]")
        assert {n: path.name for n, (path, _) in result_tables.newest(tmp_path).items()} == {"gemm": "a.json"}

    def test_follow_from_the_records_that_are_kept(self) -> None:
        for path, kept in result_tables.newest(result_tables.RESULTS).values():
            text = result_tables.table(kept, path.name)
            assert text.count("\n| ") == len(kept["cases"]) + 3
            assert text == result_tables.table(json.loads(path.read_text()), path.name)

    def test_go_between_their_marks_and_repeat(self, record: dict, tmp_path: Path) -> None:
        source, document = tmp_path / "r.json", tmp_path / "README.md"
        source.write_text(json.dumps(record))
        document.write_text("before\n<!-- bench gemm -->\nold\n<!-- end bench gemm -->\nafter\n")
        assert result_tables.main([str(source), "--check", str(document)]) == 1
        assert result_tables.main([str(source), "--write", str(document)]) == 0
        first = document.read_text()
        assert first.startswith("before\n<!-- bench gemm -->\nMilliseconds") and first.endswith(
            "-->\nafter\n"
        )
        assert "old" not in first and "[record](r.json)" in first
        assert result_tables.main([str(source), "--write", str(document)]) == 0
        assert document.read_text() == first
        assert result_tables.main([str(source), "--check", str(document)]) == 0

    def test_say_what_has_no_marks_and_what_has_no_record(
        self, record: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source, document = tmp_path / "r.json", tmp_path / "README.md"
        source.write_text(json.dumps(record))
        document.write_text("<!-- bench memory -->\nkept\n<!-- end bench memory -->\n")
        assert result_tables.main([str(source), "--write", str(document)]) == 0
        said = capsys.readouterr().err
        assert "no marks `<!-- bench gemm -->`" in said and "no record for the marks of `memory`" in said
        assert "kept" in document.read_text()

    def test_marks_that_do_not_pair_up_are_refused(self) -> None:
        with pytest.raises(ValueError, match="has no line `<!-- end bench gemm -->`"):
            result_tables.insert("<!-- bench gemm -->\n", {"gemm": "x"})
