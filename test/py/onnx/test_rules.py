"""Rules that ONNX's node tests do not reach, or not in every form."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from models import info, model, random, single
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright import onnx_backend
from tilewright.compiler.errors import UnsupportedError

F = TensorProto.FLOAT


def run(made, *inputs):
    return tilewright.compile(made, inputs)(*inputs)


def test_sequences_are_built_and_taken_apart():
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "y"], ["s"]),
        helper.make_node("SequenceEmpty", [], ["empty"]),
        helper.make_node("SequenceInsert", ["s", "x"], ["three"]),
        helper.make_node("SequenceErase", ["three", "one"], ["two"]),
        helper.make_node("SequenceLength", ["three"], ["n"]),
        helper.make_node("SequenceAt", ["two", "last"], ["z"]),
        helper.make_node("ConcatFromSequence", ["three"], ["c"], axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["stacked"], axis=-1, new_axis=1),
    ]
    weights = {"one": np.array(1, np.int64), "last": np.array(-1, np.int64)}
    outputs = [info("n", [], TensorProto.INT64), info("z", [2]), info("c", [6]), info("stacked", [2, 2])]
    x, y = random(2), random(2, seed=1)
    n, z, c, stacked = run(model(nodes, [info("x", [2]), info("y", [2])], outputs, weights), x, y)
    assert int(n) == 3
    np.testing.assert_array_equal(z, x)
    np.testing.assert_array_equal(c, np.concatenate([x, y, x]))
    np.testing.assert_array_equal(stacked, np.stack([x, y], axis=-1))


def test_sequences_cross_the_boundary_as_lists():
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, [2]))
    node = helper.make_node("SequenceInsert", ["s", "x"], ["t"])
    made = model(
        [node],
        [helper.make_value_info("s", sequence), info("x", [2])],
        [helper.make_value_info("t", sequence)],
    )
    x, y = random(2), random(2, seed=1)
    (result,) = run(made, [x, y], x)
    assert isinstance(result, list) and len(result) == 3
    np.testing.assert_array_equal(result[2], x)


def test_optional_with_a_value():
    nodes = [
        helper.make_node("Optional", ["x"], ["o"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("OptionalGetElement", ["o"], ["y"]),
    ]
    x = random(2)
    has, y = run(model(nodes, [info("x", [2])], [info("has", [], TensorProto.BOOL), info("y", [2])]), x)
    assert bool(has)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_global_lp_pool(p):
    x = random(2, 3, 4, 4)
    (result,) = run(single("GlobalLpPool", x, p=p), x)
    np.testing.assert_allclose(result, (np.abs(x) ** p).sum((2, 3), keepdims=True) ** (1 / p), rtol=1e-4)


def test_inputs_without_elements_are_returned():
    x = random(1, 0)
    (y,) = run(single("Identity", x), x)
    assert y.shape == (1, 0)


def test_indices_of_pooled_constants_go_through_all_planes():
    """They are counted over the whole tensor, which onnx's evaluator does not do."""
    x = random(1, 2, 4)
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[1])
    made = model([node], [], [info("y", [1, 2, 4]), info("i", [1, 2, 4], TensorProto.INT64)], {"x": x})
    y, i = run(made)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(i, np.arange(8).reshape(1, 2, 4))


SMALL = [
    (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
    (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    (TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
    (TensorProto.FLOAT4E2M1, ml_dtypes.float4_e2m1fn),
]


@pytest.mark.parametrize(("code", "dtype"), SMALL)
def test_every_small_float_decodes_and_encodes(code, dtype):
    """All codes to f32 and back; ties between neighbours go to the even code."""
    count = 16 if code == TensorProto.FLOAT4E2M1 else 256
    codes = np.arange(count, dtype=np.uint8).view(dtype)
    decode = model([helper.make_node("Cast", ["x"], ["y"], to=F)], [info("x", [count], code)], [info("y", [count])],
                   opset=25)  # fmt: skip
    (wide,) = onnx_backend.run_model(decode, [codes])
    np.testing.assert_array_equal(wide, codes.astype(np.float32))
    finite = np.sort(np.unique(wide[np.isfinite(wide)]))
    middle = (finite[1:] + finite[:-1]) / 2
    near = np.concatenate([finite, middle, np.nextafter(middle, 9e9), np.nextafter(middle, -9e9)]).astype(
        np.float32
    )
    encode = model([helper.make_node("Cast", ["x"], ["y"], to=code, saturate=0 if count == 256 else None)],
                   [info("x", [near.size])], [info("y", [near.size], code)], opset=25)  # fmt: skip
    (back,) = onnx_backend.run_model(encode, [near])
    np.testing.assert_array_equal(back.astype(np.float32), near.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("op", ["Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "ThresholdedRelu"])
def test_attributes_that_nobody_gives_are_those_of_the_standard(op):
    made = model([helper.make_node(op, ["x"], ["y"])], [info("x", [65])], [info("y", [65])])
    x = np.linspace(-4, 4, 65, dtype=np.float32)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    (found,) = run(made, x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-7)


def test_double_to_half_rounds_once():
    """Through f32 alone, 1 + 2^-11 + 2^-40 would round down twice."""
    x = np.array([1 + 2**-11 + 2**-40, 1 + 2**-11 - 2**-40, -(1 + 2**-11), 1e300, np.nan, 6e-8], np.float64)
    made = single("Cast", x, types=(TensorProto.FLOAT16,), to=TensorProto.FLOAT16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run(made, x)[0], x.astype(np.float16))


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bkj->bik", "ii->i", "ij->", "i,j->ij", "...ij,...jk->...ik",
                                      "ij,jk,kl->il", "ab,cd->abcd", "bhwc,hkc->bhwk", "iij->j", "iij->ij",
                                      "iij,jk->k", "ii...->i...", "iji->ij", "jii,jjk->ki", "iii->i"])  # fmt: skip
def test_einsum(equation):
    extent = dict(zip("abcdhijklw.", (2, 3, 4, 2, 3, 4, 5, 3, 2, 4, 2)))
    terms = equation.split("->")[0].replace("...", ".").split(",")
    arrays = [random(*(extent[c] for c in term), seed=i) for i, term in enumerate(terms)]
    (result,) = run(single("Einsum", *arrays, equation=equation), *arrays)
    np.testing.assert_allclose(result, np.einsum(equation, *arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("left", "right"), [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 4, 3), (3,)),
                                             ((3,), (2, 3, 4)), ((2, 1, 4, 3), (5, 3, 2))])  # fmt: skip
def test_matmul_ranks(left, right):
    x, y = random(*left), random(*right, seed=1)
    np.testing.assert_allclose(run(single("MatMul", x, y), x, y)[0], x @ y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 5, 5)])
def test_determinant(shape):
    x = random(*shape)
    np.testing.assert_allclose(run(single("Det", x), x)[0], np.linalg.det(x), rtol=1e-3, atol=1e-5)
    singular = np.zeros(shape, np.float32)
    np.testing.assert_array_equal(run(single("Det", singular), singular)[0], np.linalg.det(singular))


TRANSPOSED = [
    {"strides": [2, 2]},
    {"strides": [2, 1], "pads": [1, 0, 0, 1]},
    {"dilations": [2, 2], "output_padding": [1, 0], "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [3, 3]},
    {"output_shape": [9, 10], "strides": [2, 2]},
    {"output_shape": [13, 14], "strides": [3, 3]},
    {"output_shape": [13, 13], "strides": [3, 3], "auto_pad": "VALID"},
    {"group": 2, "strides": [2, 2]},
]


@pytest.mark.parametrize("attrs", TRANSPOSED, ids=str)
def test_transposed_convolution(attrs):
    x, w = random(1, 4, 4, 4), random(4, 6 // attrs.get("group", 1), 3, 3, seed=1)
    made = single("ConvTranspose", x, w, opset=11, **attrs)
    if attrs.get("group"):
        halves = [
            single(
                "ConvTranspose", x[:, :2], w[:2], opset=11, **{k: v for k, v in attrs.items() if k != "group"}
            )
        ] * 2
        expected = np.concatenate(
            [
                ReferenceEvaluator(half).run(
                    None, {"x0": x[:, 2 * g : 2 * g + 2], "x1": w[2 * g : 2 * g + 2]}
                )[0]
                for g, half in enumerate(halves)
            ],
            axis=1,
        )
    else:
        expected = ReferenceEvaluator(made).run(None, {"x0": x, "x1": w})[0]
    np.testing.assert_allclose(run(made, x, w)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bits", [8, 32])
def test_unsigned_arithmetic(bits):
    dtype = np.dtype(f"uint{bits}")
    high = np.iinfo(dtype).max
    x = np.array([high, 1, high // 2 + 1, 7], dtype)
    y = np.array([2, high, 3, 7], dtype)
    code = helper.np_dtype_to_tensor_dtype(dtype)
    for op, expected in (("Div", x // y), ("Max", np.maximum(x, y)), ("Mod", x % y)):
        np.testing.assert_array_equal(run(single(op, x, y, types=(code,)), x, y)[0], expected)
    np.testing.assert_array_equal(run(single("Less", x, y, types=(TensorProto.BOOL,)), x, y)[0], x < y)
    wide = run(single("Cast", x, to=F), x)[0]
    np.testing.assert_allclose(wide, x.astype(np.float32))


def test_loop_of_known_count_and_condition_on_data():
    """Doubles until the sum passes a bound, five times at most."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["w"]),
            helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
            helper.make_node("Less", ["s", "bound"], ["go"]),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("v", [2])],
        [info("go", [], TensorProto.BOOL), info("w", [2])],
    )
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)]
    weights = {"count": np.array(5, np.int64), "bound": np.array(20, np.float32)}
    made = model(nodes, [info("x", [2])], [info("y", [2])], weights)
    compiled = tilewright.compile(made, (np.ones(2, np.float32),))
    for start, times in ((1.0, 4), (0.01, 5), (8.0, 1)):
        x = np.full(2, start, np.float32)
        np.testing.assert_allclose(compiled(x)[0], x * 2**times, rtol=1e-6)


def test_loop_without_a_bound_is_refused():
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["w"]),
            helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
            helper.make_node("Less", ["s", "bound"], ["go"]),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("v", [2])],
        [info("go", [], TensorProto.BOOL), info("w", [2])],
    )
    nodes = [helper.make_node("Loop", ["", "start", "x"], ["y"], body=body)]
    weights = {"start": np.array(True), "bound": np.array(20, np.float32)}
    made = model(nodes, [info("x", [5000])], [info("y", [5000])], weights)
    with pytest.raises(UnsupportedError, match=r"Loop.*`cond` must be known"):
        tilewright.compile(made, (np.ones(5000, np.float32),))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap", "constant"])
def test_pad_with_cuts(mode):
    x = random(4, 5)
    pads = np.array([1, -1, 2, 3], np.int64)
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    made = model([node], [info("x", [4, 5])], [info("y", None)], {"pads": pads})
    expected = np.pad(x[:, 1:], ((1, 2), (0, 3)), mode)
    if mode == "constant":
        np.testing.assert_array_equal(run(made, x)[0], expected)
    else:
        assert run(made, x)[0].shape == expected.shape


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_numbers_beyond_the_signed_range(dtype):
    """Order, extrema and bounds of numbers whose top bit is set; torch-mlir would read them as negative."""
    high = int(np.iinfo(dtype).max)
    x = np.array([[1, high, high // 2 + 1], [high - 1, 3, high // 2]], dtype)
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    axis = np.array([1])
    if dtype != "uint16":  # ONNX reduces no 16-bit integers
        for op, expected in (("ReduceMax", x.max(1)), ("ReduceMin", x.min(1))):
            made = single(op, x, axis, types=(code,), keepdims=0)
            np.testing.assert_array_equal(run(made, x, axis)[0], expected)
    np.testing.assert_array_equal(run(single("Abs", x, types=(code,)), x)[0], x)
    np.testing.assert_array_equal(run(single("Sign", x, types=(code,)), x)[0], np.ones_like(x))
    bounds = np.array(2, dtype), np.array(high - 2, dtype)
    made = single("Clip", x, *bounds, types=(code,))
    np.testing.assert_array_equal(run(made, x, *bounds)[0], np.clip(x, *bounds))
    k = np.array([2])
    values, places = run(single("TopK", x, k, types=(code, TensorProto.INT64), axis=1), x, k)
    np.testing.assert_array_equal(values, np.sort(x, axis=1)[:, ::-1][:, :2])
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), values)


def test_mean_of_integers():
    x, axis = np.array([[1, 2], [-3, -4]], np.int32), np.array([1])
    made = single("ReduceMean", x, axis, opset=18, types=(TensorProto.INT32,), keepdims=0)
    np.testing.assert_array_equal(run(made, x, axis)[0], [1, -3])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32"])
@pytest.mark.parametrize(("lambd", "bias"), [(0.1, 0.0), (1.5, 1.5), (2.0, 1.0)])
def test_shrink_takes_integers_for_numbers(dtype, lambd, bias):
    x = np.array([-5, -2, -1, 0, 1, 2, 3, 100]).astype(dtype)
    made = single("Shrink", x, types=(helper.np_dtype_to_tensor_dtype(x.dtype),), lambd=lambd, bias=bias)
    expected = np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)).astype(dtype)
    np.testing.assert_array_equal(run(made, x)[0], expected)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (2, 3)], ids=str)
def test_choices_between_one_value_are_spread(shape):
    x = random(*shape)
    nodes = [
        helper.make_node("Squeeze", ["x"], ["s"])
        if not shape
        else helper.make_node("Identity", ["x"], ["s"]),
        helper.make_node("Where", ["c", "s", "x"], ["y"]),
    ]
    condition = np.arange(3) % 2 == 0
    given = [info("x", x.shape), info("c", condition.shape, TensorProto.BOOL)]
    (found,) = run(model(nodes, given, [info("y", None)]), x, condition)
    np.testing.assert_array_equal(found, np.where(condition, x, x))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("step", [2, -2])
def test_slices_of_all_axes_take_indices_of_one_type(dtype, step):
    x = random(6, 4)
    bounds = ([1, 0], [5, 4]) if step > 0 else ([5, 3], [0, -9])
    starts, ends, steps = (np.array(numbers, dtype) for numbers in (*bounds, [step, step]))
    nodes = [helper.make_node("Slice", ["x", "starts", "ends", "", "steps"], ["y"])]
    made = model(
        nodes, [info("x", x.shape)], [info("y", None)], {"starts": starts, "ends": ends, "steps": steps}
    )
    np.testing.assert_array_equal(run(made, x)[0], ReferenceEvaluator(made).run(None, {"x": x})[0])
