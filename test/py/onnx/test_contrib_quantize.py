"""Quantised operators of ONNX Runtime's domain, and models that its quantisers write, against ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from models import contributed, in_onnxruntime, info, model, random
from onnx import TensorProto, helper

import tilewright
from tilewright.compiler import phases
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.onnx.contrib import DOMAIN
from tilewright.compiler.targets.target import resolve

pytest.importorskip("onnxruntime")


def whole(low: int, high: int, *shape: int, dtype: type = np.uint8, seed: int = 0) -> np.ndarray:
    """Integers from `low` to below `high`."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def both(made: onnx.ModelProto, inputs: dict[str, np.ndarray | None]) -> tuple[np.ndarray, np.ndarray]:
    """The first result here and in ONNX Runtime."""
    given = {name: array for name, array in inputs.items() if array is not None}
    return tilewright.compile(made, given)(**given)[0], in_onnxruntime(made, given)[0]


GEMMS = [
    dict(zip(("a_type", "b_type", "columns", "trans", "summand", "alpha", "quantised"), values))
    for values in [
        (np.uint8, np.int8, False, (0, 0), True, 1.0, True),
        (np.uint8, np.int8, True, (0, 1), True, 1.0, True),
        (np.int8, np.int8, True, (1, 0), False, 0.5, True),
        (np.uint8, np.uint8, False, (1, 1), True, 0.5, True),
        (np.uint8, np.int8, True, (0, 1), True, 2.0, False),
        (np.int8, np.int8, False, (0, 0), False, 1.0, False),
    ]
]


@pytest.mark.parametrize("case", GEMMS)
def test_products_of_bytes(case):
    m, k, n = 5, 37, 9
    a_type, b_type = case["a_type"], case["b_type"]
    of_columns = (n,) if case["columns"] else ()
    a = whole(*((0, 256) if a_type == np.uint8 else (-128, 128)), m, k, dtype=a_type)
    # Seven bits: without VNNI, ONNX Runtime adds products in pairs that saturate at 16 bits.
    b = whole(*((0, 128) if b_type == np.uint8 else (-64, 64)), k, n, dtype=b_type, seed=1)
    y_type = a_type if case["quantised"] else None
    inputs = {
        "a": a.T.copy() if case["trans"][0] else a,
        "a_scale": np.array(0.031, np.float32),
        "a_zero": np.array(17, a_type),
        "b": b.T.copy() if case["trans"][1] else b,
        "b_scale": np.random.default_rng(2).uniform(0.01, 0.02, of_columns).astype(np.float32),
        "b_zero": np.zeros(of_columns, b_type) if b_type == np.int8 else np.array(63, b_type),
        "c": whole(-3000, 3000, n, dtype=np.int32, seed=3) if case["summand"] else None,
    }
    if y_type is not None:
        inputs |= {"y_scale": np.array(0.23, np.float32), "y_zero": np.array(11, y_type)}
    kind = TensorProto.FLOAT if y_type is None else helper.np_dtype_to_tensor_dtype(np.dtype(y_type))
    attrs = {"transA": case["trans"][0], "transB": case["trans"][1], "alpha": case["alpha"]}
    result, expected = both(contributed("QGemm", inputs, [kind], **attrs), inputs)
    assert result.dtype == expected.dtype
    if y_type is None:
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
    else:
        assert len(np.unique(expected)) > 20
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_choice_between_bytes(dtype):
    low = np.iinfo(dtype).min
    inputs = {
        "c": whole(0, 2, 4, 1, dtype=np.bool_),
        "x": whole(low, low + 256, 4, 6, dtype=dtype, seed=1),
        "x_scale": np.array(0.02, np.float32),
        "x_zero": np.array(3, dtype),
        "y": whole(low, low + 256, 6, dtype=dtype, seed=2),
        "y_scale": np.array(0.071, np.float32),
        "y_zero": np.array(90, dtype),
        "z_scale": np.array(0.043, np.float32),
        "z_zero": np.array(40, dtype),
    }
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    np.testing.assert_array_equal(*both(contributed("QLinearWhere", inputs, [kind]), inputs))


def packed_product(bits: int, zeros: str, bias: bool, k: int, block: int = 16, dtype: type = np.float32):
    """The operands of MatMulNBits on random numbers, and its attributes."""
    n, blocks = 6, -(-k // block)
    inputs = {
        "a": random(2, 3, k).astype(dtype),
        "b": whole(0, 256, n, blocks, block * bits // 8),
        "scales": np.random.default_rng(1).uniform(0.01, 0.1, (n, blocks)).astype(dtype),
        "zeros": {
            "none": None,
            "packed": whole(0, 256, n, -(-blocks * bits // 8), seed=2),
            "real": np.random.default_rng(2).uniform(0, 1 << bits, (n, blocks)).astype(dtype),
        }[zeros],
        "g_idx": None,
        "bias": random(n, seed=3).astype(dtype) if bias else None,
    }
    return inputs, {"bits": bits, "block_size": block, "N": n, "K": k}


@pytest.mark.parametrize(
    ("bits", "zeros", "bias", "k", "dtype"),
    [
        (4, "none", False, 64, np.float32),
        (4, "packed", True, 72, np.float32),
        (4, "real", False, 40, np.float32),
        (4, "packed", False, 64, np.float16),
        (2, "packed", False, 48, np.float32),
        (8, "packed", False, 40, np.float32),
        (8, "none", True, 32, np.float32),
    ],
)
def test_products_with_packed_weights(bits, zeros, bias, k, dtype):
    inputs, attrs = packed_product(bits, zeros, bias, k, dtype=dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    result, expected = both(contributed("MatMulNBits", inputs, [kind], **attrs), inputs)
    rounding = 1e-4 if dtype == np.float32 else 2e-2
    np.testing.assert_allclose(result, expected, rtol=rounding, atol=rounding)


def packed_table() -> tuple[dict[str, np.ndarray | None], dict[str, int]]:
    """The operands of GatherBlockQuantized of 4 bits, and its attributes."""
    inputs: dict[str, np.ndarray | None] = {
        "table": whole(0, 256, 9, 32),
        "indices": whole(0, 9, 3, dtype=np.int64),
        "scales": np.ones((9, 2), np.float32),
    }
    return inputs, {"bits": 4, "block_size": 32}


@pytest.mark.parametrize(
    ("op", "changed", "words"),
    [
        ("MatMulNBits", {"bits": 3}, "`bits` are 3"),
        ("MatMulNBits", {"weight_prepacked": 1}, "`weight_prepacked`"),
        ("MatMulNBits", {"K": 65}, "weights have the shape"),
        ("GatherBlockQuantized", {"bits": 3}, "`bits` are 3"),
        ("GatherBlockQuantized", {"gather_axis": 1}, "rows are chosen"),
        ("GatherBlockQuantized", {"block_size": 16}, "its scales"),
    ],
)
def test_other_packings_are_refused(op, changed, words):
    inputs, attrs = packed_table() if op == "GatherBlockQuantized" else packed_product(4, "none", False, 64)
    given = {name: array for name, array in inputs.items() if array is not None}
    with pytest.raises(UnsupportedError, match=words):
        tilewright.compile(contributed(op, inputs, [TensorProto.FLOAT], **attrs | changed), given)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("columns", [64, 48])
def test_rows_of_packed_tables(columns, bits, zeros):
    rows, blocks = 9, -(-columns // 32)
    inputs = {
        "table": whole(0, 256, rows, columns * bits // 8),
        "indices": whole(0, rows, 2, 3, dtype=np.int64, seed=1),
        "scales": np.random.default_rng(1).uniform(0.01, 0.1, (rows, blocks)).astype(np.float32),
        "zeros": whole(0, 256, rows, -(-blocks * bits // 8), seed=2) if zeros else None,
    }
    made = contributed("GatherBlockQuantized", inputs, [TensorProto.FLOAT], bits=bits, block_size=32)
    result, expected = both(made, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("signed", [False, True])
def test_rows_of_tables_of_four_bits(signed):
    low, dtype = (-8, ml_dtypes.int4) if signed else (0, ml_dtypes.uint4)
    table = whole(low, low + 16, 9, 64, dtype=np.int8).astype(dtype)
    weights = {
        "table": table,
        "scales": np.random.default_rng(1).uniform(0.01, 0.1, (9, 2)).astype(np.float32),
        "zeros": whole(low, low + 16, 9, 2, dtype=np.int8, seed=2).astype(dtype),
    }
    node = helper.make_node(
        "GatherBlockQuantized", ["table", "i", "scales", "zeros"], ["y"], domain=DOMAIN, block_size=32
    )
    made = model([node], [info("i", [3], TensorProto.INT64)], [info("y", [3, 64])], weights)
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    indices = np.array([8, 0, 3])
    wide = {name: value.astype(np.float32) for name, value in weights.items()}
    moved = wide["table"] - np.repeat(wide["zeros"], 32, 1)
    expected = (moved * np.repeat(wide["scales"], 32, 1))[indices]
    np.testing.assert_allclose(tilewright.compile(made, (indices,))(indices)[0], expected, rtol=1e-6)


def two_layers() -> onnx.ModelProto:
    """relu(x w + b) v + c, x: [batch, 32]."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["y"]),
    ]
    weights = {
        "w": random(64, 32, seed=1),
        "b": random(64, seed=2),
        "v": random(64, 8, seed=3),
        "c": random(8, seed=4),
    }
    return model(nodes, [info("x", ["batch", 32])], [info("y", ["batch", 8])], weights, opset=17)


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_model_that_was_quantised_statically(tmp_path, per_channel):
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Samples(quantization.CalibrationDataReader):
        samples = iter([{"x": random(16, 32, seed=seed)} for seed in range(3)])

        def get_next(self):
            return next(self.samples, None)

    path = tmp_path / "quantised.onnx"
    quantization.quantize_static(
        two_layers(), path, Samples(), quant_format=quantization.QuantFormat.QOperator, per_channel=per_channel,
        reduce_range=True,
    )  # fmt: skip
    made, x = onnx.load(path), random(7, 32, seed=9)
    assert "QGemm" in {node.op_type for node in made.graph.node}
    result, expected = both(made, {"x": x})
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_model_whose_weights_were_packed(symmetric):
    quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    made = quantizer.MatMulNBitsQuantizer(two_layers(), block_size=32, is_symmetric=symmetric)
    made.process()
    assert "MatMulNBits" in {node.op_type for node in made.model.model.graph.node}
    result, expected = both(made.model.model, {"x": random(7, 32, seed=9)})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_gemm_of_bytes_is_made_of_byte_products(transposed):
    target = resolve("cpu")
    if not {"avx512vnni", "avxvnni"} & set(target.cpu_features):
        pytest.skip("this CPU does not multiply bytes in groups")
    x, w = whole(0, 256, 8, 24), whole(-128, 128, *((32, 24) if transposed else (24, 32)), dtype=np.int8)
    scale, zero = np.array(0.1, np.float32), np.array(9, np.uint8)
    weights = {
        "s": scale,
        "z": zero,
        "w": w,
        "wz": np.array(0, np.int8),
        "c": whole(-99, 99, 32, dtype=np.int32),
    }
    names = ["x", "s", "z", "w", "s", "wz", "c", "s", "z"]
    node = helper.make_node("QGemm", names, ["y"], domain="com.microsoft", transB=transposed)
    kind = TensorProto.UINT8
    made = model([node], [info("x", x.shape, kind)], [info("y", None, kind)], weights, opset=17)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    imported = import_model(made, (x,))
    phases.run_phases(imported.module, target, "graph", "layout")
    assert "d2 floordiv 4" in str(imported.module)


@pytest.mark.parametrize(
    ("direction", "per_column", "initial", "batch"),
    [("forward", False, False, 1), ("bidirectional", True, False, 2), ("reverse", False, True, 2)],
)
def test_an_lstm_of_bytes(direction, per_column, initial, batch):
    ways, width, hidden = 2 if direction == "bidirectional" else 1, 8, 6
    columns = (ways, 4 * hidden) if per_column else (ways,)
    inputs = {
        "x": random(4, batch, width),
        "w": whole(-64, 64, ways, width, 4 * hidden, dtype=np.int8),
        "r": whole(-64, 64, ways, hidden, 4 * hidden, dtype=np.int8, seed=1),
        "b": random(ways, 8 * hidden, seed=2),
        "lengths": None,
        "h": random(ways, batch, hidden, seed=3) if initial else None,
        "c": random(ways, batch, hidden, seed=4) if initial else None,
        "p": None,
        "w_scale": np.random.default_rng(1).uniform(0.01, 0.02, columns).astype(np.float32),
        "w_zero": np.zeros(columns, np.int8),
        "r_scale": np.random.default_rng(2).uniform(0.01, 0.02, columns).astype(np.float32),
        "r_zero": np.zeros(columns, np.int8),
    }
    made = contributed(
        "DynamicQuantizeLSTM", inputs, [TensorProto.FLOAT] * 3, hidden_size=hidden, direction=direction
    )
    given = {name: array for name, array in inputs.items() if array is not None}
    results = tilewright.compile(made, given)(**given)
    for result, expected in zip(results, in_onnxruntime(made, given), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


SCALE, ZERO = np.array(0.05, np.float32), np.array(128, np.uint8)
FILTERS = [whole(-60, 60, 5, 4, 3, 3, dtype=np.int8), SCALE, np.array(0, np.int8)]


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("NhwcMaxPool", [], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ("QLinearAveragePool", [SCALE, ZERO] * 2, {"kernel_shape": [2, 2], "channels_last": 1}),
        ("QLinearGlobalAveragePool", [SCALE, ZERO] * 2, {"channels_last": 1}),
        ("QLinearConv", [SCALE, ZERO, *FILTERS, np.array(0.4, np.float32), ZERO], {"channels_last": 1}),
        (
            "QLinearConv",
            [SCALE, ZERO, *FILTERS, np.array(0.4, np.float32), ZERO, whole(-900, 900, 5, dtype=np.int32)],
            {"channels_last": 1, "pads": [1, 1, 1, 1]},
        ),
        (
            "QLinearConv",
            [
                SCALE,
                ZERO,
                whole(-60, 60, 3, 6, 3, 3, dtype=np.int8),
                *FILTERS[1:],
                np.array(0.4, np.float32),
                ZERO,
            ],
            {},
        ),
    ],
    ids=["max", "average", "global average", "convolution", "with a summand", "channels second"],
)
def test_channels_may_be_last(op: str, operands: list[np.ndarray], attrs: dict):
    inputs = {f"x{i}": array for i, array in enumerate([whole(0, 255, 2, 6, 7, 4), *operands])}
    found, wanted = both(contributed(op, dict(inputs), (TensorProto.UINT8,), **attrs), dict(inputs))
    assert found.shape == wanted.shape
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
