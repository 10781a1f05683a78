"""Long sums of floats, added up in parts: each part from nothing, then all parts one after the other.

    %total = start
    for p in 0, 128, 256, ... {
      %sum = for k in p .. p + 128 iter_args(-0.0) { %sum + term[k] }
      %total += %sum
    }

The rounding error of one chain grows with its length n, that of parts of m steps with m + n / m. Source: Higham, "The
Accuracy of Floating Point Summation", SIAM J. Sci. Comput. 1993, §3 (blocks of a pairwise sum). A part costs what its
totals take to be loaded, added to and stored, as they have no registers of their own: sums of what is loaded wait for
memory anyway and have short parts, and only very long products are cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.families.cpu.reduction import Combination, Structure
from tilewright.compiler.ir import ir

SUM_STEPS, PRODUCT_STEPS = 128, 1024
"""The most steps of a part of sums of single operands, and of products of several; of more parts than that, as many as parts."""
LONG_SUM, LONG_PRODUCT = 256, 8192
"""Steps beyond which there are parts."""


@dataclass(frozen=True)
class Parts:
    """Parts of a sum: `size` steps of its loop number `position`, with all steps of those inside of it."""

    combination: Combination
    position: int
    size: int

    @classmethod
    def of(cls, reduction: Structure, extents: Sequence[int]) -> Parts | None:
        """The parts of a reduction over loops of `extents`; None where it is no sum of floats, or a short one."""
        combination = Combination.read(reduction.body)
        if combination is None or combination.op.name != "arith.addf":
            return None
        steps, single = math.prod(extents), len(reduction.maps) == 2
        if steps <= (LONG_SUM if single else LONG_PRODUCT):
            return None
        most = max(SUM_STEPS if single else PRODUCT_STEPS, math.isqrt(steps))
        position, inside = len(extents) - 1, 1
        while inside * extents[position] <= most:
            inside *= extents[position]
            position -= 1
        # As equal as can be: 600 steps are five times 120, not four times 128 and 88.
        count = min(-(-extents[position] * inside // most), extents[position])
        return cls(combination, position, -(-extents[position] // count))

    def starts(self, totals: Sequence[ir.Value]) -> list[ir.Value]:
        """What a part begins with: sums of nothing."""
        return [self.combination.neutral(ir.VectorType(total.type)) for total in totals]

    def added(self, totals: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
        """The totals with a part's sums."""
        return [self.combination.combine(total, sum_) for total, sum_ in zip(totals, sums)]
