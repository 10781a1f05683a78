"""Which operand of a contraction can be stored in blocks, along which loop, and in blocks of which sizes."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, map_dims
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.register_tiles import block_widths


@dataclass(frozen=True)
class PackedOperand:
    """The operand at `position`, in blocks along `loop`; inside of one, `innermost` loops lie along the vector too.

    `blocks` are the sizes that fill vectors, ascending: none where no blocks of this operand do.
    """

    position: int
    loop: int
    blocks: tuple[int, ...]
    innermost: tuple[int, ...] = ()

    @classmethod
    def read(
        cls, contraction: Structured, static: set[ir.Value], vector_bits: int, registers: int
    ) -> PackedOperand | None:
        """The operand that alone follows the vector loop, by plain loops; of grouped contractions their weight."""
        output = contraction.result_map
        last = output.results[-1] if len(output.results) else None
        if last is None or not is_dim(last):
            return None
        lanes = vector_bits // (contraction.op.results[0].type.element_type.width or vector_bits)
        grouped = cls._of_groups(contraction, static, lanes)
        if grouped is not None:
            return grouped
        loop = last.position
        for position in range(2):
            map_ = contraction.maps[position]
            alone = loop in map_dims(map_) and loop not in map_dims(contraction.maps[1 - position])
            if alone and all(is_dim(expr) for expr in map_.results):
                return cls(position, loop, block_widths(contraction.extents[loop], lanes, registers))
        return None

    @classmethod
    def _of_groups(cls, contraction: Structured, static: set[ir.Value], lanes: int) -> PackedOperand | None:
        """The weight of a grouped contraction, with as many groups side by side as fill a vector.

        For groups of fewer results than lanes: the output ends in (group, result), the data in (group, channel).
        """
        output = list(contraction.result_map.results)
        if len(output) < 3 or not all(is_dim(expr) for expr in output[-2:]):
            return None
        group, result = output[-2].position, output[-1].position
        block = lanes // contraction.extents[result]
        if block < 2 or lanes % contraction.extents[result] or contraction.extents[group] % block:
            return None
        for position in range(2):
            map_, data = contraction.maps[position], list(contraction.maps[1 - position].results)
            if contraction.op.operands[position] not in static or not all(map(is_dim, map_.results)):
                continue
            if len(data) < 2 or not is_dim(data[-2], group) or not is_dim(data[-1]):
                continue
            inner = data[-1].position
            follows = {group, result, inner} <= map_dims(map_)
            if (
                follows
                and contraction.kinds[inner] == "reduction"
                and 1 < contraction.extents[inner] <= lanes
            ):
                return cls(position, group, (block,), (result,))
        return None
