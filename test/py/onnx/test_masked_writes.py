"""Writes of one number where a mask holds, in the nodes that torch.onnx writes."""

from __future__ import annotations

import numpy as np
import pytest
from models import info, model, random
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.onnx.model import import_onnx

X = random(3, 4, 5)


def masked_write(x: np.ndarray, mask: np.ndarray, written: np.ndarray, known=False, beside=(), **attrs):
    """`x[mask] = written`; `beside` is further read of the places, and returned."""
    nodes = [
        helper.make_node("NonZero", ["mask"], ["columns"], name="places"),
        helper.make_node("Transpose", ["columns"], ["places"], perm=[1, 0]),
        helper.make_node("Reshape", ["mask", "flat"], ["all"]),
        helper.make_node("Cast", ["all"], ["ones"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["ones", "none"], ["count"]),
        helper.make_node("Concat", ["count", "row"], ["shape"], axis=0),
        helper.make_node("Expand", ["written", "shape"], ["numbers"]),
        helper.make_node("Reshape", ["numbers", "shape"], ["updates"]),
        helper.make_node("ScatterND", ["x", "places", "updates"], ["y"], **attrs),
        *(helper.make_node("Identity", [name], [f"{name}_again"]) for name in beside),
    ]
    kind = helper.np_dtype_to_tensor_dtype(mask.dtype)
    weights = {
        "flat": np.array([-1]),
        "none": np.array([], np.int64),
        "row": np.array(x.shape[mask.ndim :], np.int64),
        "written": written,
        **({"mask": mask} if known else {}),
    }
    inputs = [info("x", x.shape), *([] if known else [info("mask", mask.shape, kind)])]
    outputs = [info("y", x.shape), *(info(f"{name}_again", None, TensorProto.INT64) for name in beside)]
    return model(nodes, inputs, outputs, weights)


@pytest.mark.parametrize("dtype", ["bool", "int32"])
@pytest.mark.parametrize(
    ("rank", "written"),
    [
        (1, np.float32(2.5)),
        (2, random(1)),
        (2, random(5)),
        (2, random(1, 5)),
        (3, np.float32(2.5)),
        (3, random(1)),
    ],
)
def test_numbers_written_where_a_mask_holds(rank, written, dtype):
    mask = (random(*X.shape[:rank], seed=1) > 0).astype(dtype) * np.array(3, dtype)
    compiled = tilewright.compile(masked_write(X, mask, np.array(written)), (X, mask))
    for given in (mask, np.zeros_like(mask), (mask == 0).astype(dtype)):
        wanted = X.copy()
        wanted[given.astype(bool)] = written
        np.testing.assert_array_equal(compiled(X, given)[0], wanted)


def test_known_masks_take_a_number_for_each_place():
    mask = np.array([[True, False], [True, True]])
    x, written = random(2, 2), random(3, seed=1)
    wanted = x.copy()
    wanted[mask] = written
    made = masked_write(x, mask, written, known=True)
    np.testing.assert_array_equal(tilewright.compile(made, (x,))(x)[0], wanted)


@pytest.mark.parametrize("written", [np.float32(2.5), random(5)])
def test_rows_written_where_an_expanded_mask_holds(written):
    """As torch.onnx writes `x[mask] = row` for a mask of fewer axes than x."""
    made = masked_write(X, np.ones(X.shape, bool), np.array(written))
    made.graph.node.insert(0, helper.make_node("Expand", ["narrow", "wide"], ["mask"]))
    made.graph.input[1].CopyFrom(info("narrow", [3, 4, 1], TensorProto.BOOL))
    made.graph.initializer.append(numpy_helper.from_array(np.array([3, 4, 5]), "wide"))
    if np.size(written) > 1:  # five numbers for each of a fifth of the places
        made.graph.initializer.append(numpy_helper.from_array(np.array([12, 5]), "all_rows"))
        expand = next(node for node in made.graph.node if node.output[0] == "numbers")
        expand.input[1] = "all_rows"
    mask = random(3, 4, seed=1) > 0
    wanted = X.copy()
    wanted[mask] = written
    (y,) = tilewright.compile(made, (X, mask[..., None]))(X, mask[..., None])
    np.testing.assert_array_equal(y, wanted)


def test_a_row_is_not_written_where_a_mask_tells_its_elements_apart():
    x = random(5000, 4)
    mask = np.ones((5000, 4), bool)
    with pytest.raises(UnsupportedError, match="not the same into all places"):
        import_onnx(masked_write(x, mask, random(4)), (x, mask))


def refusal(written: np.ndarray, **how) -> list[tuple[str, str]]:
    """What is refused of a mask that is too large to be compiled in."""
    x, mask = random(5000, 4), np.ones(5000, bool)
    with pytest.raises(UnsupportedError) as refused:
        import_onnx(masked_write(x, mask, written, **how), (x, mask))
    return [(op.operator, op.location.split()[1]) for op in refused.value.operators]


def test_what_is_refused():
    assert refusal(random(5000, 1)) == [("WriteWhere", "8")]
    assert refusal(random(1), beside=["columns"]) == [("NonZero", "0")]
    assert refusal(random(1), reduction="add")[0] == ("NonZero", "0")
