"""The sets of features of GPU programs of one operator, from their tile sizes and the workload's accesses alone.

program_features(TiledPrograms.of(workload, records), target, frozenset({"static-analysis"}))
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table
from tilewright.compiler.tuning.features.static_analysis import static_analysis
from tilewright.compiler.tuning.features.tiled_programs import TiledPrograms


def program_features(programs: TiledPrograms, target: Target, sets: frozenset[str]) -> Features:
    """These sets of all programs; raises ValueError for others."""
    if unknown := sets - PROGRAM_SETS.keys():
        raise ValueError(
            f"programs have the features {', '.join(PROGRAM_SETS)}, found {', '.join(sorted(unknown))}"
        )
    return {name: PROGRAM_SETS[name](programs, target) for name in sorted(sets)}


PROGRAM_SETS: dict[str, Callable[[TiledPrograms, Target], Table | Steps]] = {
    "static-analysis": static_analysis,
}
