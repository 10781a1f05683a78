"""The matrix product that a workload is, as kernels of contractions read it: nothing but nouns says where its operands lie.

    out[a0, a1] = relu(sum over a2 of in0[a0, a2] * in1[a2, a1] + in2[a1])
      =>  a [M, K] = in0, along K, 8 elements per access;  b [K, N] = in1, along N;  in2 belongs to the epilogue

Buffers are taken to begin at multiples of 16 bytes, as those of dispatches do unless they say otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.compiler.nouns.product_loops import (
    Access,
    Loop,
    NoProduct,
    aligned_lanes,
    flat,
    product_loops,
)
from tilewright.compiler.nouns.quasi_affine import NotQuasiAffine
from tilewright.compiler.nouns.workload import BITS, Operand, Workload
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES, Gemm
from tilewright.compiler.tuning.model.roles import element_strides
from tilewright.compiler.tuning.model.statements import RESULT, Operation, Statement, read_statements

_WIDENING = ("extf", "extsi")
_STAGED = ("f16", "bf16", "f32", "i8")
"""Types that tensor maps bring to `wgmma`; f32 as tf32."""


@dataclass(frozen=True)
class Factor:
    """One of the two: the operand, whether it lies along K, and the most elements that one access takes of it.

    `converted` where what is multiplied is computed of its elements.
    """

    operand: Operand
    along_k: bool
    lanes: int
    converted: bool


@dataclass(frozen=True)
class Product:
    """`factors` are A [M, K] and B [K, N]; `others` are the operands of the epilogue, `out` the result."""

    gemm: Gemm
    factors: tuple[Factor, Factor]
    others: tuple[Operand, ...]
    out: Operand

    @property
    def item_bytes(self) -> int:
        """Of an element that is multiplied by single threads."""
        return BITS[self.gemm.sum_dtype] // 8


@lru_cache(maxsize=256)
def read_product(workload: Workload) -> Product | None:
    """The product; None for a workload that kernels of contractions do not compute."""
    found = [s for s in read_statements(workload) if _is_product(s)]
    if len(found) != 1 or any(s.reduction for s in read_statements(workload) if s is not found[0]):
        return None
    (main,) = found
    if any(o.name.startswith("%") for o in main.reads) or any(s.is_part for s in read_statements(workload)):
        return None
    try:
        return _read(workload, main)
    except (NoProduct, NotQuasiAffine):
        return None


def _is_product(statement: Statement) -> bool:
    """Whether products of two operands are added up."""
    if not statement.reduction or len(statement.reads) != 2 or len(statement.arithmetic) < 2:
        return False
    return _multiplied(statement) is not None


def _multiplied(statement: Statement) -> tuple[Operation, Operation] | None:
    """The multiplication, and the addition behind it."""
    *_, last = statement.arithmetic
    by_result = {op.gives: op for op in statement.arithmetic}
    terms = [by_result[name] for name in last.reads if name in by_result]
    if last.name not in ("addf", "addi") or len(terms) != 1 or terms[0].name not in ("mulf", "muli"):
        return None
    return terms[0], last


def _read(workload: Workload, main: Statement) -> Product:
    totals = [flat(o.index_map, element_strides(o)) for o in (*main.reads, workload.output)]
    is_sum = [axis.kind == "reduction" for axis in workload.axes]
    found = product_loops(totals, (0, 1, 2), workload.extents, is_sum, 2)
    a, b = main.reads[::-1] if found.swapped else main.reads
    converted = [_is_converted(main, o.name) for o in (a, b)]
    loops, accesses = found.loops, found.accesses
    factors = tuple(
        _factor(o, loops, accesses[number], "mn"[number], own)
        for number, (o, own) in enumerate(zip((a, b), converted))
    )
    first = next(s.result for s in read_statements(workload) if s is main)
    names = {o.name for o in main.reads}
    others = tuple(
        o for number, o in enumerate(workload.operands) if not o.output and f"in{number}" not in names
    )
    out = replace(workload.output, name=RESULT)
    size = {
        name: math.prod(loop.extent for loop in loops if loop.group == name) for name in ("batch", *"mnk")
    }
    sums = "f32" if first.dtype in ("f16", "bf16") else first.dtype
    vectors = [_widest(o, loops, access) for o, access in zip((a, b), accesses)]
    gemm = Gemm(
        size["batch"], size["m"], size["n"], size["k"], a.dtype,
        "k" if factors[0].along_k else "m", "k" if factors[1].along_k else "n", *vectors, _span(a), _span(b),
        out.element_bytes, sum(_span(o) for o in others), _has_tensor_maps((a, b), accesses),
        sums, a.dtype == b.dtype and not any(converted), _run(loops, accesses, a.dtype, size["k"]),
    )  # fmt: skip
    return Product(gemm, factors, others, out)  # type: ignore[arg-type]


def _is_converted(main: Statement, name: str) -> bool:
    """Whether the multiplication takes something else than an element, or an element that is widened."""
    found = _multiplied(main)
    assert found is not None
    arguments = {f"x{number}": own for number, own in enumerate(main.places)}
    by_result = {op.gives: op for op in main.arithmetic}
    for value in found[0].reads:
        exact = True
        while value in by_result:
            op = by_result[value]
            exact = exact and op.name in _WIDENING
            value = next((v for v in op.reads if v in by_result or arguments.get(v, "").startswith("in")), "")
        if arguments.get(value) == name and exact:
            return False
    return True


def _factor(operand: Operand, loops: Sequence[Loop], access: Access, group: str, converted: bool) -> Factor:
    """How the tiles of a factor can be copied."""
    deep = [number for number, loop in enumerate(loops) if loop.group == "k"]
    across = [number for number, loop in enumerate(loops) if loop.group == group]
    if deep and access.strides[deep[-1]] == 1:
        along_k = True
    else:
        along_k = not (across and access.strides[across[-1]] == 1)
    own = deep if along_k else across
    lanes = aligned_lanes(access, loops, own[-1] if own else None, _limit(operand))
    return Factor(operand, along_k, lanes, converted)


def _limit(operand: Operand) -> int:
    """Elements of 16 bytes; booleans go one by one."""
    return 1 if operand.dtype == "i1" else ACCESS_BYTES // operand.element_bytes


def _widest(operand: Operand, loops: Sequence[Loop], access: Access) -> int:
    """The same along whatever loop it is contiguous along."""
    inner = next((number for number, stride in enumerate(access.strides) if stride == 1), None)
    return aligned_lanes(access, loops, inner, _limit(operand))


def _span(operand: Operand) -> int:
    """Bytes from its first element to its last."""
    last = sum((n - 1) * s for n, s in zip(operand.shape, element_strides(operand)))
    return (1 + last) * operand.element_bytes


def _has_tensor_maps(factors: Sequence[Operand], accesses: Sequence[Access]) -> bool:
    """Whether both lie side by side along some loop, and every other one moves by whole accesses."""
    for operand, access in zip(factors, accesses):
        steps = [s * operand.element_bytes for s in access.strides if s > 1]
        if 1 not in access.strides or any(step % ACCESS_BYTES for step in steps):
            return False
    return True


def _run(loops: Sequence[Loop], accesses: Sequence[Access], dtype: str, depth: int) -> int:
    """How far boxes of tensor maps go along k: what the loop that stages run along has to itself; 0 where that is all of k.

    Window columns and channels that lie in memory as one loop are two there: windows overlap.
    """
    inner = [next((i for i, s in enumerate(x.strides) if s == 1), None) for x in accesses[:2]]
    along = [i for i in inner if i is not None and loops[i].group == "k"]
    deep = [i for i, loop in enumerate(loops) if loop.group == "k"]
    if None in inner or not deep or (len(along) == 2 and along[0] != along[1]):
        return 0
    if dtype not in _STAGED or (dtype not in ("f16", "bf16") and len(along) < 2):
        return 0
    loop = along[0] if along else deep[-1]
    extent = loops[loop].extent
    for access in accesses[:2]:
        stride = access.strides[loop]
        others = [s for i, s in enumerate(access.strides) if i != loop and s >= stride]
        if stride and any(s < stride * extent for s in others):
            part = math.gcd(stride * extent, *others)
            extent = part // stride if part % stride == 0 and part > stride else extent
    return extent if extent < depth else 0
