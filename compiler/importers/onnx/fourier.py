"""Fourier transforms of lines as operations of our own, which travel through torch-mlir as calls (`scalar.py` says how)."""

from __future__ import annotations

import numpy as np
import onnx

from tilewright.compiler.dialects.fourier import FOURIER, OF_REAL, TO_REAL, roots_of_unity
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.scalar import DOMAIN, builtin_type, torch_type
from tilewright.compiler.importers.onnx.values import Node, Value
from tilewright.compiler.ir import functions, ir, walk

OPERATOR = "Fourier"


def fourier(b: Builder, kind: str, sources: list[Value], axis: int, length: int) -> list[Value]:
    """The transform, of `length` elements along `axis`, of a real part and, by its kind, an imaginary one: both, or what is real."""
    first = sources[0]
    extent = {OF_REAL: length // 2 + 1, TO_REAL: length}.get(kind, length)
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    roots = b.const(np.stack(roots_of_unity(np.arange(length), length), 1), first.dtype)
    operands = [*sources, roots]
    known = frozenset().union(*(v.sources for v in operands))
    outputs = [b.fresh(first.dtype, shape, sources=known) for _ in range(1 if kind == TO_REAL else 2)]
    attributes = {"kind": kind, "axis": axis}
    node = Node(OPERATOR, list(operands), attributes, outputs=len(outputs), domain=DOMAIN, place=b.place)
    b.emit(node, outputs)
    return outputs


def definition(name: str, node: onnx.NodeProto, types: dict[str, onnx.TypeProto]) -> str:
    """The private function that stands for a node made by `fourier`."""
    said = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}

    def both(value: str) -> tuple[str, str]:
        tensor = types[value].tensor_type
        shape = tuple(d.dim_value for d in tensor.shape.dim)
        return torch_type(tensor.elem_type, shape), builtin_type(tensor.elem_type, shape)

    given, made = [both(value) for value in node.input], [both(value) for value in node.output]
    arguments = ", ".join(f"%t{i}: {torch}" for i, (torch, _) in enumerate(given))
    lines = [
        f"%b{i} = torch_c.to_builtin_tensor %t{i} : {torch} -> {builtin}"
        for i, (torch, builtin) in enumerate(given)
    ]
    lines += [f"%e{i} = tensor.empty() : {builtin}" for i, (_, builtin) in enumerate(made)]
    operands = [*(f"%b{i}" for i in range(len(given))), *(f"%e{i}" for i in range(len(made)))]
    operand_types = ", ".join(builtin for _, builtin in (*given, *made))
    result_types = [builtin for _, builtin in made]
    results = [f"%r#{i}" if len(made) > 1 else "%r" for i in range(len(made))]
    segments = ", ".join(str(int(i < len(made))) for i in range(2))
    lines += [
        f'%r{f":{len(made)}" if len(made) > 1 else ""} = "tilewright.fourier"({", ".join(operands)}) '
        f'{{kind = "{said["kind"].decode()}", dimension = {said["axis"]} : i64, '
        f"resultSegmentSizes = array<i32: {segments}>}} : ({operand_types}) -> ({', '.join(result_types)})"
    ]
    lines += [
        f"%o{i} = torch_c.from_builtin_tensor {result} : {builtin} -> {torch}"
        for i, (result, (torch, builtin)) in enumerate(zip(results, made))
    ]
    returned = ", ".join(torch for torch, _ in made)
    outputs = ", ".join(f"%o{i}" for i in range(len(made)))
    return f"""
func.func private @{name}({arguments}) -> ({returned}) {{
  {chr(10).join(lines)}
  return {outputs} : {returned}
}}
"""


def inline_transforms(module: ir.Module) -> None:
    """Puts the functions that hold transforms where they are called: MLIR's inliner takes no operation of ours."""
    found = {
        ir.StringAttr(function.attributes["sym_name"]).value: function
        for function in functions(module)
        if walk(function, FOURIER)
    }
    for call in walk(module.operation, "func.call"):
        function = found.get(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
        if function is None:
            continue
        block = function.regions[0].blocks[0]
        values = dict(zip(block.arguments, call.operands))
        *ops, end = (view.operation for view in block.operations)
        for op in ops:
            clone = op.clone(ip=ir.InsertionPoint(call)).operation
            for number, value in enumerate(clone.operands):
                clone.operands[number] = values[value]
            values.update(zip(op.results, clone.results))
        for result, value in zip(call.results, end.operands):
            result.replace_all_uses_with(values[value])
        call.erase()
