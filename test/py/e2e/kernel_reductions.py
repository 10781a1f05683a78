"""Random reductions: sums and extrema over any axes, pooling, softmax, norms, scans, sorting."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from kernel_draws import FLOATS, INTEGERS, Case, Draw


def axes(draw: Draw, rank: int) -> list[int]:
    """Some axes of `rank`, never none."""
    return sorted(draw.random.sample(range(rank), draw.random.randint(1, rank)))


def count(shape: tuple[int, ...], over: list[int]) -> int:
    return math.prod(shape[d] for d in over)


def sums(draw: Draw) -> Case:
    shape = draw.shape(draw.random.randint(1, 4))
    over, keep = axes(draw, len(shape)), draw.flip()
    form = draw.pick(["sum", "sum", "mean", "square_sum", "of_ints", "all", "then_add"])
    # Eager rounds the sum before it adds.
    dtype = draw.dtype(FLOATS[:2] if form == "then_add" else FLOATS)
    terms = count(shape, over)
    name = f"sums {form} {[*shape]} over {over} {keep} {dtype}"
    x = draw.tensor(shape, dtype)
    if form == "mean":
        return Case(name, lambda x: x.mean(over, keep), (x,), (), terms)
    if form == "square_sum":
        return Case(name, lambda x: (x.float() * x.float()).sum(over, keep), (x.float(),), (), terms)
    if form == "of_ints":
        kind = draw.pick([*INTEGERS, torch.bool])
        return Case(f"{name} {kind}", lambda x: x.sum(over, keep), (draw.tensor(shape, kind),), (), 0)
    if form == "all":
        return Case(name, lambda x: x.sum(), (x,), (), math.prod(shape))
    if form == "then_add":
        return Case(name, lambda x: x + x.sum(over, True), (x,), (), terms + 300)
    return Case(name, lambda x: x.sum(over, keep), (x,), (), terms)


def extrema(draw: Draw) -> Case:
    shape = draw.shape(draw.random.randint(1, 4))
    over, keep = axes(draw, len(shape)), draw.flip()
    axis = over[0]
    form = draw.pick(
        ["amax", "amin", "max", "min", "argmax", "argmin", "amax_special", "amin_special", "aminmax"]
    )
    dtype = draw.dtype((*FLOATS, *INTEGERS))
    x = draw.tensor(shape, dtype)
    if form.endswith("special"):
        dtype = draw.dtype()
        x = draw.special(shape, dtype)
    name = f"extrema {form} {[*shape]} over {over} {keep} {dtype}"
    if form.startswith("arg"):
        # Ties have no promised winner, so the values are all different.
        x = (
            torch.randperm(x.numel(), generator=draw.generator)
            .reshape(shape)
            .to(torch.float32 if draw.flip() else torch.int64)
        )
    functions = {
        "amax": lambda x: x.amax(over, keep),
        "amin": lambda x: x.amin(over, keep),
        "max": lambda x: x.max(axis, keep).values,
        "min": lambda x: x.min(axis, keep).values,
        "argmax": lambda x: x.argmax(axis, keep),
        "argmin": lambda x: x.argmin(axis, keep),
        "amax_special": lambda x: x.amax(over, keep) + 0.0,
        "amin_special": lambda x: x.amin(over, keep) + 0.0,
        "aminmax": lambda x: tuple(torch.aminmax(x, dim=axis, keepdim=keep)),
    }
    return Case(name, functions[form], (x,), (), 0)


def products(draw: Draw) -> Case:
    shape = draw.shape(draw.random.randint(1, 3), 300)
    axis = draw.random.randrange(len(shape))
    form = draw.pick(["prod", "prod_int", "any", "all", "any_all_axes", "count_nonzero", "logical"])
    name = f"products {form} {[*shape]} over {axis}"
    flags = draw.tensor(shape, torch.bool)
    if form == "prod":
        x = (draw.tensor(shape, torch.float64) * 0.2 + 1).to(draw.dtype(FLOATS[:2]))
        return Case(f"{name} {x.dtype}", lambda x: x.prod(axis), (x,), (), shape[axis] + 4)
    if form == "prod_int":
        kind = draw.pick(INTEGERS)
        return Case(f"{name} {kind}", lambda x: x.prod(axis), (draw.tensor(shape, kind),), (), 0)
    if form == "any":
        return Case(name, lambda x: x.any(axis), (flags & draw.tensor(shape, torch.bool),), (), 0)
    if form == "all":
        return Case(name, lambda x: x.all(axis, True), (flags | draw.tensor(shape, torch.bool),), (), 0)
    if form == "any_all_axes":
        return Case(name, lambda x: (x.any(), x.all()), (flags,), (), 0)
    if form == "count_nonzero":
        return Case(name, lambda x: torch.count_nonzero(x, axis), (draw.tensor(shape) * flags,), (), 0)
    return Case(name, lambda x: (x > 0).any(axis) & (x < 1).all(axis), (draw.tensor(shape),), (), 0)


def statistics(draw: Draw) -> Case:
    shape = draw.shape(draw.random.randint(1, 3))
    over = axes(draw, len(shape))
    if count(shape, over) == 1:
        shape = (7, *shape[1:])
        over = [0]
    form = draw.pick(["var", "var0", "std", "norm2", "norm1", "norminf", "logsumexp", "var_mean", "norm3"])
    dtype = draw.dtype()
    x = draw.tensor(shape, dtype)
    name = f"statistics {form} {[*shape]} over {over} {dtype}"
    functions = {
        "var": lambda x: x.var(over),
        "var0": lambda x: x.var(over, correction=0, keepdim=True),
        "std": lambda x: x.std(over),
        "norm2": lambda x: torch.linalg.vector_norm(x, 2, over),
        "norm1": lambda x: torch.linalg.vector_norm(x, 1, over),
        "norm3": lambda x: torch.linalg.vector_norm(x, 3, over),
        "norminf": lambda x: torch.linalg.vector_norm(x, float("inf"), over),
        "logsumexp": lambda x: torch.logsumexp(x, over),
        "var_mean": lambda x: torch.var_mean(x, over),
    }
    return Case(name, functions[form], (x,), slack=8 + 2 * math.sqrt(count(shape, over)))


def softmax(draw: Draw) -> Case:
    shape = draw.shape(draw.random.randint(1, 4))
    axis = draw.random.randrange(len(shape))
    form = draw.pick(["softmax", "softmax", "log_softmax", "softmin", "scaled", "masked", "large"])
    dtype = draw.dtype()
    x = draw.tensor(shape, dtype)
    name = f"{form} {[*shape]} over {axis} {dtype}"
    functions = {
        "softmax": lambda x: F.softmax(x, axis),
        "log_softmax": lambda x: F.log_softmax(x, axis),
        "softmin": lambda x: F.softmin(x, axis),
        "scaled": lambda x: F.softmax(x * 0.125, axis),
        "masked": lambda x: F.softmax(x.masked_fill(x > 1.5, -1e4), axis),
        "large": lambda x: F.softmax(x * 64, axis),
    }
    return Case(name, functions[form], (x,), slack=32)


def norms(draw: Draw) -> Case:
    form = draw.pick(
        ["layer", "layer", "layer2", "group", "instance", "batch", "batch_train", "rms", "local"]
    )
    dtype = draw.dtype()
    batch, channels = draw.extent(5), draw.pick([1, 2, 3, 4, 6, 8, 12, 16])
    rest = draw.shape(draw.random.randint(1, 2), 300)
    if math.prod(rest) < 4:
        rest = (5, *rest)
    x = draw.tensor((batch, channels, *rest), dtype)
    scale, shift = draw.tensor((channels,), dtype), draw.tensor((channels,), dtype)
    name = f"{form}_norm {[*x.shape]} {dtype}"
    slack = 64.0
    if form.startswith("layer"):
        inner = x.shape[-1:] if form == "layer" else x.shape[-2:]
        if math.prod(inner) < 4:
            inner = x.shape[1:]
        g, b = draw.tensor(inner, dtype), draw.tensor(inner, dtype)
        return Case(name, lambda x, g, b: F.layer_norm(x, inner, g, b), (x,), (g, b), slack=slack)
    if form == "group":
        groups = draw.pick([g for g in (1, 2, 3, 4) if channels % g == 0])
        return Case(
            f"{name} {groups}",
            lambda x, g, b: F.group_norm(x, groups, g, b),
            (x,),
            (scale, shift),
            slack=slack,
        )
    if form == "instance":
        return Case(
            name,
            lambda x, g, b: F.instance_norm(x, weight=g, bias=b, use_input_stats=True),
            (x,),
            (scale, shift),
            slack=slack,
        )
    mean, variance = draw.tensor((channels,), dtype), draw.tensor((channels,), dtype).abs() + 0.5
    if form == "batch":
        return Case(
            name,
            lambda x, m, v, g, b: F.batch_norm(x, m, v, g, b),
            (x,),
            (mean, variance, scale, shift),
            slack=slack,
        )
    if form == "batch_train":
        return Case(
            name,
            lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True),
            (x,),
            (scale, shift),
            slack=slack,
        )
    if form == "local":
        return Case(
            name,
            lambda x: F.local_response_norm(x, 3, alpha=0.3, beta=0.75, k=1.0),
            (x.float(),),
            slack=slack,
        )
    return Case(
        name,
        lambda x, g: F.rms_norm(x, x.shape[-1:], g, 1e-5),
        (x,),
        (draw.tensor(rest[-1:], dtype),),
        slack=slack,
    )


def scans(draw: Draw) -> Case:
    shape = draw.shape(draw.random.randint(1, 3))
    axis = draw.random.randrange(len(shape))
    form = draw.pick(["cumsum", "cumsum", "cumsum_int", "cumprod", "cumsum_bool", "flip_cumsum"])
    dtype = draw.dtype(FLOATS[:2])
    name = f"{form} {[*shape]} along {axis} {dtype}"
    x = draw.tensor(shape, dtype)
    if form == "cumsum_int":
        return Case(name, lambda x: x.cumsum(axis), (draw.tensor(shape, draw.pick(INTEGERS)),), (), 0)
    if form == "cumsum_bool":
        return Case(name, lambda x: x.cumsum(axis), (draw.tensor(shape, torch.bool),), (), 0)
    if form == "cumprod":
        return Case(name, lambda x: x.cumprod(axis), (x * 0.1 + 1,), slack=64 + 32 * shape[axis])
    if form == "flip_cumsum":
        return Case(name, lambda x: x.flip(axis).cumsum(axis).flip(axis), (x,), (), shape[axis] ** 2)
    return Case(name, lambda x: x.cumsum(axis), (x,), (), shape[axis] ** 2)


def sorting(draw: Draw) -> Case:
    shape = draw.shape(draw.random.randint(1, 3), 512)
    axis = draw.random.randrange(len(shape))
    form = draw.pick(
        [
            "sort",
            "sort_down",
            "topk",
            "topk_small",
            "argsort",
            "stable_ties",
            "stable_ties_down",
            "kth",
            "median",
        ]
    )
    x = torch.randperm(math.prod(shape), generator=draw.generator).reshape(shape).to(draw.pick(FLOATS[:2]))
    k = draw.random.randint(1, shape[axis])
    name = f"{form} {[*shape]} along {axis} k={k} {x.dtype}"
    functions = {
        "sort": lambda x: tuple(torch.sort(x, axis)),
        "sort_down": lambda x: tuple(torch.sort(x, axis, descending=True)),
        "topk": lambda x: tuple(torch.topk(x, k, axis)),
        "topk_small": lambda x: tuple(torch.topk(x, k, axis, largest=False)),
        "argsort": lambda x: torch.argsort(x, axis),
        "stable_ties": lambda x: tuple(torch.sort(x % 3, stable=True, dim=axis)),
        "stable_ties_down": lambda x: tuple(torch.sort(x % 3, stable=True, dim=axis, descending=True)),
        "kth": lambda x: torch.sort(x, axis).values.select(axis, k - 1),
        "median": lambda x: torch.sort(x, axis).values.narrow(axis, 0, k).sum(axis),
    }
    return Case(name, functions[form], (x,), (), 0)


_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
_ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d}


def pooling(draw: Draw, rank: int) -> Case:
    """Maximum and average windows with stride, padding, dilation and ceiling."""
    form = draw.pick(["max", "max", "max_special", "average", "average", "average_excluding"])
    dtype = draw.dtype((torch.float32, torch.float64, torch.bfloat16) if rank < 3 else FLOATS[:2])
    kernel = [draw.pick([1, 2, 3, 3, 4]) for _ in range(rank)]
    stride = [draw.pick([1, 1, 2, 3]) for _ in range(rank)]
    padding = [draw.random.randint(0, k // 2) for k in kernel]
    dilation = [draw.pick([1, 1, 1, 2]) if form.startswith("max") else 1 for _ in range(rank)]
    ceil = draw.flip(0.3)
    most = {1: 64, 2: 21, 3: 9}[rank]
    size = [max(draw.extent(most), d * (k - 1) + 1) for k, d in zip(kernel, dilation)]
    shape = (draw.pick([1, 2, 3]), draw.pick([1, 2, 3, 8, 17]), *size)
    name = f"{form}_pool{rank}d {[*shape]} {kernel=} {stride=} {padding=} {dilation=} {ceil=} {dtype}"
    if form.startswith("max"):
        x = draw.special(shape, dtype) if form == "max_special" else draw.tensor(shape, dtype)
        return Case(name, lambda x: _MAX[rank](x, kernel, stride, padding, dilation, ceil) + 0.0, (x,), (), 0)
    including = form == "average"
    x = draw.tensor(shape, dtype)
    return Case(
        name,
        lambda x: _AVERAGE[rank](x, kernel, stride, padding, ceil, including),
        (x,),
        (),
        math.prod(kernel) + 8,
    )


def adaptive(draw: Draw) -> Case:
    rank = draw.pick([1, 2, 2, 3])
    size = [draw.extent({1: 61, 2: 19, 3: 8}[rank]) for _ in range(rank)]
    out = [draw.random.randint(1, s) if draw.flip() else draw.pick([1, s]) for s in size]
    x = draw.tensor((draw.pick([1, 2, 3]), draw.pick([1, 2, 5, 16]), *size))
    name = f"adaptive pool{rank}d {[*x.shape]} -> {out}"
    if draw.flip(0.3) and rank < 3:
        return Case(f"{name} max", lambda x: _ADAPTIVE_MAX[rank](x, out), (x,), (), 0)
    return Case(name, lambda x: _ADAPTIVE[rank](x, out), (x,), (), math.prod(size) + 8)


KINDS = {
    "sums": sums,
    "extrema": extrema,
    "products": products,
    "statistics": statistics,
    "softmax": softmax,
    "norms": norms,
    "scans": scans,
    "sorting": sorting,
    "pool1d": lambda draw: pooling(draw, 1),
    "pool2d": lambda draw: pooling(draw, 2),
    "pool3d": lambda draw: pooling(draw, 3),
    "adaptive": adaptive,
}
