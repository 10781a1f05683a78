"""torch.compile with its own backend, weights as they are or frozen into the code."""

from __future__ import annotations

import torch

from tilewright.bench.adapters import Prepared, Task, flat_tensors


def _compiled(task: Task, options: dict | None) -> Prepared:
    # Worker processes would keep the cores busy after compilation, when others are being timed.
    torch._inductor.config.compile_threads = 1
    function = torch.compile(task.module, backend="inductor", options=options, dynamic=False)

    def call():
        with torch.no_grad():
            return function(*task.inputs)

    call()
    return Prepared(call, lambda: flat_tensors(call()))


def prepare(task: Task) -> Prepared:
    """Inductor with its default options."""
    return _compiled(task, None)


def prepare_frozen(task: Task) -> Prepared:
    """Inductor with `freezing`: weights become constants, prepacked and folded."""
    return _compiled(task, {"freezing": True})
