"""Operators of ONNX Runtime's own domain, against ONNX Runtime itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from models import in_onnxruntime, info, model, random
from onnx import TensorProto, helper

import tilewright
from tilewright.compiler.errors import ModelImportError
from tilewright.compiler.importers.onnx.contrib import DOMAIN
from tilewright.compiler.importers.onnx.model import RULES

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
    ("Trilu", [X, np.array(1, np.int64)], {"upper": 0}),
    ("CDist", [X[0], Y[0, :3]], {"metric": "euclidean"}),
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
    expected = in_onnxruntime(made, {names[first]: inputs[first]})[0]
    result = tilewright.compile(made, (inputs[first],))(inputs[first])[0]
    if quantised:  # one step: ties and the order of scaling differ
        assert np.abs(result.astype(int) - expected.astype(int)).max() <= 1
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


def test_every_contributed_operator_is_covered():
    spelled_alike = {"TransposeMatMul", "SkipSimplifiedLayerNormalization", "QLinearSoftmax", "QuantizeLinear",
                     "DequantizeLinear"}  # fmt: skip
    # test_contrib_quantize.py and test_contrib_attention.py
    elsewhere = {"QGemm", "DynamicQuantizeLSTM", "QLinearWhere", "MatMulNBits", "GatherBlockQuantized", "QLinearConv", "NhwcMaxPool", "RotaryEmbedding", "MultiHeadAttention", "Attention",
                 "EmbedLayerNormalization", "QAttention", "QEmbedLayerNormalization", "GroupQueryAttention"}  # fmt: skip
    ruled = {op for domain, op in RULES if domain == DOMAIN}
    assert ruled - spelled_alike - elsewhere == {case[0] for case in CASES}


RMS = """(float[2, 5, 16] x, float[16] g, float[16, 16] w) => (float[2, 5, 16] y) {
    two = Constant<value = float {2.0}>()
    least = Constant<value = float {1e-6}>()
    p = Pow(x, two)
    m = ReduceMean<axes = [-1]>(p)
    a = Add(m, least)
    s = Sqrt(a)
    d = Div(x, s)
    n = Mul(d, g)
    h = MatMul(n, w)
    z = Add(h, x)
    p2 = Pow(z, two)
    m2 = ReduceMean<axes = [-1]>(p2)
    a2 = Add(m2, least)
    s2 = Sqrt(a2)
    d2 = Div(z, s2)
    n2 = Mul(d2, g)
    y = Add(n2, z)
}"""


def test_a_block_of_rms_norms_that_onnxruntime_optimised(tmp_path):
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {RMS}')
    inputs = {"x": random(2, 5, 16), "g": random(16, seed=1), "w": random(16, 16, seed=2)}
    path = str(tmp_path / "optimised.onnx")
    options = ort.SessionOptions()
    options.optimized_model_filepath = path
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    operators = [(node.domain, node.op_type) for node in onnx.load(path).graph.node]
    assert operators.count(("", "SimplifiedLayerNormalization")) == 2
    (result,) = tilewright.compile(path, inputs)(**inputs)
    np.testing.assert_allclose(result, in_onnxruntime(made, inputs)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("attrs", [{}, {"axis": 1, "epsilon": 0.1}, {"axis": -2, "stash_type": 1}])
def test_rms_norms_and_their_inverse_roots(attrs, dtype):
    x = random(3, 4, 5).astype(dtype)
    scale = random(*x.shape[attrs.get("axis", -1) :], seed=1).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["y", "r"], **attrs)
    outputs = [info("y", None, kind), info("r", None, TensorProto.FLOAT)]
    made = model([node], [info("x", x.shape, kind), info("g", scale.shape, kind)], outputs, opset=17)
    wanted = in_onnxruntime(made, {"x": x, "g": scale})
    for result, expected in zip(tilewright.compile(made, (x, scale))(x, scale), wanted, strict=True):
        assert result.dtype == expected.dtype and result.shape == expected.shape
        rounding = 2e-3 if result.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(result, expected, rtol=rounding, atol=rounding)


def test_other_unknown_operators_of_the_domain_are_refused_by_name():
    node = helper.make_node("ComplicatedLayerNormalization", ["x"], ["y"])
    with pytest.raises(ModelImportError, match="ComplicatedLayerNormalization"):
        tilewright.compile(model([node], [info("x", [4])], [info("y", [4])]), (random(4),))
