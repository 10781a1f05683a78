"""Strategies by name: an explorer, the cost model that it asks, and how many candidates are measured between two questions.

| name | explorer | cost model |
| --- | --- | --- |
| `pruner` | Roller's schedules, then drafts that are verified, 5% drawn. Pruner (ASPLOS'25), Algorithm 1 | `trees` |
| `autotvm` | annealing, a diverse batch of it, 5% drawn. AutoTVM (NeurIPS'18), §3.3 | `trees` |
| `genetic` | cross-over and mutation of the fastest | none |
| `random` | candidates drawn | none |
| `roller` | Roller's schedules alone. Roller (OSDI'22), §3 | none |
| `exhaustive` | all candidates in their order | none |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.cost_models.cost_model import CostModel
from tilewright.compiler.tuning.cost_models.registry import make_cost_model
from tilewright.compiler.tuning.search import acquisition
from tilewright.compiler.tuning.search.annealing import Annealing
from tilewright.compiler.tuning.search.draft_then_verify import DraftThenVerify
from tilewright.compiler.tuning.search.explorer import Explorer, MakeExplorer
from tilewright.compiler.tuning.search.genetic import Genetic
from tilewright.compiler.tuning.search.plain_explorers import Constructed, Exhaustive, Random, Seeded
from tilewright.compiler.tuning.search.selection import Diverse, EpsilonGreedy

DRAFT = "micro-performance"
"""The cost model that drafts: it is not trained."""


@dataclass(frozen=True)
class Strategy:
    """How a task is searched. `model` names a cost model, "" where none is asked; `batch` is measured between two times
    that the model learns."""

    name: str
    explorer: MakeExplorer
    model: str = ""
    batch: int = 16

    def with_model(self, model: str) -> Strategy:
        """This strategy asking another cost model; raises TilewrightError where it asks none."""
        if model and not self.model:
            raise TilewrightError(
                f"the strategy `{self.name}` asks no cost model, `{model}` was given; leave it out"
            )
        return replace(self, model=model) if model else self

    def make_model(self, seed: int) -> CostModel | None:
        """A model that has learned nothing; None where the strategy asks none."""
        return make_cost_model(self.model, seed=seed) if self.model else None


def _pruner() -> Explorer:
    return Seeded(EpsilonGreedy(DraftThenVerify(lambda: make_cost_model(DRAFT))))


def _autotvm() -> Explorer:
    return EpsilonGreedy(Diverse(Annealing()))


STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("pruner", _pruner, "trees"),
        Strategy("autotvm", _autotvm, "trees"),
        Strategy("genetic", Genetic),
        Strategy("random", Random),
        Strategy("roller", Constructed),
        Strategy("exhaustive", Exhaustive),
    )
}
"""By name; plugins add theirs."""

EXPLORERS: dict[str, Callable[[], Explorer]] = {
    "exhaustive": Exhaustive,
    "random": Random,
    "annealing": Annealing,
    "annealing-ei": lambda: Annealing(acquisition=acquisition.expected_improvement),
    "annealing-ucb": lambda: Annealing(acquisition=acquisition.upper_bound),
    "diverse-annealing": lambda: Diverse(Annealing()),
    "epsilon-greedy-annealing": lambda: EpsilonGreedy(Annealing()),
    "genetic": Genetic,
    "draft-then-verify": lambda: DraftThenVerify(lambda: make_cost_model(DRAFT)),
    "constructed": Constructed,
}
"""What strategies are made of, by name; `roller+NAME` is any of them behind Roller's schedules."""


def make_explorer(name: str) -> Explorer:
    """An explorer that has proposed nothing yet; raises TilewrightError that lists the names for another one."""
    plain = name.removeprefix("roller+")
    if plain not in EXPLORERS:
        raise TilewrightError(f"no explorer is named `{plain}`; there are {', '.join(EXPLORERS)}")
    return EXPLORERS[plain]() if plain == name else Seeded(EXPLORERS[plain]())


def strategy_named(name: str) -> Strategy:
    """The strategy; raises TilewrightError that lists the names for another one."""
    if name not in STRATEGIES:
        raise TilewrightError(f"no strategy is named `{name}`; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[name]
