"""Workloads of the standard operators, from their shapes: matrix products, convolutions, pooling, reductions.

Padding of a convolution lies outside: its input operand is the padded tensor, as in Roller's tensor expressions.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term
from tilewright.compiler.nouns.workload import Axis, Operand, Workload


def _index(*terms: tuple[int, int] | int) -> QuasiAffine[int]:
    return QuasiAffine(tuple(Term(t) if isinstance(t, int) else Term(*t) for t in terms))


def _plain(name: str, shape: Sequence[int], dtype: str, axes: Sequence[int], output: bool = False) -> Operand:
    return Operand(name, tuple(shape), dtype, tuple(_index(a) for a in axes), output)


def matmul(m: int, n: int, k: int, dtype: str = "f32") -> Workload:
    """`C[m, n] += A[m, k] * B[k, n]`."""
    axes = (Axis("m", m), Axis("n", n), Axis("k", k, "reduction"))
    a, b = _plain("A", (m, k), dtype, (0, 2)), _plain("B", (k, n), dtype, (2, 1))
    return Workload("matmul", axes, (a, b, _plain("C", (m, n), _sum(dtype), (0, 1), True)))


def batch_matmul(batch: int, m: int, n: int, k: int, dtype: str = "f32") -> Workload:
    """`C[b, m, n] += A[b, m, k] * B[b, k, n]`."""
    axes = (Axis("b", batch), Axis("m", m), Axis("n", n), Axis("k", k, "reduction"))
    a, b = _plain("A", (batch, m, k), dtype, (0, 1, 3)), _plain("B", (batch, k, n), dtype, (0, 3, 2))
    return Workload("batch_matmul", axes, (a, b, _plain("C", (batch, m, n), _sum(dtype), (0, 1, 2), True)))


def _sum(dtype: str) -> str:
    """The type that products of `dtype` are summed in."""
    return {"f16": "f32", "bf16": "f32", "f8": "f32", "i8": "i32"}.get(dtype, dtype)


def window(out: int, kernel: int, stride: int, dilation: int = 1) -> int:
    """The input extent that `out` windows cover."""
    return (out - 1) * stride + (kernel - 1) * dilation + 1


def conv2d(
    batch: int, channels: int, out_height: int, out_width: int, filters: int, kernel: int, stride: int = 1,
    dilation: int = 1, layout: str = "NCHW", dtype: str = "f32", shape: tuple[int, int] | None = None,
) -> Workload:  # fmt: skip
    """A convolution of `filters` filters over a padded input; `shape` is its height and width if windows leave a rest."""
    height, width = shape or (
        window(out_height, kernel, stride, dilation),
        window(out_width, kernel, stride, dilation),
    )
    reductions = (
        Axis("c", channels, "reduction"),
        Axis("kh", kernel, "reduction"),
        Axis("kw", kernel, "reduction"),
    )
    if layout == "NCHW":
        axes = (
            Axis("n", batch),
            Axis("f", filters),
            Axis("h", out_height),
            Axis("w", out_width),
            *reductions,
        )
        n, f, h, w, c, kh, kw = range(7)
        sizes, order = (batch, channels, height, width), (n, c, h, w)
        weights = _plain("weights", (filters, channels, kernel, kernel), dtype, (f, c, kh, kw))
        result = _plain("result", (batch, filters, out_height, out_width), _sum(dtype), (n, f, h, w), True)
    elif layout == "NHWC":
        axes = (
            Axis("n", batch),
            Axis("h", out_height),
            Axis("w", out_width),
            Axis("f", filters),
            *reductions,
        )
        n, h, w, f, c, kh, kw = range(7)
        sizes, order = (batch, height, width, channels), (n, h, w, c)
        weights = _plain("weights", (kernel, kernel, channels, filters), dtype, (kh, kw, c, f))
        result = _plain("result", (batch, out_height, out_width, filters), _sum(dtype), (n, h, w, f), True)
    else:
        raise ValueError(f"conv2d: layout is NCHW or NHWC, found {layout}")
    slide = {h: _index((h, stride), (kh, dilation)), w: _index((w, stride), (kw, dilation))}
    data = Operand("data", sizes, dtype, tuple(slide.get(a) or _index(a) for a in order))
    return Workload("conv2d", axes, (data, weights, result))


def depthwise_conv2d(
    batch: int, channels: int, out_height: int, out_width: int, kernel: int, stride: int = 1, dilation: int = 1,
    dtype: str = "f32", shape: tuple[int, int] | None = None,
) -> Workload:  # fmt: skip
    """One filter per channel, NCHW, over a padded input."""
    height, width = shape or (
        window(out_height, kernel, stride, dilation),
        window(out_width, kernel, stride, dilation),
    )
    axes = (
        Axis("n", batch), Axis("c", channels), Axis("h", out_height), Axis("w", out_width),
        Axis("kh", kernel, "reduction"), Axis("kw", kernel, "reduction"),
    )  # fmt: skip
    slide = (_index(0), _index(1), _index((2, stride), (4, dilation)), _index((3, stride), (5, dilation)))
    data = Operand("data", (batch, channels, height, width), dtype, slide)
    weights = _plain("weights", (channels, kernel, kernel), dtype, (1, 4, 5))
    result = _plain("result", (batch, channels, out_height, out_width), dtype, (0, 1, 2, 3), True)
    return Workload("depthwise_conv2d", axes, (data, weights, result))


def pool2d(
    batch: int, channels: int, out_height: int, out_width: int, kernel: int, stride: int, dtype: str = "f32",
    shape: tuple[int, int] | None = None,
) -> Workload:  # fmt: skip
    """Average or maximum over windows, NCHW, over a padded input."""
    height, width = shape or (window(out_height, kernel, stride), window(out_width, kernel, stride))
    axes = (
        Axis("n", batch), Axis("c", channels), Axis("h", out_height), Axis("w", out_width),
        Axis("kh", kernel, "reduction"), Axis("kw", kernel, "reduction"),
    )  # fmt: skip
    slide = (_index(0), _index(1), _index((2, stride), (4, 1)), _index((3, stride), (5, 1)))
    data = Operand("data", (batch, channels, height, width), dtype, slide)
    result = _plain("result", (batch, channels, out_height, out_width), dtype, (0, 1, 2, 3), True)
    return Workload("pool2d", axes, (data, result), flops_per_point=1.0)


def elementwise(shape: Sequence[int], inputs: int = 1, flops: float = 1.0, dtype: str = "f32") -> Workload:
    """One result per point of `shape`, from as many inputs of that shape."""
    axes = tuple(Axis(f"i{d}", size) for d, size in enumerate(shape))
    every = tuple(range(len(axes)))
    operands = [_plain(f"in{i}", shape, dtype, every) for i in range(inputs)]
    return Workload("elementwise", axes, (*operands, _plain("result", shape, dtype, every, True)), flops)


def reduction(shape: Sequence[int], reduced: Sequence[int], dtype: str = "f32") -> Workload:
    """The sum over the dimensions `reduced` of a tensor; parallel axes come first."""
    kept = [d for d in range(len(shape)) if d not in reduced]
    order = [*kept, *sorted(reduced)]
    place = {dim: position for position, dim in enumerate(order)}
    axes = tuple(Axis(f"i{d}", shape[d], "reduction" if d in reduced else "parallel") for d in order)
    data = _plain("data", shape, dtype, [place[d] for d in range(len(shape))])
    result = _plain("result", [shape[d] for d in kept], dtype, [place[d] for d in kept], True)
    return Workload("reduction", axes, (data, result), flops_per_point=1.0)
