"""Old forms of ONNX operators turned into the newest ones: one function per operator whose meaning or operands changed.

Operators that only gained element types or optional operands need nothing. Each function receives the node and the
opset version its own form dates from, and returns the node in the newest form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.values import Node, Refused

Upgrade = Callable[[Builder, Node, int], Node | None]

UPGRADES: dict[str, Upgrade] = {}


def upgrade(*names: str) -> Callable[[Upgrade], Upgrade]:
    """Registers an upgrade under the operators' names."""

    def register(function: Upgrade) -> Upgrade:
        UPGRADES.update(dict.fromkeys(names, function))
        return function

    return register


def _without(node: Node, *names: str) -> dict:
    return {name: value for name, value in node.attrs.items() if name not in names}


@upgrade("Softmax", "LogSoftmax", "Hardmax")
def flatten_softmax(b: Builder, node: Node, since: int) -> Node | None:
    """Before 13 the axes from `axis` on were one: softmax(x) is reshape(softmax(flatten(x, axis)))."""
    if since >= 13:
        return None
    x = node.operand(0)
    axis = node.attrs.get("axis", 1) % max(x.rank, 1)
    if axis == x.rank - 1:
        return replace(node, attrs={**node.attrs, "axis": -1})
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    allowed = {"allowzero": 1}
    flat = b.op("Reshape", x, b.ints(rows, x.size // rows if rows else 0), **allowed)
    result = b.op(node.op, flat, axis=-1)
    return replace(node, op="Reshape", inputs=[result, b.ints(*x.shape)], attrs=allowed, version=b.newest)


@upgrade("Squeeze", "Unsqueeze", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1",
         "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
def axes_to_operand(b: Builder, node: Node, since: int) -> Node | None:
    """`axes` was an attribute before 13 (Squeeze, Unsqueeze, ReduceSum) or 18 (the other reductions)."""
    axes = node.attrs.get("axes")
    if axes is None:
        return None
    return replace(node, inputs=[node.operand(0), b.ints(*axes)], attrs=_without(node, "axes"))


@upgrade("Split")
def split_to_operand(b: Builder, node: Node, since: int) -> Node | None:
    """`split` was an attribute before 13; without it the outputs were equal parts before 18."""
    split = node.attrs.get("split")
    if split is not None:
        return replace(node, inputs=[node.operand(0), b.ints(*split)], attrs=_without(node, "split"))
    if node.input(1) is None and "num_outputs" not in node.attrs:
        return replace(node, attrs={**node.attrs, "num_outputs": node.outputs})
    return None


@upgrade("Clip")
def bounds_to_operands(b: Builder, node: Node, since: int) -> Node | None:
    """`min` and `max` were attributes before 11."""
    if since >= 11:
        return None
    x = node.operand(0)
    bounds = [b.scalar(node.attrs[name], x) if name in node.attrs else None for name in ("min", "max")]
    return replace(node, inputs=[x, *bounds], attrs={})


@upgrade("Slice")
def slice_to_operands(b: Builder, node: Node, since: int) -> Node | None:
    """`starts`, `ends` and `axes` were attributes before 10."""
    if since >= 10:
        return None
    starts, ends = node.attrs["starts"], node.attrs["ends"]
    axes = node.attrs.get("axes", list(range(len(starts))))
    return replace(node, inputs=[node.operand(0), b.ints(*starts), b.ints(*ends), b.ints(*axes)], attrs={})


@upgrade("Pad")
def pads_to_operand(b: Builder, node: Node, since: int) -> Node | None:
    """`pads` and `value` were attributes before 11."""
    if since >= 11:
        return None
    x = node.operand(0)
    value = b.scalar(node.attrs.get("value", 0.0), x)
    pads = b.ints(*node.attrs.get("pads", node.attrs.get("paddings", [])))
    return replace(node, inputs=[x, pads, value], attrs={"mode": node.attrs.get("mode", "constant")})


@upgrade("TopK")
def k_to_operand(b: Builder, node: Node, since: int) -> Node | None:
    """`k` was an attribute before 10."""
    if "k" not in node.attrs:
        return None
    return replace(node, inputs=[node.operand(0), b.ints(node.attrs["k"])], attrs=_without(node, "k"))


@upgrade("Dropout")
def ratio_to_operand(b: Builder, node: Node, since: int) -> Node | None:
    """`ratio` was an attribute before 12, and the operator the identity when used for inference."""
    return replace(node, inputs=[node.operand(0)], attrs={}) if since < 12 else None


@upgrade("Upsample")
def upsample_to_resize(b: Builder, node: Node, since: int) -> Node | None:
    """Upsample is Resize with asymmetric coordinates, rounding down."""
    x = node.operand(0)
    scales = b.const(np.array(node.attrs["scales"], np.float32)) if since < 9 else node.operand(1)
    mode = node.attrs.get("mode", "nearest")
    attrs = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return replace(node, op="Resize", inputs=[x, None, scales], attrs=attrs, version=b.newest)


@upgrade("Resize")
def resize_from_10(b: Builder, node: Node, since: int) -> Node | None:
    """Version 10 had (x, scales), asymmetric coordinates and rounding down."""
    if since >= 11:
        return None
    attrs = {**node.attrs, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return replace(node, inputs=[node.operand(0), None, node.operand(1)], attrs=attrs)


@upgrade("BatchNormalization")
def batch_norm_for_inference(b: Builder, node: Node, since: int) -> Node | None:
    """Before 14 inference was marked by having one output; before 9 `spatial` chose per-element statistics."""
    if since < 7 and node.attrs.get("is_test", 0) == 0:
        raise Refused("batch normalisation in training mode (`is_test` = 0) is not taken")
    if since < 14 and any(node.wanted[1:]):
        raise Refused("batch normalisation in training mode (more than one output) is not taken")
    if node.attrs.get("spatial", 1) == 0:
        raise Refused("`spatial` = 0 is not taken")
    return (
        replace(node, attrs=_without(node, "spatial", "is_test", "consumed_inputs")) if since < 14 else None
    )


@upgrade("Scatter")
def scatter_to_scatter_elements(b: Builder, node: Node, since: int) -> Node | None:
    """Scatter was renamed ScatterElements in 11."""
    return replace(node, op="ScatterElements", version=b.newest)


@upgrade("GroupNormalization")
def group_scale_to_channels(b: Builder, node: Node, since: int) -> Node | None:
    """Scale and bias were per group before 21, per channel since."""
    if since >= 21:
        return None
    x, groups = node.operand(0), node.attrs["num_groups"]

    def spread(value):
        column = b.op("Reshape", value, b.ints(groups, 1))
        wide = b.op("Expand", column, b.ints(groups, x.shape[1] // groups))
        return b.op("Reshape", wide, b.ints(x.shape[1]))

    return replace(node, inputs=[x, spread(node.operand(1)), spread(node.operand(2))])


@upgrade("GridSample")
def grid_sample_modes(b: Builder, node: Node, since: int) -> Node | None:
    """The modes were called bilinear and bicubic before 20."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.attrs.get("mode", "bilinear"))
    return replace(node, attrs={**node.attrs, "mode": mode}) if since < 20 and mode else None


@upgrade("DFT")
def dft_axis_to_operand(b: Builder, node: Node, since: int) -> Node | None:
    """`axis` was an attribute, 1 by default, before 20."""
    if since >= 20:
        return None
    axis = b.const(np.array(node.attrs.get("axis", 1), np.int64))
    return replace(node, inputs=[node.operand(0), node.input(1), axis], attrs=_without(node, "axis"))


@upgrade("Scan")
def scan_from_8(b: Builder, node: Node, since: int) -> Node | None:
    """Version 8 scanned every batch entry on its own."""
    if since < 9:
        raise Refused("the form of opset 8 (a batch axis and sequence lengths) is not taken")
    return None


@upgrade("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Greater", "Less", "Equal", "PRelu")
def broadcast_from_axis(b: Builder, node: Node, since: int) -> Node | None:
    """Before 7 the second operand broadcast only when asked to, its axes from `axis` of the first on."""
    if since >= 7:
        return None
    x, y = node.operand(0), node.operand(1)
    if node.op == "PRelu":
        start = 1 if y.rank == 1 and x.rank > 1 else x.rank - y.rank
    elif not node.attrs.get("broadcast", 0):
        if x.shape != y.shape:
            raise Refused(f"its operands' shapes {x.shape} and {y.shape} differ without `broadcast`")
        start = 0
    else:
        start = node.attrs.get("axis", x.rank - y.rank)
    shape = (*y.shape, *[1] * (x.rank - start - y.rank))
    column = b.op("Reshape", y, b.ints(*shape)) if shape != y.shape else y
    return replace(node, inputs=[x, column], attrs={})


@upgrade("Gemm")
def gemm_broadcasts(b: Builder, node: Node, since: int) -> Node | None:
    """`broadcast` was an attribute before 7."""
    return replace(node, attrs=_without(node, "broadcast")) if since < 7 else None


@upgrade("Reshape")
def shape_to_operand(b: Builder, node: Node, since: int) -> Node | None:
    """`shape` was an attribute before 5."""
    if "shape" not in node.attrs:
        return None
    return replace(node, inputs=[node.operand(0), b.ints(*node.attrs["shape"])], attrs={})


@upgrade("Cast")
def cast_from_name(b: Builder, node: Node, since: int) -> Node | None:
    """`to` was a name before 6."""
    to = node.attrs.get("to")
    return replace(node, attrs={"to": TensorProto.DataType.Value(to)}) if isinstance(to, str) else None


@upgrade("Concat")
def concat_default_axis(b: Builder, node: Node, since: int) -> Node | None:
    """`axis` was optional, 1 by default, before 4."""
    return replace(node, attrs={"axis": node.attrs.get("axis", 1)}) if since < 4 else None


SAME_MEANING = frozenset(
    [
        "Relu",
        "Sigmoid",
        "Tanh",
        "Exp",
        "Log",
        "Sqrt",
        "Abs",
        "Neg",
        "Ceil",
        "Floor",
        "Reciprocal",
        "Elu",
        "LeakyRelu",
        "Selu",
        "HardSigmoid",
        "Clip",
        "Max",
        "Min",
        "Mean",
        "Sum",
        "AveragePool",
        "InstanceNormalization",
        "Dropout",
        "BatchNormalization",
        "Softplus",
        "Softsign",
    ]
)
"""Operators whose forms from before opset 7 mean the same; what they lost is advice to the memory planner."""
