"""Candidate schedules of one dispatch on an NVIDIA GPU, by the family of kernels that it becomes."""

from __future__ import annotations

from tilewright.compiler.nouns.cut_space import CutSpace
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.gpu.block_tiles import BlockSpace, block_candidates
from tilewright.compiler.tuning.gpu.gemm_candidates import Fits, GemmChoice, gemm_choices
from tilewright.compiler.tuning.model.gemm_shape import Gemm, gemm_of
from tilewright.compiler.tuning.roller.axis_fusion import fuse_axes
from tilewright.compiler.tuning.roller.options import DEFAULT, ConstructOptions

WINDOWS = ("depthwise", "depthwise_conv2d", "pooling", "avg_pool2d", "pool2d")
"""Workloads whose windows overlap and that reuse nothing else."""


def product_candidates(
    gemm: Gemm,
    target: Target,
    options: ConstructOptions,
    precision: str,
    fits: Fits,
    proposer: str = "aligned",
) -> list[Candidate]:
    """Schedules of a contraction: its tiles, with `levels` over the flattened axes [batch, m, n, k]."""
    found = []
    for choice in gemm_choices(gemm, target, options, precision, fits, proposer):
        schedule = Schedule(levels=levels(choice), gpu=choice.tile)
        found.append(Candidate(schedule, choice.us, choice.bound, proposer))
    return found


def levels(choice: GemmChoice) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What registers (of a thread, or of a warp with matrix instructions) and shared memory hold: [batch, m, n, k]."""
    tile = choice.tile
    if not tile.block:
        return ()
    depth = 1 if tile.kernel == "simt" else tile.block[2]
    return (("registers", (1, *(tile.thread or tile.warp), depth)), ("shared", (1, *tile.block)))


def family(workload: Workload, row: int) -> str:
    """Which kernels compute what is no matrix product: by what is reused, and whether anything is summed."""
    if workload.op in WINDOWS:
        return "windows"
    return "rows" if workload.reduction or row > 1 else "elementwise"


def workload_candidates(
    workload: Workload, target: Target, options: ConstructOptions = DEFAULT, precision: str = "f32"
) -> list[Candidate]:
    """Schedules of a workload without IR, as operators of a benchmark are given: every parallel axis can be cut."""
    gemm = None if workload.op in WINDOWS else gemm_of(workload)
    if gemm is not None:
        return product_candidates(gemm, target, options, precision, lambda tile: True)
    loops = workload.parallel
    extents = tuple(workload.extents[axis] for axis in loops)
    space = CutSpace(extents, loops, tuple(range(len(extents))), (1,) * len(extents), False)
    row = 1
    for axis in workload.reduction:
        row *= workload.extents[axis]
    return block_candidates(workload, block_space(workload, space, row), target, options)


def block_space(workload: Workload, space: CutSpace, row: int) -> BlockSpace:
    """The space of blocks over cuts; the inner loop is the one that results lie along, if it can be cut."""
    out = workload.output
    last = next((i for i in reversed(out.index_map) if i.terms), None)
    axis = last.terms[-1].variable if last else None
    inner = next((loop for loop in space.loops if space.axes[loop] == axis), None)
    reads = [o for o in workload.operands if len(o.axes) == len(workload.axes)] or [out]
    item = max(o.element_bytes for o in reads)
    reduced = _walks_reduction(workload)
    kind = family(workload, row)
    if kind == "rows" and reduced:
        return BlockSpace(kind, space, item, row, None, _run(workload, workload.reduction[-1]))
    return BlockSpace(kind, space, item, row, inner, 1 if axis is None else _run(workload, axis))


def _run(workload: Workload, axis: int) -> int:
    """Points that every operand walks one after the other around an axis: the canonical axis it is merged into."""
    fused = fuse_axes(workload)
    group = next((position for position, axes in enumerate(fused.groups) if axis in axes), None)
    return 1 if group is None else fused.workload.extents[group]


def _walks_reduction(workload: Workload) -> bool:
    """Whether the largest input lies along a reduction: then its rows are what is reduced."""
    if not workload.inputs or not workload.reduction:
        return False
    largest = max(workload.inputs, key=lambda o: o.nbytes)
    last = next((i for i in reversed(largest.index_map) if i.terms), None)
    return last is not None and any(t.variable in workload.reduction for t in last.terms)
