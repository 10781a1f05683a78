"""Imports damaged copies of ONNX models: each is taken or refused by a documented error; all else is a finding.

python test/py/onnx/fuzz_models.py SEED COUNT [--nodes] [--compile] [--go-on]

Prints how many were taken and refused. `--nodes` damages ONNX's own test of every operator instead of four larger
models, `--compile` also runs what is taken, `--go-on` counts findings by their text instead of stopping at the first.
A refusal that calls itself a bug of the compiler is a finding too.
"""

from __future__ import annotations

import contextlib
import random
import re
import resource
import sys
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from models import info, model
from models import random as normal
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.compiler.errors import ModelImportError, UnsupportedError
from tilewright.compiler.importers.onnx.model import import_onnx
from tilewright.runtime.errors import KernelAssertError, PackageError

MEMORY_BYTES = 8 << 30
LARGEST_BYTES = 4000
OURS = "bug of the compiler"
NUMBERS = [0, 1, -1, 2, 3, 7, 16, 99, 255, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, float("nan"), float("inf"), -1.0, 1e30, 0.5]
TYPES = {
    helper.np_dtype_to_tensor_dtype(np.dtype(name)): np.dtype(name)
    for name in (
        "float32",
        "float64",
        "float16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "uint64",
        "bool",
    )
}
TEXTS = ["", "nothing", 'é\n"', "x" * 3000, "Relu", "Loop", "Conv", "axis", "../../etc/passwd", "/dev/zero"]
node = helper.make_node


def samples() -> dict[str, tuple[onnx.ModelProto, np.ndarray]]:
    """Models that have a convolution's attributes, operands that shape results, subgraphs, functions, bytes."""
    image = model(
        [
            node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
            node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"], epsilon=1e-4),
            node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Concat", ["p", "p"], ["k"], axis=1),
            node("Resize", ["k", "", "scales"], ["r"], mode="linear"),
            node("GlobalAveragePool", ["r"], ["g"]),
            node("Flatten", ["g"], ["f"], axis=1),
            node("Gemm", ["f", "v"], ["d"], transB=1, alpha=0.5),
            node("Softmax", ["d"], ["y"], axis=-1),
        ],
        [info("x", ["N", 3, 6, 6])],
        [info("y", ["N", 5])],
        {"w": normal(4, 3, 3, 3), "s": abs(normal(4)), "v": normal(5, 8),
         "scales": np.array([1, 1, 2, 2], np.float32)},
    )  # fmt: skip
    lists = {
        "i": [0, 2, 1], "zero": [0], "one": [1], "five": [5], "two": [2], "pads": [0, 1, 1, 0], "tiles": [2, 1],
        "shape": [2, 3, 6], "heads": [4, 2, 3], "rows": [[0], [2]],
    }  # fmt: skip
    movement = model(
        [
            node("Gather", ["x", "i"], ["g"], axis=0),
            node("Unsqueeze", ["g", "zero"], ["u"]),
            node("Expand", ["u", "shape"], ["e"]),
            node("ReduceMean", ["e", "one"], ["m"], keepdims=0),
            node("Slice", ["x", "one", "five", "one", "two"], ["l"]),
            node("Pad", ["l", "pads"], ["p"], mode="constant"),
            node("Tile", ["p", "tiles"], ["t"]),
            node("TopK", ["x", "two"], ["k", "ki"], axis=1),
            node("Reshape", ["x", "heads"], ["h"]),
            node("Transpose", ["h"], ["ht"], perm=[1, 0, 2]),
            node("ScatterND", ["x", "rows", "updates"], ["s"]),
            node("Split", ["s"], ["a", "b"], axis=1, num_outputs=2),
        ],
        [info("x", [4, 6])],
        [info(name, None) for name in ("m", "t", "k", "ht", "a", "b")],
        {**{name: np.array(items, np.int64) for name, items in lists.items()}, "updates": normal(2, 6)},
    )
    pair, flag = info("a", [2]), info("c", [], TensorProto.BOOL)
    body = helper.make_graph(
        [node("Add", ["a", "x"], ["b"]), node("Identity", ["c"], ["d"])],
        "body",
        [info("i", [], TensorProto.INT64), flag, pair],
        [info("d", [], TensorProto.BOOL), info("b", [2])],
    )
    then = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [info("t", [2])])
    otherwise = helper.make_graph([node("Neg", ["x"], ["o"])], "otherwise", [], [info("o", [2])])
    control = model(
        [
            node("Loop", ["trips", "", "x"], ["l"], body=body),
            node("If", ["flag"], ["s"], then_branch=then, else_branch=otherwise),
            node("Twice", ["s"], ["w"], domain="local"),
            node("SequenceConstruct", ["l", "w"], ["q"]),
            node("ConcatFromSequence", ["q"], ["y"], axis=0),
        ],
        [info("x", [2]), info("flag", [], TensorProto.BOOL)],
        [info("y", None)],
        {"trips": np.array(3), "flag": np.array(True)},
        functions=[
            helper.make_function(
                "local",
                "Twice",
                ["a"],
                ["b"],
                [node("Add", ["a", "a"], ["b"])],
                [helper.make_opsetid("", 21)],
            )
        ],
    )
    control.opset_import.append(helper.make_opsetid("local", 1))
    layers = model(
        [
            node("LSTM", ["x", "w", "r"], ["ys", "h"], hidden_size=3),
            node("Squeeze", ["ys", "one"], ["y"]),
            node("QuantizeLinear", ["y", "s", "z"], ["q"]),
            node("MatMulInteger", ["q", "b", "z"], ["mi"]),
            node("Constant", [], ["two"], value=numpy_helper.from_array(np.array(2, np.int32))),
            node("Mul", ["mi", "two"], ["o"]),
        ],
        [info("x", [3, 2, 4])],
        [info("o", None, TensorProto.INT32), info("h", None)],
        {"w": normal(1, 12, 4), "r": normal(1, 12, 3), "one": np.array([1]), "s": np.float32(0.1),
         "z": np.uint8(128), "b": np.arange(6, dtype=np.uint8).reshape(3, 2)},
    )  # fmt: skip
    return {
        "image": (image, normal(1, 3, 6, 6)),
        "movement": (movement, normal(4, 6)),
        "control": (control, normal(2)),
        "layers": (layers, normal(3, 2, 4)),
    }


def node_tests() -> dict[str, tuple[onnx.ModelProto, tuple[Any, ...]]]:
    """ONNX's own tests of single nodes, of every operator and form, with their inputs."""
    warnings.filterwarnings("ignore")
    from onnx.backend.test.loader import load_model_tests

    return {
        case.name: (case.model, tuple(case.data_sets[0][0]))
        for case in load_model_tests(kind="node")
        if case.model is not None and case.data_sets and case.model.ByteSize() < LARGEST_BYTES
    }


def damaged(data: bytes, choose: random.Random) -> bytes:
    """A field of a message replaced, removed, repeated or swapped; or the file cut, or some of its bytes changed."""
    kind = choose.randrange(8)
    if kind < 5:
        changed = onnx.ModelProto.FromString(data)
        for _ in range(choose.choice([1, 1, 1, 2, 3])):
            _change_field(changed, choose)
        return changed.SerializePartialToString()
    copy = bytearray(data)
    at = choose.randrange(len(copy))
    if kind == 5:
        return bytes(copy[:at])
    if kind == 6:
        for _ in range(choose.randint(1, 4)):
            copy[choose.randrange(len(copy))] ^= 1 << choose.randrange(8)
    else:
        width = choose.choice([1, 2, 4, 8])
        copy[at : at + width] = choose.choice([b"\xff", b"\0", b"\x80"]) * width
    return bytes(copy)


def altered(
    proto: onnx.ModelProto, arguments: tuple[Any, ...], choose: random.Random
) -> tuple[onnx.ModelProto, tuple[Any, ...]]:
    """A model of one node that reads well and means something else: numbers of attributes, operands, shapes, types.

    Its examples have the shapes and types that its inputs have then.
    """
    changed = onnx.ModelProto.FromString(proto.SerializeToString())
    given = list(arguments)
    for _ in range(choose.choice([1, 1, 2, 3])):
        target = choose.choice(changed.graph.node)
        draw = choose.random()
        if draw < 0.4:
            _change_attribute(target, choose)
        elif draw < 0.6 and len(target.input):
            names = [*target.input, *(info.name for info in changed.graph.input), ""]
            target.input[choose.randrange(len(target.input))] = choose.choice(names)
        elif given:
            at = choose.randrange(min(len(given), len(changed.graph.input)))
            given[at] = _change_input(changed, at, given[at], choose)
    return changed, tuple(given)


def _change_attribute(target: onnx.NodeProto, choose: random.Random) -> None:
    """Another number in one of the attributes that are set, or one that its operator has besides."""
    if target.attribute and choose.random() < 0.75:
        attribute = choose.choice(target.attribute)
        if attribute.type == onnx.AttributeProto.INT:
            attribute.i = choose.choice([attribute.i + 1, -attribute.i, *NUMBERS])
        elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
            at = choose.randrange(len(attribute.ints))
            if choose.random() < 0.7:
                attribute.ints[at] = choose.choice([attribute.ints[at] + 1, -attribute.ints[at], *NUMBERS])
            elif choose.random() < 0.5:
                del attribute.ints[at]
            else:
                attribute.ints.append(choose.choice([0, 1, 2, -1]))
        elif attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = choose.choice(FLOATS)
        else:
            target.attribute.remove(attribute)
        return
    with contextlib.suppress(onnx.defs.SchemaError):
        for name, known in sorted(onnx.defs.get_schema(target.op_type, target.domain).attributes.items()):
            if any(held.name == name for held in target.attribute) or choose.random() < 0.5:
                continue
            if known.type == onnx.defs.OpSchema.AttrType.INT:
                target.attribute.append(helper.make_attribute(name, choose.choice(NUMBERS[:7])))
            elif known.type == onnx.defs.OpSchema.AttrType.INTS:
                numbers = [choose.choice([0, 1, 2, -1, 3]) for _ in range(choose.randint(1, 4))]
                target.attribute.append(helper.make_attribute(name, numbers))
            elif known.type == onnx.defs.OpSchema.AttrType.FLOAT:
                target.attribute.append(helper.make_attribute(name, choose.choice(FLOATS)))


def _change_input(changed: onnx.ModelProto, at: int, value: Any, choose: random.Random) -> Any:
    """Another shape, type or number for an input; now and then it becomes an initializer."""
    held = changed.graph.input[at]
    if not isinstance(value, np.ndarray) or not held.type.HasField("tensor_type"):
        return value
    kind, shape = held.type.tensor_type.elem_type, list(value.shape)
    draw = choose.random()
    if draw < 0.25:
        kind = choose.choice(sorted(TYPES))
    elif draw < 0.6 and shape:
        shape[choose.randrange(len(shape))] = choose.choice([0, 1, 2, 3, 5, 7])
    elif draw < 0.75:
        shape.insert(choose.randint(0, len(shape)), choose.choice([1, 1, 2]))
    elif draw < 0.85 and shape:
        del shape[choose.randrange(len(shape))]
    if kind not in TYPES or max(value.size, int(np.prod(shape))) > 100_000:
        return value
    made = np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if made.dtype.kind in "biuf":
            made = made.astype(TYPES[kind])
    if made.dtype != TYPES[kind]:
        return value
    if draw > 0.9 and made.size and made.dtype.kind in "iu":
        made.reshape(-1)[choose.randrange(made.size)] = choose.choice([0, -1, 1, 5, 99]) % 2**7
    held.type.tensor_type.CopyFrom(helper.make_tensor_type_proto(kind, made.shape).tensor_type)
    if choose.random() < 0.3:
        changed.graph.initializer.append(numpy_helper.from_array(made, held.name))
    return made


def _messages(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                found += _messages(inner)
    return found


def _twin(message: Message) -> Message:
    return type(message).FromString(message.SerializePartialToString())


def _change_field(changed: Message, choose: random.Random) -> None:
    every = _messages(changed)
    message = choose.choice(every)
    set_fields = [field for field, _ in message.ListFields()]
    usual = set_fields and choose.random() < 0.8
    field = choose.choice(set_fields if usual else list(message.DESCRIPTOR.fields))
    held = getattr(message, field.name)
    if choose.random() < 0.15:
        message.ClearField(field.name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        twins = [_twin(other) for other in every if other.DESCRIPTOR is field.message_type]
        if not field.is_repeated:
            held.CopyFrom(choose.choice(twins)) if twins else held.SetInParent()
        elif len(held) and choose.random() < 0.3:
            del held[choose.randrange(len(held))]
        elif len(held) and choose.random() < 0.5:
            held[choose.randrange(len(held))].CopyFrom(choose.choice(twins))
        else:
            held.add().CopyFrom(choose.choice(twins)) if twins else held.add()
    elif not field.is_repeated:
        setattr(message, field.name, _value(field, every, choose))
    elif len(held) and choose.random() < 0.3:
        del held[choose.randrange(len(held))]
    elif len(held) and choose.random() < 0.5:
        held[choose.randrange(len(held))] = _value(field, every, choose)
    else:
        held.append(_value(field, every, choose))


def _value(field: FieldDescriptor, every: list[Message], choose: random.Random) -> Any:
    """Another value of the field's type, a name that the model has more often than not."""
    if field.type == FieldDescriptor.TYPE_STRING:
        names = [name for message in every if (name := getattr(message, "name", ""))]
        return choose.choice([choose.choice(names), choose.choice(TEXTS)] if names else TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return choose.choice([b"", b"\xff\xfe\x00", choose.randbytes(16), b"a" * 5000])
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return choose.choice(FLOATS)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return choose.choice(sorted(field.enum_type.values_by_number))
    number = choose.choice(NUMBERS)
    if field.type == FieldDescriptor.TYPE_INT32:
        return max(-(2**31), min(2**31 - 1, number))
    return abs(number) if field.type == FieldDescriptor.TYPE_UINT64 else number


class _Missing(Exception):
    """The model takes more inputs than it did before it was damaged."""


def _call(compiled: Any, arguments: tuple[Any, ...]) -> None:
    try:
        compiled(*arguments)
    except TypeError as error:
        if re.fullmatch(r"argument `.*` is missing; .*", str(error), re.DOTALL):
            raise _Missing from error
        raise


def _import(path: Path, arguments: tuple[Any, ...], run: bool) -> str:
    """`taken` or `refused`."""
    try:
        if run:
            _call(tilewright.compile(path, arguments), arguments)
        else:
            import_onnx(path, arguments)
    except (ModelImportError, PackageError, KernelAssertError, _Missing):
        return "refused"
    except UnsupportedError as error:
        if OURS in str(error):
            raise
        return "refused"
    return "taken"


def main(seed: str, count: str, *how: str) -> None:
    known: dict[str, tuple[onnx.ModelProto, Any]]
    if "--nodes" in how:
        known = dict(node_tests())
    else:
        known = {name: (proto, (x,)) for name, (proto, x) in samples().items()}
        for proto, arguments in known.values():
            import_onnx(proto, arguments)
    names = sorted(known)
    random.Random(0).shuffle(names)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    outcomes: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.onnx"
        for number in range(int(seed), int(seed) + int(count)):
            name = names[number % len(names)]
            print(
                f"seed {number} {name}", file=sys.stderr, flush=True
            )  # the last one, where the process dies
            (proto, arguments), choose = known[name], random.Random(number)
            if "--nodes" in how and choose.random() < 0.8:
                proto, arguments = altered(proto, arguments, choose)
                path.write_bytes(proto.SerializeToString())
            else:
                path.write_bytes(damaged(proto.SerializeToString(), choose))
            try:
                outcomes[_import(path, arguments, "--compile" in how)] += 1
            except Exception as error:
                if "--go-on" not in how:
                    raise
                text = f"{type(error).__name__}: {error}"
                if not findings[text]:
                    print(f"seed {number} {name}: {text}", flush=True)
                findings[text] += 1
    print(outcomes["taken"], outcomes["refused"])


if __name__ == "__main__":
    main(*sys.argv[1:])
