"""The rules of the ONNX front end: operators rebuilt from others, and those that torch-mlir lowers as they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.values import Node, Value

Rule = Callable[[Builder, Node], "Value | Sequence[Value] | None"]
"""Builds a node's replacement; None leaves the node as it stands, Refused says why it cannot be taken."""

RULES: dict[tuple[str, str], Rule] = {}


def rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Registers a rule under the operators' names."""

    def register(function: Rule) -> Rule:
        RULES.update({(domain, name): function for name in names})
        return function

    return register


LOWERED = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "And",
        "ArgMax",
        "ArgMin",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "AveragePool",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Ceil",
        "Celu",
        "Concat",
        "Conv",
        "Cos",
        "Cosh",
        "CumSum",
        "Div",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "Gelu",
        "Gemm",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "HardSwish",
        "Hardmax",
        "InstanceNormalization",
        "IsInf",
        "IsNaN",
        "LRN",
        "LayerNormalization",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "MatMul",
        "MaxPool",
        "Mish",
        "Mul",
        "Neg",
        "Not",
        "OneHot",
        "Or",
        "PRelu",
        "Pad",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Relu",
        "Reshape",
        "ScatterElements",
        "ScatterND",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Slice",
        "Softplus",
        "Softsign",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
        "Xor",
    ]
)
"""Operators handed to torch-mlir as they stand."""
