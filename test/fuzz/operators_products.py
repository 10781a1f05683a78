"""Matrix products, convolutions, poolings, normalisations and resizing."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.generator import Growth, dtype_of
from fuzz.tensors import FLOATS, INTEGERS

_FACTORS = FLOATS + FLOATS + INTEGERS


def sizes(g: Growth, count: int) -> list[int]:
    return [g.choose.choice((1, 2, 3, 4, 5, 8, 9, 16, 17, 24, 33)) for _ in range(count)]


@operator(5)
def matmul(g: Growth) -> None:
    a = g.any_of(_FACTORS if not g.plain else FLOATS, 1, 4)
    value = g.values[a]
    n = g.choose.choice((1, 2, 4, 8, 9, 16))
    inner = value.shape[-1]
    draw = g.choose.random()
    kind = dtype_of(value)
    if draw < 0.15:
        g.emit(f"{a} @ {g.new((inner,), kind)}", "sum")
    elif draw < 0.3:
        g.emit(f"{a} @ {g.new((n, inner), kind)}.t()", "sum")
    elif draw < 0.4 and value.dim() > 1:
        g.emit(f"{a}.mT @ {a}", "sum")
    elif draw < 0.6:
        bias = f", {g.new((n,), kind)}" if g.choose.random() < 0.6 else ""
        g.emit(f"F.linear({a}, {g.new((n, inner), kind)}{bias})", "sum")
    elif draw < 0.75 and value.dim() > 2:
        batch = [m if g.choose.random() < 0.7 else 1 for m in value.shape[:-2]]
        g.emit(f"torch.matmul({a}, {g.new((*batch, inner, n), kind)})", "sum")
    else:
        g.emit(f"torch.matmul({a}, {g.new((inner, n), kind)})", "sum")


@operator(2)
def products(g: Growth) -> None:
    m, k, n = sizes(g, 3)
    kind = g.choose.choice(FLOATS + (() if g.plain else ("int64", "int32")))
    a, b = g.new((m, k), kind), g.new((k, n), kind)
    form = g.choose.choice(
        (
            "torch.mm({a}, {b})",
            "torch.addmm({c}, {a}, {b})",
            "torch.addmm({c}, {a}, {b}, beta=2, alpha=3)",
            "torch.einsum('ik,kj->ij', {a}, {b})",
            "torch.einsum('ik,kj->ji', {a}, {b})",
            "torch.mv({a}, {v})",
            "torch.einsum('ik,ik->i', {a}, {a})",
            "torch.outer({v}, {v})",
            "torch.dot({v}, {v})",
            "{a} @ {b}",
            "torch.bmm({a}[None], {b}[None])",
            "torch.baddbmm({c}, {a}[None], {b}[None])",
            "torch.addmv({u}, {a}, {v})",
            "torch.tensordot({a}, {b}, 1)",
            "torch.inner({a}, {a})",
            "torch.kron({a}[:2, :2], {b}[:2, :2])",
        )
    )
    names = {"a": a, "b": b}
    for letter, shape in (("c", g.choose.choice(((n,), (m, n), (1, n)))), ("v", (k,)), ("u", (m,))):
        if f"{{{letter}}}" in form:
            names[letter] = g.new(shape, kind)
    if "baddbmm" in form and g.values[names["c"]].dim() < 2:
        names["c"] = g.new((1, m, n), kind)
    g.emit(form.format(**names), "sum")


@operator(4)
def convolution(g: Growth) -> None:
    rank = g.choose.choice((1, 2, 2, 2, 3))
    kind = g.choose.choice(("float32", "float32", "float32", "float64", "float16", "bfloat16"))
    groups = g.choose.choice((1, 1, 1, 2, 4))
    channels = groups * g.choose.choice((1, 2, 3, 4))
    filters = groups * g.choose.choice((1, 2, 4, 5))
    window = [g.choose.choice((1, 2, 3, 3)) for _ in range(rank)]
    space = [g.choose.choice((4, 5, 7, 8, 9)) for _ in range(rank)]
    found = g.names(lambda v: dtype_of(v) == kind and v.dim() == rank + 2 and v.shape[1] == channels)
    x = g.choose.choice(found) if found else g.new((g.choose.choice((1, 2)), channels, *space), kind)
    w = g.new((filters, channels // groups, *window), kind)
    bias = g.new((filters,), kind) if g.choose.random() < 0.5 else "None"
    stride = g.choose.choice((1, 1, 2))
    padding = g.choose.choice(("0", "1", "1", "'same'" if stride == 1 else "2"))
    dilation = g.choose.choice((1, 1, 1, 2))
    g.emit(f"F.conv{rank}d({x}, {w}, {bias}, {stride}, {padding}, {dilation}, {groups})", "window")


@operator(1)
def transposed_convolution(g: Growth) -> None:
    rank = g.choose.choice((1, 2))
    channels, filters = g.choose.choice((1, 3, 4)), g.choose.choice((1, 2, 4))
    x = g.new((1, channels, *(g.choose.choice((3, 4, 5)) for _ in range(rank))), "float32")
    w = g.new((channels, filters, *(g.choose.choice((1, 2, 3)) for _ in range(rank))), "float32")
    stride, padding = g.choose.choice((1, 2)), g.choose.choice((0, 0, 1))
    g.emit(f"F.conv_transpose{rank}d({x}, {w}, None, {stride}, {padding})", "window")


def image(g: Growth, rank: int = 2) -> str:
    """A variable of [N, C, spatial...], or a new one."""
    found = g.names(lambda v: v.is_floating_point() and v.dim() == rank + 2 and min(v.shape[2:]) > 2)
    if found and g.choose.random() < 0.7:
        return g.choose.choice(found)
    kind = g.choose.choice(("float32", "float32", "float32", "float64", "float16", "bfloat16"))
    return g.new(
        (
            g.choose.choice((1, 2)),
            g.choose.choice((1, 2, 3, 8)),
            *(g.choose.choice((4, 5, 7, 8)) for _ in range(rank)),
        ),
        kind,
    )


@operator(3)
def pooling(g: Growth) -> None:
    rank = g.choose.choice((1, 2, 2, 2, 3))
    x = image(g, rank)
    if g.choose.random() < 0.12:
        x = f"{x}[0]"
    window, stride = g.choose.choice((1, 2, 3)), g.choose.choice((1, 2, 3))
    padding = g.choose.choice((0, window // 2))
    ceil = g.choose.choice(("", "", ", ceil_mode=True"))
    form = g.choose.choice(
        (
            f"F.max_pool{rank}d({x}, {window}, {stride}, {padding}{ceil})",
            f"F.avg_pool{rank}d({x}, {window}, {stride}, {padding}{ceil})",
            f"F.avg_pool{rank}d({x}, {window}, {stride}, {padding}, count_include_pad=False)",
            f"F.adaptive_avg_pool{rank}d({x}, {g.choose.choice((1, 2, 3))})",
            f"F.adaptive_max_pool{rank}d({x}, {g.choose.choice((1, 2))})",
            f"F.lp_pool2d({x}, 2, {window})" if rank == 2 and not g.plain else f"F.max_pool{rank}d({x}, 2)",
        )
    )
    g.emit(form, "exact" if "max_pool" in form else "sum")


@operator(3)
def norm(g: Growth) -> None:
    a = g.floating(2)
    value, kind = g.values[a], dtype_of(g.values[a])
    channels, last = value.shape[1], value.shape[-1]
    name = g.choose.choice(("layer", "layer", "rms", "batch", "group", "instance"))
    if name == "layer":
        affine = f", {g.new((last,), kind)}, {g.new((last,), kind)}" if g.choose.random() < 0.6 else ""
        g.emit(f"F.layer_norm({a}, ({last},){affine})", "sum")
    elif name == "rms":
        g.emit(f"F.rms_norm({a}, ({last},), None, 1e-5)", "sum")
    elif name == "batch":
        mean, scale = g.buffer((channels,), kind), g.buffer((channels,), kind, "positive")
        affine = (
            f"{g.new((channels,), kind)}, {g.new((channels,), kind)}"
            if g.choose.random() < 0.6
            else "None, None"
        )
        g.emit(f"F.batch_norm({a}, {mean}, {scale}, {affine}, False)", "sum")
    elif name == "group":
        groups = g.choose.choice([d for d in (1, 2, 3, 4) if channels % d == 0] or [1])
        g.emit(f"F.group_norm({a}, {groups})", "sum")
    else:
        g.emit(f"F.instance_norm({a})", "sum")


@operator(1)
def resize(g: Growth) -> None:
    x = image(g)
    mode = g.choose.choice(
        (
            "nearest",
            "bilinear",
            "bilinear', align_corners=True, antialias=False, recompute_scale_factor=None, mode='bilinear",
        )
    )
    size = g.choose.choice(("size=(5, 6)", "scale_factor=2", "size=3"))
    corners = g.choose.choice(("", ", align_corners=True")) if mode == "bilinear" else ""
    mode = mode if mode in ("nearest", "bilinear") else "bicubic"
    g.emit(f"F.interpolate({x}, {size}, mode='{mode}'{corners})", "sum")


@operator(0.6)
def columns(g: Growth) -> None:
    x = image(g)
    g.emit(
        f"F.unfold({x}, {g.choose.choice((1, 2, 3))}, padding={g.choose.choice((0, 1))}, stride={g.choose.choice((1, 2))})"
    )


@operator(0.6)
def upsample_grid(g: Growth) -> None:
    x = g.new((1, 2, 5, 6), "float32")
    grid = g.new((1, 3, 4, 2), "float32", "unit")
    g.emit(f"F.grid_sample({x}, {grid}, align_corners={g.choose.choice((True, False))})", "sum")


@operator(2)
def attention(g: Growth) -> None:
    batch, heads, queries, keys, width = (
        g.choose.choice(c) for c in ((1, 2), (1, 2, 3), (1, 4, 7, 9), (1, 4, 7, 16), (1, 4, 8))
    )
    kind = g.choose.choice(("float32", "float32", "float64", "bfloat16", "float16"))
    q = g.new((batch, heads, queries, width), kind)
    k, v = g.new((batch, heads, keys, width), kind), g.new((batch, heads, keys, width), kind)
    form = g.choose.choice(("", "", ", is_causal=True", ", attn_mask={m}", ", scale=0.5"))
    mask = g.new((queries, keys), g.choose.choice((kind, "bool"))) if "{m}" in form else ""
    if g.choose.random() < 0.5:
        g.emit(f"F.scaled_dot_product_attention({q}, {k}, {v}{form.format(m=mask)})", "window")
    else:
        scores = g.emit(f"{q} @ {k}.transpose(-2, -1) * {width**-0.5}", "sum")
        if mask and dtype_of(g.values[mask]) == "bool":
            scores = g.emit(f"{scores}.masked_fill(~{mask}, {g.choose.choice(('-inf', '-1e4'))})")
        elif mask:
            scores = g.emit(f"{scores} + {mask}", "once")
        weights = g.emit(f"F.softmax({scores}, -1)", "sum")
        merged = g.emit(f"{weights} @ {v}", "sum")
        if g.choose.random() < 0.5:
            g.emit(f"{merged}.transpose(1, 2).reshape({batch}, {queries}, {heads * width})")
