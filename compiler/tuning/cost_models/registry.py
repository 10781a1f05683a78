"""Cost models by name: what `--model` and strategies may ask for, and what plugins add to."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models.cost_model import CostModel

MakeCostModel = Callable[[int], CostModel]


_TREES_READ = frozenset({"statement", "micro-performance"})


def _trees(objective: str, reads: frozenset[str] = _TREES_READ) -> MakeCostModel:
    def make(seed: int) -> CostModel:
        from tilewright.compiler.tuning.cost_models.trees import Trees

        return Trees(objective, reads, seed=seed)

    return make


def _bootstrap(of: str) -> MakeCostModel:
    def make(seed: int) -> CostModel:
        from tilewright.compiler.tuning.cost_models.bootstrap import Bootstrap

        return Bootstrap(of, seed=seed)

    return make


def _micro_performance(seed: int) -> CostModel:
    from tilewright.compiler.tuning.cost_models.micro_performance import MicroPerformance

    return MicroPerformance()


def _static_analyser(seed: int) -> CostModel:
    from tilewright.compiler.tuning.cost_models.static_analyser import StaticAnalyser

    return StaticAnalyser()


def _mlp(seed: int) -> CostModel:
    from tilewright.compiler.tuning.cost_models.mlp import StatementNetwork

    return StatementNetwork(seed=seed)


def _pacm(seed: int) -> CostModel:
    from tilewright.compiler.tuning.cost_models.pacm import PatternAwareModel

    return PatternAwareModel(seed=seed)


def _tree_gru(objective: str) -> MakeCostModel:
    def make(seed: int) -> CostModel:
        from tilewright.compiler.tuning.cost_models.tree_gru import TreeGru

        return TreeGru(objective, seed=seed)

    return make


def _global_local(seed: int) -> CostModel:
    from tilewright.compiler.tuning.cost_models.global_local import GlobalLocal

    return GlobalLocal("trees", "trees-regression", seed=seed)


def _mlp_momentum(seed: int) -> CostModel:
    from tilewright.compiler.tuning.cost_models.momentum import MomentumStatementNetwork

    return MomentumStatementNetwork(seed=seed)


def _pacm_momentum(seed: int) -> CostModel:
    from tilewright.compiler.tuning.cost_models.momentum import MomentumPatternAwareModel

    return MomentumPatternAwareModel(seed=seed)


COST_MODELS: dict[str, MakeCostModel] = {
    "micro-performance": _micro_performance,
    "static-analyser": _static_analyser,
    "trees": _trees("rank"),
    "trees-graded": _trees("graded"),
    "trees-regression": _trees("regression"),
    "trees-relation": _trees("rank", frozenset({"context-relation"})),
    "trees-bootstrap": _bootstrap("trees"),
    "tree-gru": _tree_gru("rank"),
    "tree-gru-regression": _tree_gru("regression"),
    "mlp": _mlp,
    "pacm": _pacm,
    "pacm-bootstrap": _bootstrap("pacm"),
    "global-local": _global_local,
    "mlp-momentum": _mlp_momentum,
    "pacm-momentum": _pacm_momentum,
}
"""By name, what makes a model of a seed."""


def make_cost_model(name: str, *, seed: int = 0) -> CostModel:
    """A model that knows nothing yet; raises CostModelError that lists the names for another one."""
    if name not in COST_MODELS:
        raise CostModelError(f"no cost model is named `{name}`; there are {', '.join(COST_MODELS)}")
    return COST_MODELS[name](seed)
