"""What the outputs of an ONNX graph may be: by references node by node, and how far from it each element may lie.

Every node runs again a few times with its roundings made wrong at random: the spread of these runs bounds a float,
and what they disagree on in kind is compared with nothing, as in `fuzz.oracle`.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import numpy_helper

from fuzz.bounds import Expected, bounds, difference
from fuzz.graph import UNSIGNED, Graph, name_of
from fuzz.graph_reference import agree, evaluations, names_read
from fuzz.roundings import AMPLITUDE

RUNS = 4
FLOATS = ("float16", "bfloat16", "float32", "float64")
EXACT = frozenset(
    [
        "Abs",
        "And",
        "ArgMax",
        "ArgMin",
        "BitCast",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Ceil",
        "CenterCropPad",
        "Clip",
        "Compress",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "DepthToSpace",
        "Dropout",
        "Equal",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "GlobalMaxPool",
        "Greater",
        "GreaterOrEqual",
        "Hardmax",
        "Identity",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Max",
        "MaxPool",
        "Min",
        "Neg",
        "Not",
        "OneHot",
        "Or",
        "Pad",
        "PRelu",
        "Range",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Reshape",
        "ReverseSequence",
        "Round",
        "Scatter",
        "Shape",
        "Sign",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
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
"""Operators that round nothing."""
ONCE = frozenset(
    [
        "Acos",
        "Acosh",
        "Add",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Cast",
        "CastLike",
        "Celu",
        "Cos",
        "Cosh",
        "DequantizeLinear",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
        "Mish",
        "Mod",
        "Mul",
        "Pow",
        "Reciprocal",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Swish",
        "Tan",
        "Tanh",
    ]
)
"""Operators that round every element on its own; all others add up."""
CANCELLING = frozenset(["Celu", "Elu", "Gelu", "Mish", "Selu", "Softplus"])
"""Of these, those that come to their results by differences that cancel, taken in f32 at least."""
SAMPLING = frozenset(["AffineGrid", "DeformConv", "GridSample", "Resize", "RoiAlign", "Upsample"])
"""Operators that compute places, in f32 or in f64."""


def expected(graph: Graph, feeds: dict[str, np.ndarray]) -> list[list[Expected]]:
    """For every output what it may be, one of several where references differ; raises ValueError where none knows."""
    model = inlined(graph.proto())
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    right = {**weights, **feeds}
    others: dict[str, list[np.ndarray]] = {}
    runs = [dict(right) for _ in range(RUNS)]
    noise = np.random.default_rng(graph.seed)
    for node in model.graph.node:
        found = evaluations(node, right, opset)
        if not found:
            raise ValueError(f"no reference runs {node.op_type}")
        for number, name in enumerate(node.output):
            if name:
                right[name] = found[0][number]
                others[name] = [o[number] for o in found[1:] if not agree(o[number], found[0][number])]
        for number, run in enumerate(runs):
            run.update(_disturbed_node(node, run, right, opset, noise, number))
        for results in found[1:]:  # what differs by rounding alone is as good
            close = zip(node.output, results)
            runs[-1].update({name: made for name, made in close if name and agree(made, right[name])})
    made = []
    for output in model.graph.output:
        name = output.name
        first = _bounded(right[name], [run[name] for run in runs])
        made.append([first, *(_bounded(o, [run[name] for run in runs]) for o in others.get(name, []))])
    return made


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions of its own."""
    from onnx import inliner

    return inliner.inline_local_functions(model) if model.functions else model


def wrong(found: Any, wanted: list[Expected]) -> str | None:
    """Says the first element that no reference has, or None."""
    said: str | None = None
    for want in wanted:
        text = difference(tensor(np.asarray(found)), want)
        if text is None:
            return None
        said = said or text
    return said


def tensor(array: np.ndarray) -> torch.Tensor:
    """The array in PyTorch, unsigned integers as wider ones that hold them, 64 bits of them as they are."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    if name_of(array) == "uint64":
        return torch.from_numpy(array.view(np.int64).copy())
    return torch.from_numpy(array.astype(UNSIGNED.get(name_of(array), array.dtype)))


def _bounded(value: np.ndarray, runs: list[np.ndarray]) -> Expected:
    eager = tensor(value)
    wide = [eager.double() if name_of(value) in FLOATS else eager]
    for run in runs:
        if run.shape != value.shape or run.dtype != value.dtype:
            return Expected(eager, torch.full(eager.shape, math.nan, dtype=torch.float64))
        wide.append(tensor(run).double() if name_of(value) in FLOATS else tensor(run))
    return Expected(eager, bounds(eager, wide))


def _disturbed_node(
    node: onnx.NodeProto,
    run: dict[str, np.ndarray],
    right: dict[str, np.ndarray],
    opset: int,
    noise: np.random.Generator,
    number: int,
) -> dict[str, np.ndarray]:
    """The results of a node in a disturbed run; the right ones where it does not run on disturbed operands."""
    adds = node.op_type not in EXACT and node.op_type not in ONCE
    names = [name for name in names_read(node) if name in run]
    operands = {name: _disturbed(run[name], noise) if adds else run[name] for name in names}
    if node.op_type in (
        "MaxPool",
        "GlobalMaxPool",
    ):  # in ONNX Runtime, NaN counts or not by the window's place
        operands = {
            name: np.where(np.isnan(a), np.array((-1) ** number * math.inf, a.dtype), a)
            if name_of(a) in FLOATS
            else a
            for name, a in operands.items()
        }
    results = None
    if number == 0 and node.op_type not in EXACT:
        results = _in_wide(node, run, right, opset)
    if results is None:
        found = evaluations(node, operands, opset)
        results = found[0] if found else [right[name] for name in node.output]
    made = {}
    for name, result in zip(node.output, results):
        if node.op_type in ("Cast", "CastLike"):
            result = _arbitrary_casts(run[node.input[0]], result, noise)
        if node.op_type not in EXACT and result.shape == right[name].shape:
            result = _disturbed(result, noise, _has_numbers(node, opset))
            if node.op_type in CANCELLING and name_of(result) in FLOATS:
                size = np.nan_to_num(run[node.input[0]].astype(np.float64), posinf=0.0, neginf=0.0)
                eps = max(
                    float(ml_dtypes.finfo(result.dtype).eps) if result.dtype.itemsize > 2 else 0.0, 1e-7
                )
                result = (result + size * eps * (noise.random(result.shape) - 0.5)).astype(result.dtype)
            if node.op_type in SAMPLING and name_of(result) in FLOATS:
                size = np.nan_to_num(np.abs(run[node.input[0]].astype(np.float64)), posinf=0.0).max(
                    initial=0.0
                )
                result = (result + size * 2e-6 * (noise.random(result.shape) - 0.5)).astype(result.dtype)
        if adds and name_of(result) in FLOATS and any(_overflows(a) for a in operands.values()):
            result = np.full_like(result, (math.nan, math.inf, -math.inf, 0.0)[number % 4])
        made[name] = np.asarray(result)
    return made


def _in_wide(
    node: onnx.NodeProto, run: dict[str, np.ndarray], right: dict[str, np.ndarray], opset: int
) -> list[np.ndarray] | None:
    """A node as a wider type of float has it, rounded once."""
    if node.op_type in ("Cast", "CastLike", "If", "Loop", "Scan"):
        return None
    wider = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float64}
    operands = {name: run[name] for name in names_read(node) if name in run}
    if not any(name_of(array) in wider for array in operands.values()):
        return None
    widened = {name: array.astype(wider.get(name_of(array), array.dtype)) for name, array in operands.items()}
    found = evaluations(node, widened, opset)
    if not found:
        return None
    with np.errstate(all="ignore"):
        return [made.astype(right[name].dtype) for made, name in zip(found[0], node.output)]


def _has_numbers(node: onnx.NodeProto, opset: int) -> bool:
    """Whether the node has attributes that are floats, which ONNX keeps in f32: so exact are results in f64."""
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    kinds = (onnx.defs.OpSchema.AttrType.FLOAT, onnx.defs.OpSchema.AttrType.FLOATS)
    return any(attribute.type in kinds for attribute in schema.attributes.values())


def _overflows(array: np.ndarray) -> bool:
    """Whether sums of such numbers may overflow on the way, or depend on their order."""
    if name_of(array) not in FLOATS or not array.size:
        return False
    size = np.abs(array.astype(np.float64))
    limit = 1e18 if array.dtype.itemsize == 4 or name_of(array) == "bfloat16" else 1e150
    return bool(~np.isfinite(size).all()) or bool(
        size.max() > (100 if name_of(array) == "float16" else limit)
    )


def _arbitrary_casts(source: np.ndarray, result: np.ndarray, noise: np.random.Generator) -> np.ndarray:
    """What a float outside of an integer's range is cast to is not defined: any number is as good."""
    if name_of(source) not in FLOATS or result.dtype.kind not in "iu" or source.shape != result.shape:
        return result
    info, wide = np.iinfo(result.dtype), source.astype(np.float64)
    defined = (wide > float(info.min) - 1) & (wide < float(info.max) + (1 if info.bits < 64 else 0))
    return np.where(defined, result, noise.integers(0, 100, result.shape).astype(result.dtype))


def _disturbed(value: np.ndarray, noise: np.random.Generator, coarse: bool = False) -> np.ndarray:
    """Every element off by a random error of a few ulp."""
    if name_of(value) not in FLOATS:
        return value
    draw = noise.random(value.shape) - 0.5
    draw = (draw + np.sign(draw) * 0.5) * AMPLITUDE
    info = ml_dtypes.finfo(value.dtype)
    with np.errstate(all="ignore"):
        wide = value.astype(np.float64)
        eps = max(float(info.eps), 1e-7 if coarse else 0.0)
        step = np.maximum(np.abs(wide) * eps, float(info.smallest_subnormal) * (wide != 0))
        return np.asarray(wide + draw * step).astype(value.dtype)
