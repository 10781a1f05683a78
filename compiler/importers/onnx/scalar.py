"""Elementwise operators given by their scalar body: for what torch-mlir has no operator, or one of other meaning.

A rule writes the body in MLIR over `%a0`, `%a1`, … and yields `%r`. It travels through torch-mlir as a call of a
private function, which gets its definition (one `linalg.generic`) and is inlined between torch-mlir's two pipelines.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.values import CARRIERS, DTYPES, Node, Refused, Value

DOMAIN = "tilewright"
OPERATOR = "Elementwise"


def carrier(dtype: int) -> str:
    """The signless MLIR type that holds an element."""
    name = DTYPES[CARRIERS.get(dtype, dtype)]
    return f"i{name[1:]}" if name[0] == "u" else name


def torch_type(dtype: int, shape: tuple[int, ...]) -> str:
    """The tensor's type in the torch dialect, where integers have signs."""
    name = DTYPES[CARRIERS.get(dtype, dtype)]
    if name != "i1" and name[0] in "iu":
        name = f"{'s' if name[0] == 'i' else 'u'}i{name[1:]}"
    return f"!torch.vtensor<[{','.join(map(str, shape))}],{name}>"


def builtin_type(dtype: int, shape: tuple[int, ...]) -> str:
    """The tensor's type in linalg."""
    return f"tensor<{''.join(f'{d}x' for d in shape)}{carrier(dtype)}>"


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape; raises Refused when the shapes do not broadcast."""
    rank = max((len(s) for s in shapes), default=0)
    result = []
    for column in zip(*([1] * (rank - len(s)) + list(s) for s in shapes)):
        extents = set(column) - {1}
        if len(extents) > 1:
            raise Refused(f"its operands' shapes {shapes} do not broadcast")
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def elementwise(b: Builder, body: str, inputs: list[Value], dtype: int) -> Value:
    """A tensor of `body` at every element of the inputs, which broadcast; `body` yields `%r` of type `dtype`."""
    shape = broadcast(*(v.shape for v in inputs))
    output = b.fresh(dtype, shape, sources=frozenset().union(*(v.sources for v in inputs)))
    b.emit(Node(OPERATOR, list(inputs), {"body": body}, domain=DOMAIN, place=b.place), [output])
    return output


def definition(name: str, node: onnx.NodeProto, types: dict[str, onnx.TypeProto]) -> str:
    """The private function that stands for a node made by `elementwise`."""
    body = next(a.s.decode() for a in node.attribute if a.name == "body")

    def of(value: str) -> tuple[int, tuple[int, ...]]:
        tensor = types[value].tensor_type
        return tensor.elem_type, tuple(d.dim_value for d in tensor.shape.dim)

    inputs, (dtype, shape) = [of(v) for v in node.input], of(node.output[0])
    rank = len(shape)
    dims = ", ".join(f"d{i}" for i in range(rank))
    maps, arguments, casts, entry = [], [], [], []
    for number, (input_dtype, input_shape) in enumerate(inputs):
        skip = rank - len(input_shape)
        indices = [
            "0" if extent == 1 and shape[skip + i] != 1 else f"d{skip + i}"
            for i, extent in enumerate(input_shape)
        ]
        maps.append(f"affine_map<({dims}) -> ({', '.join(indices)})>")
        torch, builtin = torch_type(input_dtype, input_shape), builtin_type(input_dtype, input_shape)
        arguments.append(f"%t{number}: {torch}")
        casts.append(f"%b{number} = torch_c.to_builtin_tensor %t{number} : {torch} -> {builtin}")
        entry.append(f"%a{number}: {carrier(input_dtype)}")
    maps.append(f"affine_map<({dims}) -> ({dims})>")
    operands = ", ".join(f"%b{i}" for i in range(len(inputs)))
    operand_types = ", ".join(builtin_type(*t) for t in inputs)
    result, element = builtin_type(dtype, shape), carrier(dtype)
    iterators = ", ".join(['"parallel"'] * rank)
    return f"""
func.func private @{name}({", ".join(arguments)}) -> {torch_type(dtype, shape)} {{
  {chr(10).join(casts)}
  %empty = tensor.empty() : {result}
  %computed = linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = [{iterators}]}}
      ins({operands} : {operand_types}) outs(%empty : {result}) {{
  ^bb0({", ".join(entry)}, %old: {element}):
    {body}
    linalg.yield %r : {element}
  }} -> {result}
  %torch = torch_c.from_builtin_tensor %computed : {result} -> {torch_type(dtype, shape)}
  return %torch : {torch_type(dtype, shape)}
}}
"""


def is_unsigned(dtype: int) -> bool:
    """Whether the element type is an unsigned integer; bool counts as one."""
    return dtype in (
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
        TensorProto.BOOL,
    )
