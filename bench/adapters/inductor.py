"""torch.compile with its own backend: weights as they are, frozen into the code, or frozen and products autotuned.

Under the precision bf16 it runs in PyTorch's autocast, its own way of computing products from bf16.
"""

from __future__ import annotations

import contextlib
import io

import torch

from tilewright.bench.adapters import Prepared, Task, flat_tensors


def _compiled(task: Task, options: dict | None) -> Prepared:
    # Worker processes would keep the cores busy after compilation, when others are being timed.
    torch._inductor.config.compile_threads = 1
    function = torch.compile(task.module, backend="inductor", options=options, dynamic=False)

    def call():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=task.precision == "bf16"):
            return function(*task.inputs)

    call()
    return Prepared(call, lambda: flat_tensors(call()))


def prepare(task: Task) -> Prepared:
    """Inductor with its default options."""
    return _compiled(task, None)


def prepare_frozen(task: Task) -> Prepared:
    """Inductor with `freezing`: weights become constants, prepacked and folded."""
    return _compiled(task, {"freezing": True})


def prepare_autotuned(task: Task) -> Prepared:
    """Inductor with `freezing` and `max_autotune`: its C++ templates of products are timed against oneDNN and MKL.

    Its most thorough mode on a CPU; the templates take constant weights, hence freezing.
    """
    options = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN"}
    with contextlib.redirect_stderr(io.StringIO()):
        return _compiled(task, options)
