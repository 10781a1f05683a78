"""torch.compile with its own backend: weights as they are, frozen into the code, or frozen and products autotuned.

Freezing is asked of Dynamo as much as of Inductor: with `torch.compile(options={"freezing": True})` only Inductor hears
of it, after Dynamo, which reads the global setting, has made inputs of the weights, and then nothing is folded. Settings
are therefore global while a contender compiles, and what reaches Inductor is looked at.

Under the precision bf16 it runs in PyTorch's autocast, its own way of computing products from bf16.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo import lookup_backend

from tilewright.bench.adapters import Prepared, Task, flat_tensors
from tilewright.bench.adapters.training import prepare_step


class NotFrozen(RuntimeError):
    """Inductor was to fold the weights and was given them as inputs."""


def _compiled(task: Task, **settings: Any) -> Prepared:
    frozen = settings.get("freezing", False)
    inductor = lookup_backend("inductor")

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
        weights = sum(isinstance(tensor, torch.nn.Parameter) for tensor in inputs)
        if frozen and (weights or torch.is_grad_enabled()):
            raise NotFrozen(
                f"{weights} of {len(inputs)} inputs of the graph are weights; they cannot be folded"
            )
        return inductor(graph, inputs)

    function = torch.compile(task.module, backend=backend, dynamic=False)

    def call():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=task.precision == "bf16"):
            return function(*task.inputs)

    # Worker processes would keep the cores busy after compilation, when others are being timed.
    with torch._inductor.config.patch(compile_threads=1, **settings):
        call()
    return Prepared(call, lambda: flat_tensors(call()))


def prepare(task: Task) -> Prepared:
    """Inductor with its default options."""
    if task.training:
        with torch._inductor.config.patch(compile_threads=1):
            return prepare_step(task, torch.compile(task.module, dynamic=False))
    return _compiled(task)


def prepare_frozen(task: Task) -> Prepared:
    """Inductor with `freezing`: weights become constants, prepacked and folded."""
    return _compiled(task, freezing=True)


def prepare_autotuned(task: Task) -> Prepared:
    """Inductor with `freezing` and `max_autotune`: its C++ templates of products are timed against oneDNN and MKL.

    Its most thorough mode on a CPU; the templates take constant weights, hence freezing.
    """
    with contextlib.redirect_stderr(io.StringIO()):
        return _compiled(task, freezing=True, max_autotune=True, max_autotune_gemm_backends="CPP,ATEN")
