"""Writes in place: into inputs, buffers, fresh tensors and views of them."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.generator import Growth, NoFit, dtype_of
from fuzz.operators_elementwise import scalar
from fuzz.operators_reductions import dim_of
from fuzz.tensors import DTYPES, FLOATS


def target(g: Growth, least: int = 0) -> str:
    """A variable to write into: often a fresh copy, else an input, a view of one, or any variable."""
    draw = g.choose.random()
    if draw < 0.45:
        return g.emit(f"{g.any_of(DTYPES, least)}.clone()")
    names = g.names(lambda v: v.dim() >= least and not overlapping(v))
    names = [n for n in names if n[0] != "c" and (draw < 0.7 or n[0] != "x")]
    if not names:
        raise NoFit
    return g.choose.choice(names)


def overlapping(value) -> bool:
    """Whether elements share memory, as in an expanded tensor."""
    return any(step == 0 and n > 1 for n, step in zip(value.shape, value.stride())) or (
        value._is_view() and False
    )


@operator(4, plain=False)
def update(g: Growth) -> None:
    a = target(g)
    kind = dtype_of(g.values[a])
    names = [
        "add_",
        "mul_",
        "copy_",
        "sub_",
        "clamp_",
        "zero_",
        "fill_",
        "relu_",
        "neg_",
        "masked_fill_",
        "exp_",
        "div_",
        "abs_",
    ]
    name = g.choose.choice(names)
    if name in ("add_", "mul_", "sub_", "div_"):
        b = g.like(a) if g.choose.random() < 0.6 else scalar(g, kind)
        g.mutate(f"{a}.{name}({b})", "once")
    elif name == "copy_":
        g.mutate(f"{a}.copy_({g.like(a)})")
    elif name == "fill_":
        g.mutate(f"{a}.fill_({scalar(g, kind)})")
    elif name == "clamp_":
        g.mutate(f"{a}.clamp_(0, 2)")
    elif name == "masked_fill_":
        g.mutate(f"{a}.masked_fill_({g.like(a, 'bool')}, {scalar(g, kind)})")
    else:
        g.mutate(f"{a}.{name}()", "once")


@operator(4, plain=False)
def assign(g: Growth) -> None:
    a = target(g, 1)
    value = g.values[a]
    kind, n = dtype_of(value), value.shape[0]
    if not n:
        raise NoFit
    first = g.choose.randint(0, n - 1)
    last = g.choose.randint(first + 1, n)
    where = g.choose.choice(
        (
            f"{first}:{last}",
            f"{first}",
            f"..., {first if value.dim() == 1 else ':1'}",
            f"{first}::2",
            "mask",
            "mask",
        )
    )
    if where == "mask":
        mask = g.emit(f"{a} > {scalar(g, kind)}") if g.choose.random() < 0.6 else g.new(value.shape, "bool")
        g.mutate(f"{a}[{mask}] = {scalar(g, kind)}")
        return
    part = g.emit(f"{a}[{where}]")
    shape = tuple(g.values[part].shape)
    if g.choose.random() < 0.5:
        g.mutate(f"{a}[{where}] = {scalar(g, kind)}")
    elif g.choose.random() < 0.5:
        g.mutate(f"{part}.{g.choose.choice(('add_', 'mul_'))}({scalar(g, kind)})", "once")
    else:
        source = next(
            (n for n in g.names(lambda v: tuple(v.shape) == shape and dtype_of(v) == kind) if n != part), None
        )
        g.mutate(f"{a}[{where}] = {source or g.new(shape, kind)}")


@operator(2, plain=False)
def write_through_view(g: Growth) -> None:
    """A view of a view is written, and everything that shares its memory changes."""
    a = target(g, 1)
    value = g.values[a]
    view = a
    for _ in range(g.choose.randint(1, 3)):
        rank = g.values[view].dim()
        form = g.choose.choice(
            (
                "{v}.flatten()",
                "{v}[:1]",
                "{v}.transpose(0, -1)",
                "{v}.view(-1)",
                "{v}.unsqueeze(0)",
                "{v}[..., ::2]",
                "{v}.squeeze()",
            )
        )
        if rank == 0:
            break
        view = g.emit(form.format(v=view))
    g.mutate(f"{view}.{g.choose.choice(('add_(1)', 'mul_(2)', 'zero_()', 'fill_(1)'))}", "once")
    if g.choose.random() < 0.5:
        g.emit(f"{a} * 2" if dtype_of(value) != "bool" else f"~{a}", "once")


@operator(1.5, plain=False)
def indexed_update(g: Growth) -> None:
    a = target(g, 1)
    value = g.values[a]
    dim = dim_of(g, a)
    n = value.shape[dim]
    if not n:
        raise NoFit
    count = g.choose.randint(1, min(n, 3))
    shape = list(value.shape)
    shape[dim] = count
    i = g.new((count,), "int64", f"permutation:{n}", "dense")
    name = g.choose.choice(("index_add_", "index_copy_", "index_fill_"))
    if name == "index_fill_":
        g.mutate(f"{a}.index_fill_({dim}, {i}, {scalar(g, dtype_of(value))})")
    else:
        g.mutate(f"{a}.{name}({dim}, {i}, {g.new(shape, dtype_of(value))})", "sum")


@operator(0.6, plain=False)
def statistics(g: Growth) -> None:
    """A batch norm in training mode, whose running statistics are written."""
    a = g.any_of(FLOATS[:2], 2)
    value, kind = g.values[a], dtype_of(g.values[a])
    if value.dim() < 2 or value.numel() // max(1, value.shape[1]) < 2:
        raise NoFit
    c = value.shape[1]
    mean, scale = g.buffer((c,), kind), g.buffer((c,), kind, "positive")
    g.emit(f"F.batch_norm({a}, {mean}, {scale}, None, None, True)", "sum")
