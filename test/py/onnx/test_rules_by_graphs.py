"""Rules against numpy: what random graphs found wrong, by its mechanism and its neighbours."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from models import info, model, random, single
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.compiler.errors import UnsupportedError


def run(made, *inputs):
    return tilewright.compile(made, inputs)(*inputs)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint32"])
@pytest.mark.parametrize("shapes", [((2, 3), (3, 4)), ((1, 1), (1, 5))])
def test_a_product_without_a_summand_is_scaled(dtype, shapes):
    a, c = (np.arange(np.prod(s)).reshape(s).astype(dtype) for s in shapes)
    kind = helper.np_dtype_to_tensor_dtype(a.dtype)
    (y,) = run(single("Gemm", a, c, types=(kind,), alpha=2.0, beta=3.0), a, c)
    np.testing.assert_array_equal(y, 2 * (a @ c))


@pytest.mark.parametrize("reduction", ["max", "min", "add", "mul"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8"])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_scatters_that_reduce_order_unsigned_integers(op, dtype, reduction):
    top = int(np.iinfo(dtype).max)
    x, updates = np.array([3, top, 0, top - 1], dtype), np.array([top, 1, 2], dtype)
    index = np.array([0, 1, 3])
    nodes = [helper.make_node(op, ["x", "i", "u"], ["y"], reduction=reduction)]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    weights = {"i": index if op == "ScatterElements" else index[:, None]}
    made = model(nodes, [info("x", [4], kind), info("u", [3], kind)], [info("y", None, kind)], weights)
    wanted = x.copy()
    function = {"max": np.maximum, "min": np.minimum, "add": np.add, "mul": np.multiply}[reduction]
    with np.errstate(over="ignore"):
        function.at(wanted, index, updates)
    np.testing.assert_array_equal(run(made, x, updates)[0], wanted)


@pytest.mark.parametrize("axes", [None, [1]])
def test_what_is_padded_with_may_be_another_number_in_every_call(axes):
    nodes = [helper.make_node("Pad", ["x", "p", "v", *(["a"] if axes else [])], ["y"])]
    weights = {"p": np.array([0, 1, 1, 0] if axes is None else [1, 0])} | (
        {"a": np.array(axes)} if axes else {}
    )
    x = random(2, 3)
    made = model(nodes, [info("x", [2, 3]), info("v", [])], [info("y", None)], weights)
    f = tilewright.compile(made, (x, np.float32(1)))
    for number in (1, -2.5):
        amounts = ((0, 1), (1, 0)) if axes is None else ((0, 0), (1, 0))
        wanted = np.pad(x, amounts, constant_values=number)
        np.testing.assert_array_equal(f(x, np.array(number, np.float32))[0], wanted)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("image", ["bfloat16", "float16", "float64"])
def test_places_in_an_image_are_as_exact_as_the_grid(image, mode):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, image, image)))
    x = np.arange(1024).reshape(1, 1, 2, 512) % 200
    x, grid = x.astype(helper.tensor_dtype_to_np_dtype(kind)), random(1, 3, 5, 2).clip(-0.9, 0.9)
    (y,) = run(single("GridSample", x, grid, types=(kind,), mode=mode), x, grid)
    wide = x.astype(np.float64)
    (wanted,) = run(single("GridSample", wide, grid, types=(TensorProto.DOUBLE,), mode=mode), wide, grid)
    loose = 1.0 if image == "bfloat16" and mode != "nearest" else 0.1 if mode != "nearest" else 0
    np.testing.assert_allclose(y.astype(np.float64), wanted, atol=loose)


SHORT_FUNCTIONS = [
    "Celu",
    "Elu",
    "Gelu",
    "HardSwish",
    "Mish",
    "Selu",
    "Softplus",
    "Softsign",
    "Sum",
    "ReduceLogSumExp",
]


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT16])
@pytest.mark.parametrize("op", SHORT_FUNCTIONS)
def test_functions_of_short_floats_round_once(op, kind):
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    x = np.array([-3, -0.011, -0.5, 0.013, 2, -9], dtype)
    (y,) = run(single(op, x, types=(kind,)), x)
    wide = x.astype(np.float32)
    (wanted,) = run(single(op, wide), wide)
    np.testing.assert_array_equal(y, wanted.astype(dtype))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize(
    ("dtype", "values"), [("float32", "uint32"), ("int64", "float16"), ("uint8", "int8"), ("int32", "bool")]
)
def test_one_hot_of_all_ranks_and_types(shape, dtype, values):
    index = (np.arange(np.prod(shape, dtype=int)).reshape(shape) - (0 if dtype == "uint8" else 3)).astype(
        dtype
    )
    pair = np.array([0, 1], values)
    kind = helper.np_dtype_to_tensor_dtype(pair.dtype)
    for axis in range(-len(shape) - 1, len(shape) + 1):
        nodes = [helper.make_node("OneHot", ["i", "d", "v"], ["y"], axis=axis)]
        given = [info("i", shape, helper.np_dtype_to_tensor_dtype(index.dtype)), info("v", [2], kind)]
        made = model(nodes, given, [info("y", None, kind)], {"d": np.array([4])})
        place = index.astype(np.int64)
        hit = np.where(place < 0, place + 4, place)[..., None] == np.arange(4)
        wanted = np.moveaxis(pair[hit.astype(int)], -1, axis)
        np.testing.assert_array_equal(run(made, index, pair)[0], wanted)
        if axis == 0:
            break


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_windows_that_fit_nowhere_have_no_results(op):
    x = random(1, 2, 1, 4)
    (y,) = run(single(op, x, kernel_shape=[2, 2]), x)
    assert y.shape == (1, 2, 0, 3)


@pytest.mark.parametrize("rank", [1, 2])
def test_steps_without_axes_are_those_of_the_first(rank):
    x = random(5, 4)[(slice(None), 0)[: 3 - rank]] if rank == 1 else random(5, 4)
    nodes = [helper.make_node("Slice", ["x", "b", "e", "", "s"], ["y"])]
    weights = {"b": np.array([0]), "e": np.array([2**63 - 1]), "s": np.array([2])}
    made = model(nodes, [info("x", x.shape)], [info("y", None)], weights)
    np.testing.assert_array_equal(run(made, x)[0], x[::2])


@pytest.mark.parametrize("pads", [[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 1, 1]])
def test_integers_are_padded_by_more_on_one_side(pads):
    x = np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3)
    w = (np.arange(24).reshape(3, 2, 2, 2) % 5).astype(np.uint8)
    made = single("ConvInteger", x, w, types=(TensorProto.INT32,), pads=pads)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x0": x, "x1": w})
    np.testing.assert_array_equal(run(made, x, w)[0], wanted)


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("axes", [[2], [0, -1], None])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions_of_several_steps_take_axes_of_one_element(op, dtype, axes, keep):
    x = (np.abs(random(3, 2, 1, 4)) + 0.1).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [helper.make_node(op, ["x", *(["a"] if axes else [])], ["y"], keepdims=keep)]
    weights = {"a": np.array(axes)} if axes else {}
    made = model(nodes, [info("x", x.shape, kind)], [info("y", None, kind)], weights)
    wide, places = x.astype(np.float64), tuple(axes) if axes else None
    steps = {
        "ReduceL2": lambda: np.sqrt((wide**2).sum(places, keepdims=bool(keep))),
        "ReduceLogSum": lambda: np.log(wide.sum(places, keepdims=bool(keep))),
        "ReduceLogSumExp": lambda: np.log(np.exp(wide).sum(places, keepdims=bool(keep))),
    }
    (y,) = run(made, x)
    wanted = steps[op]()
    assert y.shape == wanted.shape
    loose = 1e-5 if dtype == "float32" else 2**-8
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=loose, atol=1e-6)


@pytest.mark.parametrize("peak", [-np.inf, np.inf, 1e30, -200.0])
def test_the_sum_of_exponentials_does_not_overflow(peak):
    x = np.array([peak, peak, -np.inf], np.float32)
    (y,) = run(single("ReduceLogSumExp", x, keepdims=0), x)
    assert y == (np.float32(peak + np.log(2)) if np.isfinite(peak) else peak)


@pytest.mark.parametrize("zero", ["int8", "uint8", "int16"])
def test_integers_are_quantised_by_fractions(zero):
    x, scale = np.array([-6, 3, 1, 6, 2], np.int32), np.int32(4)
    point = np.array(2, zero)
    kind = helper.np_dtype_to_tensor_dtype(point.dtype)
    made = single("QuantizeLinear", x, scale, point, types=(kind,), opset=23)
    np.testing.assert_array_equal(run(made, x, scale, point)[0], np.rint(x / 4).astype(zero) + point)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_one_element_is_gathered_alone(rank):
    x, index = random(3, 4, 5)[(0,) * (3 - rank)], np.array([1, -2, 3][:rank])
    (y,) = run(single("GatherND", x, index), x, index)
    assert y.shape == ()
    assert y == x[tuple(index)]


@pytest.mark.parametrize("op", ["Tile", "Expand", "Reshape"])
def test_what_makes_a_shape_may_be_an_output_too(op):
    x, shape = random(2, 1), np.array([2, 1])
    made = model(
        [helper.make_node(op, ["x", "n"], ["y"])],
        [info("x", [2, 1])],
        [info("y", None), info("n", [2], TensorProto.INT64), info("n2", [2], TensorProto.INT64)],
        {"n": shape},
    )
    made.graph.node.append(helper.make_node("Identity", ["n"], ["n2"]))
    y, n, again = run(made, x)
    np.testing.assert_array_equal(y, np.tile(x, (2, 1)) if op == "Tile" else x)
    np.testing.assert_array_equal(n, shape)
    np.testing.assert_array_equal(again, shape)


@pytest.mark.parametrize("auto_pad", ["SAME_LOWER", "SAME_UPPER"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_more_than_a_transposed_convolution_reaches_is_shared_by_both_ends(auto_pad, size):
    x, w = random(1, 1, 3), random(1, 1, size, seed=1)
    made = single("ConvTranspose", x, w, strides=[3], auto_pad=auto_pad)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x0": x, "x1": w})
    np.testing.assert_allclose(run(made, x, w)[0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("start", [{"count": np.array(0)}, {"going": np.array(False)}])
@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_a_loop_that_never_runs_has_no_rows(start, dtype):
    x = np.array([[1, 0, 1]], dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["going_on"]),
            helper.make_node("Identity", ["v"], ["w"]),
            helper.make_node("Concat", ["v", "v"], ["row"], axis=0),
            helper.make_node("Shape", ["row"], ["size"]),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("v", [1, 3], kind)],
        [
            info("going_on", [], TensorProto.BOOL),
            info("w", [1, 3], kind),
            info("row", [2, 3], kind),
            info("size", [2], TensorProto.INT64),
        ],
    )
    names = [name if name in start else "" for name in ("count", "going")]
    nodes = [helper.make_node("Loop", [*names, "x"], ["y", "rows", "sizes"], body=body)]
    outputs = [info("y", [1, 3], kind), info("rows", None, kind), info("sizes", None, TensorProto.INT64)]
    made = model(nodes, [info("x", [1, 3], kind)], outputs, start)
    y, rows, sizes = run(made, x)
    np.testing.assert_array_equal(y, x)
    assert (rows.shape, rows.dtype, sizes.shape, sizes.dtype) == ((0, 2, 3), x.dtype, (0, 2), np.int64)


@pytest.mark.parametrize("dtype", ["uint32", "uint64", "int32", "int64"])
@pytest.mark.parametrize("op", ["ReduceSumSquare", "ReduceSum", "ReduceProd"])
def test_reductions_of_integers_wrap_around(op, dtype):
    x = np.array([[3, np.iinfo(dtype).max, 5], [1, np.iinfo(dtype).max - 1, 2**31 - 7]], dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [helper.make_node(op, ["x", "a"], ["y"], keepdims=0)]
    made = model(nodes, [info("x", [2, 3], kind)], [info("y", [2], kind)], {"a": np.array([1])})
    with np.errstate(over="ignore"):
        terms = x * x if op == "ReduceSumSquare" else x
        wanted = (np.prod if op == "ReduceProd" else np.sum)(terms, axis=1, dtype=x.dtype)
    np.testing.assert_array_equal(run(made, x)[0], wanted)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("op", ["Unsqueeze", "Expand"])
def test_a_scalar_is_a_list_of_one_number(op, is_known):
    """As torch.onnx writes the axes where attention repeats its heads."""
    x, n = random(1, 1), np.array(2)
    inputs, weights = [info("x", [1, 1]), info("n", [], TensorProto.INT64)], {"n": n}
    nodes = [helper.make_node(op, ["x", "n"], ["y"])]
    made = model(nodes, inputs[: 2 - is_known], [info("y", None)], weights if is_known else {})
    (y,) = run(made, *([x] if is_known else [x, n]))
    np.testing.assert_array_equal(y, x[..., None] if op == "Unsqueeze" else np.broadcast_to(x, (1, 2)))


@pytest.mark.parametrize("op", ["Squeeze", "Reshape", "Tile", "ReduceSum"])
def test_a_scalar_is_no_list_where_it_is_not_one_for_onnx_runtime_either(op):
    made = model(
        [helper.make_node(op, ["x", "n"], ["y"])], [info("x", [1])], [info("y", None)], {"n": np.array(0)}
    )
    with pytest.raises(UnsupportedError, match="expected a vector as its operand"):
        run(made, random(1))


@pytest.mark.parametrize("op", ["And", "Or"])
@pytest.mark.parametrize("known", [[True], [False], [[True], [False]]])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_known_side_of_a_logical_operator(op, known, is_first):
    x = np.array([True, False, True])
    names = ["k", "x"] if is_first else ["x", "k"]
    outputs = [info("y", None, TensorProto.BOOL)]
    made = model(
        [helper.make_node(op, names, ["y"])],
        [info("x", [3], TensorProto.BOOL)],
        outputs,
        {"k": np.array(known)},
    )
    wanted = (np.logical_and if op == "And" else np.logical_or)(x, known)
    (y,) = run(made, x)
    assert y.shape == wanted.shape
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("scale", [0.5, 1.5, 2.7])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_corners_meet_whatever_the_scale(mode, scale):
    """As `interpolate(scale_factor=1.5, align_corners=True)`: 7 * 1.5 is no whole length."""
    x = random(1, 2, 5, 7)
    scales = np.array([1, 1, scale, scale], np.float32)
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode="align_corners"
    )
    made = model([node], [info("x", x.shape)], [info("y", None)], {"s": scales})
    kind = {"linear": "bilinear", "cubic": "bicubic"}[mode]
    wanted = torch.nn.functional.interpolate(
        torch.from_numpy(x), scale_factor=scale, mode=kind, align_corners=True
    )
    np.testing.assert_allclose(run(made, x)[0], wanted.numpy(), rtol=1e-4, atol=1e-5)
