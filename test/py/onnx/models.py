"""Builders of small ONNX models for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def info(name: str, shape: Sequence[int | str] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A typed graph input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 21,
    **fields: Any,
) -> onnx.ModelProto:
    """A model of one graph; `weights` become initializers."""
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **fields)
    made.ir_version = min(made.ir_version, 10)
    return made


def single(
    op: str, *arrays: np.ndarray, opset: int = 21, types: Sequence[int] = (TensorProto.FLOAT,), **attrs: Any
) -> onnx.ModelProto:
    """A model of one node over inputs like the arrays; outputs have types and no shapes."""
    names = [f"x{i}" for i in range(len(arrays))]
    results = [f"y{i}" for i in range(len(types))]
    node = helper.make_node(op, names, results, **attrs)
    given = [
        info(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in zip(names, arrays)
    ]
    return model([node], given, [info(r, None, dtype) for r, dtype in zip(results, types)], opset=opset)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal f32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def contributed(
    op: str, inputs: dict[str, np.ndarray | None], types: Sequence[int], **attrs: Any
) -> onnx.ModelProto:
    """A model of one operator of ONNX Runtime's domain, all of whose operands are inputs; None leaves one out."""
    names = [name if array is not None else "" for name, array in inputs.items()]
    results = [f"y{i}" for i in range(len(types))]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attrs)
    given = [
        info(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in inputs.items()
        if array is not None
    ]
    made = model([node], given, [info(r, None, dtype) for r, dtype in zip(results, types)], opset=17)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def in_onnxruntime(made: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's results on one thread of the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(y) for y in session.run(None, inputs)]
