"""Chooses which operands of contractions are stored in blocks, and how wide a block is.

    %c = linalg.generic (m, n, k) ins(%a, %w)                                                  // w: a weight
    %d = linalg.generic (m, n, k) ins(%a, %b)                                                  // b: an input
      =>
    %c = linalg.generic {tilewright.choice = {block = 32 : i64}} (m, n, k) ins(%a, %w)
    %d = linalg.generic {tilewright.choice = {copy = false}} (m, n, k) ins(%a, %b)

`pack-contractions` carries it out. A block is one register tile wide. Operands that depend on weights alone are packed
once, in @prepack; others are copied into blocks only where that pays at every call. A contraction that carries such a
choice keeps it; one with no operand that blocks suit has none.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, map_dims, row_major, stride_along
from tilewright.compiler.analysis.packed_operand import PackedOperand
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.analysis.weight_flow import static_values
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.layout_rules import transposed_by
from tilewright.compiler.tuning.cpu.register_tile import choose_packing, rows_in_one_set


@dataclass(frozen=True)
class ChoosePacking(Pass):
    """Chooses for vectors of `vector_bits` and `registers` of them.

    Operands that are no weights are packed where they are transposed at every call, which then is one copy still, as
    filters in training. Others are copied at every call where they hold `least_bytes` or more, which shared caches do not
    keep beside the other operand, and each element is read `least_reads` times or more. Measured on two cores with 32 MiB
    of L3: 2048 x 2048 x 2048 takes 82 ms instead of 118, smaller products 1 to 2 % longer. Under windows, which stream an
    operand anew for every row of an image, `window_reads` are enough, whatever it holds.
    """

    vector_bits: int = 512
    registers: int = 32
    least_reads: int = 512
    window_reads: int = 128
    least_bytes: int = 16777216

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            static = static_values(function)
            copied: Counter[ir.Value] = Counter()
            for view in function.regions[0].blocks[0].operations:
                structured = Structured.read(view.operation)
                if structured is None or not structured.is_contraction:
                    continue
                packed = PackedOperand.read(structured, static, self.vector_bits, self.registers)
                if packed is not None and packed.blocks:
                    self.choose(structured, packed, static, copied)

    def choose(
        self,
        contraction: Structured,
        packed: PackedOperand,
        static: set[ir.Value],
        copied: Counter[ir.Value],
    ) -> None:
        """Writes what is missing of the choice; `copied` counts readers that copies have taken a value from."""
        value, given = contraction.op.operands[packed.position], choice_attribute.read(contraction.op)
        best = self.block(contraction, packed)
        if value in static:
            choice_attribute.write(contraction.op, **{"block": best, **given})
            return
        copy = given.get("copy", bool(given["block"]) if "block" in given else None)
        if copy is None:
            moved = _is_moved(value, readers=len(list(value.uses)) - copied[value])
            copy = moved or self.pays_at_every_call(contraction, packed.position)
        own = {"copy": copy, "block": best} if copy else {"copy": copy}
        choice_attribute.write(contraction.op, **{**own, **given})
        copied[value] += bool(copy)

    def block(self, contraction: Structured, packed: PackedOperand) -> int:
        """The block that the register tile of the contraction is as wide as."""
        if packed.innermost:
            return packed.blocks[0]
        map_, loop = contraction.maps[packed.position], packed.loop
        lanes = self.vector_bits // contraction.op.results[0].type.element_type.width
        row = _row_loop(contraction, map_, loop)
        rows = 1 if row is None else contraction.extents[row]
        most_rows = None if row is None else _rows_side_by_side(contraction, 1 - packed.position, row)
        return choose_packing(rows, contraction.extents[loop], lanes, self.registers, most_rows) or 0

    def pays_at_every_call(self, contraction: Structured, position: int) -> bool:
        """Whether an operand that is no weight is read often enough, and lies badly enough, to be copied first.

        Where the closest steps of the reduction are multiples of a page apart, lines of a block of columns share few
        sets of every cache and are fetched again for each block of rows.
        """
        type_, map_ = ir.RankedTensorType(contraction.op.operands[position].type), contraction.maps[position]
        own, output = map_dims(map_), map_dims(contraction.result_map)
        reads = math.prod(contraction.extents[d] for d in output - own)
        width = type_.element_type.width // 8
        steps = [stride_along(map_, d, row_major(type_.shape)) for d in own - output]
        if not steps or rows_in_one_set(min(steps) * width) is None:
            return False
        if not all(is_dim(expr) for expr in contraction.maps[1 - position].results):
            return reads >= self.window_reads
        return reads >= self.least_reads and math.prod(type_.shape) * width >= self.least_bytes


def _row_loop(contraction: Structured, weight: ir.AffineMap, loop: int) -> int | None:
    """The longest of the output's loops that the weight does not follow."""
    followed = map_dims(weight) | {loop}
    rows = [e.position for e in contraction.result_map.results if is_dim(e) and e.position not in followed]
    return max(rows, key=lambda row: contraction.extents[row], default=None)


def _rows_side_by_side(contraction: Structured, position: int, row: int) -> int | None:
    """How many rows of an operand fit into L1 side by side."""
    type_ = ir.RankedTensorType(contraction.op.operands[position].type)
    stride = stride_along(contraction.maps[position], row, row_major(type_.shape))
    return rows_in_one_set(stride * (type_.element_type.width // 8))


def _is_moved(value: ir.Value, readers: int) -> bool:
    """Whether `value` is a transposition with one reader."""
    op = producer(value)
    if op is None or readers != 1:
        return False
    permutation = transposed_by(op)
    return permutation is not None and list(permutation) != sorted(permutation)
