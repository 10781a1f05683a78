"""Contenders of the benchmarks, one file each: `prepare` compiles a module for repeated calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

OURS = "tilewright"

_HOMES = {
    OURS: "ours:prepare",
    "eager": "eager:prepare",
    "inductor": "inductor:prepare",
    "inductor-frozen": "inductor:prepare_frozen",
    "inductor-autotuned": "inductor:prepare_autotuned",
    "onnxruntime": "onnxruntime_session:prepare",
    "openvino": "openvino_model:prepare",
    "iree": "iree_module:prepare",
    "tvm": "tvm_relax:prepare",
    "tilewright-O0": "ours:prepare_constructed",
    "tilewright-O1": "ours:prepare_profiled",
}

NAMES = tuple(_HOMES)
OWN = (OURS, "tilewright-O0", "tilewright-O1")
"""tilewright at the level asked for, and at others: no competitors of itself."""
COMPETITORS = NAMES[1:]
"""What `--against` takes; `inductor` is timed twice, with its freezing of weights off and on."""

TRAINERS = (*OWN, "eager", "inductor")
"""Who computes gradients."""

PRECISIONS = ("f32", "bf16")
"""What contractions of f32 models may compute in."""


class Unavailable(Exception):
    """Why a contender cannot take part: its package is missing, or it refuses this model."""


@dataclass(frozen=True)
class Task:
    """What a contender is given: a module, its inputs, threads, and a folder of its own.

    The module is in eval mode, or its gradients are wanted too: `training`. `search` are options of tilewright's O2. Under the precision bf16, products of f32 tensors may be computed from operands rounded to bf16.
    """

    module: Any
    inputs: tuple
    threads: int
    folder: Path
    opt: str = "O0"
    precision: str = "f32"
    training: bool = False
    search: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """What products are computed from: bf16 where the precision or the inputs say so, else f32."""
        halves = any(str(getattr(tensor, "dtype", "")) == "torch.bfloat16" for tensor in self.inputs)
        return "bf16" if halves or self.precision == "bf16" else "f32"


@dataclass(frozen=True)
class Prepared:
    """A contender ready to be timed: `call` runs it once, `outputs` gives its results as numpy arrays."""

    call: Callable[[], object]
    outputs: Callable[[], Sequence]
    note: str = ""


def load(name: str) -> Callable[[Task], Prepared]:
    """The `prepare` of contender `name`; raises ValueError when there is none."""
    if name not in _HOMES:
        raise ValueError(f"unknown contender `{name}`; there are: {', '.join(NAMES)}")
    module, _, function = _HOMES[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), function)


def expand(names: Sequence[str]) -> list[str]:
    """`--against` names to contenders, ours first, repeats dropped; raises ValueError for unknown names."""
    chosen = [OURS]
    for name in names:
        if name not in COMPETITORS:
            raise ValueError(f"unknown competitor `{name}`; there are: {', '.join(COMPETITORS)}")
        chosen += ["inductor", "inductor-frozen"] if name == "inductor" else [name]
    return list(dict.fromkeys(chosen))


def require(package: str, extra: str) -> Any:
    """Imports `package`; raises Unavailable that says which distribution to install."""
    try:
        return import_module(package)
    except ImportError as error:
        raise Unavailable(f"not installed (pip install '{extra}'): {error}") from None


def as_numpy(tensor: Any) -> Any:
    """A tensor's memory as a numpy array; bf16, which numpy lacks, as `ml_dtypes` has it."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) != "torch.bfloat16":
        return tensor.numpy()
    ml_dtypes = require("ml_dtypes", "tilewright[onnx]")
    return tensor.view(import_module("torch").int16).numpy().view(ml_dtypes.bfloat16)


def flat_tensors(outputs: Any) -> list:
    """Tensors of a module's outputs, in order, as numpy arrays."""
    if hasattr(outputs, "detach"):
        return [as_numpy(outputs)]
    if isinstance(outputs, dict):
        outputs = outputs.values()
    if isinstance(outputs, (list, tuple)) or not hasattr(outputs, "shape"):
        return [array for part in outputs for array in flat_tensors(part)]
    return [outputs]
