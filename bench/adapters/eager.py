"""PyTorch as it is, operator by operator: the reference for results and for speed."""

from __future__ import annotations

import torch

from tilewright.bench.adapters import Prepared, Task, flat_tensors
from tilewright.bench.adapters.training import prepare_step


def prepare(task: Task) -> Prepared:
    """Runs the module under `torch.inference_mode`, or with its gradients."""
    if task.training:
        return prepare_step(task, task.module)

    def call():
        with torch.inference_mode():
            return task.module(*task.inputs)

    return Prepared(call, lambda: flat_tensors(call()))
