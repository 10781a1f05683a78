"""AutoTVM's TreeGRU over loops with their context (NeurIPS'18, §3.1 and §4, Figure 3d).

    loop-context [n, loops, columns] -> layer -> GRU from inner loops to outer ones -> an embedding h of each loop
    out_i = softmax(W^T h)_i h          each loop is scattered into m slots of memory
    score = layer(sum of out over all loops)

The tree of a candidate is that of its rTask: the loop of rTasks has the statements' nests inside of it, whose states are
added up. The objective `rank` is AutoTVM's, the logistic loss of pairs (§3.1, RankNet); `regression` fits the
throughput by squares, in standard deviations of the task's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tilewright.compiler.tuning.cost_models.network import Inputs, Network
from tilewright.compiler.tuning.cost_models.samples import steps_of
from tilewright.compiler.tuning.features.feature_set import Features
from tilewright.compiler.tuning.features.loop_context import STATEMENT

OBJECTIVES = ("rank", "regression")
_WIDTH, _SLOTS, _LONGEST = 64, 16, 64


class TreeGru(Network):
    """Of more than 64 loops those of the last statements are lost. Candidates without rows of a statement have one chain of loops."""

    kind = "tree-gru"
    reads = frozenset({"loop-context"})
    settings: ClassVar[Mapping[str, type]] = {"objective": str}

    def __init__(self, objective: str = "rank", seed: int = 0):
        if objective not in OBJECTIVES:
            raise ValueError(f"objectives are {', '.join(OBJECTIVES)}, found {objective}")
        super().__init__(seed)
        self.objective = objective

    def inputs(self, features: Features) -> Inputs:
        steps = steps_of(features, "loop-context")
        values = steps.values[:, :_LONGEST]
        begins = values[:, :, [steps.names.index(STATEMENT)]]
        return values, begins, steps.lengths.clip(max=_LONGEST)

    def names(self, features: Features) -> tuple[str, ...]:
        return steps_of(features, "loop-context").names

    def loss(self, scores: Any, speeds: Any) -> Any:
        import torch

        if self.objective == "regression":
            return (
                (scores - (speeds - speeds.mean()) / speeds.std(unbiased=False).clamp(min=1e-6)) ** 2
            ).mean()
        faster = speeds[:, None] > speeds[None]
        pairs = torch.nn.functional.softplus(scores[None] - scores[:, None])
        return (pairs * faster).sum() / faster.sum().clamp(min=1)

    def module(self, sizes: Sequence[int]) -> Any:
        import torch
        from torch import nn

        class Module(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Sequential(nn.Linear(sizes[0], _WIDTH), nn.ReLU())
                self.cell = nn.GRUCell(_WIDTH, _WIDTH)
                self.slot = nn.Linear(_WIDTH, _SLOTS)
                self.score = nn.Sequential(
                    nn.Linear(_SLOTS * _WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1)
                )

            def forward(self, loops: Any, begins: Any, lengths: Any) -> Any:
                count, longest = loops.shape[:2]
                there = torch.arange(longest)[None] < lengths[:, None]
                embedded = self.embed(loops)
                statements = inside = torch.zeros(count, _WIDTH)
                states = []
                for place in reversed(range(longest)):
                    inner = inside if place else statements + inside
                    state = torch.where(there[:, place, None], self.cell(embedded[:, place], inner), 0.0)
                    states.append(state)
                    outermost = begins[:, place] > 0  # after scaling, which keeps the sign of what differs
                    statements = statements + torch.where(outermost, state, 0.0)
                    inside = torch.where(outermost, 0.0, state)
                h = torch.stack(states[::-1], 1)
                slots = torch.softmax(self.slot(h), 2) * there[:, :, None]
                return self.score(torch.einsum("nls,nlw->nsw", slots, h).flatten(1))[:, 0]

        return Module()
