"""ONNX normalisations and recurrent layers."""

from __future__ import annotations

import numpy as np

from fuzz.graph_draw import node
from fuzz.graph_growth import Growth, element_type, name_of
from fuzz.graph_windows import FLOATING, image


@node(1.5)
def batch_norm(g: Growth) -> None:
    op = "BatchNormalization"
    x = image(g, op)
    kind, n = name_of(g.arrays[x]), g.arrays[x].shape[1]
    fills = ("normal", "normal", "normal", "positive")
    g.emit(op, [x, *(g.fresh((n,), kind, fill) for fill in fills)], epsilon=g.optional(1e-3))


@node(1)
def instance_norm(g: Growth) -> None:
    op = "InstanceNormalization"
    x = image(g, op)
    kind, n = name_of(g.arrays[x]), g.arrays[x].shape[1]
    g.emit(op, [x, g.fresh((n,), kind, "normal"), g.fresh((n,), kind, "normal")], epsilon=g.optional(1e-2))


@node(1)
def group_norm(g: Growth) -> None:
    op = "GroupNormalization"
    groups, per = g.choose.randint(1, 3), g.choose.randint(1, 2)
    x = image(g, op, groups * per)
    kind = name_of(g.arrays[x])
    n = groups * per if g.opset >= 21 else groups
    stash = g.optional(1) if g.opset >= 21 else None
    operands = [x, g.fresh((n,), kind, "normal"), g.fresh((n,), kind, "normal")]
    g.emit(op, operands, num_groups=groups, epsilon=g.optional(1e-2), stash_type=stash)


@node(2)
def layer_norm(g: Growth) -> None:
    op = g.choose.choice(("LayerNormalization", "RMSNormalization"))
    # Statistics of doubles are single precision by default, and runtimes differ in what they round to it.
    kinds = [kind for kind in g.types(op) if kind != "float64"]
    x = g.any_of(kinds, 1, 4, g.choose.choice((None, "normal")))
    axis = g.axis(g.arrays[x].ndim)
    shape = g.arrays[x].shape[axis:]
    kind = name_of(g.arrays[x])
    operands = [x, g.fresh(shape, kind, "normal")]
    outputs = 1
    if op == "LayerNormalization":
        operands += [g.fresh(shape, kind, "normal")] if g.maybe() else []
        # Statistics are in f32 by default, which the reference evaluator rounds to bf16.
        outputs = 1 if kind == "bfloat16" else g.choose.choice((1, 1, 3))
    place = axis if axis != -1 else g.optional(-1)
    g.emit(op, operands, outputs, axis=place, epsilon=g.optional(1e-3))


@node(0.7)
def local_response_norm(g: Growth) -> None:
    x = image(g, "LRN", g.choose.randint(1, 5), low=2, high=2)
    numbers = {"alpha": g.optional(0.1), "beta": g.optional(0.5), "bias": g.optional(2.0)}
    g.emit("LRN", [x], size=g.choose.choice((1, 3, 5)), **numbers)


@node(0.4)
def dropout(g: Growth) -> None:
    g.emit("Dropout", [g.operand("Dropout")])


@node(2.5)
def recurrent(g: Growth) -> None:
    op, gates = g.choose.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    kind = g.dtype(op, among=("float32", "float32", "float64", "float16"))
    direction = g.choose.choice(("forward", "forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = (g.choose.randint(1, n) for n in (4, 3, 4, 4))
    x = g.fresh((steps, batch, size), kind, "normal")
    operands: list[str | None] = [x, g.fresh((ways, gates * hidden, size), kind, "normal")]
    operands.append(g.fresh((ways, gates * hidden, hidden), kind, "normal"))
    operands.append(g.fresh((ways, 2 * gates * hidden), kind, "normal") if g.maybe() else None)
    # The reference evaluator reads no lengths nor activations; ONNX Runtime has f32 only, and that before opset 22.
    in_runtime = kind == "float32" and g.opset < 22
    lengths = np.array([g.choose.randint(1, steps) for _ in range(batch)], np.int32)
    operands.append(g.known(lengths) if in_runtime and g.maybe(0.3) else None)
    operands.append(g.fresh((ways, batch, hidden), kind, "normal") if g.maybe(0.4) else None)
    attrs: dict = {"direction": direction if ways == 2 or direction == "reverse" else g.optional(direction)}
    if op == "LSTM":
        operands.append(g.fresh((ways, batch, hidden), kind, "normal") if g.maybe(0.4) else None)
        operands.append(g.fresh((ways, 3 * hidden), kind, "normal") if g.maybe(0.2) else None)
        attrs["input_forget"] = g.optional(0, 0.2)
    if op == "GRU":
        attrs["linear_before_reset"] = g.optional(g.choose.randint(0, 1))
    if in_runtime and g.maybe(0.2):
        count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op] * ways
        attrs["activations"] = [g.choose.choice(("Sigmoid", "Tanh", "Relu")) for _ in range(count)]
    attrs["clip"] = g.optional(1.0, 0.15)
    if g.opset >= 14 and g.maybe(0.1):
        attrs["layout"] = 0
    g.emit(op, operands, 3 if op == "LSTM" else 2, hidden_size=hidden, **attrs)


@node(0.3)
def windows(g: Growth) -> None:
    op = g.choose.choice(("HannWindow", "HammingWindow", "BlackmanWindow"))
    g.types(op)
    size = g.known(np.array(g.choose.randint(1, 8), np.int64))
    dtype = g.optional(element_type(g.choose.choice(("float32", "float64"))))
    g.emit(op, [size], periodic=g.optional(g.choose.randint(0, 1)), output_datatype=dtype)


@node(0.4)
def deformable(g: Growth) -> None:
    kind = g.dtype("DeformConv", among=FLOATING)
    n, c, size = g.choose.randint(1, 2), 2, g.choose.randint(3, 5)
    x = g.fresh((n, c, size, size), kind, "normal")
    w = g.fresh((3, c, 2, 2), kind, "normal")
    offset = g.fresh((n, 8, size - 1, size - 1), kind, "normal")
    bias = g.fresh((3,), kind, "normal") if g.maybe() else None
    mask = g.fresh((n, 4, size - 1, size - 1), kind, "normal") if g.maybe() else None
    g.emit("DeformConv", [x, w, offset, bias, mask], kernel_shape=g.optional([2, 2]))
