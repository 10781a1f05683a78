"""The ways through the compiler: each takes a function and example inputs, and gives what is to be called."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import tilewright
from tilewright.compiler.targets.target import Target, resolve

Example = tuple[torch.Tensor, ...] | dict[str, torch.Tensor]
"""Arguments by position or by name."""


def _plain(function: Any, args: Example) -> Callable[..., Any]:
    return tilewright.compile(function, args)


def _threads(function: Any, args: Example) -> Callable[..., Any]:
    before = os.environ.get("TILEWRIGHT_NUM_THREADS")
    os.environ["TILEWRIGHT_NUM_THREADS"] = "2"
    try:
        return tilewright.compile(function, args)
    finally:
        if before is None:
            del os.environ["TILEWRIGHT_NUM_THREADS"]
        else:
            os.environ["TILEWRIGHT_NUM_THREADS"] = before


def _saved(function: Any, args: Example) -> Callable[..., Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.twm"
        tilewright.compile(function, args).save(path)
        return tilewright.load(path)


def _small_caches(function: Any, args: Example) -> Callable[..., Any]:
    return tilewright.compile(function, args, target=small_caches())


def _narrow(function: Any, args: Example) -> Callable[..., Any]:
    return tilewright.compile(function, args, target="x86-64-v3")


@functools.cache
def small_caches() -> Target:
    """This machine, but for caches of a few vectors and a thousandth of its speed: what is decided of large tensors is of small ones."""
    host, slower = resolve("cpu"), 1e-3
    memory = [replace(level, bandwidth_gbps=level.bandwidth_gbps * slower) for level in host.memory]
    memory[1:-1] = [
        replace(cache, capacity_bytes=max(cache.capacity_bytes >> 11, 256)) for cache in memory[1:-1]
    ]
    peak = {dtype: gflops * slower for dtype, gflops in host.peak_gflops.items()}
    clock = host.clock_ghz * slower
    return replace(host, name="small-caches", memory=tuple(memory), peak_gflops=peak, clock_ghz=clock)


def _emulated(function: Any, args: Example) -> Callable[..., Any]:
    return tilewright.compile(function, args, target="emulate:sm_90a")


def _under_torch_compile(function: Any, args: Example) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="tilewright")


def _exported(function: Any, args: Example) -> Callable[..., Any]:
    """Raises NotExported when the exporter does not take the program."""
    given = tuple(args.values()) if isinstance(args, dict) else args
    return tilewright.compile(exported(function, given))


_ONNX_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}


class NotExported(Exception):
    """PyTorch's ONNX exporter does not take a program, or writes what the standard does not allow."""


def exported(function: Any, args: tuple[torch.Tensor, ...]) -> Any:
    """The ONNX model of a program, inputs named by position."""
    module = function if isinstance(function, torch.nn.Module) else _AsModule(function)
    try:
        with quiet():
            made = torch.onnx.export(module, args, dynamo=True, verbose=False, optimize=False)
    except Exception as error:
        raise NotExported(str(error)[:200]) from error
    from onnx import checker, helper, shape_inference

    assert made is not None  # it is with `dynamo`
    model = made.model_proto
    try:
        checker.check_model(model, full_check=True)
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        raise NotExported(f"the exported model is not ONNX: {str(error)[:200]}") from error
    results = module(*(tensor.clone() for tensor in args))
    wanted = [result.dtype for result in results]
    found = [output.type.tensor_type.elem_type for output in model.graph.output]
    names = [helper.tensor_dtype_to_string(kind).removeprefix("TensorProto.") for kind in found]
    if names != [_ONNX_NAMES.get(str(kind)[6:], str(kind)[6:].upper()) for kind in wanted]:
        raise NotExported(f"the exported model returns {names}")
    return model


class _AsModule(torch.nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops what is printed, by C++ code too."""
    import sys

    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for file in (*kept, nothing):
            os.close(file)


COMPILERS: dict[str, Callable[[Any, Example], Callable[..., Any]]] = {
    "compile": _plain,
    "torch.compile": _under_torch_compile,
    "grad": _under_torch_compile,
    "threads": _threads,
    "saved": _saved,
    "caches": _small_caches,
    "avx2": _narrow,
    "emulate": _emulated,
    "onnx": _exported,
}
