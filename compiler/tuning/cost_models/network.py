"""What cost models of neural networks have in common: scaling of their inputs, training by rank, and files.

Training minimises a loss over the candidates of one task at a time, by the throughput over that of the fastest. Unless a
network has its own, it is LambdaRank (Burges, "From RankNet to LambdaRank to LambdaMART", MSR-TR-2010-82, §4).
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models.cost_model import Prediction, Samples
from tilewright.compiler.tuning.cost_models.model_file import checked
from tilewright.compiler.tuning.features.feature_set import Features

_GROUP = 256
"""Candidates of one task that are compared in one step: of more, as many are drawn."""
_STEPS, _FEWEST_EPOCHS, _MOST_EPOCHS = 600, 10, 100
_RATE, _DECAY = 2e-3, 1e-4

Inputs = tuple[np.ndarray, ...]


class Network(ABC):
    """A network that scores candidates from arrays of them.

    A subclass says what it reads (`inputs`, `names`), and makes the module of the sizes of its arrays (`module`).
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    settings: ClassVar[Mapping[str, type]] = {}
    """Arguments of the constructor besides the seed, which are attributes too, and are kept in files."""
    reads: frozenset[str]
    steps: int = _STEPS
    """About how many steps a training takes, where there are neither very few nor very many tasks."""
    gain: ClassVar[float] = 1.0
    """The relevance of the fastest candidate, in powers of two: of 1 gains are nearly proportional to throughput. Of 5, as is usual
    in the ranking of documents, pairs of the very fastest count for most; networks rank as well by either."""
    rate: float = _RATE

    def __init__(self, seed: int = 0):
        self.seed = seed
        self._names: tuple[str, ...] = ()
        self._scales: list[tuple[np.ndarray, np.ndarray]] = []
        self._module: Any = None
        self._samples: list[Samples] = []

    @property
    def name(self) -> str:
        return self.kind

    @abstractmethod
    def inputs(self, features: Features) -> Inputs:
        """Arrays [n, ..] of the candidates, the columns last; one of [n] is lengths, and stays as it is."""

    @abstractmethod
    def names(self, features: Features) -> tuple[str, ...]:
        """The columns of all arrays."""

    @abstractmethod
    def module(self, sizes: Sequence[int]) -> Any:
        """The network for arrays of so many columns, as a `torch.nn.Module` that gives scores [n]."""

    def loss(self, scores: Any, speeds: Any) -> Any:
        """What training makes small for the candidates of one task: their scores [n], and throughputs over the fastest [n]."""
        return lambda_rank(scores, speeds, self.gain)

    def fit(self, samples: Sequence[Samples]) -> None:
        self._samples, self._module = [], None
        self.update(samples)

    def update(self, samples: Sequence[Samples]) -> None:
        """Goes on from the weights that are there, with all samples since `fit`."""
        self._samples += [s for s in samples if len(s)]
        groups = self._groups()
        if not groups:
            return
        names = {self.names(s.features) for s in self._samples}
        if len(names) > 1 or (self._module is not None and names != {self._names}):
            raise CostModelError(f"the samples of a `{self.kind}` model have different columns")
        with _deterministic(self.seed):
            if self._module is None:
                (self._names,) = names
                self._begin([inputs for inputs, _ in groups])
            self._train(groups)

    def _groups(self) -> list[tuple[Inputs, np.ndarray]]:
        """The inputs and the speeds of each task on each device."""
        found = []
        for key in sorted({(s.task, s.device) for s in self._samples}):
            own = [s for s in self._samples if (s.task, s.device) == key]
            us = np.concatenate([s.us for s in own])
            if np.isinf(us.min()):
                continue
            parts = zip(*(self.inputs(s.features) for s in own))
            found.append((tuple(_padded(arrays) for arrays in parts), us.min() / us))
        return found

    def _begin(self, groups: Sequence[Inputs]) -> None:
        self._scales = []
        for number in range(len(groups[0])):
            if groups[0][number].ndim == 1:
                self._scales.append((np.zeros(1), np.ones(1)))
                continue
            rows = np.concatenate([g[number].reshape(-1, g[number].shape[-1]) for g in groups])
            spread = rows.std(axis=0)
            self._scales.append((rows.mean(axis=0), np.where(spread > 1e-6, spread, 1.0)))
        self._module = self.module(self._sizes())

    def _sizes(self) -> list[int]:
        return [len(mean) for mean, _ in self._scales]

    def _tensors(self, inputs: Inputs) -> list[Any]:
        import torch

        return [
            torch.from_numpy(np.asarray((array - mean) / spread, dtype=np.float32))
            for array, (mean, spread) in zip(inputs, self._scales)
        ]

    def _train(self, groups: Sequence[tuple[Inputs, np.ndarray]]) -> None:
        import torch

        tensors = [(self._tensors(inputs), torch.from_numpy(speeds).float()) for inputs, speeds in groups]
        optimiser = torch.optim.AdamW(self._module.parameters(), lr=self.rate, weight_decay=_DECAY)
        rng = np.random.default_rng(self.seed)
        epochs = int(np.clip(self.steps // len(tensors), _FEWEST_EPOCHS, _MOST_EPOCHS))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
        self._module.train()
        for _ in range(epochs):
            for number in rng.permutation(len(tensors)):
                inputs, speeds = tensors[number]
                if len(speeds) > _GROUP:
                    chosen = torch.from_numpy(rng.choice(len(speeds), _GROUP, replace=False))
                    inputs, speeds = [x[chosen] for x in inputs], speeds[chosen]
                optimiser.zero_grad()
                self.loss(self._module(*inputs), speeds).backward()
                optimiser.step()
            schedule.step()
        self._module.eval()

    def predict(self, features: Features) -> Prediction:
        inputs = self.inputs(features)
        count = len(inputs[0])
        if self._module is None:
            return Prediction(np.zeros(count), np.zeros(count))
        if self.names(features) != self._names:
            raise CostModelError("the candidates have other columns than the model was trained on")
        import torch

        with _deterministic(self.seed), torch.no_grad():
            found = self._module(*self._tensors(inputs))
        return Prediction(found.detach().numpy().astype(np.float64), np.zeros(count))

    def save(self, path: Path) -> None:
        from safetensors.numpy import save_file

        record = {
            "kind": self.kind,
            "version": self.version,
            "seed": self.seed,
            "names": list(self._names),
            "sizes": self._sizes() if self._module is not None else [],
            **{name: getattr(self, name) for name in self.settings},
        }
        arrays = self._arrays()
        for number, (mean, spread) in enumerate(self._scales):
            arrays |= {f"scale.{number}.mean": mean, f"scale.{number}.spread": spread}
        save_file(
            {k: np.ascontiguousarray(v) for k, v in arrays.items()}, path, {"model": json.dumps(record)}
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps besides the scales of the inputs."""
        return self._weights()

    def _weights(self) -> dict[str, np.ndarray]:
        """A copy of the network's weights; none before it was trained."""
        if self._module is None:
            return {}
        return {name: tensor.numpy().copy() for name, tensor in self._module.state_dict().items()}

    def _put(self, weights: Mapping[str, np.ndarray]) -> None:
        import torch

        self._module.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})

    @classmethod
    def load(cls, path: Path) -> Self:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="np") as file:
                record = json.loads((file.metadata() or {}).get("model", "null"))
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError) as e:
            raise CostModelError(f"{path}: no file of a cost model: {e}") from e
        fields = {"seed": int, "names": list, "sizes": list, **cls.settings}
        record = checked(path, record, cls.kind, cls.version, fields)
        try:
            model = cls(seed=record["seed"], **{name: record[name] for name in cls.settings})
        except ValueError as e:
            raise CostModelError(f"{path}: {e}") from e
        model._names = tuple(map(str, record["names"]))
        if record["sizes"]:
            model._restore(path, [int(size) for size in record["sizes"]], arrays)
        return model

    def _restore(self, path: Path, sizes: Sequence[int], arrays: dict[str, np.ndarray]) -> None:
        try:
            self._scales = [
                (arrays.pop(f"scale.{number}.mean"), arrays.pop(f"scale.{number}.spread"))
                for number in range(len(sizes))
            ]
            if self._sizes() != sizes:
                raise CostModelError(f"{path}: scales of {self._sizes()} columns, {sizes} were trained")
        except KeyError as e:
            raise CostModelError(f"{path}: not the weights of a `{self.kind}` model: {e}") from e
        self._module = self.module(sizes)
        self._load_weights(path, arrays)
        self._module.eval()

    def _load_weights(self, path: Path, weights: Mapping[str, np.ndarray]) -> None:
        try:
            self._put(weights)
        except RuntimeError as e:
            raise CostModelError(f"{path}: not the weights of a `{self.kind}` model: {e}") from e


def lambda_rank(scores: Any, speeds: Any, gain: float) -> Any:
    """LambdaRank's loss of candidates with these scores and throughputs over the fastest, both [n].

    Each pair counts by what NDCG would lose were the two exchanged (Burges, §4); gains are `2^(gain speed) - 1`.
    """
    import torch

    count = len(scores)
    gains = torch.pow(2.0, gain * speeds) - 1
    places = torch.empty(count)
    places[torch.argsort(scores.detach(), descending=True, stable=True)] = torch.arange(count).float()
    discounts = 1 / torch.log2(places + 2)
    ideal = (torch.sort(gains, descending=True).values / torch.log2(torch.arange(count) + 2.0)).sum()
    lost = (
        (gains[:, None] - gains[None]) * (discounts[:, None] - discounts[None]).abs() / ideal.clamp(min=1e-9)
    )
    return (lost.clamp(min=0) * torch.nn.functional.softplus(scores[None] - scores[:, None])).sum()


def _padded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of candidates one behind the other, shorter sequences filled up with zeros."""
    if arrays[0].ndim < 3:
        return np.concatenate(arrays)
    longest = max(a.shape[1] for a in arrays)
    return np.concatenate([np.pad(a, ((0, 0), (0, longest - a.shape[1]), (0, 0))) for a in arrays])


@contextlib.contextmanager
def _deterministic(seed: int) -> Iterator[None]:
    """One thread and a seed, and the caller's generator as it was."""
    try:
        import torch
    except ImportError as e:
        raise CostModelError(
            "cost models of networks need PyTorch; install it with `pip install tilewright[torch]`"
        ) from e
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
