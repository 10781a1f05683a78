"""The contenders of the device suite: each gives a call on tensors that lie on the device, and how long that took."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

DTYPE = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

TOLERANCE = {"f32": 2e-5, "tf32": 2e-3, "f16": 4e-3, "bf16": 3e-2}
"""Largest error by norm against the result in f64, of operands rounded to the dtype before.

Sums of products of random numbers in f32 stay below 1e-6; tf32 rounds operands to 2^-11, f16 results to 2^-11 and bf16
to 2^-8, and networks of them were seen a few times above that.
"""


@dataclass(frozen=True)
class Setting:
    """Where a case runs: a torch device, our target's name, and whether there are CUDA events and graphs."""

    device: str
    target: str

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")

    def synchronize(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()


@dataclass(frozen=True)
class Prepared:
    """A call that gives the module's outputs, and what compiling it took."""

    call: Callable[[], Any]
    compile_s: float


def place(module: torch.nn.Module, inputs: tuple, dtype: str, device: str) -> tuple[torch.nn.Module, tuple]:
    """Copies on the device in a dtype; integer inputs keep theirs."""
    kind = DTYPE[dtype]
    moved = tuple(
        x.to(device, kind if x.is_floating_point() else None) if isinstance(x, torch.Tensor) else x
        for x in inputs
    )
    return copy.deepcopy(module).to(device, kind), moved


def reference(module: torch.nn.Module, inputs: tuple) -> list[torch.Tensor]:
    """Results in f64 of the module and inputs as they were rounded."""
    wide = tuple(x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs)
    with torch.inference_mode():
        return flat(copy.deepcopy(module).double()(*wide))


def flat(outputs: Any) -> list[torch.Tensor]:
    """The tensors among a module's outputs, in order."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, dict):
        outputs = outputs.values()
    if isinstance(outputs, (list, tuple)) or hasattr(outputs, "__iter__"):
        return [tensor for part in outputs for tensor in flat(part)]
    return []


def error(outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest relative error by norm of any output; infinite for a wrong shape, count or a NaN."""
    if [o.shape for o in outputs] != [e.shape for e in expected]:
        return float("inf")
    worst = 0.0
    for output, other in zip(outputs, expected):
        off = torch.linalg.vector_norm(output.double() - other.double())
        size = torch.linalg.vector_norm(other.double())
        found = float(off / size) if float(size) else float(off)
        worst = max(worst, found if found == found else float("inf"))
    return worst


@contextmanager
def rounding(dtype: str):
    """PyTorch's own products of f32 use tf32 exactly when the case says so; cuDNN picks its fastest algorithm."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    try:
        # A process may have frozen the flags, as PyTorch's own tests do: then they change in a block only.
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=dtype == "tf32"):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def prepare(name: str, module: torch.nn.Module, inputs: tuple, dtype: str, setting: Setting) -> Prepared:
    """Compiles for repeated calls; raises whatever the contender raises."""
    start = time.perf_counter()
    makers = {
        "ours": lambda: _ours(module, inputs, dtype, setting, True),
        "ours-no-overlap": lambda: _ours(module, inputs, dtype, setting, True, overlap=False),
        "ours-no-graph": lambda: _ours(module, inputs, dtype, setting, False),
        "eager": lambda: _eager(module, inputs),
        "inductor": lambda: _inductor(module, inputs, None),
        "inductor-graphs": lambda: _inductor(module, inputs, "reduce-overhead"),
        "inductor-autotuned": lambda: _inductor(module, inputs, "max-autotune"),
    }
    call = makers[name]()
    call()
    setting.synchronize()
    return Prepared(call, time.perf_counter() - start)


def _ours(
    module: torch.nn.Module, inputs: tuple, dtype: str, setting: Setting, graph: bool, overlap: bool = True
) -> Callable:
    import tilewright

    options: dict[str, Any] = {"precision": "tf32"} if dtype == "tf32" else {}
    if setting.is_cuda:
        options["cuda_graph"] = graph
    with mock.patch.dict("os.environ", {} if overlap else {"TILEWRIGHT_CUDA_OVERLAP": "0"}):
        compiled = tilewright.compile(module, inputs, target=setting.target, **options)
    return lambda: compiled(*inputs)


def _eager(module: torch.nn.Module, inputs: tuple) -> Callable:
    def call():
        with torch.inference_mode():
            return module(*inputs)

    return call


def _inductor(module: torch.nn.Module, inputs: tuple, mode: str | None) -> Callable:
    torch._dynamo.reset()
    compiled = torch.compile(module, mode=mode, dynamic=False)

    def call():
        with torch.no_grad():
            return compiled(*inputs)

    call()
    return call
