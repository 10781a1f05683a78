"""The processors of this machine as devices of a search: candidates compiled by workers, measured in a process of their own.

device = LocalCpuDevice(target, options, records)
device.submit(task, points)                      // returns at once
for outcome in device.outcomes(): ...            // as they come
device.race(task, points, rounds)                // a few of them in turns, when a search has come down to them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.candidate_bench import (
    MEASURING_ON_GPU,
    CandidateBench,
    MeasureOptions,
)
from tilewright.compiler.profiler.dispatch_facts import DispatchFacts
from tilewright.compiler.profiler.gpu_here import measuring_gpu
from tilewright.compiler.profiler.measuring_device import MeasuringDevice
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.host import processor
from tilewright.compiler.targets.target import Target
from tilewright.compiler.workers.pool import Job, pool
from tilewright.runtime.settings import num_threads, physical_cores


def compile_here(
    facts: DispatchFacts, schedules: Sequence[Schedule], target: Target, options: MeasureOptions
) -> list[Any]:
    """The kernel of each schedule, or the error that there is none for, as this machine's workers give them."""
    results: list[Any] = [None] * len(schedules)
    jobs = [
        Job(
            options.compiling,
            (facts.text, schedule.as_dict(), target),
            f"a candidate of `{facts.name}`",
            limit_s=options.compile_timeout_s,
        )
        for schedule in schedules
    ]
    pool().run(jobs, results.__setitem__)
    return results


class _LocalDevice(MeasuringDevice):
    def __init__(self, target: Target, options: MeasureOptions, records: Path | None, busy: int):
        spare = max(0, physical_cores() - busy)
        compilers = options.compilers or max(1, spare)
        super().__init__(
            target,
            options,
            records,
            lambda facts, schedules: compile_here(facts, schedules, target, options),
            # Without workers this process compiles, in the one thread that its IR may be used from.
            compilers if settings().compile_workers != 0 else 0,
            [CandidateBench(target, options)],
            shares_cores=not options.compilers and not spare,
        )


class LocalCpuDevice(_LocalDevice):
    """The CPU of this machine; without options all threads are used that a model would run with."""

    def __init__(self, target: Target, options: MeasureOptions | None = None, records: Path | None = None):
        given = options or MeasureOptions(threads=num_threads())
        super().__init__(target, replace(given, device=given.device or processor()), records, given.threads)


class LocalGpuDevice(_LocalDevice):
    """The first GPU of this machine that runs the target's code; raises DeviceError where there is none."""

    def __init__(self, target: Target, options: MeasureOptions | None = None, records: Path | None = None):
        name, index = measuring_gpu(target)
        given = options or MeasureOptions(threads=num_threads())
        chosen = replace(given, device=given.device or name, device_index=index, measuring=MEASURING_ON_GPU)
        super().__init__(target, chosen, records, 1)
