"""Reads off a dispatch what code generation can cut of it: loops, blocks, shared rows, the register tile's loops."""

from __future__ import annotations

import math

from tilewright.compiler.analysis.affine_access import dims, is_dim, map_dims, packing
from tilewright.compiler.analysis.line_operations import Lines
from tilewright.compiler.analysis.padding import Padding, slid_padding
from tilewright.compiler.analysis.placement import REPLACES
from tilewright.compiler.analysis.structure import Structured, loop_lines, producer, tileable_loops
from tilewright.compiler.analysis.workload_of import DispatchWorkload
from tilewright.compiler.dialects.fourier import FOURIER
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.cut_space import CutSpace, RegisterLoops
from tilewright.compiler.nouns.register_tiles import packed_widths

_ROWS_TOGETHER, _LONG_ROW = 4, 64
"""Rows whose lanes are added up together, where a row has fewer vectors than what that costs is lost in."""


def read_cut_space(dispatch: DispatchWorkload, vector_bits: int) -> CutSpace:
    """The cuts of a dispatch that has structured operations.

    A loop can be cut where every operation follows it without recomputation. Tiles are whole blocks of packed
    operands, or divide one; rows along which windows slide, which share their halo, stay whole; a contraction's columns are cut
    between pairs of vectors, and short rows that are summed along themselves between fours.
    """
    group = list(dispatch.group)
    root, lines = group[-1], loop_lines(group[-1], group)
    loops = tileable_loops(root, group)
    axis_of = {loop: axis for axis, loop in enumerate(dispatch.loops) if loop is not None}
    axes = tuple(axis_of[loop] for loop in range(len(root.extents)))
    main, blocks = dispatch.main, _blocks(root, group, lines)
    # A ragged last rTask accumulates in memory of its own and copies out what its one result's dimensions can place.
    placed = len(root.op.results) == 1 and all(is_dim(e) for e in root.result_map.results)
    replaces = REPLACES in root.op.parent.attributes
    exact, copied = replaces or (root.accumulates and not placed), root.accumulates and placed
    if main is not None and main.is_contraction and set(loops) == _parallel(root):
        line = lines[group.index(main)] or {}
        steps, registers = _contraction(root, main, line, vector_bits)
        steps = tuple(map(max, steps, _padded_rows(root, main, line)))
        passes = dispatch.passes if _pads(main) else ()
        return CutSpace(root.extents, axes, loops, steps, exact, registers, (), blocks, passes, copied)
    steps = list(blocks)
    for structured, line in zip(group, lines):
        steps = list(map(max, steps, _padded_rows(root, structured, line or {})))
        row = _short_rows(structured, vector_bits)
        for loop, own in (line or {}).items():
            if own is not None and own == row:
                steps[loop] = math.lcm(steps[loop], _ROWS_TOGETHER)
    inner = root.result_map.results[-1] if root.result_map.results else None
    if inner is not None and is_dim(inner):
        # The result's rows are cut between pairs of vectors, or not at all.
        pair = 2 * max(1, vector_bits // _bits(root.op.results[0].type))
        steps[inner.position] = math.lcm(steps[inner.position], pair)
    return CutSpace(
        root.extents,
        axes,
        loops,
        tuple(min(step, extent) for step, extent in zip(steps, root.extents)),
        exact,
        transposed=_transposed(root, group, loops),
        blocks=blocks,
        passes=dispatch.passes,
        copied=copied,
    )


def lines_cut_space(lines: Lines, in_place: bool, vector_bits: int) -> CutSpace:
    """The cuts between lines, those that lie side by side between pairs of vectors, those that are transposed between vectors.

    What is changed where it lies must not be changed twice, and is cut evenly; a sort or a scatter else copies out what a
    ragged last rTask has changed in memory of its own.
    """
    steps, last = [1] * len(lines.extents), len(lines.extents) - 1
    if last in lines.parallel:
        pair = 2 * max(1, vector_bits // _bits(lines.op.results[0].type))
        steps[last] = min(pair, lines.extents[last])
    elif lines.op.name == FOURIER and last:
        vector = max(1, vector_bits // _bits(lines.op.results[0].type))
        steps[last - 1] = min(vector, lines.extents[last - 1])
    return CutSpace(
        lines.extents,
        tuple(range(len(lines.extents))),
        lines.parallel,
        tuple(steps),
        exact=in_place,
        blocks=(1,) * len(lines.extents),
        copied=lines.accumulates,
    )


def _pads(main: Structured) -> list[tuple[Padding, ir.AffineMap]]:
    """Padding that windows slide over, and how they read it."""
    found = ((producer(operand), map_) for operand, map_ in zip(main.op.operands, main.maps))
    return [(p, map_) for op, map_ in found if op is not None and (p := slid_padding(op)) is not None]


def _padded_rows(root: Structured, main: Structured, line: dict[int, int | None]) -> list[int]:
    """Per loop of the sink 1, or its extent where windows slide along it over rows that an rTask pads for itself.

    Only the outermost of the padded dimensions is cut: the copies inside are rows of one length then.
    """
    found = [1] * len(root.extents)
    for padding, map_ in _pads(main):
        moving = {loop for d in padding.bounded_loops[1:] for loop in dims(map_.results[d])}
        for outer, own in line.items():
            if own in moving:
                found[outer] = root.extents[outer]
    return found


def _short_rows(s: Structured, vector_bits: int) -> int | None:
    """The innermost loop of the result of a reduction whose vectors run along short rows; None for anything else."""
    if s.is_elementwise or not all(m.is_projected_permutation for m in s.maps):
        return None
    read = s.maps[0].results
    parallel = [loop for loop, kind in enumerate(s.kinds) if kind == "parallel" and s.extents[loop] > 1]
    if not parallel or not read or s.kinds[read[-1].position] == "parallel":
        return None
    vectors = (
        s.points
        // math.prod(s.extents[loop] for loop in parallel)
        * _bits(s.op.results[0].type)
        / vector_bits
    )
    return parallel[-1] if vectors < _LONG_ROW else None


def _bits(type_: ir.Type) -> int:
    element = ir.ShapedType(type_).element_type
    return element.width if isinstance(element, (ir.FloatType, ir.IntegerType)) else 64


def _parallel(root: Structured) -> set[int]:
    return {i for i, kind in enumerate(root.kinds) if kind == "parallel"}


def _blocks(
    root: Structured, group: list[Structured], lines: list[dict[int, int | None] | None]
) -> tuple[int, ...]:
    """Per loop of the sink, the least multiple of all blocks that operands are packed in along it."""
    steps = [1] * len(root.extents)
    for structured, line in zip(group, lines):
        for outer, inner in (line or {}).items():
            found = [b for m in structured.maps if inner is not None and (b := packing(m, inner)) is not None]
            steps[outer] = math.lcm(steps[outer], *found)
    return tuple(steps)


def _transposed(root: Structured, group: list[Structured], loops: tuple[int, ...]) -> tuple[int, ...]:
    """The loop order of a source that runs along another loop than the result; empty where there is none."""
    if len(group) != 1 or set(loops) != set(range(len(root.extents))) or root.accumulates:
        return ()
    for map_ in root.maps[: root.num_inputs]:
        order = tuple(e.position for e in map_.results if is_dim(e))
        last = len(root.extents) - 1
        # What the last loop does not touch is broadcast along it, not transposed.
        if last in order and order[-1] != last:
            return order
    return ()


def _contraction(
    root: Structured, main: Structured, line: dict[int, int | None], vector_bits: int
) -> tuple[tuple[int, ...], RegisterLoops]:
    own = {inner: outer for outer, inner in line.items() if inner is not None}
    output = [e.position for e in main.result_map.results if is_dim(e)]
    vector = output[-1]
    lanes = max(1, vector_bits // _bits(main.op.results[0].type))
    moving = [m for m in main.maps[:2] if vector in map_dims(m)]
    block = next((b for m in moving if (b := packing(m, vector)) is not None), None)
    # As `vectorize-reductions` chooses: the loop that re-uses the most vector operands; ties go to the inner one.
    rows = [(sum(d not in map_dims(m) for m in moving), min(main.extents[d], 8), d) for d in output[:-1]]
    unroll = max(rows)[2] if rows else None
    steps = [1] * len(root.extents)
    if vector in own:
        # What one vector of channels is padded into stays in the nearest caches.
        steps[own[vector]] = block or min(lanes if _pads(main) else lanes * 2, main.extents[vector])
    slides = any(isinstance(e, ir.AffineAddExpr) and unroll in dims(e) for m in main.maps for e in m.results)
    if unroll is not None and unroll in own and slides and len(moving) == 1:
        steps[own[unroll]] = root.extents[own[unroll]]
    registers = RegisterLoops(
        None if unroll is None else own.get(unroll),
        own.get(vector),
        1 if unroll is None else main.extents[unroll],
        main.extents[vector],
        None if block is None else packed_widths(block, lanes),
    )
    return tuple(steps), registers
