"""Rules for Fourier transforms: products with constant cosine and sine matrices."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value

MAX_LENGTH = 4096
"""Longest transform done by a matrix, which has the square of it in elements."""


def _resized(b: Builder, x: Value, axis: int, length: int) -> Value:
    """The axis cut, or padded with zeros, to `length`."""
    if x.shape[axis] >= length:
        return forms.slice_axis(b, x, axis, 0, length)
    missing = (*x.shape[:axis], length - x.shape[axis], *x.shape[axis + 1 :])
    return forms.concat(b, [x, forms.full(b, 0, x.dtype, missing)], axis)


def transform(b: Builder, x: Value, axis: int, length: int, inverse: bool, onesided: bool) -> Value:
    """The transform along `axis` of `[..., 1 or 2]` (real, or real and imaginary parts)."""
    if length > MAX_LENGTH:
        raise Refused(f"a transform of length {length}; {MAX_LENGTH} is the longest that is taken")
    bins = length // 2 + 1
    to_real = inverse and onesided
    x = _resized(b, x, axis, bins if to_real else length)
    rank = x.rank
    perm = [i for i in range(rank) if i not in (axis, rank - 1)] + [rank - 1, axis]
    moved = forms.transpose(b, x, perm)
    parts = [forms.slice_axis(b, moved, rank - 2, i, i + 1) for i in range(moved.shape[rank - 2])]
    rows = np.arange(bins if onesided and not inverse else length)
    columns = np.arange(bins if to_real else length)
    angle = 2 * np.pi * ((rows[None, :] * columns[:, None]) % length) / length
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    if to_real:
        weight = np.where((columns == 0) | (2 * columns == length), 1.0, 2.0)[:, None]
        cosine, sine = cosine * weight, sine * weight
    if inverse:
        cosine, sine = cosine / length, sine / length
    c, s = b.const(cosine, x.dtype), b.const(sine, x.dtype)
    real = b.op("MatMul", parts[0], c)
    imaginary = None if to_real else b.op("MatMul", parts[0], s)
    if len(parts) == 2:
        real = forms.sub(b, real, b.op("MatMul", parts[1], s))
        if imaginary is not None:
            imaginary = forms.add(b, imaginary, b.op("MatMul", parts[1], c))
    joined = real if imaginary is None else forms.concat(b, [real, imaginary], rank - 2)
    return forms.transpose(b, joined, [perm.index(i) for i in range(rank)])


@rule("DFT")
def dft(b: Builder, node: Node):
    x = node.operand(0)
    axis = node.operand(2).ints("axis")[0] if node.input(2) is not None else -2
    axis %= x.rank
    inverse, onesided = bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    if node.input(1) is not None:
        length = node.operand(1).ints("dft_length")[0]
    else:
        length = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    return transform(b, x, axis, length, inverse, onesided)


@rule("STFT")
def stft(b: Builder, node: Node):
    """Overlapping frames gathered, windowed and transformed."""
    signal, window = node.operand(0), node.input(2)
    step = node.operand(1).ints("frame_step")[0]
    length = node.operand(3).ints("frame_length")[0] if node.input(3) is not None else 0
    length = length or (window.shape[0] if window is not None else signal.shape[1])
    if signal.rank == 2:
        signal = forms.unsqueeze(b, signal, 2)
    count = (signal.shape[1] - length) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(length)[None, :]
    frames = b.op("Gather", signal, b.const(places.astype(np.int64)), axis=1)
    if window is not None:
        frames = forms.mul(b, frames, forms.reshape(b, window, (length, 1)))
    return transform(b, frames, 2, length, False, bool(node.attrs.get("onesided", 1)))
