"""Reductions, scans, sorts and norms along dimensions."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.generator import Growth, NoFit, dtype_of
from fuzz.tensors import DTYPES, FLOATS, INTEGERS


def dim_of(g: Growth, a: str) -> int:
    """One dimension of a variable, from the front or the back."""
    rank = g.values[a].dim()
    return g.choose.randint(-rank, rank - 1) if rank else g.choose.choice((0, -1))


def extent_of(g: Growth, a: str, least: int = 1) -> tuple[int, int]:
    """One dimension of a variable, and its extent; raises NoFit where that is less than `least`."""
    dim = dim_of(g, a)
    n = g.values[a].shape[dim]
    if n < least:
        raise NoFit
    return dim, n


def dims_of(g: Growth, a: str) -> str:
    """A list of dimensions as it is written in a call."""
    rank = g.values[a].dim()
    if rank < 2 or g.choose.random() < 0.6:
        return str(dim_of(g, a))
    return str(tuple(sorted(g.choose.sample(range(rank), g.choose.randint(1, rank)))))


def keep(g: Growth) -> str:
    return g.choose.choice((", keepdim=True", ", keepdim=True", "", ""))


@operator(6)
def total(g: Growth) -> None:
    a, name = g.any_of(DTYPES), g.choose.choice(("sum", "sum", "mean", "prod"))
    if name == "mean" and dtype_of(g.values[a]) not in FLOATS:
        name = "sum"
    dims = str(dim_of(g, a)) if name == "prod" else dims_of(g, a)
    dtype = f", dtype=torch.{g.choose.choice(DTYPES)}" if g.choose.random() < 0.08 and not g.plain else ""
    call = (
        f"torch.{name}({a}{dtype})"
        if g.choose.random() < 0.25
        else f"torch.{name}({a}, {dims}{keep(g)}{dtype})"
    )
    g.emit(call, "sum")


@operator(3)
def extreme(g: Growth) -> None:
    a = g.any_of(DTYPES)
    name = g.choose.choice(("amax", "amin"))
    g.emit(f"torch.{name}({a}, {dims_of(g, a)}{keep(g)})")


@operator(2.5, plain=False)
def extreme_of_all(g: Growth) -> None:
    a = g.any_of(DTYPES)
    g.emit(f"{a}.{g.choose.choice(('max', 'min', 'argmax', 'argmin'))}()")


@operator(3, plain=False)
def extreme_with_index(g: Growth) -> None:
    a = g.any_of(DTYPES)
    name, dim = g.choose.choice(("max", "min")), dim_of(g, a)
    if g.choose.random() < 0.4:
        g.emit(f"torch.arg{name}({a}, {dim}{keep(g)})")
    else:
        g.emit(f"torch.{name}({a}, {dim}{keep(g)})", results=2)


@operator(1.5, plain=False)
def truth(g: Growth) -> None:
    a = g.any_of(DTYPES)
    name = g.choose.choice(("any", "all", "count_nonzero"))
    where = "" if g.choose.random() < 0.3 else f", {dim_of(g, a)}"
    g.emit(f"torch.{name}({a}{where})")


@operator(1.5)
def spread(g: Growth) -> None:
    a = g.floating(1)
    name = g.choose.choice(("var", "std", "var", "logsumexp", "norm", "var_mean"))
    if name == "logsumexp":
        g.emit(f"torch.logsumexp({a}, {dims_of(g, a)}{keep(g)})", "sum")
    elif name == "norm":
        order = g.choose.choice(("2", "1", "inf", "3")) if not g.plain else "2"
        g.emit(f"torch.linalg.vector_norm({a}, {order}, {dims_of(g, a)}{keep(g)})", "sum")
    elif name == "var_mean":
        g.emit(f"torch.var_mean({a}, {dims_of(g, a)}{keep(g)})", "sum", 2)
    else:
        correction = g.choose.choice(("", ", correction=0"))
        g.emit(f"torch.{name}({a}, {dims_of(g, a)}{correction}{keep(g)})", "sum")


@operator(2.5)
def scan(g: Growth) -> None:
    a = g.any_of(DTYPES)
    name = g.choose.choice(
        ("cumsum", "cumsum", "cumsum", "cumprod") + (() if g.plain else ("cummax", "cummin"))
    )
    if name in ("cummax", "cummin"):
        g.emit(f"torch.{name}({a}, {dim_of(g, a)})", results=2)
    elif g.choose.random() < 0.2 and dtype_of(g.values[a]) in FLOATS:
        g.emit(f"torch.logcumsumexp({a}, {dim_of(g, a)})", "sum")
    else:
        g.emit(f"torch.{name}({a}, {dim_of(g, a)})", "sum")


@operator(3, plain=False)
def sort(g: Growth) -> None:
    a, down = g.any_of(DTYPES), g.choose.choice((False, True))
    dim = dim_of(g, a)
    if g.choose.random() < 0.5:
        g.emit(f"torch.sort({a}, stable=True, dim={dim}, descending={down})", results=2)
    else:
        g.emit(f"torch.argsort({a}, dim={dim}, descending={down}, stable=True)")


@operator(2.5, plain=False)
def ranked(g: Growth) -> None:
    """Of equal elements any may be named: positions are only used to gather the values."""
    a = g.any_of(DTYPES, 1)
    dim = dim_of(g, a)
    extent = g.values[a].shape[dim]
    k = g.choose.randint(1, max(1, min(extent, 4)))
    name = g.choose.choice(("topk", "topk", "kthvalue", "median"))
    call = {
        "topk": f"torch.topk({a}, {k}, {dim}, {g.choose.choice((True, False))})",
        "kthvalue": f"torch.kthvalue({a}, {k}, {dim}, True)",
        "median": f"torch.median({a}, {dim}, True)",
    }[name]
    values = g.emit(call, results=2)
    positions = f"v{int(values[1:]) + 1}"
    g.unused.pop(positions)
    if not g.values[a].is_floating_point() or not bool(g.values[a].isnan().any()):
        g.emit(f"{a}.gather({dim}, {positions})")
    # Which of several equal elements was found is nobody's to read.
    del g.values[positions]


@operator(0.7, plain=False)
def median_of_all(g: Growth) -> None:
    g.emit(f"{g.any_of((*FLOATS, *INTEGERS))}.{g.choose.choice(('median', 'nanmedian'))}()")


@operator(3)
def softmax(g: Growth) -> None:
    a = g.floating()
    name = g.choose.choice(("softmax", "softmax", "log_softmax", "softmin"))
    dtype = g.choose.choice(("", "", "", ", dtype=torch.float32", ", dtype=torch.float64"))
    g.emit(f"F.{name}({a}, {dim_of(g, a)}{dtype})", "sum")


@operator(0.7, plain=False)
def nan_reductions(g: Growth) -> None:
    a = g.floating()
    g.emit(f"torch.{g.choose.choice(('nansum', 'nanmean'))}({a}, {dim_of(g, a)})", "sum")


@operator(0.7)
def distance(g: Growth) -> None:
    a = g.floating(2, 2)
    form = g.choose.choice(
        (
            "F.normalize({a}, dim=-1)",
            "F.cosine_similarity({a}, {a} * 2 + 1, dim=-1)",
            "torch.diff({a}, dim=0)",
            "{a}.norm()",
            "torch.trace({a})",
        )
    )
    g.emit(form.format(a=a), "sum")


@operator(0.6, plain=False)
def aminmax(g: Growth) -> None:
    a = g.any_of(DTYPES)
    g.emit(f"torch.aminmax({a}, dim={dim_of(g, a)})", results=2)


@operator(0.6, plain=False)
def search(g: Growth) -> None:
    a = g.any_of(("float32", "float64", "int64", "int32"), 0, 3)
    right = g.choose.choice(("", ", right=True"))
    g.emit(f"torch.bucketize({a}, torch.tensor([-1, 0, 1, 3]).to({a}.dtype){right})")
