"""ONNX indices out of range and integers divided by zero, as inputs and as constants: errors, no crash, no zeros."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from models import info, model, single
from onnx import TensorProto, helper

import tilewright
from tilewright.compiler.errors import TilewrightError
from tilewright.runtime.errors import KernelAssertError

ROWS = 6
INDEXED = {
    "Gather": (1, {}),
    "GatherElements": (1, {}),
    "GatherND": (2, {}),
    "ScatterElements": (1, {}),
    "ScatterElements max": (1, {"reduction": "max"}),
    "ScatterND": (2, {}),
    "ScatterND add": (2, {"reduction": "add"}),
}


def indexed(name: str, constant: list[int] | None = None):
    """The compiled operator on 0 to 5, as a function of the indices unless they are constant."""
    rank, attributes = INDEXED[name]
    op = name.split()[0]
    operands = {"x": np.arange(ROWS, dtype=np.float32)}
    if op.startswith("Scatter"):
        operands["updates"] = np.array([8, 9], np.float32)

    def index(numbers: list[int]) -> np.ndarray:
        return np.array(numbers, np.int64).reshape([-1] + [1] * (rank - 1))

    node = helper.make_node(op, ["x", "i", *list(operands)[1:]], ["y"], **attributes)
    inputs, outputs = [info(key, array.shape) for key, array in operands.items()], [info("y", None)]
    if constant is not None:
        compiled = tilewright.compile(model([node], inputs, outputs, {"i": index(constant)}), operands)
        return lambda: compiled(**operands)[0]
    inputs.append(info("i", index([0, 1]).shape, TensorProto.INT64))
    compiled = tilewright.compile(model([node], inputs, outputs), operands | {"i": index([0, 1])})
    return lambda numbers: compiled(**operands, i=index(numbers))[0]


@pytest.mark.parametrize("name", INDEXED)
def test_indices_wrap_once_or_fail(name):
    run = indexed(name)
    assert np.array_equal(run([1, -ROWS]), run([1, 0]))
    for number in (ROWS, -ROWS - 1, 99, 2**40, -(2**40)):
        with pytest.raises(KernelAssertError, match="index out of range"):
            run([1, number])


@pytest.mark.parametrize("name", INDEXED)
def test_constant_indices_wrap_once_or_fail(name):
    assert np.array_equal(indexed(name, [1, -ROWS])(), indexed(name)([1, 0]))
    for number in (99, 2**40):
        with pytest.raises(TilewrightError, match="index out of range"):
            indexed(name, [1, number])()


@pytest.mark.parametrize("op", ["GatherND", "ScatterND", "ScatterND add"])
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("place", [[0, 4], [1, -5], [3, -9], [-4, 4], [2**61, 0]], ids=str)
def test_every_index_of_a_tuple_has_its_own_dimension(op, place, is_known):
    """Also where the place that they say together is inside."""
    operands = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "i": np.array([[2, -1], place])}
    if op.startswith("Scatter"):
        operands["updates"] = np.array([8, 9], np.float32)
    attributes = {"reduction": "add"} if op.endswith("add") else {}
    node = helper.make_node(op.split()[0], list(operands), ["y"], **attributes)
    weights = {"i": operands.pop("i")} if is_known else {}
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in operands.items()}
    inputs = [info(name, array.shape, kinds[name]) for name, array in operands.items()]
    with pytest.raises(TilewrightError, match="index out of range"):
        tilewright.compile(model([node], inputs, [info("y", None)], weights), operands)(**operands)


ONLY = {
    "Gather": ([(1, 3), [5]], {}),
    "GatherND": ([(1, 3), [[5]]], {}),
    "RoiAlign": ([(1, 1, 3, 3), (1, 4), [5]], {"sampling_ratio": 1}),
}


@pytest.mark.parametrize("op", ONLY)
def test_a_dimension_of_one_element_is_no_exception(op):
    """torch-mlir takes one row of one for all of it."""
    parts, attributes = ONLY[op]
    arrays = [np.ones(p, np.float32) if isinstance(p, tuple) else np.array(p) for p in parts]
    made = single(op, *arrays, **attributes)
    run = tilewright.compile(made, arrays)
    with pytest.raises(KernelAssertError, match="index out of range"):
        run(*arrays)
    first = run(*arrays[:-1], np.zeros_like(arrays[-1]))[0]
    np.testing.assert_array_equal(first, np.ones_like(first))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_integer_quotients_report_zeros(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Div", ["x", "y"], ["q"]), helper.make_node("Mod", ["x", "y"], ["r"])]
    inputs, outputs = [info(n, (4,), kind) for n in "xy"], [info(n, (4,), kind) for n in "qr"]
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, limits.min, 7], dtype)
    y = np.array([limits.max, 3, -1 if limits.min else 1, 2], dtype)
    compiled = tilewright.compile(model(nodes, inputs, outputs), (x, y))
    quotient, rest = compiled(x, y)
    # The smallest number over -1 wraps around to itself.
    assert quotient.tolist() == [-1 if limits.min else 0, limits.max // 3, limits.min, 3]
    assert rest.tolist() == [int(limits.min) % int(limits.max), limits.max % 3, 0, 1]
    with pytest.raises(KernelAssertError, match="integer division by zero"):
        compiled(x, np.array([1, 1, 1, 0], dtype))


# Branches and iterations on data, of which each computes what fails where it is not taken: the graph, inputs for which
# the part that would fail is not taken, the result, and inputs for which it is taken and fails.
TAKEN = {
    "a branch that gathers": (
        """(float[3] x, int64 i, int64 n) => (float y) {
          c = Less(i, n)
          y = If(c) <then_branch = t () => (float a) { a = Gather(x, i) },
                     else_branch = e () => (float b) { b = Constant<value = float {-1.0}>() }>
        }""",
        {"i": np.int64(7), "n": np.int64(3)}, -1.0, {"i": np.int64(7), "n": np.int64(9)}, "index out of range: expected 0 to 2",
    ),
    "a branch that divides": (
        """(int32[3] z, bool c) => (int32[3] y) {
          a = Constant<value = int32[3] {6, 7, 8}>()
          y = If(c) <then_branch = t () => (int32[3] q) { q = Div(a, z) },
                     else_branch = e () => (int32[3] r) { r = Identity(a) }>
        }""",
        {"z": np.array([1, 0, 2], np.int32), "c": np.array(False)}, [6, 7, 8],
        {"z": np.array([1, 0, 2], np.int32), "c": np.array(True)}, "integer division by zero",
    ),
    "another branch, with a remainder and a known index that is out of range": (
        """(float[3] x, int32 z, bool c) => (float[2] y, int32 r) {
          zero = Constant<value = int64[1] {0}>()
          two = Constant<value = int64[1] {2}>()
          i = Constant<value = int64[2] {0, 5}>()
          a = Constant<value = int32 {6}>()
          y, r = If(c) <then_branch = t () => (float[2] p, int32 q) { p = Slice(x, zero, two) q = Identity(a) },
                        else_branch = e () => (float[2] s, int32 u) { s = Gather(x, i) u = Mod(a, z) }>
        }""",
        {"z": np.array(0, np.int32), "c": np.array(True)}, [1, 2],
        {"z": np.array(1, np.int32), "c": np.array(False)}, "index out of range: expected 0 to 2",
    ),
    "a branch in a branch": (
        """(float[3] x, int64 i, bool c, bool d) => (float y) {
          y = If(c) <then_branch = t () => (float a) {
                       a = If(d) <then_branch = u () => (float p) { p = Gather(x, i) },
                                  else_branch = v () => (float q) { q = ReduceSum<keepdims = 0>(x) }>
                     },
                     else_branch = e () => (float b) { b = ReduceMax<keepdims = 0>(x) }>
        }""",
        {"i": np.int64(7), "c": np.array(False), "d": np.array(True)}, 3.0,
        {"i": np.int64(7), "c": np.array(True), "d": np.array(True)}, "index out of range: expected 0 to 2",
    ),
    "a loop over elements": (
        """(float[3] x, int64 n) => (float y) {
          m = Constant<value = int64 {10}>()
          zero = Constant<value = float {0.0}>()
          first = Constant<value = int64 {0}>()
          c = Less(first, n)
          y = Loop(m, c, zero) <body = l (int64 i, bool k, float s) => (bool more, float t) {
            e = Gather(x, i)
            t = Add(s, e)
            one = Constant<value = int64 {1}>()
            j = Add(i, one)
            more = Less(j, n)
          }>
        }""",
        {"n": np.int64(3)}, 6.0, {"n": np.int64(4)}, "index out of range: expected 0 to 2",
    ),
    "a loop that counts down and divides": (
        """(int64 n, int64 least) => (int64 y) {
          m = Constant<value = int64 {6}>()
          zero = Constant<value = int64 {0}>()
          c = Greater(n, least)
          last, y = Loop(m, c, n, zero) <body = l (int64 i, bool k, int64 v, int64 s) => (bool more, int64 w, int64 t) {
            twelve = Constant<value = int64 {12}>()
            q = Div(twelve, v)
            t = Add(s, q)
            one = Constant<value = int64 {1}>()
            w = Sub(v, one)
            more = Greater(w, least)
          }>
        }""",
        {"n": np.int64(3), "least": np.int64(0)}, 22, {"n": np.int64(3), "least": np.int64(-1)}, "integer division by zero",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_checks_hold_where_a_part_is_taken(name):
    graph, untaken, expected, failing, message = TAKEN[name]
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 21]> g {graph}')
    given = {"x": np.array([1, 2, 3], np.float32)} if "float[3] x" in graph else {}
    compiled = tilewright.compile(made, given | untaken)
    assert np.array_equal(compiled(**given, **untaken)[0], expected)
    with pytest.raises(KernelAssertError, match=message):
        compiled(**given, **failing)
