"""Loops that lie side by side in memory in all operands of an operation, taken for one.

    (c, f, h, w) %y[c, f, h, w] = %x[f, h, w, c]             (c, i) %y'[c, i] = %x'[i, c]

A loop of four elements leaves vectors a quarter full, and visits each cache line four times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.compiler.analysis.affine_access import dims, is_dim, map_dims
from tilewright.compiler.families.cpu.reduction import Structure
from tilewright.compiler.ir import ir, memref


@dataclass(frozen=True)
class Joined:
    """An operation over joined loops, and which dimensions of each operand are one; `structure.op` is still the old one."""

    structure: Structure
    dimensions: tuple[tuple[tuple[int, ...], ...], ...]

    @classmethod
    def of(cls, s: Structure) -> Joined:
        """With all loops joined that can be; nothing changes where there are none."""
        follower = {
            a: b for a, b in _pairs(s.maps[-1]) if all(_beside(s, i, a, b) for i in range(len(s.maps)))
        }
        groups = [_chain(loop, follower) for loop in range(len(s.extents)) if loop not in follower.values()]
        number = {loop: new for new, group in enumerate(groups) for loop in group}
        maps, dimensions, shapes, strides = [], [], [], []
        for map_, shape, steps in zip(s.maps, s.shapes, s.strides):
            merged = _merged(map_, follower)
            renamed = [ir.AffineExpr.get_dim(number[loop]) for loop in range(map_.n_dims)]
            exprs = [map_.results[at[0]].compose(ir.AffineMap.get(len(groups), 0, renamed)) for at in merged]
            maps.append(ir.AffineMap.get(len(groups), 0, exprs))
            dimensions.append(merged)
            sizes = [math.prod(shape[d] for d in at) for at in merged]
            shapes.append(tuple(sizes))
            strides.append(tuple(_stride(shape, steps, at) for at in merged))
        structure = replace(
            s,
            maps=maps,
            extents=tuple(math.prod(s.extents[loop] for loop in group) for group in groups),
            parallel=tuple(new for new, group in enumerate(groups) if group[0] in s.parallel),
            reduction=tuple(new for new, group in enumerate(groups) if group[0] in s.reduction),
            shapes=tuple(shapes),
            strides=tuple(strides),
        )
        return cls(structure, tuple(dimensions))

    def operands(self) -> list[ir.Value]:
        """The operands with joined dimensions, as views made at the current insertion point."""
        found = []
        for value, at, shape, strides in zip(
            self.structure.op.operands, self.dimensions, self.structure.shapes, self.structure.strides
        ):
            if any(len(group) > 1 for group in at):
                value = memref.collapse_shape(_view(value.type, shape, strides), value, [list(g) for g in at])
            found.append(value)
        return found


def _pairs(map_: ir.AffineMap) -> Iterator[tuple[int, int]]:
    """The loops that two neighbouring dimensions of an operand follow, each nothing but one loop."""
    for outer, inner in itertools.pairwise(map_.results):
        if is_dim(outer) and is_dim(inner):
            yield ir.AffineDimExpr(outer).position, ir.AffineDimExpr(inner).position


def _beside(s: Structure, operand: int, outer: int, inner: int) -> bool:
    """Whether an operand does not follow the two loops, or goes on where `inner` ends when `outer` takes a step."""
    map_ = s.maps[operand]
    if not {outer, inner} & map_dims(map_):
        return True
    if (outer, inner) not in _pairs(map_) or (outer in s.parallel) != (inner in s.parallel):
        return False
    if any(sum(loop in dims(expr) for expr in map_.results) != 1 for loop in (outer, inner)):
        return False
    at = next(d for d, expr in enumerate(map_.results) if is_dim(expr, outer))
    step, next_step = s.strides[operand][at], s.strides[operand][at + 1]
    return next_step > 0 and step == next_step * s.shapes[operand][at + 1]


def _chain(loop: int, follower: dict[int, int]) -> list[int]:
    found = [loop]
    while found[-1] in follower:
        found.append(follower[found[-1]])
    return found


def _merged(map_: ir.AffineMap, follower: dict[int, int]) -> tuple[tuple[int, ...], ...]:
    """An operand's dimensions, those of one joined loop together."""
    loops = [ir.AffineDimExpr(e).position if is_dim(e) else None for e in map_.results]
    found: list[list[int]] = []
    for d, loop in enumerate(loops):
        before = loops[d - 1] if d else None
        if before is not None and loop is not None and follower.get(before) == loop:
            found[-1].append(d)
        else:
            found.append([d])
    return tuple(map(tuple, found))


def _stride(shape: tuple[int, ...], strides: tuple[int, ...], at: tuple[int, ...]) -> int:
    """That of several dimensions in one, as `memref.collapse_shape` has it: of the last that is more than one element."""
    last = next((d for d in reversed(at) if shape[d] != 1), at[0])
    return strides[last]


def _view(type_: ir.MemRefType, shape: tuple[int, ...], strides: tuple[int, ...]) -> ir.MemRefType:
    if ir.AffineMap.get_identity(len(type_.shape)) == type_.affine_map:
        return ir.MemRefType.get(shape, type_.element_type, memory_space=type_.memory_space)
    offset = type_.get_strides_and_offset()[1]
    layout = ir.StridedLayoutAttr.get(offset, list(strides))
    return ir.MemRefType.get(shape, type_.element_type, layout, type_.memory_space)
