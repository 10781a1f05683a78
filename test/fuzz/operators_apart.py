"""Positions in several dimensions, beside each other and apart, read and written; scatters of every kind; searches."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.forms import draw_form
from fuzz.generator import Growth, NoFit, dtype_of, elements
from fuzz.operators_elementwise import scalar
from fuzz.operators_indexing import index_into
from fuzz.operators_mutation import target
from fuzz.operators_reductions import dim_of, extent_of
from fuzz.tensors import DTYPES, FLOATS


def _positions(g: Growth, a: str, once: bool) -> str:
    """What stands in the brackets of `a[...]`: one to three tensors of positions, and slices, numbers and `None` around them.

    With `once` no element is named twice, so that what is written there has one meaning.
    """
    shape = g.values[a].shape
    chosen = sorted(g.choose.sample(range(len(shape)), g.choose.randint(1, min(3, len(shape)))))
    if any(not shape[d] for d in chosen):
        raise NoFit
    each = g.choose.randint(1, min(3, *(shape[d] for d in chosen)) if once else 3)
    parts: list[str] = []
    for d, n in enumerate(shape):
        if g.choose.random() < 0.12:
            parts.append("None")
        if d in chosen:
            parts.append(_along(g, n, each, once or g.choose.random() < 0.3))
        elif d > chosen[-1] and g.choose.random() < 0.3:
            break
        else:
            last = f"{n - 1}" if n else "0"
            parts.append(g.choose.choice((":", ":", ":", "1:", "::2", f":{last}", "-1" if n else ":", "0:1")))
    if ":" in parts and g.choose.random() < 0.15:
        at = parts.index(":")
        parts[at] = "..."
    return ", ".join(parts)


def _along(g: Growth, n: int, each: int, once: bool) -> str:
    """Positions in a dimension of `n` elements: a list, a vector or, where they may repeat, any shape that broadcasts."""
    draw = g.choose.random()
    if draw < 0.25:
        listed = (
            g.choose.sample(range(n), each) if each <= n else [g.choose.randrange(n) for _ in range(each)]
        )
        return str([i if g.choose.random() < 0.7 else i - n for i in listed])
    if once:
        return g.new((each,), "int64", f"permutation:{n}" if each <= n else f"index:{n}", "dense")
    return index_into(g, n, g.choose.choice(((each,), (1,), (2, each), (2, 1), ())))


@operator(3)
def indexed_apart(g: Growth) -> None:
    a = g.any_of(DTYPES, 1, 4)
    # By numbers alone eager PyTorch takes a view, which no compiled code can: the position is a value.
    g.emit(f"{a}[{_positions(g, a, once=False)}].clone()")


@operator(2.5, plain=False)
def assigned_apart(g: Growth) -> None:
    a = target(g, 1)
    where = _positions(g, a, once=True)
    part = g.emit(f"{a}[{where}]")
    shape, kind = tuple(g.values[part].shape), dtype_of(g.values[a])
    form = g.choose.choice(
        ("{a}[{w}] = {s}", "{a}[{w}] = {t}", "{a}[{w}] = {t}", "{a}[{w}] += {s}", "{a}[{w}] *= {t}")
    )
    source = ""
    if "{t}" in form:
        few = tuple(n if g.choose.random() < 0.8 else 1 for n in shape)
        source = g.new(few[g.choose.choice((0, 0, 0, len(few) and 1)) :], kind)
    g.mutate(form.format(a=a, w=where, s=scalar(g, kind), t=source), "once")


@operator(1, plain=False)
def accumulated_apart(g: Growth) -> None:
    """`index_put` that adds up where positions repeat, in the first two dimensions or both ways of counting."""
    a = g.any_of(DTYPES, 2, 4)
    shape = g.values[a].shape
    if not shape[0] or not shape[1]:
        raise NoFit
    first, second = index_into(g, shape[0], (2, 1)), index_into(g, shape[1], (3,))
    source = g.new((g.choose.choice((1, 2)), 3, *shape[2:]), dtype_of(g.values[a]))
    g.emit(f"{a}.index_put(({first}, {second}), {source}, accumulate=True)", "sum")


@operator(1.2, plain=False)
def masked_scatter(g: Growth) -> None:
    a = g.any_of(DTYPES)
    mask = g.like(a, "bool")
    wanted = elements(g.values[a].shape)
    source = g.new((g.choose.choice((wanted, wanted + 3)),), dtype_of(g.values[a]))
    if g.choose.random() < 0.3:
        g.mutate(f"{target_like(g, a)}.masked_scatter_({mask}, {source})")
    else:
        g.emit(f"{a}.masked_scatter({mask}, {source})")


def target_like(g: Growth, a: str) -> str:
    return g.emit(f"{a}.clone()")


@operator(2.5, plain=False)
def scattered(g: Growth) -> None:
    """Reductions into the places of an index: each element of several dimensions, or whole rows."""
    a = g.any_of(DTYPES, 1, 4)
    dim, n = extent_of(g, a)
    shape = list(g.values[a].shape)
    if 0 in shape:
        raise NoFit
    include = g.choose.choice(("True", "False"))
    if g.choose.random() < 0.5:
        place = [g.choose.randint(1, m) for m in shape]
        place[dim] = g.choose.randint(1, 5)
        i = g.new(place, "int64", f"index:{n}", "dense")
        source = g.new([m + g.choose.choice((0, 0, 1)) for m in place], dtype_of(g.values[a]))
        mode = g.choose.choice(("sum", "prod", "amax", "amin", "mean"))
        call = f"scatter_reduce({dim}, {i}, {source}, '{mode}', include_self={include})"
    else:
        shape[dim] = g.choose.randint(1, 5)
        i = g.new((shape[dim],), g.choose.choice(("int64", "int32")), f"index:{n}", "dense")
        mode = g.choose.choice(("prod", "amax", "amin", "mean"))
        source = g.new(shape, dtype_of(g.values[a]))
        call = f"index_reduce({dim}, {i}, {source}, '{mode}', include_self={include})"
    g.emit(f"{a}.{call}", "exact" if mode in ("amax", "amin") else "sum")


_SEARCHES = {
    "exact": (
        "torch.searchsorted({number12}.sort(-1).values, {a}, <right=True|right=False|side='left'|out_int32=True>)",
        "torch.searchsorted({number11}, {new}, sorter={a}.argsort(stable=True)<, right=True|>)",
        "torch.searchsorted({number11}.sort().values, <0|1.5|-3>)",
        "torch.bucketize({number}, {number11}.sort().values, <right=True|out_int32=True>)",
        "torch.bucketize(<0|2.5>, {number11}.sort().values)",
        "torch.<tril|triu>_indices(<3|1|0>, <4|2>, <0|-1|2>, dtype=torch.<int64|int32>)",
        "{any2}.rot90(<0|1|2|3|-1|5>, <(0, 1)|(1, 0)|(-1, -2)|(0, -1)>)",
        "torch.combinations({any11}[:5], <1|2|3|0>, with_replacement=<True|False>)",
        "torch.block_diag({any22}, {a}[:1], {a}.t())",
        "torch.block_diag({any11}, {any}[None][:, None].flatten(), {any22})",
        "torch.cartesian_prod({any11}[:4], {a}[:2], {a}[:1])",
        "{any1}.unfold(<0|-1>, <1|2|3>, <1|2|3>)",
        "{any2}.unfold(0, 2, 1).unfold(1, 2, 1)",
        "{any}.take(torch.tensor([[0, -1], [0, 0]]))",
        "{any1}.take_along_dim({a}.argsort(stable=True, dim={dim}), {dim})",
        "{any1}.take_along_dim(torch.zeros_like({a}[:1], dtype=torch.int64), 0)",
        "{any1}.put(torch.tensor([-1, 0])[:{a}.numel()], {a}.flatten()[:2].flip(0))",
        "{any2}.diagonal_scatter(torch.ones_like({a}.diagonal(<1|-1|0>)), <1|-1|0>)",
        "torch.select_scatter({any2}, {a}.select(<1|-1>, 0).flip(0), 1, -1)",
        "torch.slice_scatter({any1}, {a}[1:3].flip(0), 0, 1, 3)",
        "torch.index_select({any1}, {dim}, torch.tensor([0, 0, 0], dtype=torch.<int32|int64>))",
        "torch.index_fill({any1}, {dim}, torch.tensor([0, -1]), {a}.flatten()[0])",
        "torch.index_copy({any1}, 0, torch.tensor([{a}.shape[0] - 1]), {a}[:1])",
        "torch.<alias_copy|detach_copy|squeeze_copy|ravel>({any})",
        "torch.<t_copy|diagonal_copy>({any22})",
        "torch.<unbind_copy|unsqueeze_copy>({any1}, 0)",
        "torch.<transpose_copy({any2}, 0, -1)|permute_copy({any22}, (1, 0))|unfold_copy({any1}, 0, 1, 1)>",
        "torch.unravel_index({at:3;12}, (3, 4))",
        "torch.<hsplit|vsplit>({any2}, [1])",
    ),
    "sum": (
        "{any1}.put(torch.tensor([0, 0, -1]), torch.ones(3, dtype={a}.dtype), accumulate=True)",
        "torch.index_add({any2}, <1|-1>, torch.tensor([0, 0]), {a}[:, [0, 0]], alpha=<2|-1|1>)",
        "{any1}.scatter_add(<0|-1>, torch.zeros_like({a}, dtype=torch.int64), {a})",
        "F.embedding_bag({at:2,3;4}, {t:4,5}, mode='<sum|mean|max>', padding_idx=<0|2>)",
        "F.embedding_bag({at:6;4}, {t:4,5}, torch.tensor([0, 2, 6]), mode='sum', include_last_offset=True)",
        "F.embedding_bag({at:2,3;4}, {t:4,5}, per_sample_weights={t:2,3}, mode='sum')",
        "torch.nn.functional.embedding({at:2,3;4}, {t:4,5}, max_norm=None, scale_grad_by_freq=True)",
    ),
}


@operator(5, plain=False)
def searched(g: Growth) -> None:
    draw_form(g, _SEARCHES)


@operator(1)
def gathered(g: Growth) -> None:
    """Fewer rows than the operand has in dimensions beside the index's own."""
    a = g.any_of(FLOATS, 2, 4)
    value, dim = g.values[a], dim_of(g, a)
    if 0 in value.shape:
        raise NoFit
    shape = [g.choose.randint(1, n) for n in value.shape]
    shape[dim] = g.choose.choice((1, 2, 5))
    i = g.new(
        shape, "int64", f"index:{value.shape[dim]}", g.choose.choice(("dense", "transposed", "expanded"))
    )
    g.emit(f"torch.gather({a}, {dim}, {i})")
