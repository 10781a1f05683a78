"""Concatenations, stacks and paddings, of computed tensors, inputs and constants."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.generator import Growth, dtype_of
from fuzz.operators_reductions import dim_of
from fuzz.tensors import DTYPES, FLOATS


@operator(5)
def cat(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    value = g.values[a]
    dim = dim_of(g, a)
    parts = [a]
    for _ in range(g.choose.randint(1, 3)):
        draw = g.choose.random()
        if draw < 0.15:
            parts.append(a)
        elif draw < 0.4:
            parts.append(g.emit(f"{a} * 2" if dtype_of(value) != "bool" else f"~{a}", "once"))
        else:
            parts.append(_beside(g, a, dim % value.dim()))
    g.choose.shuffle(parts)
    g.emit(f"torch.cat(({', '.join(parts)}), {dim})")
    if g.choose.random() < 0.25:
        g.emit(f"torch.cat(({a}, {g.choose.choice(parts)}), {dim})")


def _beside(g: Growth, a: str, dim: int) -> str:
    """Something that can be joined to a variable along a dimension."""
    value = g.values[a]

    def fits(other) -> bool:
        return other.dim() == value.dim() and all(
            d == dim or m == n for d, (m, n) in enumerate(zip(other.shape, value.shape))
        )

    if g.choose.random() < 0.5:
        same_type = g.choose.random() < 0.85 or g.plain
        found = [n for n in g.names(fits) if not same_type or g.values[n].dtype == value.dtype]
        if found:
            return g.choose.choice(found)
    shape = list(value.shape)
    shape[dim] = g.choose.choice((1, 1, 2, 3, shape[dim]))
    return g.new(shape, dtype_of(value))


@operator(2)
def stack(g: Growth) -> None:
    a = g.any_of(DTYPES, 0, 3)
    value = g.values[a]
    parts = [a] + [
        g.choose.choice(g.names(lambda v: v.shape == value.shape and v.dtype == value.dtype))
        for _ in range(g.choose.randint(1, 2))
    ]
    form = g.choose.choice(
        (
            "torch.stack(({parts}), {dim})",
            "torch.stack(({parts}), {dim})",
            "torch.hstack(({parts}))",
            "torch.vstack(({parts}))",
        )
    )
    g.emit(form.format(parts=", ".join(parts), dim=g.choose.randint(0, value.dim())))


@operator(3)
def pad(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    rank = g.values[a].dim()
    amounts = [
        g.choose.choice((0, 1, 1, 2, 3) if g.choose.random() < 0.9 else (-1, 0))
        for _ in range(2 * g.choose.randint(1, min(2, rank)))
    ]
    value = g.choose.choice(("0", "0", "1", "-inf" if dtype_of(g.values[a]) in FLOATS else "2"))
    mode = g.choose.random()
    if mode < 0.75:
        g.emit(f"F.pad({a}, {amounts}, value={value})")
    else:
        kind = g.choose.choice(("reflect", "replicate", "circular"))
        a = g.floating(2, 4)
        amounts = [g.choose.choice((0, 1, 1, 2)) for _ in range(4 if g.values[a].dim() == 4 else 2)]
        g.emit(f"F.pad({a}, {amounts}, mode='{kind}')")


@operator(1.5)
def pad_twice(g: Growth) -> None:
    """One tensor padded by two amounts, or padded and joined."""
    a = g.floating(2, 4)
    form = g.choose.choice(("F.pad({a}, [1, 1])", "F.pad({a}, [2, 0])", "torch.cat(({a}, {a}), -1)"))
    b = g.emit(f"{a} * 3", "once")
    g.emit(form.format(a=b))
    g.emit(
        g.choose.choice(("F.pad({a}, [0, 2])", "torch.cat(({a}, {c}), 0)", "{a}.sum(0)")).format(a=b, c=a),
        "sum",
    )
