"""docs/features.md and docs/cost-models.md name every set of features and every cost model, and what each reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.compiler.tuning.cost_models.registry import COST_MODELS, make_cost_model
from tilewright.compiler.tuning.features import cpu_sets, feature_set, gpu_sets
from tilewright.compiler.tuning.features.program_sets import PROGRAM_SETS
from tilewright.compiler.tuning.model.gpu_kernel import UNITS

DOCS = Path(__file__).parents[3] / "docs"
FEATURES, MODELS = ((DOCS / name).read_text(encoding="utf-8") for name in ("features.md", "cost-models.md"))


def rows(text: str, title: str) -> dict[str, str]:
    """The rows of the first table behind a heading of its first column, by the names in that column."""
    table = text[text.index(f"| {title} |") :].partition("\n\n")[0]
    return {
        name: row for row in table.splitlines()[2:] for name in re.findall(r"`([\w-]+)`", row.split("|")[1])
    }


def test_every_set_of_features_is_there() -> None:
    named = rows(FEATURES, "set")
    assert set(named) == {"knobs", *cpu_sets._SETS, *gpu_sets._SETS, *PROGRAM_SETS}
    absent = set(re.findall(r"^\| `([\w-]+)` \|", feature_set.__doc__ or "", re.MULTILINE)) - set(named)
    assert all(f"`{name}`" in FEATURES for name in absent)
    assert f"these {len(cpu_sets._FLOW)} are ours" in FEATURES
    assert f"{len(gpu_sets._FLOW)} columns for kernels of GPUs" in FEATURES


def test_every_column_of_gpu_schedules_is_there() -> None:
    model = (DOCS / "model.md").read_text(encoding="utf-8")
    table = model[model.index("| column of GPU schedules |") :].partition("\n\n")[0]
    named = {name.partition(".")[0] for name in re.findall(r"`([\w.]+)`", table)}
    assert set(UNITS) <= named


@pytest.mark.parametrize("name", COST_MODELS)
def test_every_cost_model_is_there_with_what_it_reads(name: str) -> None:
    row = rows(MODELS, "name")[name]
    if "as " in row.split("|")[3] or "the same" in row.split("|")[3]:
        return
    assert set(re.findall(r"`([\w-]+)`", row.split("|")[3])) == make_cost_model(name).reads


def test_no_other_cost_model_is_there() -> None:
    assert set(rows(MODELS, "name")) == set(COST_MODELS)
