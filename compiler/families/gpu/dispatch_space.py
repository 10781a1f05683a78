"""The spaces of a dispatch's schedules on a GPU: one for every kernel that computes it, and the union of them all.

    kernel in mma, simt                         the constructed one's first
    mma.block[0] in 16, 32, .. 256              where it is computed so

A kernel computes a dispatch where its family's chooser completes a schedule that names it and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler import debug
from tilewright.compiler.errors import PassError, ScheduleError
from tilewright.compiler.families.gpu.candidates import precision_of
from tilewright.compiler.families.gpu.families import FAMILIES, Completed, complete, space_of
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import KERNELS, GpuTile, Schedule
from tilewright.compiler.nouns.space import Space, union
from tilewright.compiler.targets.target import Target

_TF32 = "mma.m16n8k8.tf32"


def dispatch_space(function: ir.Operation, target: Target, constructed: Schedule) -> Space:
    """All schedules of a dispatch on a GPU; `constructed` is the one to use without a search, complete."""
    return union("kernel", kernel_spaces(function, target, constructed))


def kernel_spaces(
    function: ir.Operation, target: Target, constructed: Schedule, asked: Sequence[str] = KERNELS
) -> dict[str, Space]:
    """By kernel, the constructed one first, the schedules of those among `asked` that compute a dispatch.

    The fallback, which computes all that others do, is one of them where it is constructed only.
    """
    return {
        kernel: space_of(one, target)
        for kernel, one in completed_kernels(function, target, constructed, asked).items()
    }


def completed_kernels(
    function: ir.Operation, target: Target, constructed: Schedule, asked: Sequence[str] = KERNELS
) -> dict[str, Completed]:
    """By kernel, the constructed one first, a complete schedule of those among `asked` that compute a dispatch."""
    first = complete(function, constructed, target)
    found = {first.kernel: first}
    for kernel in asked:
        if kernel in found or kernel in FAMILIES["fallback"]:
            continue
        requests = [GpuTile(kernel)]
        if kernel == "mma" and precision_of(function) == "tf32":
            requests.append(GpuTile(kernel, instruction=_TF32))
        for request in requests:
            try:
                found[kernel] = complete(function, Schedule(gpu=request), target)
            except (ScheduleError, PassError) as refusal:
                debug.log(3, f"no kernel {kernel}: {refusal}")
                continue
            break
    return found
