"""The pages of searches and cost models follow from the records, and docs/search-results.md says what stands in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.bench import search_results

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/search-results.md").read_text(encoding="utf-8")
PAGES = [ROOT / "docs/results" / name for name in ("cost-models.md", "searches.md")]


def test_pages_are_what_the_records_say(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = CliRunner().invoke(search_results.main, ["--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for page in PAGES:
        assert (tmp_path / page.name).read_text() == page.read_text(), page.name
        for plot in re.findall(r"\]\(([\w-]+\.png)\)", page.read_text()):
            assert (tmp_path / plot).exists() and (page.parent / plot).exists()


def test_figures_of_the_document_stand_in_the_pages() -> None:
    stated = re.findall(r"\d+\.\d+ ± \d+\.\d+", TEXT)
    measured = set(re.findall(r"\d+\.\d+ ± \d+\.\d+", "".join(page.read_text() for page in PAGES)))
    assert len(stated) > 40 and not set(stated) - measured


def test_every_figure_has_five_seeds() -> None:
    for path in sorted((ROOT / "bench/results").glob("cost-models*.json")):
        data = json.loads(path.read_text())
        assert data["seeds"] == 5
        for row in [*data["ranked"], *data["curves"]]:
            assert all(len(spread["seeds"]) == 5 for spread in row["scores"].values())
