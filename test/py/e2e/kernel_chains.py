"""Random chains and branches of operations: what is fused, cut and laid out together has to stay right together."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from kernel_draws import Case, Draw

Step = Callable[[list[torch.Tensor]], torch.Tensor]


def _matrix_step(
    draw: Draw, shape: tuple[int, int]
) -> tuple[str, Step, tuple[int, int], torch.Tensor | None]:
    """One operation on a matrix: its name, function of [matrix, weight], result shape and weight."""
    rows, columns = shape
    out = draw.extent(33)
    axis = draw.pick([0, 1])
    weight = {
        "matmul": lambda: draw.tensor((columns, out), torch.float64) * columns**-0.5,
        "left": lambda: draw.tensor((out, rows), torch.float64) * rows**-0.5,
        "row": lambda: draw.tensor((columns,), torch.float64),
        "column": lambda: draw.tensor((rows, 1), torch.float64),
        "gather": lambda: draw.index((out,), rows),
    }
    steps: dict[str, tuple[Step, tuple[int, int]]] = {
        "matmul": (lambda t: t[0] @ t[1], (rows, out)),
        "left": (lambda t: t[1] @ t[0], (out, columns)),
        "row": (lambda t: t[0] + t[1], shape),
        "column": (lambda t: t[0] * t[1], shape),
        "gather": (lambda t: t[0][t[1]], (out, columns)),
        "tanh": (lambda t: torch.tanh(t[0]), shape),
        "relu": (lambda t: torch.relu(t[0]) - 0.25, shape),
        "softmax": (lambda t: F.softmax(t[0], axis), shape),
        "layer_norm": (lambda t: F.layer_norm(t[0], (columns,), eps=0.5), shape),
        "centre": (lambda t: t[0] - t[0].mean(axis, keepdim=True), shape),
        "scale": (lambda t: t[0] / (1 + t[0].abs().amax(axis, keepdim=True)), shape),
        "square_gram": (lambda t: (t[0] @ t[0].T) / columns, (rows, rows)),
        "transpose": (lambda t: t[0].T, (columns, rows)),
        "transpose_copy": (lambda t: t[0].T.contiguous() * 0.5, (columns, rows)),
        "flip": (lambda t: t[0].flip(axis), shape),
        "twice": (lambda t: torch.cat([t[0], t[0] * 2], axis), (rows * (2 - axis), columns * (1 + axis))),
        "halve": (lambda t: t[0][: (rows + 1) // 2], ((rows + 1) // 2, columns)),
        "stride": (lambda t: t[0][:, ::2], (rows, (columns + 1) // 2)),
        "pad": (lambda t: F.pad(t[0], (1, 0, 0, 2), value=0.5), (rows + 2, columns + 1)),
        "where": (lambda t: torch.where(t[0] > 0, t[0], t[0] * 0.1), shape),
        "scan": (lambda t: t[0].cumsum(axis) * 0.1, shape),
        "fold": (lambda t: t[0].reshape(columns, rows), (columns, rows)),
    }  # fmt: skip
    name = draw.pick([n for n, (_, s) in steps.items() if s[0] * s[1] <= 3000])
    step, result = steps[name]
    return name, step, result, weight[name]() if name in weight else None


def chain(draw: Draw) -> Case:
    """Four to nine operations, each on the last result or an earlier one of the same shape added to it."""
    shape = (draw.extent(37), draw.extent(37))
    start = draw.tensor(shape, torch.float64)
    plan, weights, shapes, names = [], [], [shape], []
    for _ in range(draw.random.randint(4, 9)):
        name, step, shape, weight = _matrix_step(draw, shape)
        earlier = [i for i, known in enumerate(shapes) if known == shape]
        joined = draw.pick(earlier) if earlier and draw.flip(0.4) else None
        plan.append((step, len(weights) if weight is not None else None, joined))
        if weight is not None:
            weights.append(weight)
        shapes.append(shape)
        names.append(name + ("" if joined is None else f"+{joined}"))
    shown = draw.random.randrange(1, len(shapes))

    def function(x, *weights):
        values = [x]
        for step, weight, joined in plan:
            y = step([values[-1], *([] if weight is None else [weights[weight]])])
            values.append(y if joined is None else y + values[joined])
        return values[-1], values[shown]

    return Case(f"chain {shapes[0]} {' '.join(names)}", function, (start,), tuple(weights), slack=1e5)


def feature_maps(draw: Draw) -> Case:
    """Convolutions, norms, pooling and residuals, as networks string them together."""
    channels, height, width = draw.pick([1, 3, 8, 16]), draw.extent(17, 3), draw.extent(17, 3)
    x = draw.tensor((draw.pick([1, 2]), channels, height, width), torch.float64)
    weights, plan, names = [], [], []

    def weigh(*shape: int, scale: float = 1.0) -> int:
        weights.append(draw.tensor(shape, torch.float64) * scale)
        return len(weights) - 1

    for _ in range(draw.random.randint(3, 6)):
        name = draw.pick(
            [
                "conv",
                "conv",
                "pointwise",
                "depthwise",
                "norm",
                "relu",
                "residual",
                "pool",
                "scale",
                "up",
                "wide",
            ]
        )
        names.append(name)
        if name in ("conv", "pointwise"):
            k = 3 if name == "conv" else 1
            out = draw.pick([4, 16, 17, channels])
            i, b = weigh(out, channels, k, k, scale=(channels * k * k) ** -0.5), weigh(out)
            channels = out
            plan.append(lambda t, w, i=i, b=b, k=k: F.conv2d(t, w[i], w[b], padding=k // 2))
        elif name == "depthwise":
            i = weigh(channels, 1, 3, 3, scale=0.3)
            plan.append(lambda t, w, i=i, c=channels: F.conv2d(t, w[i], padding=1, groups=c))
        elif name == "norm":
            m, v = weigh(channels), weigh(channels)
            plan.append(lambda t, w, m=m, v=v: F.batch_norm(t, w[m], w[v].abs() + 0.5, w[v], w[m]))
        elif name == "relu":
            plan.append(lambda t, w: F.relu(t))
        elif name == "residual":
            i = weigh(channels, channels, 3, 3, scale=0.1)
            plan.append(lambda t, w, i=i: F.silu(F.conv2d(t, w[i], padding=1)) + t)
        elif name == "pool":
            plan.append(lambda t, w: F.max_pool2d(t, 3, 1, 1) + F.avg_pool2d(t, 3, 1, 1))
        elif name == "scale":
            plan.append(lambda t, w: t * torch.sigmoid(t.mean((2, 3), keepdim=True)))
        elif name == "up":
            plan.append(lambda t, w: F.interpolate(t, scale_factor=2)[:, :, ::2, 1::2])
        else:
            channels *= 2
            plan.append(lambda t, w: torch.cat([t, t.flip(3)], 1))

    def function(x, *weights):
        for step in plan:
            x = step(x, weights)
        return x, x.mean((2, 3))

    return Case(f"maps {[*x.shape]} {' '.join(names)}", function, (x,), tuple(weights), slack=1e5)


KINDS = {"chains": chain, "feature_maps": feature_maps}
