"""Rules for RNN, GRU and LSTM: unrolled over time, all input products of a direction in one matrix product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value

Activation = Callable[[Value], Value]

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
ALPHA = {
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "HardSigmoid": 0.2,
    "Elu": 1.0,
    "Affine": 1.0,
    "ScaledTanh": 1.0,
}
BETA = {"HardSigmoid": 0.5, "Affine": 0.0, "ScaledTanh": 1.0}


def _activation(b: Builder, name: str, alpha: float | None, beta: float | None) -> Activation:
    known = {n.lower(): n for n in (*ALPHA, "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")}
    name = known.get(name.lower(), "")
    if not name:
        raise Refused(f"it has the unknown activation `{name}`")
    alpha = ALPHA.get(name) if alpha is None else alpha
    beta = BETA.get(name) if beta is None else beta
    if name == "Affine":
        return lambda x: forms.add(b, forms.mul(b, x, alpha), beta)
    if name == "ScaledTanh":
        return lambda x: forms.mul(b, b.op("Tanh", forms.mul(b, x, beta)), alpha)
    attrs = {key: value for key, value in (("alpha", alpha), ("beta", beta)) if value is not None}
    if name in ("LeakyRelu", "ThresholdedRelu", "Elu"):
        attrs.pop("beta", None)
    elif name != "HardSigmoid":
        attrs = {}
    return lambda x: b.op(name, x, **attrs)


@dataclass
class Products:
    """What inputs and states are multiplied by: W and R of each direction, transposed."""

    b: Builder
    node: Node

    def of_inputs(self, x: Value, d: int) -> Value:
        """x W^T, x: [rows, input size]."""
        return self.b.op("MatMul", x, self._transposed(1, d))

    def recurrent(self, d: int) -> Value:
        """R^T: [H, gates * H]."""
        return self._transposed(2, d)

    def of_state(self, state: Value, d: int) -> Value:
        """h R^T, h: [B, H]."""
        return self.b.op("MatMul", state, self.recurrent(d))

    def _transposed(self, index: int, d: int) -> Value:
        return forms.transpose(self.b, forms.pick(self.b, self.node.operand(index), 0, d), (1, 0))


@dataclass
class Direction:
    """What the cell of direction `d` needs."""

    b: Builder
    node: Node
    hidden: int
    functions: list[Activation]
    products: Products
    d: int
    recurrent_bias: Value | None
    peepholes: Value | None

    def clip(self, x: Value) -> Value:
        bound = self.node.attrs.get("clip")
        return x if bound is None else self.b.op("Clip", x, self.b.scalar(-bound, x), self.b.scalar(bound, x))

    def gate(self, x: Value, index: int) -> Value:
        return forms.slice_axis(self.b, x, 1, index * self.hidden, (index + 1) * self.hidden)

    def activate(self, index: int, x: Value) -> Value:
        return self.functions[index](self.clip(x))

    def rnn(self, x: Value, state: list[Value]) -> list[Value]:
        return [self.activate(0, forms.add(self.b, x, self.products.of_state(state[0], self.d)))]

    def gru(self, x: Value, state: list[Value]) -> list[Value]:
        b, h = self.b, self.hidden
        previous = state[0]
        both = self.products.recurrent(self.d)
        zr = forms.slice_axis(b, both, 1, 0, 2 * h)
        gates = forms.add(b, forms.slice_axis(b, x, 1, 0, 2 * h), b.op("MatMul", previous, zr))
        z = self.activate(0, self.gate(gates, 0))
        r = self.activate(0, self.gate(gates, 1))
        rh, last = self.gate(both, 2), self.gate(x, 2)
        if self.node.attrs.get("linear_before_reset", 0):
            product = b.op("MatMul", previous, rh)
            if self.recurrent_bias is not None:
                product = forms.add(b, product, self.recurrent_bias)
            candidate = forms.add(b, last, forms.mul(b, r, product))
        else:
            candidate = forms.add(b, last, b.op("MatMul", forms.mul(b, r, previous), rh))
            if self.recurrent_bias is not None:
                candidate = forms.add(b, candidate, self.recurrent_bias)
        candidate = self.activate(1, candidate)
        return [forms.add(b, forms.mul(b, forms.sub(b, 1, z), candidate), forms.mul(b, z, previous))]

    def lstm(self, x: Value, state: list[Value]) -> list[Value]:
        b = self.b
        previous, cell = state
        gates = forms.add(b, x, self.products.of_state(previous, self.d))
        i, o, f, c = (self.gate(gates, n) for n in range(4))
        if self.peepholes is not None:
            p = forms.reshape(b, self.peepholes, (1, 3 * self.hidden))
            i = forms.add(b, i, forms.mul(b, self.gate(p, 0), cell))
            f = forms.add(b, f, forms.mul(b, self.gate(p, 2), cell))
        i, f = self.activate(0, i), self.activate(0, f)
        if self.node.attrs.get("input_forget", 0):
            f = forms.sub(b, 1, i)
        new = forms.add(b, forms.mul(b, f, cell), forms.mul(b, i, self.activate(1, c)))
        if self.peepholes is not None:
            o = forms.add(b, o, forms.mul(b, self.gate(p, 1), new))
        return [forms.mul(b, self.activate(0, o), self.functions[2](new)), new]


@rule("RNN", "GRU", "LSTM")
def recurrent(b: Builder, node: Node):
    return unrolled(b, node, Products(b, node))


def unrolled(b: Builder, node: Node, products: Products) -> list[Value]:
    """y[t], state = cell(W x[t] + b, state), once per step and direction; steps beyond a sequence's end are masked."""
    x = node.operand(0)
    hidden = node.attrs.get("hidden_size", node.operand(2).shape[-1])
    way = node.attrs.get("direction", "forward")
    batch_first = node.attrs.get("layout", 0)
    if batch_first:
        x = forms.transpose(b, x, (1, 0, 2))
    steps, batch, _ = x.shape
    columns, finals = [], []
    for d, backwards in enumerate({"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[way]):
        direction, bias = _direction(b, node, d, hidden, products)
        terms = products.of_inputs(forms.reshape(b, x, (steps * batch, x.shape[2])), d)
        if bias is not None:
            terms = forms.add(b, terms, bias)
        terms = forms.reshape(b, terms, (steps, batch, terms.shape[1]))
        state = [
            _initial(b, node, i, d, batch, hidden, x.dtype) for i in ([5, 6] if node.op == "LSTM" else [5])
        ]
        rows: list[Value] = []
        for t in reversed(range(steps)) if backwards else range(steps):
            new = getattr(direction, node.op.lower())(forms.pick(b, terms, 0, t), state)
            row = new[0]
            if node.input(4) is not None:
                inside = b.op("Less", b.const(np.array(t, np.int64)), forms.cast(b, node.operand(4), 7))
                inside = forms.reshape(b, inside, (batch, 1))
                row = b.op("Where", inside, row, b.scalar(0, x))
                new = [b.op("Where", inside, fresh, old) for fresh, old in zip(new, state)]
            rows.append(row)
            state = new
        columns.append(forms.stack(b, rows[::-1] if backwards else rows, 0))
        finals.append(state)
    y = forms.stack(b, columns, 1)
    last = [forms.stack(b, [f[i] for f in finals], 0) for i in range(len(finals[0]))]
    if batch_first:
        y = forms.transpose(b, y, (2, 0, 1, 3))
        last = [forms.transpose(b, value, (1, 0, 2)) for value in last]
    return [y, *last][: node.outputs]


def _direction(
    b: Builder, node: Node, d: int, hidden: int, products: Products
) -> tuple[Direction, Value | None]:
    """The cell of direction `d`, and the bias that can be added to all input products at once."""
    gates = GATES[node.op]
    per = len(ACTIVATIONS[node.op])
    names = node.attrs.get("activations") or ACTIVATIONS[node.op] * (d + 1)
    alphas, betas = node.attrs.get("activation_alpha") or [], node.attrs.get("activation_beta") or []
    functions = []
    for index in range(d * per, (d + 1) * per):
        alpha = alphas[index] if index < len(alphas) else None
        beta = betas[index] if index < len(betas) else None
        functions.append(_activation(b, names[index], alpha, beta))
    bias = recurrent_bias = None
    if node.input(3) is not None:
        both = forms.pick(b, node.operand(3), 0, d)
        bias = forms.slice_axis(b, both, 0, 0, gates * hidden)
        recurrent = forms.slice_axis(b, both, 0, gates * hidden, 2 * gates * hidden)
        if node.op == "GRU":
            recurrent_bias = forms.slice_axis(b, recurrent, 0, 2 * hidden, 3 * hidden)
            zeros = forms.full(b, 0, both.dtype, (hidden,))
            recurrent = forms.concat(b, [forms.slice_axis(b, recurrent, 0, 0, 2 * hidden), zeros], 0)
        bias = forms.add(b, bias, recurrent)
    peepholes = None if node.input(7) is None else forms.pick(b, node.operand(7), 0, d)
    return Direction(b, node, hidden, functions, products, d, recurrent_bias, peepholes), bias


def _initial(b: Builder, node: Node, index: int, d: int, batch: int, hidden: int, dtype: int) -> Value:
    given = node.input(index)
    if given is None:
        return forms.full(b, 0, dtype, (batch, hidden))
    return forms.pick(b, given, 1 if node.attrs.get("layout", 0) else 0, d)
