"""What operands of ONNX's operators must be: known, lists of numbers, within the rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.compiler.importers.onnx.values import Node, Refused, schema_of

if TYPE_CHECKING:
    from tilewright.compiler.importers.onnx.builder import Builder

STATIC_OPERANDS = {
    "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Tile": (1,), "Squeeze": (1,),
    "Unsqueeze": (1,), "ReduceSum": (1,), "ReduceMax": (1,), "ReduceMin": (1,), "ReduceMean": (1,),
    "ReduceProd": (1,), "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,),
    "ReduceSumSquare": (1,), "TopK": (1,), "Split": (1,), "OneHot": (1,), "Resize": (1, 2, 3),
    "ConstantOfShape": (0,), "Range": (0, 1, 2), "CumSum": (1,), "CumProd": (1,), "Trilu": (1,),
    "AffineGrid": (1,), "CenterCropPad": (1,), "Col2Im": (1, 2), "DFT": (1, 2), "STFT": (1, 3),
    "Dropout": (1, 2), "Loop": (0,), "MaxUnpool": (2,), "SplitToSequence": (1,),
    "SequenceAt": (1,), "SequenceInsert": (2,), "SequenceErase": (1,), "BlackmanWindow": (0,), "HannWindow": (0,),
    "HammingWindow": (0,), "Compress": (1,), "MelWeightMatrix": (0, 1, 2, 3, 4),
}  # fmt: skip
"""Operands that shape the result, by operator: they must be known when compiling."""

VECTORS: dict[str, tuple[int, ...]] = {
    **{name: (1,) for name in STATIC_OPERANDS if name.startswith("Reduce")},
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "TopK": (1,),
    "Slice": (1, 2, 3, 4), "Pad": (1, 3), "ConstantOfShape": (0,),
}  # fmt: skip
"""Operands that are lists of numbers, by operator."""

OUTER_AXIS = {
    "Flatten",
    "OneHot",
    "ConcatFromSequence",
    "SplitToSequence",
    "QuantizeLinear",
    "DequantizeLinear",
}
"""Operators whose axis may lie beside the dimensions of their operands, or is not looked at."""

SCALARS_TAKEN = {"Unsqueeze", "Expand"}
"""Operators of which ONNX Runtime reads a scalar as a list of one number, and PyTorch's exporter writes some."""


def operand_name(op: str, index: int, version: int) -> str:
    """What the schema calls an operand, or its number where it has no such operand."""
    schema = schema_of(op, version)
    return schema.inputs[index].name if schema and index < len(schema.inputs) else str(index)


def with_vectors(b: Builder, node: Node) -> Node:
    """The node with scalars in place of lists of one number made such lists, where ONNX Runtime takes them."""
    listed = node.input(1) if node.op in SCALARS_TAKEN and node.domain == "" else None
    if listed is None or listed.items is not None or listed.rank != 0:
        return node
    one = b.op("Reshape", listed, b.ints(1))
    return replace(node, inputs=[node.inputs[0], one, *node.inputs[2:]])


def check_operands(node: Node, version: int) -> None:
    """Refuses what neither onnx nor torch-mlir looks at before they read past the end, and rules take modulo the rank."""
    tensors = [v for v in node.inputs if v is not None and v.items is None]
    rank, slack = max((v.rank for v in tensors), default=0), int(node.op in OUTER_AXIS)
    for axis in (node.attrs.get("axis"), *(node.attrs.get("axes") or ())):
        if axis is not None and tensors and not -rank - slack <= axis < max(rank, 1) + slack:
            raise Refused(f"its axis is {axis}, its operands have at most {rank} dimensions")
    vectors = [(i, node.input(i)) for i in VECTORS.get(node.op, ())]
    for index, value in vectors:
        if value is not None and value.rank != 1:
            name = operand_name(node.op, index, version)
            raise Refused(f"expected a vector as its operand `{name}`, found one of rank {value.rank}")
    if node.op == "Slice" and len({value.shape for _, value in vectors if value is not None}) > 1:
        raise Refused("its starts, ends, axes and steps differ in number")
    if node.op == "Split" and node.attrs.get("num_outputs", node.outputs) != node.outputs:
        raise Refused(f"it splits into {node.attrs['num_outputs']} parts and has {node.outputs} outputs")
