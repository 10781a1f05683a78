"""Writes in place: into inputs, buffers, fresh tensors and views of them."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.forms import written
from fuzz.generator import Growth, NoFit, dtype_of
from fuzz.operators_elementwise import scalar
from fuzz.operators_reductions import extent_of
from fuzz.tensors import DTYPES, FLOATS


def target(g: Growth, least: int = 0) -> str:
    """A variable to write into: often a fresh copy, else an input, a view of one, or any variable."""
    draw = g.choose.random()
    if draw < 0.45:
        return g.emit(f"{g.any_of(DTYPES, least)}.clone()")
    windows = unfolded(g)
    names = g.names(lambda v: v.dim() >= least and not overlapping(v))
    names = [n for n in names if n[0] != "c" and n not in windows and (draw < 0.7 or n[0] != "x")]
    if not names:
        raise NoFit
    return g.choose.choice(names)


def unfolded(g: Growth) -> set[str]:
    """Variables that came of `unfold`: PyTorch's functionalisation loses what lies between windows that are written."""
    found: set[str] = set()
    for statement in g.statements:
        if ".unfold(" in statement.source or found.intersection(statement.uses()):
            found.update(statement.targets)
    return found


def overlapping(value) -> bool:
    """Whether elements share memory, as in an expanded tensor."""
    return any(step == 0 and n > 1 for n, step in zip(value.shape, value.stride()))


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
    dim, n = extent_of(g, a)
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


_IN_PLACE = (
    "{a}.<sigmoid|tanh|floor|ceil|round|trunc|sqrt|rsqrt|reciprocal|sign|log1p|erf|sin|square|frac|nan_to_num>_()",
    "{a}.<pow_(2)|clamp_min_(0)|clamp_max_(1)|clip_(-1, 1)|fmod_(3)|remainder_(-2)|floor_divide_(2)|sub_(1)>",
    "{a}.<eq_|ne_|lt_|ge_|copysign_|atan2_|fmod_|logical_and_|bitwise_or_|floor_divide_|mul_|add_|div_>({like})",
    "{a}.<add_|mul_|sub_|copy_>({other})",
    "{a}.<lerp_({like}, 0.3)|addcmul_({like}, {like}, value=2)|addcdiv_({like}, {positive})>",
    "{a}.<logical_not_()|bitwise_not_()|logical_xor_({like})|bitwise_and_(3)|__ilshift__(1)>",
    "{a}.<cumsum_(0)|cumprod_(-1)|tril_()|triu_(1)|fill_diagonal_(1)|renorm_(2, 0, 1.0)>",
    "{a}.<scatter_|scatter_add_>(0, torch.zeros_like({a}[:1], dtype=torch.int64), {a}[:1].clone())",
    "{a}.scatter_(0, torch.zeros_like({a}[:1], dtype=torch.int64), <2|0>)",
    "{a}.scatter_reduce_(0, torch.zeros_like({a}, dtype=torch.int64), {a}.clone(), '<sum|amax|prod>')",
    "{a}.index_put_((torch.tensor([0, 0]),), torch.ones(1, dtype={a}.dtype), accumulate=<True|False>)",
    "{a}.put_(torch.tensor([0]), torch.ones(1, dtype={a}.dtype))",
    "{a} <+|-|*>= {like}",
    "{a} <+|-|*|/|//|%>= <2|1|3|0.5|True>",
    "{a} **= <2|1|3|0.5>",  # of booleans PyTorch's tracer has no powers that are booleans
    "{a} <&|^>= {like}",
    "F.<relu|relu6|hardtanh|leaky_relu|elu|silu|hardswish|selu|celu|hardsigmoid>({a}, inplace=True)",
    "torch.<exp|abs|neg|sin|relu_>({a}, out={a})",
)

_INTO_VIEWS = (
    "{a}.unbind(<0|-1>)[<0|-1>].<add_(1)|mul_(2)|zero_()>",
    "{a}.<chunk(2)|split(1)|split([1, {a}.shape[0] - 1])|tensor_split(2)>[-1].<add_(1)|fill_(2)>",
    "{a}[..., None, :<1|-1>].<add_(1)|mul_(2)>",
    "{a}[1:][:1].<mul_(2)|copy_({a}[:1].clone())>",
    "{a}[<:1|-1|::2|..., -1|..., ::2|1:|None, 0|True>] <+|*|->= <1|2>",
    "{a}[<:1|-1|::2|..., -1|..., 1:|()|None, 0|...|:0>] = <1|0|2.5|True>",
    "{a}[<:1|-1:|..., :1>] = {a}[<:1|-1:|..., -1:>].clone()",
    "{a}[[0, -1]] = <1|0|{a}[[-1, 0]]>",
    "{a}[..., [0]] = <2|1>",
    "{a}[..., [0]] += 1",
    "{a}[{a} > 0] = <0|1>",
    "{a}[{a}.isfinite() & ({a} > 1)] = 1",
    "{a}[torch.arange({a}.shape[0]) % 2 == 0] = <1|0>",
    "{a}[0], {a}[-1] = {a}[-1].clone(), {a}[0].clone()",
    "{a}.select(0, -1).copy_({a}.select(0, 0).clone())",
    "{a}.narrow(-1, 0, 1).<zero_()|fill_(1)|neg_()>",
    "{a}.view(-1)[:1].fill_(<3|1>)",
    "{a}.reshape(-1)[-1:].add_(1)",
    "{a}.diagonal().<zero_()|fill_(1)|add_(1)>",
    "{a}.<t()|mT|transpose(0, -1)|movedim(0, -1)|flatten()|squeeze()|unsqueeze(-1)|flip(0)>.<add_(1)|mul_(2)|zero_()>",
    "{a}.<t()|mT>[0] = 1",
    "{a}.unflatten(0, (1, -1))[0, :1] = 1",
    "{a}.expand(1, *{a}.shape)[0].mul_(2)",
    "{a}.detach().add_(1)",
    "{a}.data[:1].zero_()",
    "{a}.swapaxes(0, -1)[1:].unsqueeze(0).squeeze(0).<sub_(1)|masked_fill_({a}.isnan().any(), 1)>",
    "{a}.masked_fill_({mask}, <1|0|True>)",
    "{a}.index_fill_(<0|-1>, torch.tensor([0]), <1|2>)",
    "torch.where({a} > 0, {a}, 1).<add_(1)|zero_()>",
)


@operator(6, plain=False)
def in_place(g: Growth) -> None:
    g.mutate(written(g, g.choose.choice(_IN_PLACE), target(g, g.choose.choice((0, 1)))), "sum")


@operator(6, plain=False)
def into_views(g: Growth) -> None:
    g.mutate(written(g, g.choose.choice(_INTO_VIEWS), target(g, g.choose.choice((1, 1, 2)))), "once")
