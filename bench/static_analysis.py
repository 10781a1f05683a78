"""What Pruner's static analyser keeps of the best among the programs that a tuner measured first, with and without penalties.

    python -m tilewright.bench.static_analysis v100.jsonl.xz k80.jsonl.xz      # the table of docs/features.md

Of each operator's first 128 measured programs, the best time over that of the best of the 16 that are ranked first; mean over
operators. Nothing is drawn: there is no spread over seeds, the one given is over operators (standard deviation).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from tilewright.bench.stored_programs import FEWEST, StoredOperator, read_operators
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.terminal import console
from tilewright.compiler.tuning.cost_models.cost_model import CostModel
from tilewright.compiler.tuning.cost_models.micro_performance import MicroPerformance
from tilewright.compiler.tuning.cost_models.static_analyser import PENALTIES, StaticAnalyser
from tilewright.compiler.tuning.features.feature_set import rows

FIRST, KEPT = 128, 16


def kept(operators: Sequence[StoredOperator], model: CostModel) -> np.ndarray:
    """The best time over the best of those ranked first, of every operator with enough programs: [operators]."""
    found = []
    for operator in operators:
        places = np.flatnonzero(operator.order < FIRST)
        if len(places) < FEWEST:
            continue
        scores = model.predict(rows(operator.features(model.reads), places)).mean
        us = operator.us[places]
        found.append(us.min() / us[np.argsort(-scores, kind="stable")[:KEPT]].min())
    return np.asarray(found)


def models() -> dict[str, CostModel]:
    """The micro-performance model, the analyser, and the analyser without each of its penalties and without all."""
    without: dict[str, CostModel] = {
        f"without {name}": StaticAnalyser([n for n in PENALTIES if n != name]) for name in PENALTIES
    }
    whole: dict[str, CostModel] = {
        "micro-performance": MicroPerformance(),
        "static analyser": StaticAnalyser(),
    }
    return {**whole, **without, "without any": StaticAnalyser([])}


def main(paths: Sequence[Path]) -> int:
    """Prints the table of all models over some files of measured programs."""
    stored = [(path.name.partition(".")[0], read_operators(path)) for path in paths]
    table = Table("model", *(name for name, _ in stored))
    for name, model in models().items():
        found = [kept(operators, model) for _, operators in stored]
        table.add_row(name, *(f"{f.mean():.4f} ± {f.std():.3f} of {len(f)}" for f in found))
    console().print(table)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main([Path(name) for name in sys.argv[1:]]))
    except TilewrightError as error:
        sys.exit(f"error: {error}")
