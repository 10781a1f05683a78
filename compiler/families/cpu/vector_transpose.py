"""Transposes a square of registers by shuffles: log2(lanes) stages of pairwise exchanges, no memory in between.

`vector.transpose` of 16x16 reaches this form only through a lowering option of `convert-vector-to-llvm` that a
whole pipeline shares; the shuffles are as easily written down.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.ir import ir, vector


def transpose_square(rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Columns of the square whose `rows` are vectors of as many lanes; a power of two of them.

    The stage of step `h` exchanges the halves of 2h x 2h blocks that lie off the diagonal.
    """
    values, size = list(rows), len(rows)
    if not size or size & (size - 1) or any(v.type.shape != [size] for v in values):
        raise ValueError(f"expected {size} vectors of {size} lanes, a power of two")
    step = size // 2
    while step:
        low = [lane if not lane & step else size + lane - step for lane in range(size)]
        high = [lane + step if not lane & step else size + lane for lane in range(size)]
        for row in range(size):
            if not row & step:
                a, b = values[row], values[row + step]
                values[row] = vector.shuffle(a, b, low)
                values[row + step] = vector.shuffle(a, b, high)
        step //= 2
    return values
