"""A compiler of candidates for the profiler whose kernels are of the mock driver; a schedule's `unroll` says what one does."""

from __future__ import annotations

from typing import Any

from mock_cuda_driver import kernel

from tilewright.compiler.codegen.lower_cpu import LoweredKernel
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target

DEEDS = {
    0: "scale pp n=64 by=2 us=50",
    1: "scale pp n=64 by=2 us=10",
    2: "scale pp n=64 by=2 us=30",
    3: "scale pp n=64 by=3 us=1",
    4: "fault pp n=64",
    5: "hang pp n=64",
    6: "die pp n=64",
    7: "beyond pp n=64 us=1",
    8: "check ppp n=64 full=2 limit=-2 us=1",
    9: "scale pp n=64 by=2 us=1",
}
"""What the kernel of each `unroll` does; number 9 asks for more shared memory than there is."""


def compile_candidate(dispatch: str, schedule: dict[str, Any], target: Target) -> LoweredKernel:
    deed = Schedule.from_dict(schedule).unroll
    asserts = ("too large",) if deed == 8 else ()
    shared = 400_000 if deed == 9 else 0
    return LoweredKernel(kernel("candidate", DEEDS[deed], grid=4, shared_bytes=shared, asserts=asserts), 4)
