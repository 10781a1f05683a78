"""Rules for convolutions in forms that torch-mlir does not lower: transposed in general, and their inverse of im2col."""

from __future__ import annotations

import itertools
import math

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value


def padded(b: Builder, x: Value, before: list[int], after: list[int]) -> Value:
    """The last axes padded with zeros, or cut where an amount is negative."""
    skip = x.rank - len(before)
    for axis, (front, back) in enumerate(zip(before, after), skip):
        x = forms.slice_axis(b, x, axis, max(-front, 0), x.shape[axis] - max(-back, 0))
    front, back = [max(n, 0) for n in before], [max(n, 0) for n in after]
    if not any(front + back):
        return x
    return b.op("Pad", x, b.ints(*[0] * skip, *front, *[0] * skip, *back), b.scalar(0, x))


def spread(b: Builder, x: Value, strides: list[int]) -> Value:
    """Zeros put between the elements of the last axes, so that they lie `strides` apart."""
    for axis, stride in enumerate(strides, x.rank - len(strides)):
        if stride == 1:
            continue
        extent = x.shape[axis]
        split = forms.reshape(b, x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
        tail = x.rank - axis
        wide = padded(b, split, [0] * tail, [stride - 1] + [0] * (tail - 1))
        merged = forms.reshape(b, wide, (*x.shape[:axis], extent * stride, *x.shape[axis + 1 :]))
        x = forms.slice_axis(b, merged, axis, 0, (extent - 1) * stride + 1)
    return x


def check_convolution(node: Node, x: Value, w: Value, bias: Value | None, transposed: bool = False) -> None:
    """Refuses operands and attributes that do not fit each other, which onnx does not look at and torch-mlir divides by.

    The kernel is [M, C / group, ...], of a transposed convolution [C, M / group, ...].
    """
    rank, groups = x.rank - 2, node.attrs.get("group", 1)
    if rank < 1 or w.rank != x.rank:
        raise Refused(
            f"expected a batch of channels of one dimension or more and a kernel of the same rank, found "
            f"operands of rank {x.rank} and {w.rank}"
        )
    if rank > 3:
        raise Refused(f"it is a convolution over {rank} dimensions; at most 3 are taken")
    if groups < 1 or x.shape[1] % groups or w.shape[0] % groups:
        raise Refused(
            f"its group is {groups}; expected a divisor of {x.shape[1]} channels and of the kernel's extent {w.shape[0]}"
        )
    channels, results = (w.shape[0], w.shape[1] * groups) if transposed else (w.shape[1] * groups, w.shape[0])
    if x.shape[1] != channels:
        raise Refused(
            f"its kernel {'x'.join(map(str, w.shape))} in {groups} groups is for {channels} channels, found {x.shape[1]}"
        )
    if bias is not None and bias.shape != (results,):
        raise Refused(f"expected a bias of shape [{results}], found {list(bias.shape)}")
    kernel = node.attrs.get("kernel_shape")
    if kernel and tuple(kernel) != w.shape[2:]:
        raise Refused(f"its kernel_shape is {list(kernel)}, its kernel's {list(w.shape[2:])}")
    for name, count in (("strides", rank), ("dilations", rank), ("pads", 2 * rank)):
        numbers = node.attrs.get(name)
        if numbers and (len(numbers) != count or (name != "pads" and min(numbers) < 1)):
            wanted = "numbers" if name == "pads" else "positive numbers"
            raise Refused(f"expected {count} {wanted} as its {name}, found {list(numbers)}")


@rule("Conv")
def grouped_volume(b: Builder, node: Node):
    """A grouped convolution of volumes is a sum over the kernel's depth of grouped convolutions of slices."""
    x, w = node.operand(0), node.operand(1)
    check_convolution(node, x, w, node.input(2))
    groups = node.attrs.get("group", 1)
    if x.rank != 5 or groups == 1:
        return None
    strides = node.attrs.get("strides") or [1] * 3
    dilations = node.attrs.get("dilations") or [1] * 3
    before, after = convolution_pads(node.attrs, x.shape[2:], w.shape[2:], strides, dilations)
    x = padded(b, x, before, after)
    depth = w.shape[2]
    out = (x.shape[2] - (depth - 1) * dilations[0] - 1) // strides[0] + 1
    n, c, _, height, width = x.shape
    total = None
    for tap in range(depth):
        start = tap * dilations[0]
        part = forms.slice_axis(b, x, 2, start, start + (out - 1) * strides[0] + 1, strides[0])
        images = forms.reshape(b, forms.transpose(b, part, (0, 2, 1, 3, 4)), (n * out, c, height, width))
        kernel = forms.pick(b, w, 2, tap)
        y = b.op("Conv", images, kernel, group=groups, strides=strides[1:], dilations=dilations[1:])
        total = y if total is None else forms.add(b, total, y)
    assert total is not None
    volumes = forms.reshape(b, total, (n, out, *total.shape[1:]))
    y = forms.transpose(b, volumes, (0, 2, 1, 3, 4))
    if node.input(2) is None:
        return y
    return forms.add(b, y, forms.reshape(b, node.operand(2), (w.shape[0], 1, 1, 1)))


def convolution_pads(attrs: dict, extents, kernel, strides, dilations) -> tuple[list[int], list[int]]:
    """Padding before and after each axis, `auto_pad` resolved."""
    rank = len(kernel)
    auto = attrs.get("auto_pad", "NOTSET")
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        pads = attrs.get("pads") or [0] * (2 * rank)
        return ([0] * rank, [0] * rank) if auto == "VALID" else (pads[:rank], pads[rank:])
    totals = [
        max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        for n, k, s, d in zip(extents, kernel, strides, dilations)
    ]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (small, large) if auto == "SAME_UPPER" else (large, small)


@rule("ConvTranspose")
def conv_transpose(b: Builder, node: Node):
    """An ordinary convolution over the spread-out input with the kernel turned around, group by group."""
    x, w = node.operand(0), node.operand(1)
    check_convolution(node, x, w, node.input(2), transposed=True)
    rank = x.rank - 2
    strides = node.attrs.get("strides") or [1] * rank
    dilations = node.attrs.get("dilations") or [1] * rank
    groups = node.attrs.get("group", 1)
    extra = node.attrs.get("output_padding") or [0] * rank
    kernel = list(w.shape[2:])
    reach = [(k - 1) * d for k, d in zip(kernel, dilations)]
    before, after = _transposed_pads(node, x, strides, reach, extra)
    wide = spread(b, x, strides)
    front = [r - p for r, p in zip(reach, before)]
    back = [r - p + e for r, p, e in zip(reach, after, extra)]
    wide = padded(b, wide, front, back)
    for axis in range(2, w.rank):
        if w.shape[axis] > 1:
            w = forms.reverse(b, w, axis)
    # [C, M/g, ...] becomes [M, C/g, ...]
    c, m = w.shape[0], w.shape[1]
    w = forms.reshape(b, w, (groups, c // groups, m, *kernel))
    w = forms.transpose(b, w, [0, 2, 1, *range(3, 3 + rank)])
    w = forms.reshape(b, w, (groups * m, c // groups, *kernel))
    bias = [] if node.input(2) is None else [node.operand(2)]
    return b.op("Conv", wide, w, *bias, dilations=dilations, group=groups, kernel_shape=kernel)


def _transposed_pads(node: Node, x: Value, strides, reach, extra) -> tuple[list[int], list[int]]:
    rank = len(strides)
    auto = node.attrs.get("auto_pad", "NOTSET")
    shape = node.attrs.get("output_shape")
    if shape is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        shape = [n * s for n, s in zip(x.shape[2:], strides)]
    if shape is None:
        pads = node.attrs.get("pads") or [0] * (2 * rank)
        return ([0] * rank, [0] * rank) if auto == "VALID" else (pads[:rank], pads[rank:])
    shape = shape[-rank:]
    before, after = [], []
    for n, s, r, e, want in zip(x.shape[2:], strides, reach, extra, shape):
        total = s * (n - 1) + e + r + 1 - want
        # What an output_shape asks for beyond the last window is at its end, as in ONNX Runtime; auto_pad shares it.
        shared = total if auto in ("SAME_UPPER", "SAME_LOWER") else max(total, 0)
        before.append(shared // 2 if auto == "SAME_UPPER" else shared - shared // 2)
        after.append(total - before[-1])
    return before, after


@rule("Col2Im")
def col2im(b: Builder, node: Node):
    """Each kernel offset's values spread by the strides, moved by the offset, and added."""
    x = node.operand(0)
    image, block = node.operand(1).ints("image_shape"), node.operand(2).ints("block_shape")
    rank = len(image)
    strides = node.attrs.get("strides") or [1] * rank
    dilations = node.attrs.get("dilations") or [1] * rank
    pads = node.attrs.get("pads") or [0] * (2 * rank)
    full = [n + pads[i] + pads[rank + i] for i, n in enumerate(image)]
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(full, dilations, block, strides)]
    channels = x.shape[1] // math.prod(block)
    columns = forms.reshape(b, x, (x.shape[0], channels, math.prod(block), *counts))
    total = None
    for number, place in enumerate(itertools.product(*map(range, block))):
        part = spread(b, forms.pick(b, columns, 2, number), strides)
        before = [p * d for p, d in zip(place, dilations)]
        after = [n - f - e for n, f, e in zip(full, before, part.shape[2:])]
        part = padded(b, part, before, after)
        total = part if total is None else forms.add(b, total, part)
    assert total is not None
    return padded(b, total, [-p for p in pads[:rank]], [-p for p in pads[rank:]])
