"""What Python and PyTorch are set to while a model is traced."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def tracing_state(is_told: bool) -> Iterator[None]:
    """No collections, no reports of what is raised anyway, and models are told that they are exported, if `is_told`.

    What they compile with `torch.compile`, as PyTorch itself does with functions that its operators are given, runs as it is.
    """
    told = _exporting() if is_told else contextlib.nullcontext()
    with _without_collections(), without_reports(), told, torch.compiler.set_stance("force_eager"):
        yield


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    """`torch.compiler.is_compiling()` and `is_exporting()` hold, as under `torch.export`.

    Models ask: those of transformers look at the values of a mask, to leave it out where it masks nothing, unless they are traced.
    """
    flags = ("_is_compiling_flag", "_is_exporting_flag")
    before = [getattr(torch.compiler, flag) for flag in flags]
    for flag in flags:
        setattr(torch.compiler, flag, True)
    try:
        yield
    finally:
        for flag, value in zip(flags, before):
            setattr(torch.compiler, flag, value)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Tracing allocates millions of objects that live on; collecting in between only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def without_reports() -> Iterator[None]:
    """PyTorch logs what its tensors without data raise, with a traceback, beside the error that says the same."""
    log = logging.getLogger("torch._subclasses.fake_tensor")

    def is_other(record: logging.LogRecord) -> bool:
        return "failed while attempting to run meta" not in record.getMessage()

    log.addFilter(is_other)
    try:
        yield
    finally:
        log.removeFilter(is_other)
