"""Axis fusion: a workload in canonical form, with as few axes as its operands allow (Roller, OSDI'22, §3.2).

Two adjacent axes merge where every operand either lacks both or walks both one after the other without a gap: an
elementwise operator on [17, 11, 3] becomes one on [561]. Where tiles are copied into memory that programs address,
an operand may also be gathered: a convolution's n, h and w become one axis, and c, kh and kw another (implicit GEMM).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term
from tilewright.compiler.nouns.workload import Axis, Operand, Workload


@dataclass(frozen=True)
class Fused:
    """A workload in canonical form; `groups[a]` are the original axes that its axis `a` stands for, outer first."""

    workload: Workload
    original: Workload
    groups: tuple[tuple[int, ...], ...]

    def unfuse(self, tile: tuple[int, ...]) -> tuple[int, ...]:
        """The smallest box over the original axes that covers a tile of the canonical ones."""
        sizes = [1] * len(self.original.axes)
        for group, size in zip(self.groups, tile):
            for axis in reversed(group):
                extent = self.original.extents[axis]
                sizes[axis] = max(1, min(size, extent) if axis != group[0] else size)
                size = -(-size // extent)
        return tuple(sizes)


def fuse_axes(workload: Workload, gather: bool = False) -> Fused:
    """The canonical form: axes of one step dropped, adjacent ones merged, with `gather` those of a contraction too."""
    if not workload.axes:
        # One point: an axis of one step, so that there is something to tile.
        return Fused(replace(workload, axes=(Axis("point", 1),)), workload, ((),))
    original, workload = workload, _without_steps(workload)
    groups: list[tuple[int, ...]] = [(a,) for a, axis in enumerate(workload.axes) if axis.extent > 1] or [
        (0,)
    ]
    if gather and _is_gathered(workload):
        groups = _gather_groups(workload, groups)
        return Fused(_rebuild(workload, groups), original, tuple(groups))
    merged = True
    while merged:
        merged = False
        for position, first in enumerate(groups):
            for other in range(len(groups)):
                if other != position and _contiguous(workload, first, groups[other]):
                    groups[position] = first + groups[other]
                    del groups[other]
                    merged = True
                    break
            if merged:
                break
    return Fused(_rebuild(workload, groups), original, tuple(groups))


def _without_steps(workload: Workload) -> Workload:
    """The workload without terms of axes of one step: they move nothing."""
    operands = tuple(
        replace(
            operand,
            index_map=tuple(
                QuasiAffine(tuple(t for t in index.terms if workload.extents[t.variable] > 1), index.offset)
                for index in operand.index_map
            ),
        )
        for operand in workload.operands
    )
    return replace(workload, operands=operands)


def _contiguous(workload: Workload, outer: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    """Whether every operand lacks both axes, or walks `inner` and right around it `outer`, without a gap."""
    if workload.axes[outer[0]].kind != workload.axes[inner[0]].kind:
        return False
    return all(_walks(operand, outer[-1], inner[0], workload) for operand in workload.operands)


def _walks(operand: Operand, outer: int, inner: int, workload: Workload) -> bool:
    has_outer, has_inner = outer in operand.axes, inner in operand.axes
    if not has_outer and not has_inner:
        return True
    if not (has_outer and has_inner):
        return False
    alone = {
        index.terms[0].variable: dim
        for dim, index in enumerate(operand.index_map)
        if len(index.terms) == 1
        and index.offset == 0
        and (index.terms[0].scale, index.terms[0].divisor, index.terms[0].modulus) == (1, 1, 0)
    }
    if outer not in alone or inner not in alone:
        return False
    between = operand.shape[alone[outer] + 1 : alone[inner]]
    whole = operand.shape[alone[inner]] == workload.extents[inner]
    once = sum(t.variable in (outer, inner) for i in operand.index_map for t in i.terms) == 2
    return alone[outer] < alone[inner] and all(size == 1 for size in between) and whole and once


def _is_gathered(workload: Workload) -> bool:
    """Whether it is a contraction: every input is reused along some parallel axis, so that gathering it pays."""
    out = workload.output.axes
    full = [o for o in workload.inputs if len(o.axes) > 1]
    return len(full) >= 2 and bool(workload.reduction) and all(out - o.axes for o in full)


def _gather_groups(workload: Workload, groups: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Axes of one kind that occur in the same operands, in the workload's order."""
    signature: dict[tuple, list[int]] = {}
    for (axis,) in groups:
        key = (workload.axes[axis].kind, tuple(axis in o.axes for o in workload.operands))
        signature.setdefault(key, []).append(axis)
    # Parallel groups whose last axis comes last in the result stay last: they are contiguous there.
    found = sorted(signature.items(), key=lambda item: (item[0][0] == "reduction", item[1][-1]))
    return [tuple(axes) for _, axes in found]


def _rebuild(workload: Workload, groups: list[tuple[int, ...]]) -> Workload:
    """The workload over the groups; operands that walk a merged axis whole keep their shape merged, others gather."""
    place: dict[int, tuple[int, int, int]] = {}
    axes = []
    for position, group in enumerate(groups):
        extent = 1
        for axis in reversed(group):
            place[axis] = (position, extent, workload.extents[axis])
            extent *= workload.extents[axis]
        name = "".join(workload.axes[a].name for a in group)
        axes.append(Axis(name, extent, workload.axes[group[0]].kind))
    operands = tuple(_operand(operand, groups, place, workload) for operand in workload.operands)
    return Workload(workload.op, tuple(axes), operands, workload.flops_per_point, workload.epilogue_flops)


def _operand(operand: Operand, groups, place, workload: Workload) -> Operand:
    shape: list[int] = []
    index_map: list[QuasiAffine[int]] = []
    dim = 0
    while dim < len(operand.shape):
        run = _run(operand, dim, groups, workload)
        if run is not None:
            position, length = run
            extent = 1
            for size in operand.shape[dim : dim + length]:
                extent *= size
            shape.append(extent)
            index_map.append(QuasiAffine((Term(position),)))
            dim += length
            continue
        terms = tuple(
            t for term in operand.index_map[dim].terms if (t := _term(term, groups, place)) is not None
        )
        shape.append(operand.shape[dim])
        index_map.append(QuasiAffine(terms, operand.index_map[dim].offset))
        dim += 1
    return Operand(operand.name, tuple(shape), operand.dtype, tuple(index_map), operand.output)


def _run(operand: Operand, dim: int, groups, workload: Workload) -> tuple[int, int] | None:
    """(group, dimensions) where the dimensions from `dim` on walk one whole group in its order, else None."""
    for position, group in enumerate(groups):
        wanted = list(group)
        at = dim
        while wanted and at < len(operand.shape):
            index = operand.index_map[at]
            if not index.terms and operand.shape[at] == 1 and at > dim:
                at += 1
                continue
            if index.terms != (Term(wanted[0]),) or operand.shape[at] != workload.extents[wanted[0]]:
                break
            wanted.pop(0)
            at += 1
        if not wanted:
            return position, at - dim
    return None


def _term(term: Term, groups, place) -> Term | None:
    if term.variable not in place:
        return None
    position, divisor, extent = place[term.variable]
    group = groups[position]
    if len(group) == 1:
        return Term(position, term.scale, term.divisor, term.modulus)
    modulus = term.modulus or (0 if term.variable == group[0] else -(-extent // term.divisor))
    return Term(position, term.scale, divisor * term.divisor, modulus)
