"""What a random ONNX graph is: a model and the inputs that it is called with, all of it plain data."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import helper

from fuzz.program import Statement
from fuzz.tensors import values

PATH = "graph"
"""The path through the compiler that graphs take."""
UNSIGNED = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""Types that PyTorch hardly computes on, and what their values are drawn as."""


@dataclass(frozen=True)
class Input:
    """A tensor that the model is called with; one with `numbers` holds the same in every call."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: str = "normal"
    numbers: tuple[Any, ...] | None = None

    def build(self, seed: int) -> np.ndarray:
        """The array with its values for a seed."""
        if self.numbers is not None:
            return np.array(self.numbers, numpy_dtype(self.dtype)).reshape(self.shape)
        return drawn(self.shape, self.dtype, self.fill, seed * 1000003 + sum(map(ord, self.name)) * 8191)


@dataclass(frozen=True)
class Graph:
    """An ONNX model, serialised, and its inputs in order."""

    seed: int
    model: bytes
    inputs: tuple[Input, ...]
    path: str = PATH
    fails: bool = False

    def proto(self) -> onnx.ModelProto:
        return onnx.ModelProto.FromString(self.model)

    def build(self, seed: int) -> dict[str, np.ndarray]:
        """All inputs by name."""
        return {tensor.name: tensor.build(seed) for tensor in self.inputs}

    @property
    def statements(self) -> list[Statement]:
        """Every node as a line."""
        return [
            Statement(tuple(n.output), f"{n.op_type}({', '.join(n.input)})") for n in self.proto().graph.node
        ]

    def script(self) -> str:
        """A few lines of Python that compile and call the model, with its text as a comment."""
        text = "".join(f"# {line}\n" for line in onnx.printer.to_text(self.proto()).splitlines())
        arrays = [f"    {i.name!r}: {_written(i.build(self.seed))}," for i in self.inputs]
        lines = [
            "import base64, ml_dtypes, numpy as np, onnx, tilewright",
            "from numpy import array, inf, nan",
            f"model = onnx.ModelProto.FromString(base64.b64decode({base64.b64encode(self.model).decode()!r}))",
            "inputs = {",
            *arrays,
            "}",
            "print(onnx.reference.ReferenceEvaluator(model).run(None, inputs))",
            "print(tilewright.compile(model, inputs)(*inputs.values()))",
        ]
        return text + "\n".join(lines) + "\n"


def numpy_dtype(name: str) -> np.dtype:
    """The numpy type of a name, bfloat16 among them."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def drawn(shape: tuple[int, ...], dtype: str, fill: str, seed: int) -> np.ndarray:
    """An array of one of the fills of `fuzz.tensors`."""
    generator = torch.Generator().manual_seed(seed % 2**31)
    made = values(shape, UNSIGNED.get(dtype, dtype), fill, generator)
    if dtype == "bfloat16":
        return made.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    if dtype in UNSIGNED:
        made = made.abs() if fill != "special" else made
    return made.numpy().astype(numpy_dtype(dtype))


def code_of(dtype: str) -> int:
    """The number that ONNX has for an element type."""
    return helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype))


def name_of(array: np.ndarray) -> str:
    return str(array.dtype)


def _written(array: np.ndarray) -> str:
    if math.prod(array.shape) > 512:
        return f"np.ones({array.shape}, {str(array.dtype)!r})"
    kind = "ml_dtypes.bfloat16" if array.dtype == ml_dtypes.bfloat16 else f"np.{array.dtype}"
    return f"np.array({array.tolist()}, {kind}).reshape({array.shape})"
