"""Training steps: a forward pass and the gradients of all parameters.

What an optimiser does with the gradients is PyTorch's own, whoever computed them, and left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright.bench.adapters import Prepared, Task, flat_tensors
from tilewright.bench.models.seeding import SEED


def prepare_step(task: Task, function: Callable[..., Any]) -> Prepared:
    """Steps of `function`, the task's module as a contender compiled it; a step starts without gradients.

    Gradients of the results are drawn once, so that no loss hides in the time or makes gradients vanish.
    """
    parameters = list(task.module.parameters())
    generator = torch.Generator().manual_seed(SEED)
    directions: list[torch.Tensor] = []

    def call():
        for parameter in parameters:
            parameter.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=task.precision == "bf16"):
            found = function(*task.inputs)
        outputs = [found] if isinstance(found, torch.Tensor) else list(found)
        if not directions:
            directions.extend(torch.randn(y.shape, generator=generator) / y.numel() for y in outputs)
        torch.autograd.backward(outputs, directions)
        return outputs

    def outputs():
        results = call()
        return flat_tensors([*results, *(p.grad for p in parameters if p.grad is not None)])

    call()
    return Prepared(call, outputs)
