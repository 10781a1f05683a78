"""Gathers, scatters and assignments by index, in range and out of it."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.generator import Growth, NoFit, dtype_of
from fuzz.operators_elementwise import scalar
from fuzz.operators_reductions import dim_of, extent_of
from fuzz.tensors import DTYPES, FLOATS


def index_into(g: Growth, extent: int, shape: tuple[int, ...], negative: bool = True) -> str:
    """An input of positions in a dimension; seldom one that reaches out of it."""
    if extent < 1:
        raise NoFit
    kind = "signed" if negative and g.choose.random() < 0.3 else "index"
    dtype = "int64" if g.choose.random() < 0.85 else "int32"
    return g.new(shape, dtype, f"{kind}:{extent}", "dense" if g.choose.random() < 0.8 else "strided")


@operator(3)
def gather(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    dim = dim_of(g, a)
    shape = list(g.values[a].shape)
    if 0 in shape:
        raise NoFit
    shape[dim] = g.choose.choice((1, 2, 3, 5))
    form = g.choose.choice(("torch.gather({a}, {dim}, {i})", "torch.take_along_dim({a}, {i}, {dim})"))
    i = g.new(shape, "int64", f"index:{g.values[a].shape[dim]}", "dense")
    g.emit(form.format(a=a, dim=dim, i=i))


@operator(3)
def index_select(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    dim = dim_of(g, a)
    i = index_into(g, g.values[a].shape[dim], (g.choose.choice((1, 2, 3, 5)),), negative=False)
    g.emit(f"torch.index_select({a}, {dim}, {i})")


@operator(3)
def index(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    value = g.values[a]
    rank = g.choose.choice((0, 1, 1, 2))
    shape = tuple(g.choose.choice((1, 2, 3)) for _ in range(rank))
    i = index_into(g, value.shape[0], shape)
    form = "{a}[{i}]"
    if value.dim() > 1:
        form = g.choose.choice(("{a}[{i}]", "{a}[:, {j}]", "{a}[{i}, {j}]", "{a}[{i}, 1:]", "{a}[..., {k}]"))
    names = {"a": a, "i": i}
    if "{j}" in form:
        names["j"] = index_into(g, value.shape[1], shape)
    if "{k}" in form:
        names["k"] = index_into(g, value.shape[-1], shape)
    # By a 0-d index eager PyTorch takes a view, which no compiled code can: the position is a value.
    g.emit(form.format(**names) + (".clone()" if not rank else ""))


@operator(2)
def embedding(g: Growth) -> None:
    rows, width = g.choose.choice((1, 3, 10)), g.choose.choice((1, 4, 8))
    table = g.new((rows, width), g.choose.choice(FLOATS))
    shape = tuple(g.choose.choice((1, 2, 3)) for _ in range(g.choose.choice((0, 1, 2))))
    g.emit(f"F.embedding({index_into(g, rows, shape, negative=False)}, {table})")


@operator(3, plain=False)
def scatter(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    value = g.values[a]
    dim = dim_of(g, a) % value.dim()
    shape = list(value.shape)
    if 0 in shape:
        raise NoFit
    adding = g.choose.random() < 0.5
    if adding:
        shape[dim] = g.choose.choice((1, 2, 4))
        i = g.new(shape, "int64", f"index:{value.shape[dim]}", "dense")
    else:
        # Positions that are written twice have no defined result: each position is written at most once.
        shape = [1] * value.dim()
        shape[dim] = g.choose.randint(1, value.shape[dim])
        i = g.new(shape, "int64", f"permutation:{value.shape[dim]}", "dense")
    source = g.new(shape, dtype_of(value))
    form = "torch.scatter_add({a}, {dim}, {i}, {s})" if adding else "torch.scatter({a}, {dim}, {i}, {s})"
    if not adding and g.choose.random() < 0.3:
        source = scalar(g, dtype_of(value))
    if adding and g.choose.random() < 0.4:
        reduce = g.choose.choice(("sum", "prod", "amax", "amin", "mean"))
        include = g.choose.choice(("", ", include_self=False"))
        form = f"torch.scatter_reduce({{a}}, {{dim}}, {{i}}, {{s}}, '{reduce}'{include})"
    g.emit(form.format(a=a, dim=dim, i=i, s=source), "sum")


@operator(2.5, plain=False)
def index_write(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    value = g.values[a]
    dim, n = extent_of(g, a)
    dim %= value.dim()
    count = g.choose.randint(1, min(n, 4))
    shape = list(value.shape)
    shape[dim] = count
    name = g.choose.choice(("index_add", "index_add", "index_copy", "index_fill"))
    fill = f"index:{n}" if name in ("index_add", "index_fill") else f"permutation:{n}"
    i = g.new((count,), "int64", fill, "dense")
    if name == "index_fill":
        g.emit(f"{a}.index_fill({dim}, {i}, {scalar(g, dtype_of(value))})")
    else:
        g.emit(f"torch.{name}({a}, {dim}, {i}, {g.new(shape, dtype_of(value))})", "sum")


@operator(2, plain=False)
def index_put(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    value = g.values[a]
    n = value.shape[0]
    if not n:
        raise NoFit
    count = g.choose.randint(1, min(n, 4))
    adding = g.choose.random() < 0.5
    i = g.new((count,), "int64", f"index:{n}" if adding else f"permutation:{n}", "dense")
    source = g.new((count, *value.shape[1:]), dtype_of(value))
    if g.choose.random() < 0.2:
        source = f"{source}[:1]"
    g.emit(f"torch.index_put({a}, ({i},), {source}, accumulate={adding})", "sum")


@operator(0.8, plain=False)
def one_hot(g: Growth) -> None:
    classes = g.choose.choice((2, 5))
    shape = tuple(g.choose.choice((1, 2, 4)) for _ in range(g.choose.choice((0, 1, 2))))
    g.emit(f"F.one_hot({g.new(shape, 'int64', f'index:{classes}', 'dense')}, {classes})")


@operator(1)
def cross_entropy(g: Growth) -> None:
    a = g.floating(2, 2)
    rows, classes = g.values[a].shape
    i = index_into(g, classes, (rows,), negative=False)
    if dtype_of(g.values[i]) != "int64":
        i = g.emit(f"{i}.long()")
    form = g.choose.choice(("F.cross_entropy({a}, {i})", "F.cross_entropy({a}, {i}, reduction='none')"))
    g.emit(form.format(a=a, i=i), "sum")


@operator(1.5, plain=False)
def slice_scatter(g: Growth) -> None:
    a = g.any_of(DTYPES, 1)
    value = g.values[a]
    n = value.shape[0]
    if n < 2:
        raise NoFit
    first = g.choose.randint(0, n - 1)
    last = g.choose.randint(first + 1, n)
    if g.choose.random() < 0.5:
        source = g.new((last - first, *value.shape[1:]), dtype_of(value))
        g.emit(f"torch.slice_scatter({a}, {source}, 0, {first}, {last})")
    else:
        source = g.new(value.shape[1:], dtype_of(value))
        g.emit(f"torch.select_scatter({a}, {source}, 0, {first})")


@operator(0.6, plain=False)
def take(g: Growth) -> None:
    a = g.any_of(DTYPES)
    g.emit(f"torch.take({a}, {index_into(g, g.values[a].numel(), (3,))})".replace("int32", "int64"))


FAULTY = (
    "{a}[{i}]",
    "torch.index_select({a}, 0, {i})",
    "torch.gather({a}, 0, {wide})",
    "F.embedding({i}, {a})",
    "torch.index_add({a}, 0, {i}, {s})",
    "torch.index_copy({a}, 0, {i}, {s})",
    "torch.index_put({a}, ({i},), {s})",
    "torch.scatter({a}, 0, {wide}, {s})",
    "torch.scatter_add({a}, 0, {wide}, {s})",
    "F.one_hot({i}, {n})",
)
"""Forms whose index is out of range when `i` is: eager PyTorch raises."""


def faulty(g: Growth) -> None:
    """Ends a program by an index that is out of range: eager PyTorch raises, and so must we."""
    a = g.any_of(DTYPES, 2, 2)
    n, width = g.values[a].shape
    if not n or not width:
        raise NoFit
    form = g.choose.choice(FAULTY)
    i = g.new((2, width) if "{wide}" in form else (2,), "int64", f"faulty:{n}", "dense")
    names = {"a": a, "i": i, "wide": i, "n": n}
    if "{s}" in form:
        names["s"] = g.new((2, width), dtype_of(g.values[a]))
    try:
        g.emit(form.format(**names))
    except NoFit as refused:
        if "index" in str(refused) or "Class values" in str(refused):
            g.expect_failure(form.format(**names))
            return
        raise
