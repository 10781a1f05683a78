"""Pieces of networks, and the shapes of graphs that passes look for, planted into programs."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.generator import Growth, NoFit, dtype_of
from fuzz.operators_products import image
from fuzz.operators_reductions import dim_of
from fuzz.tensors import DTYPES, FLOATS


@operator(2)
def reduced_twice(g: Growth) -> None:
    """Reductions of reductions, broadcast in between."""
    a = g.any_of(DTYPES if not g.plain else FLOATS)
    outer = g.choose.choice(("sum", "amax", "mean", "amin", "prod"))
    if outer == "mean" and dtype_of(g.values[a]) not in FLOATS:
        outer = "sum"
    inner = g.emit(f"{a}.{outer}()", "sum")
    value = g.values[a]
    form = g.choose.choice(("{i}.expand({s})", "{i} + torch.zeros({s}, dtype={i}.dtype)", "{i}.repeat({s})"))
    shape = g.choose.choice(((4,), (2, 3), tuple(value.shape) or (5,)))
    wide = g.emit(form.format(i=inner, s=shape), "once")
    g.emit(f"{wide}.sum({g.choose.choice(('', '0', '-1'))})", "sum")


@operator(2)
def centred(g: Growth) -> None:
    """A norm written out: mean, squares of distances, root."""
    a = g.floating()
    dim = dim_of(g, a)
    mean = g.emit(f"{a}.mean({dim}, keepdim=True)" if g.choose.random() < 0.8 else f"{a}.mean()", "sum")
    centred = g.emit(f"{a} - {mean}", "once")
    squares = g.emit(f"({centred} ** 2).mean({dim}, keepdim=True)", "sum")
    g.emit(f"{centred} * torch.rsqrt({squares} + 1e-5)", "inside")


@operator(1.5)
def softmax_by_hand(g: Growth) -> None:
    a = g.floating()
    dim = dim_of(g, a)
    most = g.emit(f"{a}.amax({dim}, keepdim=True)")
    powers = g.emit(f"({a} - {most}).exp()", "once")
    g.emit(f"{powers} / {powers}.sum({dim}, keepdim=True)", "sum")


@operator(2)
def conv_block(g: Growth) -> None:
    """Convolution, batch norm, activation, and perhaps a shortcut, a pooling or a padding around it."""
    x = image(g)
    kind, channels = dtype_of(g.values[x]), g.values[x].shape[1]
    if g.choose.random() < 0.3:
        x = g.emit(f"F.pad({x}, [{g.choose.choice(('1, 1, 1, 1', '0, 1, 0, 1', '2, 1, 0, 0'))}])")
    filters = g.choose.choice((channels, channels, 4, 8))
    w = g.new((filters, channels, *g.choose.choice(((3, 3), (1, 1), (3, 1)))), kind, "normal")
    y = g.emit(f"F.conv2d({x}, {w}, padding='same')", "window")
    if g.choose.random() < 0.7:
        mean, spread = g.buffer((filters,), kind), g.buffer((filters,), kind, "positive")
        scale, shift = g.new((filters,), kind, "normal"), g.new((filters,), kind, "normal")
        y = g.emit(f"F.batch_norm({y}, {mean}, {spread}, {scale}, {shift}, False)", "sum")
    if g.choose.random() < 0.4 and filters == channels:
        y = g.emit(f"{y} + {x}", "once")
    y = g.emit(f"{g.choose.choice(('F.relu', 'F.silu', 'F.gelu', 'F.hardswish', 'F.relu6'))}({y})", "inside")
    draw = g.choose.random()
    if draw < 0.25:
        g.emit(f"torch.cat(({x}, {y}), 1)")
    elif draw < 0.4:
        g.emit(f"F.max_pool2d({y}, 2)")
    elif draw < 0.5:
        g.emit(f"({y}, {y}[:, :, 1:])[1]")


@operator(1.5)
def mlp(g: Growth) -> None:
    a = g.floating(2, 3)
    kind, width = dtype_of(g.values[a]), g.values[a].shape[-1]
    hidden = g.choose.choice((4, 8, 12, 33))
    w, b = g.new((hidden, width), kind), g.new((hidden,), kind)
    h = g.emit(f"F.linear({a}, {w}, {b})", "sum")
    h = g.emit(f"F.{g.choose.choice(('gelu', 'relu', 'silu'))}({h})", "inside")
    y = g.emit(f"F.linear({h}, {g.new((width, hidden), kind)})", "sum")
    y = g.emit(f"{a} + {y}", "once")
    if g.choose.random() < 0.5:
        g.emit(f"F.layer_norm({y}, ({width},))", "sum")


@operator(1.5)
def class_token(g: Growth) -> None:
    """A constant, a weight or a literal joined before what is computed."""
    a = g.floating(1, 3)
    value, kind = g.values[a], dtype_of(g.values[a])
    if value.dim() < 2:
        literal = ", ".join(str(float(i + 1)) for i in range(3))
        g.emit(f"torch.cat((torch.tensor([{literal}], dtype=torch.{kind}), {a} * 2))")
        return
    token = g.new((1,) * (value.dim() - 1) + (value.shape[-1],), kind, layout="dense")
    token = f"{token}.expand({value.shape[0]}, -1, -1)" if value.dim() == 3 else token
    g.emit(f"torch.cat(({token}, {a}), {1 if value.dim() == 3 else 0})")


@operator(1.5)
def joined_twice(g: Growth) -> None:
    a = g.any_of(DTYPES if not g.plain else FLOATS, 1, 3)
    computed = g.emit(f"{a} + {a}" if dtype_of(g.values[a]) != "bool" else f"~{a}", "once")
    dim = dim_of(g, a)
    g.emit(f"torch.cat(({a}, {computed}), {dim})")
    other = g.choose.choice(
        (
            f"torch.cat(({computed}, {a}), {dim})",
            f"torch.stack(({computed}, {a}))",
            f"F.pad({computed}, [1, 1])",
        )
    )
    g.emit(other)


@operator(1, plain=False)
def mask_arithmetic(g: Growth) -> None:
    """Booleans as numbers: compared, summed, multiplied."""
    a = g.any_of(DTYPES)
    form = g.choose.choice(
        (
            "torch.where({m} > 0, {a}, 2 * {a})",
            "{m}.sum()",
            "{m} * {a}",
            "({m} > 0).to({a}.dtype)",
            "{m}.cumsum(0)",
            "{m} & ({a} > 1)",
            "{m}.float().mean()",
            "torch.ones_like({a}, dtype=torch.bool) > 0",
            "1 - {m}.int()",
        )
    )
    mask = g.emit(f"{g.choose.choice(('{a} > 0', '{a} == {a}', '{a}.isfinite()', '{a} != 1')).format(a=a)}")
    g.emit(form.format(m=mask, a=a), "sum")


@operator(1)
def heads(g: Growth) -> None:
    """Heads split off, permuted, multiplied and merged."""
    batch, length, count, width = (g.choose.choice(c) for c in ((1, 2), (1, 3, 5), (2, 3), (2, 4)))
    x = g.new((batch, length, count * width * 3), "float32")
    q = g.emit(f"{x}.reshape({batch}, {length}, 3, {count}, {width}).permute(2, 0, 3, 1, 4)[0]")
    k = g.emit(f"{x}.reshape({batch}, {length}, 3, {count}, {width}).permute(2, 0, 3, 1, 4)[1]")
    g.emit(f"({q} @ {k}.mT).softmax(-1).transpose(1, 2).flatten(2)", "sum")


@operator(1)
def rotary(g: Growth) -> None:
    x = g.pick(lambda v: dtype_of(v) in FLOATS and v.dim() > 1 and v.shape[-1] % 2 == 0 and v.numel() > 0)
    half = g.values[x].shape[-1] // 2
    turned = g.emit(f"torch.cat((-{x}[..., {half}:], {x}[..., :{half}]), -1)")
    angle = g.new((g.values[x].shape[-2], 2 * half), dtype_of(g.values[x]))
    g.emit(f"{x} * {angle}.cos() + {turned} * {angle}.sin()", "inside")


@operator(0.8, plain=False)
def recurrence(g: Growth) -> None:
    """An unrolled loop over rows."""
    a = g.floating(2, 2)
    if not 1 <= g.values[a].shape[0] <= 4:
        raise NoFit
    state = g.emit(f"torch.zeros({g.values[a].shape[1]}, dtype={a}.dtype)")
    states = []
    for row in range(g.values[a].shape[0]):
        state = g.emit(f"torch.tanh({a}[{row}] + 0.5 * {state})", "inside")
        states.append(state)
    g.emit(f"torch.stack(({', '.join(states)},))")


@operator(0.8, plain=False)
def scalar_graph(g: Growth) -> None:
    """0-d tensors computed, compared, and spread over others."""
    a = g.new((), g.choose.choice(DTYPES))
    b = g.any_of((dtype_of(g.values[a]),))
    form = g.choose.choice(
        (
            "torch.where({b} > {a}, {b}, {a})",
            "torch.minimum({b}, {a})",
            "{b} + {a}.max()",
            "torch.stack(({a}, {a}))",
            "(({b} - {a}.float().mean()) ** 2).sum()",
            "torch.cat(({a}.reshape(1), {b}.flatten()))",
            "torch.where({a} > 0, {a}, {a})",
        )
    )
    g.emit(form.format(a=a, b=b), "sum")


@operator(0.8)
def squeeze_and_excite(g: Growth) -> None:
    x = image(g)
    kind, c = dtype_of(g.values[x]), g.values[x].shape[1]
    pooled = g.emit(
        f"{x}.mean((2, 3))" if g.choose.random() < 0.5 else f"F.adaptive_avg_pool2d({x}, 1).flatten(1)", "sum"
    )
    gate = g.emit(f"torch.sigmoid(F.linear({pooled}, {g.new((c, c), kind)}))", "sum")
    g.emit(f"{x} * {gate}[:, :, None, None]", "once")
