"""The device suite without a device: its cases, its supervision of a process that dies or hangs, and its pages."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from tilewright.bench import results_page
from tilewright.bench.device.cases import PARTS, DeviceCase, cases
from tilewright.bench.device.contenders import Setting
from tilewright.bench.device.run_case import is_fault, run
from tilewright.bench.device.supervisor import Supervisor

WORKER = """
import json, os, sys, time
for line in sys.stdin:
    key = line.strip()
    if key == "die":
        os._exit(7)
    if key == "hang":
        time.sleep(60)
    print(json.dumps({"key": key, "process": os.getpid(), "fault": key == "fault"}), flush=True)
"""


def test_every_part_has_cases_of_distinct_keys() -> None:
    keys = [case.key for part in PARTS for case in cases(part)]
    assert len(set(keys)) == len(keys)
    assert len([key for key in keys if key.startswith("gemm/")]) == 30 * 4
    assert len([key for key in keys if key.startswith("operators/")]) == 119
    with pytest.raises(ValueError, match="unknown part"):
        cases("everything")


def test_a_fault_a_death_or_a_hang_costs_one_case(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    supervisor = Supervisor({}, case_limit_s=3.0, command=[sys.executable, str(script)])
    found: list[dict] = []
    keys = ["a", "die", "b", "fault", "c", "hang", "d"]
    assert supervisor.run(keys, found.append, time.monotonic() + 60) == []
    assert [record["key"] for record in found] == keys
    failed = {record["key"]: record["failed"] for record in found if "failed" in record}
    assert failed == {"die": "the process ended with status 7", "hang": "no result within 3 s"}
    processes = [record["process"] for record in found if "process" in record]
    assert len(set(processes)) == 4  # a | b fault | c | d


class Failing(torch.nn.Module):
    """Computes in f64 only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float64:
            raise RuntimeError("CUDA error: an illegal instruction was encountered")
        return x


class Lost(Setting):
    """A device that has met a fault: nothing that is asked of it works any more."""

    def synchronize(self) -> None:
        raise RuntimeError("CUDA error: an illegal instruction was encountered")


def test_a_failure_is_a_fault_where_the_device_is_lost() -> None:
    case = DeviceCase("check", "x", "f32", lambda: (Failing(), (torch.ones(3),)), ("eager",))
    (outcome,) = run(case, Setting("cpu", "cpu"))["outcomes"].values()
    assert (outcome["status"], is_fault(Setting("cpu", "cpu"))) == ("failed", False)
    with pytest.raises(RuntimeError, match="illegal instruction"):
        run(case, Lost("cpu", "cpu"))
    assert is_fault(Lost("cpu", "cpu"))


def test_flags_that_a_process_has_frozen_change_in_a_block() -> None:
    code = (
        "import torch; torch.backends.disable_global_flags(); from tilewright.bench.device.contenders import rounding\n"
        "for dtype in ('tf32', 'f32'):\n"
        "    with rounding(dtype): print(torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True", "False", "True"]


def test_what_is_not_reached_is_named() -> None:
    assert Supervisor({}).run(["a", "b"], lambda record: None, time.monotonic() - 1) == ["a", "b"]


def record(name: str, ours: float | None, eager: float) -> dict:
    outcome = (
        {"status": "ok", "error": 1e-7, "median_us": ours} if ours else {"status": "failed", "note": "no"}
    )
    return {
        "key": f"gemm/{name}/f16",
        "part": "gemm",
        "name": name,
        "dtype": "f16",
        "flops": 2 * 4096**3,
        "bytes": 3 * 4096**2 * 2,
        "outcomes": {"ours": outcome, "eager": {"status": "ok", "error": 1e-7, "median_us": eager}},
    }


def test_pages_say_ratios_limits_and_what_failed(tmp_path: Path) -> None:
    rows = [record("fast", 200.0, 300.0), record("slow", 400.0, 300.0), record("broken", None, 300.0)]
    document = {
        "rehearsal": False,
        "date": "2026-01-01T00:00:00+00:00",
        "command": "python -m bench.device",
        "versions": {"torch": "2.11"},
        "device": {
            "name": "H200",
            "target": "cuda:sm_90a",
            "peak_gflops": {"f16": 989400.0, "f32": 66900.0},
            "dram_gbps": 4800.0,
            "copy_gbps": 4000.0,
            "driver": "580",
        },
        "missed": ["models/gpt2-b32/f16"],
        "cases": {row["key"]: row for row in rows},
    }
    path = tmp_path / "device-test.json"
    path.write_text(json.dumps(document))
    done = CliRunner().invoke(results_page.main, [str(path), "--folder", str(tmp_path)])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "device-test.md").read_text()
    assert "| fast | f16 | 200.0 | 687.2 TFLOP/s | 138.9 | 69% f16 peak | 1.50 |" in page
    assert "| slow | f16 | 400.0 | 343.6 TFLOP/s | 138.9 | 35% f16 peak | 0.75 |" in page
    assert "| broken | f16 | failed |" in page
    assert "| **geometric mean** | f16 | | | | | 1.06 |" in page
    assert "Not reached in the time given: 1 cases." in page
    assert (tmp_path / "device-test-gemm.png").stat().st_size > 1000
