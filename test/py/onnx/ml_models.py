"""Models of one operator of `ai.onnx.ml`, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
from models import in_onnxruntime, info, model
from onnx import TensorProto, helper

import tilewright


def ml_model(
    op: str, x: np.ndarray, types=(TensorProto.FLOAT,), version: int = 3, **attrs
) -> onnx.ModelProto:
    """A model of one operator over an input like `x`; outputs have types and no shapes."""
    names = [f"y{i}" for i in range(len(types))]
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attrs)
    given = info("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))
    made = model([node], [given], [info(name, None, dtype) for name, dtype in zip(names, types)])
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", version))
    return made


def check(made: onnx.ModelProto, x: np.ndarray) -> None:
    """Types and results are those of ONNX Runtime."""
    wanted = in_onnxruntime(made, {"x": x})
    for result, want in zip(tilewright.compile(made, (x,))(x), wanted, strict=True):
        assert result.dtype == want.dtype
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)
