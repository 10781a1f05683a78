"""Damaged ONNX files are refused by documented errors that say what is wrong, and never end the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import info, model, random
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.errors import ModelImportError, UnsupportedError
from tilewright.compiler.importers.onnx.model import import_onnx


def fuzz(seed: int, count: int, *how: str) -> None:
    """Runs the fuzzer in a process of its own: its last line of standard error names the seed of a failure."""
    script = Path(__file__).with_name("fuzz_models.py")
    run = subprocess.run(
        [sys.executable, str(script), str(seed), str(count), *how],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    taken, refused = map(int, run.stdout.split())
    assert taken + refused == count and taken > count // 10 and refused > count // 3


def test_damaged_models_are_refused():
    fuzz(0, 250)


def test_damaged_nodes_of_every_operator_are_refused():
    fuzz(0, 250, "--nodes")


@pytest.mark.slow
def test_many_damaged_models_are_refused():
    fuzz(100_000, 10_000)


@pytest.mark.slow
def test_many_damaged_nodes_of_every_operator_are_refused():
    fuzz(100_000, 10_000, "--nodes")


@pytest.mark.slow
def test_damaged_nodes_run_or_are_refused():
    fuzz(200_000, 1_000, "--nodes", "--compile")


@pytest.mark.slow
def test_damaged_models_run_or_are_refused():
    fuzz(200_000, 300, "--compile")


def relu(**fields) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    return model(nodes, [info("x", [4])], [info("y", None)], {"w": random(4)}, **fields)


def change(alter) -> onnx.ModelProto:
    made = relu()
    alter(made.graph.initializer[0])
    return made


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda w: w.dims.append(2), r"`w` has not the data of 4x2 FLOAT elements"),
        (lambda w: w.dims.__setitem__(0, -4), r"`w` has a shape that no tensor has, -4"),
        (lambda w: w.dims.__setitem__(0, 1 << 60), r"`w` has a shape that no tensor has"),
        (lambda w: setattr(w, "raw_data", w.raw_data[:-1]), r"`w` has not the data of 4 FLOAT elements"),
        (lambda w: setattr(w, "data_type", TensorProto.INT64), r"`w` has not the data of 4 INT64 elements"),
        (lambda w: setattr(w, "data_type", 0), r"`w` holds UNDEFINED|malformed.*data_type"),
        (lambda w: setattr(w, "data_type", 77), r"`w` holds element type 77|malformed"),
    ],
)  # fmt: skip
def test_initializers_have_the_data_of_their_types(alter, message):
    with pytest.raises(ModelImportError, match=message):
        import_onnx(change(alter))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "expected a data file beside the model"),
        ({"location": "/dev/zero"}, "expected a data file beside the model"),
        ({"location": "../w.bin"}, "expected a data file beside the model"),
        ({"location": "."}, "expected a data file beside the model"),
        ({"location": "absent.bin"}, "does not exist"),
        ({"location": "w.bin", "offset": "-4"}, "expected an offset in bytes, found `-4`"),
        ({"location": "w.bin", "offset": "many"}, "expected an offset in bytes, found `many`"),
        ({"location": "w.bin", "offset": "4"}, "holds 16 bytes, 20 are needed"),
        ({"location": "w.bin", "offset": str(1 << 70)}, "are needed"),
    ],
)
def test_external_data_lie_in_a_file_beside_the_model(entries, message, tmp_path):
    def outside(w):
        w.ClearField("raw_data")
        w.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            w.external_data.add(key=key, value=value)

    (tmp_path / "w.bin").write_bytes(bytes(16))
    path = tmp_path / "model.onnx"
    path.write_bytes(change(outside).SerializeToString())
    with pytest.raises(ModelImportError, match=message):
        import_onnx(path)


@pytest.mark.parametrize("field", [b"Add", b"test"])
def test_text_that_is_none(field, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(relu().SerializeToString().replace(field, b"\xff" * len(field)))
    with pytest.raises(ModelImportError, match=r"model\.graph.* is no UTF-8 text"):
        import_onnx(path)


def test_the_checker_sees_past_outputs_without_shapes():
    made = relu()
    made.graph.node[0].attribute.append(helper.make_attribute("alpha", 3))
    with pytest.raises(ModelImportError, match=r"malformed.*alpha"):
        import_onnx(made)
    absent = relu()
    absent.graph.output[0].name = "z"
    with pytest.raises(ModelImportError, match=r"malformed.*'z'"):
        import_onnx(absent)


def test_inputs_of_shapes_that_no_tensor_has():
    made = model([helper.make_node("Relu", ["x"], ["y"])], [info("x", [1 << 62, 4])], [info("y", None)])
    with pytest.raises(ModelImportError, match="input `x` has a shape that no tensor has"):
        import_onnx(made)


@pytest.mark.parametrize(
    ("node", "operands", "message"),
    [
        (helper.make_node("Flatten", ["x"], ["y"], axis=-(2**63)), {}, "its axis is -9223372036854775808"),
        (helper.make_node("Softmax", ["x"], ["y"], axis=5), {}, "axis"),
        (helper.make_node("Slice", ["x", "a", "b", "a", "s"], ["y"]),
         {"a": [0], "b": [1], "s": 1}, "expected a vector as its operand `steps`"),
        (helper.make_node("Slice", ["x", "a", "b"], ["y"]), {"a": [0, 0], "b": [1]}, "differ in number"),
        (helper.make_node("ReduceMean", ["x", "a"], ["y"]), {"a": 1}, "a vector as its operand `axes`"),
        (helper.make_node("Expand", ["x", "a"], ["y"]), {"a": [1 << 40, 2, 3]}, "shape that no tensor has"),
        (helper.make_node("Tile", ["x", "a"], ["y"]), {"a": [-1, 1]}, "shape that no tensor has|do not fit"),
        (helper.make_node("ConstantOfShape", ["a"], ["y"]), {"a": [1 << 33, 1 << 33]}, "no tensor has"),
        (helper.make_node("Split", ["x"], ["y", "z", "w"], num_outputs=2), {}, "splits into 2 parts"),
        (helper.make_node("Transpose", ["x"], ["y"], perm=[0, 7]), {}, "fit"),
        (helper.make_node("Resize", ["x", "", "a"], ["y"], mode="linear"),
         {"a": [np.nan, 1.0]}, "cannot be read|no element"),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else None,
)  # fmt: skip
def test_nodes_whose_numbers_mean_nothing(node, operands, message):
    weights = {
        name: np.array(items, np.float32 if node.op_type == "Resize" else np.int64)
        for name, items in operands.items()
    }
    made = model([node], [info("x", [2, 3])], [info(name, None) for name in node.output], weights)
    with pytest.raises((ModelImportError, UnsupportedError), match=message):
        import_onnx(made)


CONVOLUTIONS = [
    ({"group": 0}, (4, 3, 3, 3), (1, 3, 6, 6), "its group is 0"),
    ({"group": -1}, (4, 3, 3, 3), (1, 3, 6, 6), "its group is -1"),
    ({"group": 3}, (4, 1, 3, 3), (1, 3, 6, 6), "its group is 3; expected a divisor"),
    ({"group": 2}, (4, 3, 3, 3), (1, 3, 6, 6), "its group is 2; expected a divisor"),
    ({"group": 2}, (4, 4, 3, 3), (1, 4, 6, 6), "kernel 4x4x3x3 in 2 groups is for 8 channels, found 4"),
    ({}, (4, 2, 3, 3), (1, 4, 6, 6), "is for 2 channels, found 4"),
    ({"kernel_shape": [2, 2]}, (4, 4, 3, 3), (1, 4, 6, 6), r"kernel_shape is \[2, 2\], its kernel's \[3, 3\]"),
    ({"strides": [0, 1]}, (4, 4, 3, 3), (1, 4, 6, 6), "2 positive numbers as its strides|positive values"),
    ({"dilations": [1]}, (4, 4, 3, 3), (1, 4, 6, 6), "2 positive numbers as its dilations|incorrect size"),
    ({}, (4, 4, 3), (1, 4, 6, 6), "a kernel of the same rank, found operands of rank 4 and 3|do not fit"),
    ({}, (3, 4, 2, 2, 2, 2), (1, 4, 3, 3, 3, 3), "a convolution over 4 dimensions; at most 3"),
]  # fmt: skip


@pytest.mark.parametrize(("attrs", "kernel", "shape", "message"), CONVOLUTIONS)
@pytest.mark.parametrize("op", ["Conv", "ConvInteger"])
def test_convolutions_whose_numbers_do_not_fit(op, attrs, kernel, shape, message):
    is_integer = op == "ConvInteger"
    kind = TensorProto.UINT8 if is_integer else TensorProto.FLOAT
    weight = random(*kernel).astype(np.uint8 if is_integer else np.float32)
    result = info("y", None, TensorProto.INT32 if is_integer else TensorProto.FLOAT)
    nodes = [helper.make_node(op, ["x", "w"], ["y"], **attrs)]
    with pytest.raises(UnsupportedError, match=message) as refused:
        import_onnx(model(nodes, [info("x", shape, kind)], [result], {"w": weight}))
    assert "bug of the compiler" not in str(refused.value)


@pytest.mark.parametrize(("bias", "group"), [(3, 1), (4, 3), (2, 1)])
def test_transposed_convolutions_whose_numbers_do_not_fit(bias, group):
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=group)]
    weights = {"w": random(4, 4, 3, 3), "b": random(bias)}
    with pytest.raises(UnsupportedError, match=r"its group is 3|a bias of shape \[4\]"):
        import_onnx(model(nodes, [info("x", [1, 4, 6, 6])], [info("y", None)], weights))


def test_tensors_in_attributes_have_no_external_data():
    value = numpy_helper.from_array(random(4), "value")
    value.ClearField("raw_data")
    value.data_location = TensorProto.EXTERNAL
    value.external_data.add(key="location", value="w.bin")
    made = model([helper.make_node("Constant", [], ["y"], value=value)], [], [info("y", None)])
    with pytest.raises(ModelImportError):
        import_onnx(made)
