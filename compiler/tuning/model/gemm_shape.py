"""A contraction as GPU schedules see it: a batch of products `[M, K] x [K, N]`, and how its operands lie in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.workload import BITS, Operand, Workload

ACCESS_BYTES = 16
"""The widest load or store of one thread. Source: PTX ISA, `ld.global.v4.b32`."""


@dataclass(frozen=True)
class Gemm:
    """`batch` products of [m, k] and [k, n], in elements of `dtype`.

    `a_major` is "k" or "m", `b_major` "k" or "n": what the operand is contiguous along; `a_vector` and `b_vector` how many
    elements one aligned access takes there, 1 where addresses have to be computed one by one. `a_bytes` and `b_bytes`
    are those of the whole tensors (of a convolution's image, not of what it is unrolled to). `result_bytes` is written
    per element of the result, `extra_bytes` read by the epilogue in all. Products are summed in `sum_dtype`.
    `matrix` says whether both factors are multiplied as they are loaded, so that matrix instructions may; `tensor_maps`
    whether TMA can load both, and `run` how far along k its boxes go at most: a window's channels; 0 for all of k.
    """

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    a_major: str = "k"
    b_major: str = "n"
    a_vector: int = 1
    b_vector: int = 1
    a_bytes: int = 0
    b_bytes: int = 0
    result_bytes: int = 4
    extra_bytes: int = 0
    tensor_maps: bool = False
    sum_dtype: str = "f32"
    matrix: bool = True
    run: int = 0

    @property
    def item_bytes(self) -> int:
        return BITS[self.dtype] // 8

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    def steps(self, kind: str, depth: np.ndarray) -> np.ndarray:
        """Steps of `depth` along k, [n]; those of wgmma end where what boxes run along does."""
        if kind != "wgmma" or not self.run:
            return -(-self.k // depth)
        return self.k // self.run * -(-self.run // depth)

    @property
    def results(self) -> int:
        return self.batch * self.m * self.n

    @property
    def nbytes(self) -> int:
        """The least that can move."""
        return self.a_bytes + self.b_bytes + self.results * self.result_bytes + self.extra_bytes


def plain_gemm(
    batch: int, m: int, n: int, k: int, dtype: str, result: str = "", transposed_b: bool = False
) -> Gemm:
    """The product of dense matrices: A row-major, B row-major or, `transposed_b`, column-major; results of `result`."""
    item = BITS[dtype] // 8
    lanes = ACCESS_BYTES // item
    inner = k if transposed_b else n
    return Gemm(
        batch, m, n, k, dtype, "k", "k" if transposed_b else "n", _dividing(lanes, k), _dividing(lanes, inner),
        batch * m * k * item, batch * k * n * item, BITS[result or dtype] // 8,
        tensor_maps=k % lanes == 0 and inner % lanes == 0, sum_dtype=sum_of(dtype),
    )  # fmt: skip


def gemm_of(workload: Workload) -> Gemm | None:
    """The product that a workload's first two inputs make; None where they are no two factors of a contraction.

    Nor is it one whose result is contiguous along the batch, as a depthwise convolution's: nothing is reused there.
    """
    if len(workload.inputs) < 2 or not workload.reduction:
        return None
    a, b, out = *workload.inputs[:2], workload.output
    rows, columns = (a.axes & out.axes) - b.axes, (b.axes & out.axes) - a.axes
    depth = (a.axes & b.axes) - out.axes
    if not depth or not (rows or columns) or (a.axes | b.axes) != frozenset(range(len(workload.axes))):
        return None
    walked = _contiguous(out)
    if walked is not None and walked not in rows | columns:
        return None
    if (walked in rows and columns) or not columns:
        # Columns are what the result is contiguous along.
        a, b, rows, columns = b, a, columns, rows
    extents = workload.extents

    def size(group: frozenset[int]) -> int:
        return math.prod(extents[axis] for axis in group)

    batch = frozenset(range(len(extents))) - rows - columns - depth
    a_axis, b_axis = _contiguous(a), _contiguous(b)
    a_major, b_major = ("k" if a_axis in depth else "m"), ("k" if b_axis in depth else "n")
    item = a.element_bytes
    vectors = (_vector(a, extents), _vector(b, extents))
    return Gemm(
        size(batch), size(rows), size(columns), size(depth), a.dtype, a_major, b_major, vectors[0], vectors[1], a.nbytes, b.nbytes,
        out.element_bytes, sum(o.nbytes for o in workload.inputs[2:]),
        tensor_maps=all(v * item == ACCESS_BYTES and o.axes == _plain(o) for v, o in zip(vectors, (a, b))),
        sum_dtype=sum_of(a.dtype), matrix=a.dtype == b.dtype,
    )  # fmt: skip


def sum_of(dtype: str) -> str:
    """The type that products of `dtype` are summed in."""
    return {"f16": "f32", "bf16": "f32", "f8": "f32", "i8": "i32", "i1": "i32"}.get(dtype, dtype)


def _dividing(limit: int, extent: int) -> int:
    """The largest power of two up to `limit` that divides the extent."""
    return min(limit, extent & -extent)


def _plain(operand: Operand) -> frozenset[int]:
    """The axes that walk one dimension of an operand all alone."""
    alone = [i.terms[0] for i in operand.index_map if len(i.terms) == 1]
    return frozenset(t.variable for t in alone if (t.scale, t.divisor, t.modulus) == (1, 1, 0))


def _contiguous(operand: Operand) -> int | None:
    """The axis along which neighbours lie side by side: the innermost of those of step 1 in the last dimension."""
    if not operand.index_map:
        return None
    terms = [t for t in operand.index_map[-1].terms if t.scale == 1 and t.divisor == 1]
    return max((t.variable for t in terms), default=None)


def _vector(operand: Operand, extents: Iterable[int]) -> int:
    """Elements of one aligned access along the contiguous axis; 1 where the last dimension is no plain axis."""
    axis, sizes = _contiguous(operand), tuple(extents)
    if axis is None or axis not in _plain(operand) or operand.index_map[-1].offset:
        return 1
    lanes = ACCESS_BYTES // operand.element_bytes
    return min(_dividing(lanes, sizes[axis]), _dividing(lanes, operand.shape[-1]))
