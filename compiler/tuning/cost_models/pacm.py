"""Pruner's pattern-aware cost model (ASPLOS'25, §2.4): statements in layers, the data flow under self-attention.

    statement [n, columns]         -> two layers                         |
                                                                           joined -> two layers -> score
    data-flow [n, steps, columns]  -> layer, self-attention, layer, mean |

Candidates without data flow have zeros there. Trained on normalised latency with LambdaRank, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.compiler.tuning.cost_models.network import Inputs, Network
from tilewright.compiler.tuning.cost_models.samples import columns_of, steps_of
from tilewright.compiler.tuning.features.feature_set import Features

_WIDTH, _HEADS, _LONGEST = 64, 4, 64
_STATEMENT = frozenset({"statement"})


class PatternAwareModel(Network):
    """PaCM; sequences of more than 64 steps lose their last ones."""

    kind = "pacm"
    reads = frozenset({"statement", "data-flow"})

    def inputs(self, features: Features) -> Inputs:
        steps = steps_of(features, "data-flow")
        return (
            columns_of(features, _STATEMENT)[1],
            steps.values[:, :_LONGEST],
            steps.lengths.clip(max=_LONGEST),
        )

    def names(self, features: Features) -> tuple[str, ...]:
        steps = steps_of(features, "data-flow")
        return columns_of(features, _STATEMENT)[0] + tuple(f"data-flow: {name}" for name in steps.names)

    def module(self, sizes: Sequence[int]) -> Any:
        import torch
        from torch import nn

        class Module(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.statement = nn.Sequential(
                    nn.Linear(sizes[0], 2 * _WIDTH), nn.ReLU(), nn.Linear(2 * _WIDTH, _WIDTH), nn.ReLU()
                )
                self.step = nn.Linear(sizes[1], _WIDTH)
                self.place = nn.Parameter(torch.randn(_LONGEST, _WIDTH) * 0.5)
                self.attend = nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=True)
                self.norm = nn.LayerNorm(_WIDTH)
                self.each = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
                self.score = nn.Sequential(nn.Linear(2 * _WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1))

            def forward(self, statement: Any, steps: Any, lengths: Any) -> Any:
                there = torch.arange(steps.shape[1])[None] < lengths[:, None]
                embedded = self.step(steps) + self.place[: steps.shape[1]]
                # A sequence without steps attends to its first, zero one, which is left out of the mean.
                hidden = ~there
                hidden[:, 0] = False
                attended, _ = self.attend(
                    embedded, embedded, embedded, key_padding_mask=hidden, need_weights=False
                )
                flow = self.each(self.norm(embedded + attended)) * there[:, :, None]
                flow = flow.sum(1) / lengths.clamp(min=1)[:, None]
                return self.score(torch.cat([self.statement(statement), flow], 1))[:, 0]

        return Module()
