"""Puts a schedule on every dispatch that has none, from the sizes of its loops and the target's vectors.

    func private @matmul_128x768x3072(...) {tilewright.operator = "matmul"}
      =>
    func private @matmul_128x768x3072(...) {tilewright.schedule = {tile = [64, 128], unroll = 0, vector = 0}, ...}

The sink's loops that can be cut without recomputation are cut, outer ones first, until there are tasks for all
workers to balance over. A hand-written schedule is left as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.affine_access import evaluate, is_dim, map_dims, packing
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.passes.apply_schedule import sink_of
from tilewright.compiler.passes.base import Pass
from tilewright.compiler.schedule import Schedule
from tilewright.compiler.structure import Structured, loop_lines, tileable_loops
from tilewright.compiler.target import Target
from tilewright.compiler.tuning.contraction_cut import ContractionCut, Machine, cut_contraction
from tilewright.compiler.tuning.cut import Cuttable, cut, transposing_tile
from tilewright.compiler.tuning.register_tile import packed_widths


@dataclass(frozen=True)
class AssignSchedules(Pass):
    """`tasks` is the number of rTasks to aim at, `minimum_work` the scalar operations worth one rTask; the others
    describe the target: cores, vector registers, GFLOP/s and shared GB/s of all cores, bytes of a core's cache."""

    tasks: int = 16
    minimum_work: int = 50_000
    cores: int = 2
    vector_bits: int = 512
    registers: int = 32
    gflops: float = 200.0
    shared_gbps: float = 80.0
    private_bytes: int = 524288

    @classmethod
    def for_target(cls, target: Target) -> AssignSchedules:
        """The pass with a target's numbers."""
        private = min(level.capacity_bytes for level in target.memory[:-2])
        return cls(
            tasks=8 * target.num_cores,
            cores=target.num_cores,
            vector_bits=target.vector_bits,
            registers=target.registers_per_thread,
            gflops=float(target.peak_gflops["f32"]),
            shared_gbps=float(target.memory[0].bandwidth_gbps) * 2,
            private_bytes=private // 2,
        )

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            if "tilewright.operator" in function.attributes and schedule_attribute.read(function) is None:
                schedule_attribute.write(function, self.decide(function))

    def decide(self, function: ir.Operation) -> Schedule:
        """The schedule for one dispatch."""
        sink = sink_of(function)
        group = [s for s in map(Structured.read, _operations(function)) if s is not None]
        if sink is None or not group or group[-1].op != sink:
            return Schedule()
        root = group[-1]
        loops = tileable_loops(root, group)
        main = next((s for s in group if s.is_contraction), None)
        if main is not None and set(loops) == {i for i, k in enumerate(root.kinds) if k == "parallel"}:
            return Schedule(self.contraction(root, group, main, loops))
        work = sum(s.points * max(1, s.body_ops) for s in group)
        if len(group) == 1 and set(loops) == set(range(len(root.extents))) and not root.accumulates:
            orders = [[e.position for e in m.results if is_dim(e)] for m in root.maps[: root.num_inputs]]
            tiles = [transposing_tile(root.extents, order, 32) for order in orders]
            if any(tiles) and root.points > 4096:
                return Schedule(next(tile for tile in tiles if tile))
        steps = [1] * len(root.extents)
        for s, line in zip(group, loop_lines(root, group)):
            for outer, inner in (line or {}).items():
                blocks = [b for m in s.maps if inner is not None and (b := packing(m, inner)) is not None]
                steps[outer] = math.lcm(steps[outer], *blocks)
        cuttable = Cuttable(root.extents, loops, tuple(steps), root.accumulates, work, self.minimum_work)
        return Schedule(cut(cuttable, self.tasks))

    def contraction(
        self, root: Structured, group: list[Structured], main: Structured, loops: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The tile of a contraction with its epilogue."""
        lines = loop_lines(root, group)
        line = lines[group.index(main)] or {}
        own = {inner: outer for outer, inner in line.items() if inner is not None}
        output = [e.position for e in main.result_map.results if is_dim(e)]
        vector = output[-1]
        bits = main.op.results[0].type.element_type.width
        lanes = max(1, self.vector_bits // bits)
        weight = next((m for m in main.maps[:2] if vector in map_dims(m)), main.maps[0])
        block = next((b for m in main.maps[:2] if (b := packing(m, vector)) is not None), None)
        rows = [d for d in output if d not in map_dims(weight)]
        unroll = max(rows, key=lambda d: (min(main.extents[d], 8), d), default=None)
        steps = [1] * len(root.extents)
        if vector in own:
            steps[own[vector]] = block or min(lanes * 2, main.extents[vector])
        windowed = any(isinstance(e, ir.AffineAddExpr) for m in main.maps for e in m.results)
        if unroll is not None and unroll in own and windowed:
            # A convolution's row is read with its halo: whole rows share it.
            steps[own[unroll]] = root.extents[own[unroll]]
        produced = {result for s in group for result in s.op.results}

        def footprint(tile: tuple[int, ...]) -> tuple[float, float]:
            nbytes = [0.0, 0.0]
            for s, loop_line in zip(group, lines):
                extents = list(s.extents)
                for outer, inner in (loop_line or {}).items():
                    if inner is not None:
                        extents[inner] = tile[outer]
                for operand, map_ in zip(s.op.operands, s.maps):
                    if operand not in produced:
                        follows = s is not main or vector in map_dims(map_)
                        nbytes[follows] += _elements(map_, extents) * bits / 8
            return nbytes[0], nbytes[1]

        problem = ContractionCut(
            extents=root.extents,
            loops=loops,
            steps=tuple(steps),
            exact=root.accumulates and not all(is_dim(e) for e in root.result_map.results),
            flops=2.0 * main.points,
            footprint=footprint,
            unroll=own.get(unroll) if unroll is not None else None,
            vector=own.get(vector, len(root.extents) - 1),
            widths=None if block is None else packed_widths(block, lanes),
        )
        machine = Machine(
            self.cores, lanes, self.registers, self.gflops, self.shared_gbps, self.private_bytes
        )
        return cut_contraction(problem, machine, 4.0 * self.minimum_work, 4 * self.tasks)


def _elements(map_: ir.AffineMap, extents: list[int]) -> int:
    """Elements that an operand holds for loops of these extents, starting at a tile's origin."""
    last = [extent - 1 for extent in extents]
    return math.prod(evaluate(expr, last) + 1 for expr in map_.results)


def _operations(function: ir.Operation) -> list[ir.Operation]:
    return [view.operation for view in function.regions[0].blocks[0].operations]
