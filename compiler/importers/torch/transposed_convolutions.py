"""Transposed convolutions as plain ones, one for each phase of the stride: no product with zeros between elements or taps."""

from __future__ import annotations

import itertools
import math

import torch

from tilewright.compiler.importers.torch.types import compute_dtype

aten = torch.ops.aten

_WASTE = 1.1
"""Phases that begin at different elements are convolved one by one where together they compute so many times what is needed:
each that is apart is a dispatch of its own, with a border of its own."""
_FEWEST_CHANNELS = 16
"""Channels of a phase below which phases stay together: a vector of f32, of the widest."""


def transposed_convolution(x, weight, bias, stride, padding, dilation, output_padding, groups):
    """A transposed convolution as plain ones, interleaved, or of a single element as a product.

    Result `s * q + d * j` is the sum over `t` of `x[q - d' * t] * weight[j + s' * t]`, where `s' / d'` is the reduced
    `s / d` and `j < s'` the first tap of one phase. Phases with equally many taps that begin at one element are channels of one
    convolution. Those that begin at different ones, as padding makes them, are too, and what nobody asked for is left out
    afterwards, unless that is too much.
    """
    rank, dtype = x.dim() - 2, x.dtype
    if bias is not None:
        # One rounding, after the bias.
        x, weight, bias = (t.to(compute_dtype(x)) for t in (x, weight, bias))
    want = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + more
        for n, s, p, d, k, more in zip(
            x.shape[2:], stride, padding, dilation, weight.shape[2:], output_padding
        )
    ]
    if groups == 1 and all(n == 1 for n in x.shape[2:]) and max(dilation) == 1:
        y = _of_one_element(x, weight, padding, want)
    else:
        apart = groups > 1 and groups == x.shape[1]
        exact = [(p, -(-n // s)) for p, n, s in zip(padding, want, stride)]
        whole = [(0, -(-(p + n) // s)) for p, n, s in zip(padding, want, stride)]
        waste = math.prod(count for _, count in whole) / math.prod(count for _, count in exact)
        wide = apart or groups * weight.shape[1] >= _FEWEST_CHANNELS
        spans = exact if wide and waste >= _WASTE else whole
        y = _interleaved(x, weight, stride, dilation, groups, spans)
        for d, p, n, (start, _) in zip(range(2, 2 + rank), padding, want, spans):
            y = y.narrow(d, p - start, n)
    return y if bias is None else (y + bias.reshape(1, -1, *[1] * rank)).to(dtype)


def _of_one_element(x, weight, padding, want):
    """The kernel times an element for each input channel, without its `padding` first taps, `want` of them with zeros behind."""
    taps = weight.shape[2:]
    w = weight.permute(0, *range(2, weight.dim()), 1)
    y = (x.flatten(1) @ w.flatten(1)).unflatten(1, (*taps, weight.shape[1]))
    y = y.permute(0, -1, *range(1, 1 + len(taps)))
    y = padded(y, [(0, max(0, p + n - k)) for p, n, k in zip(padding, want, taps)])
    for d, p, n in zip(range(2, y.dim()), padding, want):
        y = y.narrow(d, p, n)
    return y


def _interleaved(x, weight, stride, dilation, groups, spans):
    """Results from `start` on, `count` of every phase in each dimension, of which `spans` are (start, count)."""
    rank, size = x.dim() - 2, x.shape[2:]
    common = [math.gcd(s, d) for s, d in zip(stride, dilation)]
    steps, dilations = ([n // c for n, c in zip(sizes, common)] for sizes in (stride, dilation))
    apart = groups > 1 and groups == x.shape[1]
    phases = [
        _phases(k, s, d, start, apart)
        for k, s, d, (start, _) in zip(weight.shape[2:], stride, dilation, spans)
    ]
    counts = [count for _, count in spans]

    def joined(*chosen: tuple[list[int], int, int]):
        """[N, C, *phases, *counts]: the phases chosen in the first dimensions, all of the others."""
        axis = len(chosen)
        if axis < rank:
            return torch.cat([joined(*chosen, run) for run in phases[axis]], 2 + axis)
        firsts, taps, places = zip(*chosen)
        shape = [x.shape[0], groups * weight.shape[1], *map(len, firsts)]
        borders = [d * (t - 1) for d, t in zip(dilations, taps)]
        # Of a plain convolution with whole borders these results are wanted, and there are these.
        ends = [place + count for place, count in zip(places, counts)]
        there = [(max(0, place), min(end, n + b)) for place, end, n, b in zip(places, ends, size, borders)]
        if not all(taps) or any(low >= high for low, high in there):
            return x.new_zeros([*shape, *counts])
        w = weight
        for d, first, step in zip(range(2, 2 + 2 * rank, 2), firsts, steps):
            if [*range(step)] == first and w.shape[d] % step == 0:
                w = w.unflatten(d, (-1, step)).transpose(d, d + 1)  # a view, not a copy for each phase
            else:
                w = torch.stack([aten.slice(w, d, j, None, step) for j in first], d)
        w = torch.flip(w, list(range(3, 3 + 2 * rank, 2))).unflatten(0, (groups, -1))
        w = w.permute(0, 2, *range(3, 3 + 2 * rank, 2), 1, *range(4, 4 + 2 * rank, 2))
        w = w.reshape(-1, x.shape[1] // groups, *taps)
        y = _convolved(x, w, dilations, groups, borders, there)
        pads = [(low - place, end - high) for place, end, (low, high) in zip(places, ends, there)]
        return padded(y.reshape(*shape, *y.shape[2:]), pads)

    y = joined()
    y = y.permute(0, 1, *(d for i in range(rank) for d in (2 + rank + i, 2 + i)))
    return y.reshape(*y.shape[:2], *(n * s for n, s in zip(counts, stride)))


def _convolved(x, weight, dilation, groups, borders, spans):
    """Results [low, high) in each dimension of a plain convolution with `borders` of zeros on both sides."""
    rank, size = x.dim() - 2, x.shape[2:]
    pads = [(max(0, b - low), max(0, high - n)) for n, b, (low, high) in zip(size, borders, spans)]
    for d, n, b, (low, high) in zip(range(2, 2 + rank), size, borders, spans):
        x = x.narrow(d, max(0, low - b), min(n, high) - max(0, low - b))
    if any(before != behind for before, behind in pads):
        x, pads = padded(x, pads), [(0, 0)] * rank
    return aten.convolution(
        x, weight, None, [1] * rank, [before for before, _ in pads], dilation, False, [0] * rank, groups
    )


def _phases(
    kernel: int, stride: int, dilation: int, start: int, apart: bool
) -> list[tuple[list[int], int, int]]:
    """Runs of phases that read equally many taps from one element on, in the order of results from `start`: their first taps, how
    many, and the first result that is wanted of a plain convolution with whole borders.

    Phases without taps have 0 of them; `apart` is a run for each phase.
    """
    step = stride // math.gcd(stride, dilation)
    firsts = {dilation * tap % stride: tap for tap in range(min(step, kernel))}

    def form(place: int) -> tuple[int, int, int]:
        ahead, phase = divmod(place, stride)
        if phase not in firsts:
            return 0, 0, 0
        first = firsts[phase]
        return (
            len(range(first, kernel, step)),
            ahead - dilation * first // stride,
            phase if apart else 0,
        )

    runs = [(key, list(run)) for key, run in itertools.groupby(range(start, start + stride), form)]
    return [([firsts.get(place % stride, 0) for place in run], taps, place) for (taps, place, _), run in runs]


def padded(x, pads: list[tuple[int, int]]):
    """`x` with zeros before and after its last dimensions."""
    flat = [n for pair in reversed(pads) for n in pair]
    return aten.constant_pad_nd(x, flat, 0) if any(flat) else x
