"""tilewright itself, through its public interface."""

from __future__ import annotations

from dataclasses import replace

import tilewright
from tilewright.bench.adapters import Prepared, Task, flat_tensors


def prepare(task: Task) -> Prepared:
    """Compiles for this CPU at the task's `opt` level and precision; gradients through `torch.compile`."""
    options: dict = {} if task.precision == "f32" else {"precision": task.precision}
    options |= task.search if task.opt == "O2" else {}
    if task.training:
        import torch

        from tilewright.bench.adapters.training import prepare_step

        options |= {"target": "cpu", "opt": task.opt, "strict": True}
        return prepare_step(task, torch.compile(task.module, backend="tilewright", options=options))
    model = tilewright.compile(task.module, task.inputs, target="cpu", opt=task.opt, **options)
    return Prepared(lambda: model(*task.inputs), lambda: flat_tensors(model(*task.inputs)))


def prepare_constructed(task: Task) -> Prepared:
    """Compiles at `O0`: nothing is measured."""
    return prepare(replace(task, opt="O0"))


def prepare_profiled(task: Task) -> Prepared:
    """Compiles at `O1`: the few best candidates are measured."""
    return prepare(replace(task, opt="O1"))
