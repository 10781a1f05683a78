"""What construction can be told: how many programs, which alignment rules, how much padding, which rewrites."""

from __future__ import annotations

from dataclasses import dataclass

RULES = ("memory_transaction", "execution_unit", "tensor_shape", "memory_bank", "matrix_unit")
"""Names of the alignment rules, in the order in which Roller's Table 3 switches them on."""


@dataclass(frozen=True)
class ConstructOptions:
    """`top_k` programs come out, chosen by the model among `candidates` constructed ones.

    `rules` are the alignment rules to keep, of `RULES`. `epsilon` bounds the share of a padded axis that is waste;
    while too few programs come out it grows by `epsilon_step` up to `epsilon_limit` (Roller, OSDI'22, §3.1, §3.2).
    `axis_fusion` brings the workload into canonical form first, `shrink` cuts tiles of small operators until every
    execution unit has one. `matrix_unit` constructs for the target's matrix instructions.
    """

    top_k: int = 10
    candidates: int = 40
    rules: frozenset[str] = frozenset(RULES)
    epsilon: float = 0.0
    epsilon_step: float = 0.2
    epsilon_limit: float = 1.0
    axis_fusion: bool = True
    shrink: bool = True
    matrix_unit: bool = False

    def __post_init__(self) -> None:
        if unknown := sorted(self.rules - set(RULES)):
            raise ValueError(f"unknown alignment rule `{unknown[0]}`; the rules are: {', '.join(RULES)}")
        if self.top_k < 1 or self.candidates < self.top_k:
            raise ValueError(f"expected 1 <= top_k <= candidates, found {self.top_k} and {self.candidates}")


DEFAULT = ConstructOptions()
"""All rules, ten programs."""
