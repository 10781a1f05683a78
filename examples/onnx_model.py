"""Compile an ONNX model built by hand: `y = relu(x w + b)`."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright


def model() -> onnx.ModelProto:
    """`[8, 16] x [16, 4] + [4]`, then relu."""
    generator = np.random.default_rng(0)
    weights = {
        "w": generator.standard_normal((16, 4)).astype(np.float32),
        "b": generator.standard_normal(4).astype(np.float32),
    }
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["z"]), helper.make_node("Relu", ["z"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def main() -> None:
    proto = model()
    compiled = tilewright.compile(proto)
    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    w, b = (numpy_helper.to_array(tensor) for tensor in proto.graph.initializer)
    found = compiled(x)
    expected = np.maximum(x @ w + b, 0)
    print("largest difference:", np.abs(np.asarray(found) - expected).max())


if __name__ == "__main__":
    main()
