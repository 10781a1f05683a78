"""Views, copies and rearrangements that move elements without computing."""

from __future__ import annotations

import math

from fuzz.catalogue import operator
from fuzz.generator import Growth, NoFit
from fuzz.operators_reductions import dim_of, extent_of
from fuzz.tensors import DTYPES


@operator(5)
def slice_(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    parts = []
    for n in g.values[a].shape[: g.choose.randint(1, g.values[a].dim())]:
        draw = g.choose.random()
        if draw < 0.3 or n == 0:
            parts.append(":")
        elif draw < 0.5:
            parts.append(str(g.choose.randint(-n, n - 1)))
        else:
            first = g.choose.randint(0, n - 1)
            last = g.choose.randint(first, n)
            step = g.choose.choice(("", "", "", ":2", ":3"))
            parts.append(f"{first or ''}:{last if last != n else ''}{step}")
    if g.choose.random() < 0.12:
        parts.insert(g.choose.randint(0, len(parts)), "None")
    if g.choose.random() < 0.1:
        parts.insert(0, "...")
    g.emit(f"{a}[{', '.join(parts)}]")


@operator(2)
def select(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    dim, n = extent_of(g, a)
    form = g.choose.choice(
        ("{a}.select({dim}, {i})", "{a}.narrow({dim}, {s}, {l})", "torch.unbind({a}, {dim})[{i}]")
    )
    start = g.choose.randint(0, n - 1)
    g.emit(
        form.format(a=a, dim=dim, i=g.choose.randint(-n, n - 1), s=start, l=g.choose.randint(1, n - start))
    )


@operator(4)
def permute(g: Growth) -> None:
    a = g.any_of(DTYPES, 2)
    rank = g.values[a].dim()
    order = list(range(rank))
    g.choose.shuffle(order)
    i, j = g.choose.sample(range(rank), 2)
    form = g.choose.choice(
        ("{a}.permute({order})", "{a}.transpose({i}, {j})", "{a}.movedim({i}, {j})", "{a}.mT")
    )
    g.emit(form.format(a=a, order=order, i=i, j=j))


@operator(4)
def reshape(g: Growth) -> None:
    a = g.any_of(DTYPES)
    value = g.values[a]
    shape = _factors(g, value.numel()) if value.numel() else [0, g.choose.randint(1, 4)]
    if g.choose.random() < 0.3:
        shape.insert(g.choose.randint(0, len(shape)), 1)
    form = g.choose.choice(
        (
            "{a}.reshape({shape})",
            "{a}.reshape({shape})",
            "{a}.view({shape})",
            "{a}.flatten()",
            "{a}.reshape(-1)",
            "{a}.contiguous().view({shape})",
            "torch.ravel({a})",
        )
    )
    g.emit(form.format(a=a, shape=tuple(shape)))


def _factors(g: Growth, count: int) -> list[int]:
    """A shape of `count` elements."""
    shape = []
    while count > 1 and len(shape) < 3:
        divisors = [d for d in range(2, count + 1) if count % d == 0]
        chosen = g.choose.choice(divisors)
        shape.append(chosen)
        count //= chosen
    if count > 1:
        shape.append(count)
    return shape


@operator(3)
def unit_dims(g: Growth) -> None:
    a = g.any_of(DTYPES)
    rank = g.values[a].dim()
    form = g.choose.choice(
        ("{a}.unsqueeze({d})", "{a}.squeeze()", "{a}.squeeze({e})", "{a}[None]", "{a}[..., None]")
    )
    g.emit(form.format(a=a, d=g.choose.randint(-rank - 1, rank), e=dim_of(g, a)))


@operator(3)
def expand(g: Growth) -> None:
    a = g.any_of(DTYPES, 0, 3)
    shape = [n if n != 1 else g.choose.choice((1, 2, 3, 5)) for n in g.values[a].shape]
    if g.choose.random() < 0.5:
        shape.insert(0, g.choose.choice((1, 2, 3, 4)))
    form = g.choose.choice(("{a}.expand({shape})", "torch.broadcast_to({a}, {shape})"))
    g.emit(form.format(a=a, shape=tuple(shape)))


@operator(1.5)
def repeat(g: Growth) -> None:
    a = g.any_of(DTYPES, 0, 3)
    counts = tuple(g.choose.choice((1, 2, 3)) for _ in range(max(1, g.values[a].dim())))
    form = g.choose.choice(
        ("{a}.repeat({counts})", "torch.tile({a}, {counts})", "{a}.repeat_interleave(2, {dim})")
    )
    g.emit(form.format(a=a, counts=counts, dim=dim_of(g, a)))


@operator(2)
def roll(g: Growth) -> None:
    a = g.any_of(DTYPES)
    rank = g.values[a].dim()
    if rank > 1 and g.choose.random() < 0.4:
        dims = tuple(g.choose.sample(range(rank), 2))
        g.emit(f"{a}.roll({tuple(g.choose.randint(-9, 9) for _ in dims)}, {dims})")
    elif rank and g.choose.random() < 0.8:
        g.emit(f"{a}.roll({g.choose.randint(-9, 9)}, {dim_of(g, a)})")
    else:
        g.emit(f"{a}.roll({g.choose.randint(-9, 9)})")


@operator(1.5)
def flip(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    rank = g.values[a].dim()
    dims = g.choose.sample(range(rank), g.choose.randint(1, rank))
    form = "torch.rot90({a}, 1, (0, 1))" if rank > 1 and g.choose.random() < 0.2 else "{a}.flip({dims})"
    g.emit(form.format(a=a, dims=dims))


@operator(1.5)
def split(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    dim, n = extent_of(g, a, 2)
    form = g.choose.choice(("torch.chunk({a}, {k}, {dim})", "torch.split({a}, {size}, {dim})"))
    k = g.choose.randint(2, 3)
    size = g.choose.randint((n + 3) // 4, n)
    results = math.ceil(n / math.ceil(n / k)) if "chunk" in form else math.ceil(n / size)
    if results == 1:
        raise NoFit
    g.emit(form.format(a=a, k=k, size=size, dim=dim), results=results)


@operator(1)
def triangle(g: Growth) -> None:
    a = g.any_of(DTYPES, 2)
    g.emit(f"torch.{g.choose.choice(('tril', 'triu'))}({a}, {g.choose.randint(-2, 2)})")


@operator(1)
def diagonal(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    if g.values[a].dim() == 1:
        g.emit(f"torch.{g.choose.choice(('diag', 'diag_embed'))}({a})")
    else:
        g.emit(f"torch.diagonal({a}, {g.choose.randint(-1, 1)}, 0, 1)")


@operator(1)
def windows(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    dim, n = extent_of(g, a, 2)
    size = g.choose.randint(1, min(n, 4))
    g.emit(f"{a}.unfold({dim}, {size}, {g.choose.randint(1, 3)})")


@operator(1.5)
def copies(g: Growth) -> None:
    a = g.any_of(DTYPES)
    form = g.choose.choice(
        ("{a}.clone()", "{a}.contiguous()", "{a}.detach()", "{a}.view_as({a})", "{a}.expand_as({a})")
    )
    g.emit(form.format(a=a))


@operator(0.5, plain=False)
def strided(g: Growth) -> None:
    a = g.pick(lambda v: v.is_contiguous() and v.numel() >= 6 and v.storage_offset() == 0)
    g.emit(f"torch.as_strided({a}, {g.choose.choice(('(2, 2), (2, 1)', '(3,), (2,)', '(2, 3), (1, 1), 1'))})")


@operator(0.8)
def shuffles(g: Growth) -> None:
    a = g.pick(lambda v: v.dim() == 4 and v.shape[1] % 4 == 0 and v.numel() > 0)
    form = g.choose.choice(("F.pixel_shuffle({a}, 2)", "F.channel_shuffle({a}, 2)"))
    g.emit(form.format(a=a))
