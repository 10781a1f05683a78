"""Operators of ONNX Runtime's own domain, against ONNX Runtime itself."""

from __future__ import annotations

import numpy as np
import pytest
from models import info, model, random
from onnx import TensorProto, helper

import tilewright
from tilewright.compiler.importers.onnx.contrib import DOMAIN
from tilewright.compiler.importers.onnx.rules import RULES

ort = pytest.importorskip("onnxruntime")

X, Y = random(2, 4, 8), random(2, 4, 8, seed=1)
BYTES = np.random.default_rng(2).integers(0, 255, (1, 4, 6, 6), dtype=np.uint8)
OTHER = np.random.default_rng(3).integers(0, 255, (1, 4, 6, 6), dtype=np.uint8)
S, Z = np.array(0.05, np.float32), np.array(128, np.uint8)
TINY = np.array(1 / 256, np.float32)
# Weights of seven bits: without VNNI, ONNX Runtime adds products in pairs that saturate at 16 bits.
W8 = np.random.default_rng(4).integers(-64, 64, (8, 3), dtype=np.int8)

CASES = [
    ("Gelu", [X], {}),
    ("BiasGelu", [X, random(8)], {}),
    ("FastGelu", [X, random(8)], {}),
    ("QuickGelu", [X], {"alpha": 1.5}),
    ("FusedMatMul", [X, Y], {"transB": 1, "alpha": 0.5}),
    ("FusedConv", [random(1, 3, 6, 6), random(4, 3, 3, 3), random(4)], {"activation": "Relu"}),
    (
        "FusedGemm",
        [random(3, 4), random(4, 5), random(5)],
        {"activation": "LeakyRelu", "activation_alpha": 0.1},
    ),
    ("SkipLayerNormalization", [X, Y, random(8), random(8, seed=3), random(8, seed=4)], {"epsilon": 1e-5}),
    ("QLinearAdd", [BYTES, S, Z, OTHER, S, Z, np.array(0.1, np.float32), Z], {}),
    ("QLinearMul", [BYTES, S, Z, OTHER, S, Z, np.array(0.3, np.float32), Z], {}),
    ("QLinearSigmoid", [BYTES, S, Z, TINY, np.array(0, np.uint8)], {}),
    ("QLinearLeakyRelu", [BYTES, S, Z, S, Z], {"alpha": 0.1}),
    ("QLinearGlobalAveragePool", [BYTES, S, Z, S, Z], {}),
    ("QLinearAveragePool", [BYTES, S, Z, S, Z], {"kernel_shape": [2, 2]}),
    ("QLinearConcat", [S, Z, BYTES, S, Z, OTHER, np.array(0.02, np.float32), Z], {"axis": 1}),
    ("DynamicQuantizeMatMul", [X[0], W8, S, np.array(3, np.int8), random(3)], {}),
    ("MatMulIntegerToFloat", [BYTES[0, 0], W8[:6], S, S, Z, np.array(3, np.int8)], {}),
]


@pytest.mark.parametrize(("op", "inputs", "attrs"), CASES, ids=[case[0] for case in CASES])
def test_against_onnxruntime(op, inputs, attrs):
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], domain=DOMAIN, **attrs)
    quantised = op.startswith("QLinear")
    dtype = TensorProto.UINT8 if quantised else TensorProto.FLOAT
    first = 2 if op == "QLinearConcat" else 0
    weights = {n: a for i, (n, a) in enumerate(zip(names, inputs)) if i != first}
    given = info(names[first], inputs[first].shape, helper.np_dtype_to_tensor_dtype(inputs[first].dtype))
    made = model([node], [given], [info("y", None, dtype)], weights, opset=17)
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {names[first]: inputs[first]})[0]
    result = tilewright.compile(made, (inputs[first],))(inputs[first])[0]
    if quantised:  # one step: ties and the order of scaling differ
        assert np.abs(result.astype(int) - expected.astype(int)).max() <= 1
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


def test_every_contributed_operator_is_covered():
    spelled_alike = {"TransposeMatMul", "SkipSimplifiedLayerNormalization", "QLinearSoftmax", "QuantizeLinear",
                     "DequantizeLinear"}  # fmt: skip
    ruled = {op for domain, op in RULES if domain == DOMAIN}
    assert ruled - spelled_alike == {case[0] for case in CASES}
