"""The page on transfer between devices: every model and method that ran is in it, with its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.bench import transfer_report
from tilewright.bench.transfer import SCORES
from tilewright.bench.transfer_report import NAMES, PLAN, main, page
from tilewright.compiler.errors import TilewrightError


def row(model: str, method: str, count: int, target: str = "v100") -> dict:
    spread = {"mean": count / 100 + 0.125, "std": 0.0625, "seeds": [0.125, 0.25]}
    names = {"source": "k80", "target": target, "model": model, "method": method, "programs": count}
    return {**names, "scores": dict.fromkeys(SCORES, spread), "seconds": 1.0}


def data() -> dict:
    rows = [
        row(m, method, count)
        for m, (methods, counts) in PLAN.items()
        for method in methods
        for count in counts
        if count or method == "fine-tuned"
    ]
    return {"seeds": 2, "operators": {"k80": 3, "v100": 2}, "transferred": rows}


def test_the_plan_has_a_label_for_all_that_it_runs() -> None:
    assert set(NAMES) == {(model, method) for model, (methods, _) in PLAN.items() for method in methods}
    assert len(set(NAMES.values())) == len(NAMES)


def test_the_page_has_a_table_for_every_number_of_programs_and_a_curve() -> None:
    text = page(data(), "the command")
    parts = {part.partition("\n")[0]: part for part in text.split("## ")[1:]}
    assert list(parts) == [
        *(f"From k80 to v100, {count} programs of the target" for count in (0, 16, 64)),
        "From k80 to v100, by round",
    ]
    assert "`the command`" in text
    assert "| PaCM, momentum | 0.285 ± 0.062 |" in parts["From k80 to v100, 16 programs of the target"]
    assert "alone" not in parts["From k80 to v100, 0 programs of the target"]
    assert "drawn" not in parts["From k80 to v100, 16 programs of the target"]
    assert "| PaCM, fine-tuned | 0.125 | 0.205 | 0.285 |" in parts["From k80 to v100, by round"]
    assert "pooled" not in parts["From k80 to v100, by round"]


def test_the_page_says_what_was_not_measured() -> None:
    some = data()
    assert "Not measured" not in page(some, "")
    some["transferred"] = [r for r in some["transferred"] if r["model"] != "pacm-resumed"]
    assert "Not measured from k80 to v100: `pacm-resumed`." in page(some, "")


def test_a_page_is_written_of_results_that_are_there(tmp_path: Path) -> None:
    stored, document = tmp_path / "transfer.json", tmp_path / "page.md"
    stored.write_text(json.dumps(data()))
    assert CliRunner().invoke(main, ["--from", str(stored), "--table", str(document)]).exit_code == 0
    assert "trees, global + local" in document.read_text()
    assert "give either" in CliRunner().invoke(main, []).output
    with pytest.raises(TilewrightError, match="no transfer of forest is planned; there are random, roller"):
        transfer_report.run(tmp_path, ["forest"], 2, stored)
