"""Denormal numbers: computed with as IEEE 754 says unless asked otherwise, and the caller's own mode is left alone."""

from __future__ import annotations

import ctypes
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tilewright
from tilewright.compiler.errors import TilewrightError
from tilewright.runtime.errors import KernelAssertError
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel

TINY = {torch.float32: 2.0**-126, torch.float64: 2.0**-1022}
"""The smallest normal number."""


class Elementwise(nn.Module):
    def forward(self, x):
        return x * 0.5


class Sum(nn.Module):
    def forward(self, x):
        return x.sum(-1) * 0.125


class Product(nn.Module):
    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.register_buffer("weight", torch.eye(64, dtype=dtype) * 0.5)

    def forward(self, x):
        return x @ self.weight


MODELS = {"elementwise": lambda _: Elementwise(), "sum": lambda _: Sum(), "product": Product}


def bound(model: CompiledModel, threads: int) -> CompiledModel:
    executable = Executable(model.executable.package, list(model.weights), threads)
    return CompiledModel(executable, model.signature, model.state, model.weights)


def mxcsr() -> int:
    """The calling thread's control bits, without the flags of exceptions that have happened."""
    environment = (ctypes.c_uint32 * 8)()
    ctypes.CDLL(None).fegetenv(ctypes.byref(environment))
    return environment[7] & ~0x3F


@pytest.mark.parametrize("dtype", TINY)
@pytest.mark.parametrize("name", MODELS)
def test_denormals_are_kept_or_flushed_on_every_thread(name: str, dtype: torch.dtype) -> None:
    module = MODELS[name](dtype)
    # Enough rows that each of two threads computes some; results are halves and eighths of the least normal numbers.
    x = torch.full((4096, 64), TINY[dtype], dtype=dtype)
    x[:, 1:] = 0
    expected = module(x)
    assert expected.abs().max() > 0
    for denormals in ("keep", "flush"):
        model = tilewright.compile(module, (x,), denormals=denormals)
        for threads in (1, 2):
            run, before = bound(model, threads), mxcsr()
            result = run(x)
            assert mxcsr() == before
            assert torch.equal(result, expected if denormals == "keep" else torch.zeros_like(expected))
            # Arithmetic of the caller's goes on as before.
            assert float(np.float32(TINY[torch.float32]) * np.float32(0.5)) > 0


def test_denormal_inputs_are_zeros_too() -> None:
    x = torch.full((8,), 2.0**-140)
    kept, flushed = (tilewright.compile(_Grown(), (x,), denormals=d)(x) for d in ("keep", "flush"))
    assert torch.equal(kept, x * 2.0**100) and (flushed == 0).all()


class _Grown(nn.Module):
    def forward(self, x):
        return x * 2.0**100


def test_the_callers_own_mode_holds_where_denormals_are_kept() -> None:
    x = torch.full((64,), TINY[torch.float32])
    keep = tilewright.compile(Elementwise(), (x,))
    flush = tilewright.compile(Elementwise(), (x,), denormals="flush")
    torch.set_flush_denormal(True)
    try:
        before = mxcsr()
        assert (keep(x) == 0).all() and (flush(x) == 0).all()
        assert mxcsr() == before
    finally:
        torch.set_flush_denormal(False)
    assert (keep(x) != 0).all()


def test_the_mode_is_put_back_when_a_call_fails() -> None:
    table = torch.randn(8, 4)
    index = torch.tensor([9])
    model = tilewright.compile(lambda i: table[i], (torch.tensor([1]),), denormals="flush")
    before = mxcsr()
    with pytest.raises(KernelAssertError):
        model(index)
    assert mxcsr() == before


def test_artifacts_and_copies_carry_the_mode(tmp_path: Path) -> None:
    x = torch.full((64,), TINY[torch.float32])
    for denormals, wanted in (("keep", x * 0.5), ("flush", torch.zeros(64))):
        model = tilewright.compile(Elementwise(), (x,), denormals=denormals)
        model.save(tmp_path / "model")
        for again in (tilewright.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
            assert again.executable.package.denormals == denormals
            assert torch.equal(torch.as_tensor(again(x)), wanted)


def test_torch_compile_takes_it() -> None:
    x = torch.full((64,), TINY[torch.float32])
    options = {"denormals": "flush", "strict": True}
    with torch.no_grad():
        assert (torch.compile(Elementwise(), backend="tilewright", options=options)(x) == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"denormals": "zero"}, "denormals: expected keep or flush, found `zero`"),
        (
            {"denormals": "flush", "target": "emulate:sm_80"},
            "denormals: flush is a mode of CPUs, found target",
        ),
    ],
)
def test_others_are_refused(options: dict, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        tilewright.compile(Elementwise(), (torch.ones(4),), **options)
