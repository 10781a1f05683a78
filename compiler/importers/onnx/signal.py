"""Rules for Fourier transforms: operations of lines, or products with constant matrices where these have no such length."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tilewright.compiler.dialects.fourier import COMPLEX, OF_REAL, TO_REAL
from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.fourier import fourier
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value
from tilewright.compiler.nouns.fourier_factors import FEWEST_COLUMNS, factors, multiplied

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
    to_real = inverse and onesided
    x = _resized(b, x, axis, length // 2 + 1 if to_real else length)
    parts = [forms.pick(b, x, x.rank - 1, i) for i in range(x.shape[-1])]
    is_real = len(parts) == 1 and not inverse
    is_computed = factors(multiplied(length, to_real or is_real)) is not None
    by = _by_lines if is_computed and x.dtype in _WIDE else _by_matrix
    found = by(b, parts, axis, length, inverse, onesided)
    if inverse:
        found = [forms.div(b, part, length) for part in found]
    return forms.stack(b, found, x.rank - 1)


_WIDE = (TensorProto.FLOAT, TensorProto.DOUBLE)


def _by_lines(
    b: Builder, parts: list[Value], axis: int, length: int, inverse: bool, onesided: bool
) -> list[Value]:
    shape = parts[0].shape
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    is_moved = after < FEWEST_COLUMNS
    perm = [*(i for i in range(len(shape)) if i != axis), axis]

    def taken(part: Value) -> Value:
        if is_moved:
            return forms.reshape(b, forms.transpose(b, part, perm), (before * after, shape[axis]))
        return forms.reshape(b, part, (before, shape[axis], after))

    def put_back(part: Value) -> Value:
        others = [shape[i] for i in perm[:-1]]
        if is_moved:
            moved = forms.reshape(b, part, (*others, part.shape[1]))
            return forms.transpose(b, moved, [perm.index(i) for i in range(len(shape))])
        return forms.reshape(b, part, (*shape[:axis], part.shape[1], *shape[axis + 1 :]))

    lines = [taken(part) for part in parts]
    if len(lines) == 1 and inverse:
        lines.append(forms.full(b, 0, lines[0].dtype, lines[0].shape))
    if inverse and onesided:
        found = fourier(b, TO_REAL, lines, 1, length)
    elif inverse:
        # The inverse of x + i y is that of y + i x, which goes forward, with parts exchanged.
        found = fourier(b, COMPLEX, lines[::-1], 1, length)[::-1]
    elif len(lines) == 1:
        found = fourier(b, OF_REAL, lines, 1, length)
        if not onesided:
            re, im = (
                forms.reverse(b, forms.slice_axis(b, part, 1, 1, (length + 1) // 2), 1) for part in found
            )
            found = [
                forms.concat(b, [part, other], 1) for part, other in zip(found, (re, forms.mul(b, im, -1)))
            ]
    else:
        found = fourier(b, COMPLEX, lines, 1, length)
        if onesided:
            found = [forms.slice_axis(b, part, 1, 0, length // 2 + 1) for part in found]
    return [put_back(part) for part in found]


def _by_matrix(
    b: Builder, parts: list[Value], axis: int, length: int, inverse: bool, onesided: bool
) -> list[Value]:
    if length > MAX_LENGTH:
        raise Refused(f"a transform of length {length}; {MAX_LENGTH} is the longest that is taken")
    bins, to_real, rank = length // 2 + 1, inverse and onesided, parts[0].rank
    perm = [*(i for i in range(rank) if i != axis), axis]
    moved = [forms.transpose(b, part, perm) for part in parts]
    rows = np.arange(bins if onesided and not inverse else length)
    columns = np.arange(bins if to_real else length)
    angle = 2 * np.pi * ((rows[None, :] * columns[:, None]) % length) / length
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    if to_real:
        weight = np.where((columns == 0) | (2 * columns == length), 1.0, 2.0)[:, None]
        cosine, sine = cosine * weight, sine * weight
    c, s = b.const(cosine, parts[0].dtype), b.const(sine, parts[0].dtype)
    found = [b.op("MatMul", moved[0], matrix) for matrix in ((c,) if to_real else (c, s))]
    if len(moved) == 2:
        found[0] = forms.sub(b, found[0], b.op("MatMul", moved[1], s))
        if not to_real:
            found[1] = forms.add(b, found[1], b.op("MatMul", moved[1], c))
    return [forms.transpose(b, part, [perm.index(i) for i in range(rank)]) for part in found]


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
