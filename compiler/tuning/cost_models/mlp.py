"""Layers over tables of features, as TenSet's MLP (NeurIPS'21 Datasets and Benchmarks, §4) has them over statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.compiler.tuning.cost_models.network import Inputs, Network
from tilewright.compiler.tuning.cost_models.samples import columns_of
from tilewright.compiler.tuning.features.feature_set import Features

_WIDTH = 128


class StatementNetwork(Network):
    """An encoder of two layers, two layers with a shortcut, and one that scores."""

    kind = "mlp"
    reads = frozenset({"statement"})

    def inputs(self, features: Features) -> Inputs:
        return (columns_of(features, self.reads)[1],)

    def names(self, features: Features) -> tuple[str, ...]:
        return columns_of(features, self.reads)[0]

    def module(self, sizes: Sequence[int]) -> Any:
        from torch import nn

        class Module(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encode = nn.Sequential(
                    nn.Linear(sizes[0], _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU()
                )
                self.inner = nn.Sequential(
                    nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU()
                )
                self.score = nn.Linear(_WIDTH, 1)

            def forward(self, x: Any) -> Any:
                encoded = self.encode(x)
                return self.score(encoded + self.inner(encoded))[:, 0]

        return Module()
