"""Random contractions: matrix products of every shape, einsum, attention, and convolutions of every kind."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from kernel_draws import FLOATS, INTEGERS, Case, Draw


def operand(draw: Draw, case_inputs: list, case_weights: list, tensor: torch.Tensor) -> None:
    """The tensor becomes a weight half of the time."""
    (case_weights if draw.flip() else case_inputs).append(tensor)


def matmul(draw: Draw) -> Case:
    m, n, k = draw.extent(), draw.extent(), draw.extent(101 if draw.flip(0.8) else 128)
    dtype = draw.dtype((*FLOATS, *INTEGERS))
    x, w = draw.tensor((m, k), dtype), draw.tensor((k, n), dtype)
    terms = k if dtype.is_floating_point else 0
    epilogue = draw.pick(["none", "none", "bias", "relu", "transposed", "left"])
    name = f"matmul {m}x{n}x{k} {dtype} {epilogue}"
    weight = draw.flip()
    if epilogue == "bias" and dtype not in FLOATS[2:]:  # eager rounds the product before it adds
        b = draw.tensor((n,), dtype)
        return Case(name, lambda x, w, b: x @ w + b, (x,), (w, b), terms and k + 300)
    if epilogue == "relu":
        return Case(name, lambda x, w: torch.relu(x @ w), *split(x, w, weight), terms)
    if epilogue == "transposed":
        return Case(name, lambda x, w: x @ w.T, *split(x, w.T.contiguous(), weight), terms)
    if epilogue == "left":
        return Case(name, lambda x, w: x.T @ w, *split(x.T.contiguous(), w, weight), terms)
    return Case(name, lambda x, w: x @ w, *split(x, w, weight), terms)


def split(x: torch.Tensor, w: torch.Tensor, weight: bool) -> tuple[tuple, tuple]:
    return ((x,), (w,)) if weight else ((x, w), ())


def batch_matmul(draw: Draw) -> Case:
    b, m, n, k = draw.extent(8), draw.extent(33), draw.extent(64), draw.extent(65)
    dtype = draw.dtype((*FLOATS, torch.int64, torch.int32))
    form = draw.pick(["bmm", "broadcast", "four", "transposed"])
    x, y = draw.tensor((b, m, k), dtype), draw.tensor((b, k, n), dtype)
    name = f"batch_matmul {form} {b}x{m}x{n}x{k} {dtype}"
    terms = k if dtype.is_floating_point else 0
    if form == "broadcast":
        return Case(name, lambda x, y: torch.matmul(x, y), (x, y[0]), (), terms)
    if form == "four":
        return Case(name, lambda x, y: torch.matmul(x, y), (x[None].repeat(2, 1, 1, 1), y[:1]), (), terms)
    if form == "transposed":
        return Case(name, lambda x, y: x @ y.transpose(1, 2), (x, y.transpose(1, 2).contiguous()), (), terms)
    return Case(name, torch.bmm, (x, y), (), terms)


def matvec(draw: Draw) -> Case:
    n, k = draw.extent(), draw.extent()
    dtype = draw.dtype()
    form = draw.pick(["mv", "vm", "dot", "linear1", "column", "addmv", "outer"])
    a, v, u = draw.tensor((n, k), dtype), draw.tensor((k,), dtype), draw.tensor((n,), dtype)
    name = f"matvec {form} {n}x{k} {dtype}"
    if form == "mv":
        return Case(name, torch.mv, (a, v), (), k)
    if form == "vm":
        return Case(name, torch.matmul, (u, a), (), n)
    if form == "dot":
        return Case(name, torch.dot, (v, draw.tensor((k,), dtype)), (), k)
    if form == "linear1":
        return Case(name, F.linear, (v[None],), (a, u), k + 300)
    if form == "column":
        return Case(name, torch.matmul, (a, v[:, None]), (), k)
    if form == "addmv":
        return Case(name, torch.addmv, (u, a, v), (), k + 300)
    return Case(name, torch.outer, (u, v), (), 1)


def einsum(draw: Draw) -> Case:
    sizes = {letter: draw.extent(13) for letter in "abcde"}
    forms = ["ab,bc->ac", "abc,cd->abd", "abc,abd->acd", "ab,ab->a", "ab,ab->", "a,b->ab", "abcd,aecd->ace"]
    forms += [
        "abc,adc->abd",
        "abc,bd->acd",
        "ab,bc,cd->ad",
        "abc->cab",
        "abc->b",
        "ab,cb->ac",
        "abcd,ced->abe",
    ]
    form = draw.pick(forms)
    # Sums before the product, and products of three, are rounded to 16 bits in between.
    dtype = draw.dtype(FLOATS[:2] if form in ("ab,bc,cd->ad", "abcd,aecd->ace") else FLOATS)
    terms = form.split("->")[0].split(",")
    tensors = tuple(draw.tensor([sizes[letter] for letter in term], dtype) for term in terms)
    inner = math.prod(sizes[letter] for letter in set("".join(terms)) - set(form.split("->")[1]))
    name = f"einsum {form} {sizes} {dtype}"
    return Case(name, lambda *t: torch.einsum(form, *t), tensors, (), inner + 300)


def attention(draw: Draw) -> Case:
    b, h, q, k, d = (
        draw.extent(3),
        draw.extent(4),
        draw.extent(33),
        draw.extent(33),
        draw.pick([4, 8, 13, 16, 32]),
    )
    dtype = draw.dtype()
    form = draw.pick(["plain", "causal", "mask", "bias", "by hand"])
    name = f"attention {form} b{b} h{h} q{q} k{k} d{d} {dtype}"
    qt, kt, vt = (draw.tensor((b, h, n, d), dtype) for n in (q, k, k))
    if form == "causal":
        return Case(
            name,
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            (qt, kt, vt),
            slack=24,
        )
    if form == "mask":
        mask = draw.tensor((q, k), torch.bool)
        mask[:, 0] = True
        return Case(
            name, lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), (qt, kt, vt, mask), slack=24
        )
    if form == "bias":
        return Case(
            name,
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
            (qt, kt, vt, draw.tensor((b, 1, q, k), dtype)),
            slack=32,
        )
    if form == "by hand":
        return Case(
            name,
            lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(d), -1) @ v,
            (qt, kt, vt),
            slack=48,
        )
    return Case(name, F.scaled_dot_product_attention, (qt, kt, vt), slack=24)


_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def convolution(draw: Draw, rank: int, kind: str = "plain") -> Case:
    """A convolution of `rank` dimensions: plain, grouped, depthwise, or transposed."""
    dtype = draw.dtype((torch.float32, torch.float32, *FLOATS))
    groups = {"plain": 1, "transposed": draw.pick([1, 1, 2]), "grouped": draw.pick([2, 3, 4])}.get(
        kind, draw.pick([1, 3, 4, 8, 17, 32])
    )
    multiplier = draw.pick([1, 1, 2, 3]) if kind == "depthwise" else 0
    inside = 1 if multiplier else draw.pick([1, 2, 3, 5, 8, 16])
    outside = multiplier or draw.pick([1, 2, 3, 4, 7, 16, 24, 33])
    kernel = [draw.pick([1, 2, 3, 3, 5]) if rank < 3 else draw.pick([1, 2, 3]) for _ in range(rank)]
    stride = [draw.pick([1, 1, 1, 2, 3]) for _ in range(rank)]
    dilation = [draw.pick([1, 1, 1, 2]) for _ in range(rank)]
    padding = [draw.pick([0, 0, 1, 2]) for _ in range(rank)]
    most = {1: 64, 2: 19, 3: 8}[rank]
    least = [d * (k - 1) + 1 - 2 * p for k, d, p in zip(kernel, dilation, padding)]
    size = [max(draw.extent(most), need, 1) for need in least]
    batch = draw.pick([1, 1, 2, 3])
    x = draw.tensor((batch, groups * inside, *size), dtype)
    bias = draw.tensor((groups * outside,), dtype) if draw.flip() else None
    taps = inside * math.prod(kernel)
    name = f"{kind} conv{rank}d {[*x.shape]} {groups=} {outside=} {kernel=} {stride=} {padding=} {dilation=} {dtype}"
    if kind == "transposed":
        extra = [draw.pick(range(max(s, d))) for s, d in zip(stride, dilation)]
        padding = [min(p, d * (k - 1)) for p, k, d in zip(padding, kernel, dilation)]
        sized = [
            (n - 1) * s - 2 * p + d * (k - 1) + e + 1
            for n, s, p, d, k, e in zip(size, stride, padding, dilation, kernel, extra)
        ]
        extra = [e if n > 0 else e + 1 - n for e, n in zip(extra, sized)]
        w = draw.tensor((groups * inside, outside, *kernel), dtype)

        def function(x, w, b=None):
            return _TRANSPOSED[rank](x, w, b, stride, padding, extra, groups, dilation)

        if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation)):
            extra = [0] * rank
            padding = [0] * rank
        name += f" output_padding={extra}"
    else:
        w = draw.tensor((groups * outside, inside, *kernel), dtype)

        def function(x, w, b=None):
            return _CONV[rank](x, w, b, stride, padding, dilation, groups)

    if draw.flip(0.25):
        inner = function

        def function(x, w, b=None):
            return torch.relu(inner(x, w, b))

        name += " relu"
    weights = (w,) if bias is None else (w, bias)
    if draw.flip(0.15):
        return Case(name, function, (x, *weights), (), taps + 300)
    return Case(name, function, (x,), weights, taps + 300)


KINDS = {
    "matmul": matmul,
    "batch_matmul": batch_matmul,
    "matvec": matvec,
    "einsum": einsum,
    "attention": attention,
    "conv1d": lambda draw: convolution(draw, 1),
    "conv2d": lambda draw: convolution(draw, 2),
    "conv3d": lambda draw: convolution(draw, 3),
    "conv_grouped": lambda draw: convolution(draw, draw.pick([1, 2, 2, 3]), "grouped"),
    "conv_depthwise": lambda draw: convolution(draw, draw.pick([1, 2, 2, 3]), "depthwise"),
    "conv_transposed": lambda draw: convolution(draw, draw.pick([1, 2, 2, 3]), "transposed"),
}
