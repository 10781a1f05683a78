"""Recurrent layers as loops of products and gates.

PyTorch has decompositions of them too. Those forget the dropout between layers, and take oneDNN's layer for an LSTM
whose weights want gradients, of which nothing but oneDNN knows the backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

Weights = list[torch.Tensor]


def _lstm_cell(x, state, recurrent):
    """`x` [B, 4 * H] is the input's part of the gates; the state is (h, c)."""
    h, c = state
    i, f, g, o = (x + F.linear(h, *recurrent[:-1])).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if recurrent[-1] is None else F.linear(h, recurrent[-1])), c


def _gru_cell(x, state, recurrent):
    (h,) = state
    (r, z, n), (hr, hz, hn) = x.chunk(3, 1), F.linear(h, *recurrent[:-1]).chunk(3, 1)
    z = torch.sigmoid(z + hz)
    n = torch.tanh(n + torch.sigmoid(r + hr) * hn)
    return ((h - n) * z + n,)


def _plain_cell(activation: Callable) -> Callable:
    def cell(x, state, recurrent):
        return (activation(x + F.linear(state[0], *recurrent[:-1])),)

    return cell


def _direction(x, state, weights: Weights, has_biases: bool, cell: Callable, backwards: bool):
    """One layer in one direction over `x` [T, B, I]: its outputs and its last state."""
    biases = weights[2:4] if has_biases else (None, None)
    own, recurrent = (weights[0], biases[0]), (weights[1], biases[1])
    projection = weights[4 if has_biases else 2] if len(weights) in (3, 5) else None
    gates = F.linear(x, *own).unbind(0)
    found = []
    for step in reversed(gates) if backwards else gates:
        state = cell(step, state, (*recurrent, projection))
        found.append(state[0])
    return torch.stack(found[::-1] if backwards else found), state


def _layers(
    cell: Callable, x, states, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
):
    """All layers: the output, and the last states stacked as the first ones were."""
    count = num_layers * (2 if bidirectional else 1)
    each = len(params) // count
    x = x.transpose(0, 1) if batch_first else x
    ends = []
    for layer in range(num_layers):
        outputs = []
        for backwards in (False, True) if bidirectional else (False,):
            number = len(ends)
            start = tuple(state[number] for state in states)
            weights = list(params[number * each : (number + 1) * each])
            y, end = _direction(x, start, weights, has_biases, cell, backwards)
            outputs.append(y)
            ends.append(end)
        x = torch.cat(outputs, 2) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            x = F.dropout(x, dropout, training=True)
    x = x.transpose(0, 1) if batch_first else x
    return (x, *(torch.stack(parts) for parts in zip(*ends)))


def lstm(x, hx: Sequence[torch.Tensor], params: Weights, *how: Any):
    """`torch.lstm` of padded sequences: (output, h, c)."""
    return _layers(_lstm_cell, x, hx, params, *how)


def _of_one_state(cell: Callable) -> Callable:
    def layers(x, hx: torch.Tensor, params: Weights, *how: Any):
        return _layers(cell, x, (hx,), params, *how)

    return layers


def _where_needed(loops: Callable, function: Callable) -> Callable:
    """`loops` where PyTorch's decomposition of `function` lacks something, else `function`.

    Packed sequences are told by their batch sizes, a tensor in the second place, which moves the weights to the fourth.
    """

    def layers(*args: Any):
        is_padded = len(args) == 9 and isinstance(args[3], bool)
        if not is_padded:
            return function(*args)
        count, dropout, train = args[4:7]
        draws = bool(dropout) and train and count > 1
        return (loops if draws or torch.is_grad_enabled() else function)(*args)

    return layers


FUNCTIONS: dict[Any, Any] = {
    torch.lstm: _where_needed(lstm, torch.lstm),
    torch.gru: _where_needed(_of_one_state(_gru_cell), torch.gru),
    torch.rnn_tanh: _where_needed(_of_one_state(_plain_cell(torch.tanh)), torch.rnn_tanh),
    torch.rnn_relu: _where_needed(_of_one_state(_plain_cell(torch.relu)), torch.rnn_relu),
}
"""Functions that PyTorch takes apart before operators are looked up in tables."""
