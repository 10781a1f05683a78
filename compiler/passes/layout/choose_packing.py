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
from tilewright.compiler.analysis.chosen_parts import with_parts
from tilewright.compiler.analysis.packed_operand import PackedOperand
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.analysis.weight_flow import static_values
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.register_tiles import RegisterTile
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.layout_rules import transposed_by
from tilewright.compiler.targets.file import written
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.register_tile import Panel, choose_packing, rows_in_one_set, vector_load

_ENOUGH_ROWS = 8
"""Loops as long as this reuse columns as well as longer ones do."""


@dataclass(frozen=True)
class ChoosePacking(Pass):
    """Chooses for a target: a preset, a .json file or a target as JSON text.

    A block is as wide as the register tile that is fastest where weights come from: from main memory at every call where all
    of a function's weights are more than the last cache holds, else from there.

    Operands that are no weights are packed where they are transposed at every call, which then is one copy still, as
    filters in training. Others are copied at every call where one product's part of them is more than `kept_bytes`, 0 for what
    a core's own cache holds, and its rows are met by register tiles often enough: `least_passes` times for each line that a
    tile is wide where rows share few sets of the caches, `spread_passes` times where they do not. Under windows, which stream
    an operand anew for every row of an image, `window_reads` of each element are enough, whatever it holds. Cores that multiply
    by more than a line of f32 in a cycle wait for lines: there `hurried_passes` are enough, of what takes more than half of
    `kept_bytes`.

    Measured times with a copy, of those without. Zen 4 (tiles of 6 x 64), one thread, eight operands of 4 to 16 MiB whose rows
    share sets: 256 rows 1.02 to 1.05 for most, 512 rows (21 passes) 0.93 to 1.02, 1,024 rows 0.91 to 0.98. Zen 3 (6 x 16), two
    threads, operands of 1 to 16 MiB: 128 rows (21 passes) 0.92 to 1.05, 192 rows 0.72 to 0.94, 768 rows 0.53 to 0.86; rows of
    3 KiB, which share none: 192 rows 1.00, 384 rows (64 passes) 0.95, 768 rows 0.66 to 0.84. These multiply by one
    line in a cycle, and an Ice Lake Xeon (6 x 64) by two; there, two threads, operands of 9 to 16 MiB, whether or not
    their rows share sets: 64 rows 0.81 to 1.27, 128 rows (5 passes for each of 4 lines) 0.76 to 1.07, 192 rows 0.57 to 1.02, 384 rows
    0.59 to 0.76; of 1 and 2.25 MiB: 192 rows 0.89 and 1.00, 384 rows 0.79 and 0.85; of up to 576 KiB: 256 rows 0.99 to 1.24.
    """

    target: str = "cpu"
    least_passes: int = 21
    spread_passes: int = 64
    hurried_passes: int = 8
    window_reads: int = 128
    kept_bytes: int = 0

    @classmethod
    def for_target(cls, target: Target) -> ChoosePacking:
        """The pass with a target's numbers."""
        return cls(written(target))

    def run(self, op: ir.Operation) -> None:
        target = self.target_named(op, self.target)
        for function in functions(op.opview):
            static = with_parts(static_values(function))
            found: list[tuple[Structured, PackedOperand]] = []
            for view in function.regions[0].blocks[0].operations:
                structured = Structured.read(view.operation)
                if structured is None or not structured.is_contraction:
                    continue
                packed = PackedOperand.read(
                    structured, static, target.vector_bits, target.registers_per_thread
                )
                if packed is not None and packed.blocks:
                    found.append((structured, packed))
            weights = {s.op.operands[p.position] for s, p in found} & static
            streamed = sum(map(_bytes, weights)) > target.memory[1].capacity_bytes
            copied: Counter[ir.Value] = Counter()
            for structured, packed in found:
                self.choose(structured, packed, static, copied, target, streamed)

    def choose(
        self,
        contraction: Structured,
        packed: PackedOperand,
        static: set[ir.Value],
        copied: Counter[ir.Value],
        target: Target,
        streamed: bool,
    ) -> None:
        """Writes what is missing of the choice; `copied` counts readers that copies have taken a value from.

        `streamed` tells whether weights come from main memory.
        """
        value, given = contraction.op.operands[packed.position], choice_attribute.read(contraction.op)
        best = _tile(contraction, packed, target, streamed and value in static)
        if value in static:
            choice_attribute.write(contraction.op, **{"block": best.vector, **given})
            return
        copy = given.get("copy", bool(given["block"]) if "block" in given else None)
        if copy is None:
            moved = _is_moved(value, readers=len(list(value.uses)) - copied[value])
            copy = moved or self.pays_at_every_call(contraction, packed.position, best, target)
        own = {"copy": copy, "block": best.vector} if copy else {"copy": copy}
        choice_attribute.write(contraction.op, **{**own, **given})
        copied[value] += bool(copy)

    def pays_at_every_call(
        self, contraction: Structured, position: int, tile: RegisterTile, target: Target
    ) -> bool:
        """Whether an operand that is no weight is read often enough, and lies badly enough, to be copied first.

        Where the closest steps of the reduction are multiples of half a page apart, lines of a block of columns share few
        sets of every cache and are fetched again for each block of rows.
        """
        type_, map_ = ir.RankedTensorType(contraction.op.operands[position].type), contraction.maps[position]
        own, output, other = map_dims(map_), map_dims(contraction.result_map), contraction.maps[1 - position]
        reads = math.prod(contraction.extents[d] for d in output - own)
        width = type_.element_type.width // 8
        steps = [stride_along(map_, d, row_major(type_.shape)) for d in own - output]
        if not steps or min(steps) == 1:
            return False
        share_sets = rows_in_one_set(min(steps) * width, target) is not None
        if not all(is_dim(expr) for expr in other.results):
            return share_sets and reads >= self.window_reads
        nbytes = width * math.prod(contraction.extents[d] for d in own - (output & map_dims(other)))
        near = target.own_cache
        lines = max(1.0, tile.vector * width / near.transaction_bytes)
        least = self.least_passes if share_sets else self.spread_passes
        kept = self.kept_bytes or near.capacity_bytes
        if 4 * target.lanes_per_core > near.transaction_bytes:
            least, kept = self.hurried_passes, kept // 2
        return reads / tile.unroll >= least * lines and nbytes > kept


def _tile(contraction: Structured, packed: PackedOperand, target: Target, in_memory: bool) -> RegisterTile:
    """The register tile of the contraction, which is as wide as a block."""
    if packed.innermost:
        return RegisterTile(1, packed.blocks[0])
    map_, loop, extents = contraction.maps[packed.position], packed.loop, contraction.extents
    element = contraction.op.operands[packed.position].type.element_type
    lanes = target.vector_bits // contraction.op.results[0].type.element_type.width
    passing = [
        e.position
        for e in contraction.result_map.results
        if is_dim(e) and e.position not in map_dims(map_) | {loop}
    ]
    # The loop that register tiles unroll: ties go to the inner one.
    row = max(passing, key=lambda row: (min(extents[row], _ENOUGH_ROWS), row), default=None)
    rows = 1 if row is None else extents[row]
    most_rows = None if row is None else _rows_side_by_side(contraction, 1 - packed.position, row, target)
    steps = math.prod(extents[d] for d in map_dims(map_) - map_dims(contraction.result_map))
    points = math.prod(extents[d] for d in passing)
    panel = Panel.of(target, points, steps, str(element), max(1, element.width // 8), in_memory)
    registers = target.registers_per_thread
    found = choose_packing(rows, extents[loop], lanes, registers, most_rows, panel, vector_load(target))
    assert found is not None, "an operand that has blocks is divided by one"
    return found


def _bytes(value: ir.Value) -> int:
    type_ = ir.RankedTensorType(value.type)
    return math.prod(type_.shape) * type_.element_type.width // 8


def _rows_side_by_side(contraction: Structured, position: int, row: int, target: Target) -> int | None:
    """How many rows of an operand fit into L1 side by side."""
    type_ = ir.RankedTensorType(contraction.op.operands[position].type)
    stride = stride_along(contraction.maps[position], row, row_major(type_.shape))
    return rows_in_one_set(stride * (type_.element_type.width // 8), target)


def _is_moved(value: ir.Value, readers: int) -> bool:
    """Whether `value` is a transposition with one reader."""
    op = producer(value)
    if op is None or readers != 1:
        return False
    permutation = transposed_by(op)
    return permutation is not None and list(permutation) != sorted(permutation)
