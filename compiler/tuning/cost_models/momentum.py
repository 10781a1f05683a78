"""Pruner's momentum transfer (ASPLOS'25, §2.5 and Figure 5): networks that go on learning on another device.

`fit` trains on the source's samples, and what it learns is the Siamese network. Every `update` is a round on the target:

    target  <- the Siamese network            the network that predicts starts anew from it,
    target  <- trained on the target's samples of this round and of those before,
    Siamese <- m * Siamese + (1 - m) * target m = 0.99, as MoCo (CVPR'20, eq. 2) has it, once a round

so that no round's few samples carry away what was learned before: after r rounds the Siamese network is still `m^r` what it
was. With `m = 0` a round starts where the last one ended: this is fine-tuning. A network that was fitted to nothing has no
Siamese network, and every update goes on from the weights that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from tilewright.compiler.tuning.cost_models.cost_model import Samples
from tilewright.compiler.tuning.cost_models.mlp import StatementNetwork
from tilewright.compiler.tuning.cost_models.network import Network
from tilewright.compiler.tuning.cost_models.pacm import PatternAwareModel

_SIAMESE = "siamese."
_ROUND_STEPS, _ROUND_RATE = 50, 7e-4
"""Steps of a round and the rate at which they begin, those of the authors' code: it takes 50 epochs of one batch. More or larger ones
carry a network to where it only knows the few samples of a round."""


class MomentumTransfer(Network):
    """What `fit` and `update` are for a network that is listed behind it among the bases."""

    settings: ClassVar[Mapping[str, type]] = {"momentum": float}

    def __init__(self, seed: int = 0, momentum: float = 0.99):
        if not 0 <= momentum <= 1:
            raise ValueError(f"a momentum is a number from 0 to 1, found {momentum}")
        super().__init__(seed)
        self.momentum = momentum
        self._siamese: dict[str, np.ndarray] = {}

    def fit(self, samples: Sequence[Samples]) -> None:
        self._siamese, self._samples, self._module = {}, [], None
        self.steps, self.rate = Network.steps, Network.rate
        super().update(samples)
        self._siamese, self._samples = self._weights(), []
        if self._siamese:
            self.steps, self.rate = _ROUND_STEPS, _ROUND_RATE

    def update(self, samples: Sequence[Samples]) -> None:
        """A round: trains on the samples of all rounds since `fit`, starting from the Siamese network."""
        if not any(map(len, samples)):
            return
        if self._siamese:
            self._put(self._siamese)
        super().update(samples)
        target = self._weights()
        self._siamese = {
            name: self.momentum * own + (1 - self.momentum) * target[name]
            for name, own in self._siamese.items()
        }

    def _arrays(self) -> dict[str, np.ndarray]:
        return super()._arrays() | {_SIAMESE + name: array for name, array in self._siamese.items()}

    def _restore(self, path: Path, sizes: Sequence[int], arrays: dict[str, np.ndarray]) -> None:
        siamese = {
            name.removeprefix(_SIAMESE): arrays.pop(name)
            for name in sorted(arrays)
            if name.startswith(_SIAMESE)
        }
        super()._restore(path, sizes, arrays)
        if siamese:
            target = self._weights()
            self._load_weights(path, siamese)
            self._siamese = siamese
            self.steps, self.rate = _ROUND_STEPS, _ROUND_RATE
            self._put(target)


class MomentumStatementNetwork(MomentumTransfer, StatementNetwork):
    """TenSet's layers over statements."""

    kind = "mlp-momentum"


class MomentumPatternAwareModel(MomentumTransfer, PatternAwareModel):
    """PaCM."""

    kind = "pacm-momentum"
