"""What the ONNX front end computes with: values, nodes, scopes, attributes, element types."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tilewright.compiler.errors import ModelImportError
from tilewright.compiler.importers.onnx.file import array_of

DTYPES = {
    TensorProto.FLOAT: "f32", TensorProto.DOUBLE: "f64", TensorProto.FLOAT16: "f16", TensorProto.BFLOAT16: "bf16",
    TensorProto.INT8: "i8", TensorProto.INT16: "i16", TensorProto.INT32: "i32", TensorProto.INT64: "i64",
    TensorProto.UINT8: "u8", TensorProto.UINT16: "u16", TensorProto.UINT32: "u32", TensorProto.UINT64: "u64",
    TensorProto.BOOL: "i1", TensorProto.COMPLEX64: "c64", TensorProto.COMPLEX128: "c128",
}  # fmt: skip
"""Element types that kernels compute on, by TensorProto code, as the runtime names them."""

CARRIERS: dict[int, int] = {
    TensorProto.FLOAT8E4M3FN: TensorProto.UINT8, TensorProto.FLOAT8E4M3FNUZ: TensorProto.UINT8,
    TensorProto.FLOAT8E5M2: TensorProto.UINT8, TensorProto.FLOAT8E5M2FNUZ: TensorProto.UINT8,
    TensorProto.FLOAT8E8M0: TensorProto.UINT8, TensorProto.FLOAT4E2M1: TensorProto.UINT8,
    TensorProto.UINT4: TensorProto.UINT8, TensorProto.INT4: TensorProto.INT8,
    TensorProto.UINT2: TensorProto.UINT8, TensorProto.INT2: TensorProto.INT8,
}  # fmt: skip
"""Small element types and the byte type that carries one element of them: a float's code, an integer's value."""


SIGNED: dict[int, int] = {
    TensorProto.UINT8: TensorProto.INT8, TensorProto.UINT16: TensorProto.INT16,
    TensorProto.UINT32: TensorProto.INT32, TensorProto.UINT64: TensorProto.INT64,
}  # fmt: skip
"""Unsigned types and what torch-mlir is told they are: its lowerings compare and abort on unsigned ones."""


def seen_as(dtype: int) -> int:
    """The element type that torch-mlir sees: same bits, bytes for small types, signed for unsigned ones."""
    carrier = CARRIERS.get(dtype, dtype)
    return int(SIGNED.get(carrier, carrier))


class NeedsConstant(Exception):
    """A node asks for the value of an operand that is only known at run time."""

    def __init__(self, value: Value, operand: str):
        super().__init__(f"its operand `{operand}` must be known when compiling, it depends on data")
        self.value = value


class Refused(Exception):
    """A rule declines a node for good; the message is the reason."""


@dataclass
class Value:
    """A tensor while importing: element type (a TensorProto code), static shape, and its array when it is known.

    `items` holds the elements of a sequence instead (then `dtype` is 0); `sources` names the graph inputs whose
    data it depends on; what is computed from a `weight` is left to run when weights are bound.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    array: np.ndarray | None = None
    items: list[Value] | None = None
    sources: frozenset[str] = frozenset()
    weight: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in (
            TensorProto.FLOAT,
            TensorProto.DOUBLE,
            TensorProto.FLOAT16,
            TensorProto.BFLOAT16,
        )

    @property
    def type_proto(self) -> onnx.TypeProto:
        return helper.make_tensor_type_proto(self.dtype, self.shape)

    def known(self, operand: str = "?") -> np.ndarray:
        """The array; raises NeedsConstant when it is only known at run time."""
        if self.array is None:
            raise NeedsConstant(self, operand)
        return self.array

    def ints(self, operand: str = "?") -> list[int]:
        """The array as a flat list of Python integers."""
        return [int(item) for item in self.known(operand).reshape(-1)]


@dataclass
class Node:
    """One source node: decoded attributes, operands as values (None when omitted), and where it stands."""

    op: str
    inputs: list[Value | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    version: int = 0
    place: str = ""
    scope: Scope | None = None
    opsets: dict[str, int] = field(default_factory=dict)
    caller: dict[str, Any] | None = None
    wanted: tuple[bool, ...] = (True,)

    def input(self, index: int) -> Value | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def operand(self, index: int) -> Value:
        value = self.input(index)
        if value is None:
            raise Refused(f"operand {index} is missing")
        return value

    def wants(self, index: int) -> bool:
        return index < len(self.wanted) and self.wanted[index]


class Scope:
    """Names of one graph or function body; a subgraph's scope sees its parents'."""

    def __init__(self, parent: Scope | None = None):
        self.parent = parent
        self.values: dict[str, Value | None] = {}

    def find(self, name: str, reader: str) -> Value | None:
        """The value of a name that `reader` reads, None for an omitted one."""
        if name == "":
            return None
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        raise ModelImportError(f"{reader} reads `{name}`, which nothing before it produces")


POISON = Value("", 0, ())
"""Stands for the outputs of a refused node, so that the pass goes on and finds the others."""


def decode_attributes(attributes, caller: dict[str, Any] | None = None) -> dict[str, Any]:
    """Attribute protos as Python values (tensors as arrays, strings as str); `caller` binds a function's references."""
    decoded: dict[str, Any] = {}
    for attribute in attributes:
        if attribute.ref_attr_name:
            if caller is not None and attribute.ref_attr_name in caller:
                decoded[attribute.name] = caller[attribute.ref_attr_name]
            continue
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.TENSOR:
            value = array_of(value)
        elif attribute.type == AttributeProto.STRING:
            value = value.decode("utf-8", "surrogateescape")
        elif attribute.type == AttributeProto.STRINGS:
            value = [item.decode("utf-8", "surrogateescape") for item in value]
        elif attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS):
            value = list(value)
        decoded[attribute.name] = value
    return decoded


def schema_of(op: str, version: int, domain: str = "") -> onnx.defs.OpSchema | None:
    """The operator's schema at an opset version, or None when there is none."""
    domain = "" if domain == "ai.onnx" else domain
    try:
        return onnx.defs.get_schema(op, max_inclusive_version=version, domain=domain)
    except onnx.defs.SchemaError:
        return None


def defaults_of(schema: onnx.defs.OpSchema, kind: int | None = None) -> dict[str, Any]:
    """The attributes of an operator, or those of one type, that have a value where nobody gives one."""
    return {
        name: decode_attributes([attribute.default_value])[attribute.default_value.name]
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type and kind in (None, attribute.default_value.type)
    }


def encode_attributes(attrs: dict[str, Any]) -> list[AttributeProto]:
    encoded = []
    for name, value in attrs.items():
        if value is None:
            continue
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        elif isinstance(value, tuple):
            value = list(value)
        if isinstance(value, list) and not value:
            encoded.append(helper.make_attribute(name, value, attr_type=AttributeProto.INTS))
            continue
        encoded.append(helper.make_attribute(name, value))
    return encoded
