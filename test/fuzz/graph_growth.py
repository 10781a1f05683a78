"""A random ONNX graph while it grows: every node is run by a reference, which decides whether it is legal."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fuzz.generator import NoFit
from fuzz.graph import Graph, Input, code_of, drawn, name_of, numpy_dtype
from fuzz.graph_reference import agree, evaluations

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
ONNX_NAMES = {
    "float32": "float",
    "float64": "double",
    **{name: name for name in DTYPES if name not in ("float32", "float64")},
}
MAX_ELEMENTS = 4096
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
ODD_NAMES = (
    "a/b:{}",
    "x y {}",
    "é{}",
    "{}",
    "0.{}",
    "a-b.{}",
    "%{}",
    '"{}"',
    "@main{}",
    "arg{}",
    "v{}",
    "s{}",
)


class Growth:
    """Values by name with the array that a reference has for each; what an operator needs to add nodes."""

    def __init__(self, seed: int):
        self.seed = seed
        self.choose = random.Random(seed * 6007 + 5)
        newest = onnx.defs.onnx_opset_version()
        self.opset = self.choose.choice((*OPSETS, *(range(min(newest, 21), newest + 1))))
        self.odd = self.choose.random() < 0.2
        self.arrays: dict[str, np.ndarray] = {}
        self.open: set[str] = set()
        self.inputs: list[Input] = []
        self.weights: dict[str, np.ndarray] = {}
        self.also_inputs: list[str] = []
        self.nodes: list[onnx.NodeProto] = []
        self.unused: dict[str, None] = {}
        self._count = 0

    # Choices

    def maybe(self, share: float = 0.5) -> bool:
        return self.choose.random() < share

    def optional(self, value: Any, share: float = 0.5) -> Any:
        """The value of an attribute that may be left out."""
        return value if self.maybe(share) else None

    def axis(self, rank: int, beyond: int = 0) -> int:
        """Any axis, counted from the front or the back."""
        if rank + beyond == 0:
            raise NoFit("no axis")
        return self.choose.randrange(-rank - beyond, rank + beyond)

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        rank = self.choose.choice([r for r in (0, 1, 1, 2, 2, 2, 3, 3, 4) if low <= r <= high] or [low])
        zero = self.maybe(0.03)
        sizes = (1, 1, 2, 3, 4, 5, 7) if not zero else (0, 1, 2, 3)
        return tuple(self.choose.choice(sizes) for _ in range(rank))

    def schema(self, op: str) -> onnx.defs.OpSchema:
        """The operator's schema; raises NoFit where the opset has none."""
        try:
            return onnx.defs.get_schema(op, self.opset)
        except onnx.defs.SchemaError:
            raise NoFit(f"opset {self.opset} has no {op}") from None

    def types(self, op: str, operand: int = 0, among: Iterable[str] = DTYPES) -> list[str]:
        """The element types that the schema has for an operand; raises NoFit where the opset has no such operator."""
        schema = self.schema(op)
        allowed = schema.inputs[min(operand, len(schema.inputs) - 1)].types
        found = [name for name in among if f"tensor({ONNX_NAMES[name]})" in allowed]
        if not found:
            raise NoFit("no such element type")
        return found

    def dtype(self, op: str, operand: int = 0, among: Iterable[str] = DTYPES) -> str:
        found = self.types(op, operand, among)
        return "float32" if "float32" in found and self.maybe(0.4) else self.choose.choice(found)

    def fill(self, dtype: str) -> str:
        if dtype == "bool":
            return "normal"
        return self.choose.choice(("normal", "normal", "normal", "integers", "special", "wide", "zeros"))

    # Values

    def name(self) -> str:
        self._count += 1
        pattern = self.choose.choice(ODD_NAMES) if self.odd else "v{}"
        made = pattern.format(self._count)
        return made if made not in self.arrays else f"again{self._count}"

    def fresh(
        self, shape: Sequence[int], dtype: str, fill: str | None = None, role: str | None = None
    ) -> str:
        """A new input, initializer, initializer that is an input too, or constant."""
        name, shape = self.name(), tuple(shape)
        fill = fill or self.fill(dtype)
        role = role or self.choose.choice(("input", "input", "input", "weight", "both", "constant"))
        if role == "input":
            self.inputs.append(Input(name, shape, dtype, fill))
            self.arrays[name] = self.inputs[-1].build(self.seed)
            return name
        return self.known(drawn(shape, dtype, fill, self.seed + zlib.crc32(name.encode())), role, name)

    def known(self, array: Any, role: str | None = None, name: str = "") -> str:
        """A known tensor: mostly an initializer or a constant, else an input that holds these numbers in every call."""
        array = np.asarray(array)
        name = name or self.name()
        role = role or self.choose.choice(("weight", "weight", "both", "constant", "constant", "input"))
        if role == "input":
            self.inputs.append(
                Input(name, array.shape, name_of(array), "", tuple(array.reshape(-1).tolist()))
            )
        elif role == "constant":
            node = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            self.nodes.append(node)
        else:
            self.weights[name] = array
            if role == "both":
                self.also_inputs.append(name)
        self.arrays[name] = array
        return name

    def ints(self, *numbers: int, dtype: str = "int64") -> str:
        return self.known(np.array(numbers, numpy_dtype(dtype)))

    def any_of(self, dtypes: Sequence[str], low: int = 0, high: int = 4, fill: str | None = None) -> str:
        """A value of one of the types and ranks: one that there is, or a new one."""
        fits = [
            name
            for name, array in self.arrays.items()
            if name_of(array) in dtypes and low <= array.ndim <= high and name not in self.open
        ]
        if fits and fill is None and self.maybe(0.7):
            return self.choose.choice(fits[-6:])
        dtype = "float32" if "float32" in dtypes and self.maybe(0.4) else self.choose.choice(list(dtypes))
        return self.fresh(self.shape(low, high), dtype, fill)

    def operand(self, op: str, low: int = 0, high: int = 4, fill: str | None = None) -> str:
        """A value that an operator takes as its first operand."""
        return self.any_of(self.types(op), low, high, fill)

    def like(self, name: str, shape: Sequence[int] | None = None, fill: str | None = None) -> str:
        """Another value of the same type, new or there already, of a shape or one that broadcasts with it."""
        array = self.arrays[name]
        if shape is None:
            shape = self.broadcasting(array.shape)
        fits = [
            n
            for n, a in self.arrays.items()
            if a.dtype == array.dtype and a.shape == tuple(shape) and n not in self.open
        ]
        if fits and fill is None and self.maybe(0.6):
            return self.choose.choice(fits)
        return self.fresh(shape, name_of(array), fill)

    def any_shape(self, shape: Sequence[int], dtype: str, fill: str | None = None) -> str:
        """A value of this type and shape: one that there is, or a new one."""
        if fill is not None:
            return self.fresh(shape, dtype, fill)
        for name, array in self.arrays.items():
            if (
                name_of(array) == dtype
                and array.shape == tuple(shape)
                and name not in self.open
                and self.maybe()
            ):
                return name
        return self.fresh(shape, dtype)

    def broadcasting(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with another."""
        kept = list(shape[self.choose.choice((0, 0, self.choose.randint(0, len(shape)))) :])
        made = [1 if self.maybe(0.2) else n for n in kept]
        if len(kept) == len(shape) and self.maybe(0.1):
            made = [*self.choose.choice(((1,), (2,))), *made]
        return tuple(made)

    # Nodes

    def emit(
        self, op: str, inputs: Sequence[str | None], outputs: int = 1, domain: str = "", **attrs: Any
    ) -> list[str]:
        """Adds a node; raises NoFit where the opset has no such operator, or no reference runs it."""
        if domain == "":
            self.schema(op)
        names = [self.name() for _ in range(outputs)]
        given = [name or "" for name in inputs]
        while given and not given[-1]:
            given.pop()
        proto = helper.make_node(op, given, names, domain=domain)
        for key, value in attrs.items():
            if value is not None:
                kind = onnx.AttributeProto.INTS if value == [] else None
                proto.attribute.append(helper.make_attribute(key, value, attr_type=kind))
        self.add(proto)
        return names

    def add(self, proto: onnx.NodeProto) -> None:
        """Adds a finished node."""
        found = evaluations(proto, self.arrays, self.opset)
        if not found:
            raise NoFit("no reference runs it")
        for number, name in enumerate(proto.output):
            made = found[0][number]
            if made.size > MAX_ELEMENTS or name_of(made) not in DTYPES:
                raise NoFit("too large, or a type that is not compared")
            self.arrays[name] = made
            self.unused[name] = None
            if not all(agree(made, other[number]) for other in found[1:]):
                self.open.add(name)
        self.nodes.append(proto)
        for name in proto.input:
            self.unused.pop(name, None)

    def graph(self) -> Graph:
        """What has grown, returning all that nothing reads and a little more."""
        made = [name for node in self.nodes for name in node.output if node.op_type != "Constant"]
        outputs = list(self.unused)
        outputs += [name for name in made if name not in outputs and self.maybe(0.15)]
        outputs = outputs[-8:] or made[-1:]
        if self.maybe(0.05):
            outputs.append(self.choose.choice([i.name for i in self.inputs] or outputs))
        if self.maybe(0.05) and self.weights:
            outputs.append(self.choose.choice(list(self.weights)))
        outputs = list(dict.fromkeys(outputs))
        self.choose.shuffle(outputs)
        order = [*(i.name for i in self.inputs), *self.also_inputs]
        self.choose.shuffle(order)
        dims = self.maybe(0.3)
        typed = [self._info(name, dims) for name in order]
        graph = helper.make_graph(
            self.nodes,
            "graph",
            typed,
            [self._info(name, None) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 10
        if self.maybe(0.15):
            _outline(model, self.choose, self.opset)
        by_name = {tensor.name: tensor for tensor in self.inputs}
        inputs = tuple(by_name[name] for name in order if name in by_name)
        return Graph(self.seed, model.SerializeToString(), inputs)

    def _info(self, name: str, named: bool | None) -> onnx.ValueInfoProto:
        array = self.arrays[name]
        shape: list[int | str] | None = list(array.shape)
        if named is None:
            shape = None
        elif named and shape and self.maybe(0.5):
            shape[0] = "N"
        return helper.make_tensor_value_info(name, code_of(name_of(array)), shape)


def _outline(model: onnx.ModelProto, choose: random.Random, opset: int) -> None:
    """Turns one node into a call of a function of the model's own."""
    nodes = [n for n in model.graph.node if n.op_type not in ("Constant", "If", "Loop", "Scan")]
    if not nodes:
        return
    node = choose.choice(nodes)
    given = list(dict.fromkeys(name for name in node.input if name))
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    names = {name: f"p{i}" for i, name in enumerate(given)}
    names |= {name: f"r{i}" for i, name in enumerate(node.output)}
    inner.input[:] = [names.get(name, "") for name in node.input]
    inner.output[:] = [names[name] for name in node.output]
    body = [inner]
    function = helper.make_function(
        "local",
        "Outlined",
        [names[n] for n in given],
        [names[n] for n in node.output],
        body,
        [helper.make_opsetid("", opset)],
    )
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    call = helper.make_node("Outlined", given, list(node.output), domain="local")
    node.CopyFrom(call)


def element_type(name: str) -> int:
    return getattr(
        TensorProto, "FLOAT" if name == "float32" else "DOUBLE" if name == "float64" else name.upper()
    )
