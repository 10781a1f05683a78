"""Imports damaged copies of ONNX models: each is taken or refused by a documented error; all else is a finding.

python test/py/onnx/fuzz_models.py SEED COUNT [--compile]      # prints how many were taken and refused
"""

from __future__ import annotations

import random
import re
import resource
import sys
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
NUMBERS = [0, 1, -1, 2, 3, 7, 16, 99, 255, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
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
        return choose.choice([0.0, float("nan"), float("inf"), -1.0, 1e30, 0.5])
    if field.type == FieldDescriptor.TYPE_ENUM:
        return choose.choice(sorted(field.enum_type.values_by_number))
    number = choose.choice(NUMBERS)
    if field.type == FieldDescriptor.TYPE_INT32:
        return max(-(2**31), min(2**31 - 1, number))
    return abs(number) if field.type == FieldDescriptor.TYPE_UINT64 else number


class _Missing(Exception):
    """The model takes more inputs than it did before it was damaged."""


def _call(compiled: Any, x: np.ndarray) -> None:
    try:
        compiled(x)
    except TypeError as error:
        if re.fullmatch(r"argument `.*` is missing; .*", str(error), re.DOTALL):
            raise _Missing from error
        raise


def main(seed: str, count: str, *how: str) -> None:
    known = samples()
    names = sorted(known)
    for proto, x in known.values():
        import_onnx(proto, (x,))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    outcomes: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.onnx"
        for number in range(int(seed), int(seed) + int(count)):
            print(f"seed {number}", file=sys.stderr, flush=True)  # the last one, where the process dies
            proto, x = known[names[number % len(names)]]
            path.write_bytes(damaged(proto.SerializeToString(), random.Random(number)))
            try:
                if how:
                    _call(tilewright.compile(path, (x,)), x)
                else:
                    import_onnx(path, (x,))
                outcomes["taken"] += 1
            except (ModelImportError, UnsupportedError, PackageError, KernelAssertError, _Missing):
                outcomes["refused"] += 1
    print(outcomes["taken"], outcomes["refused"])


if __name__ == "__main__":
    main(*sys.argv[1:])
