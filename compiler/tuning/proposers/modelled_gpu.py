"""The schedules that aligned tiles make, and those that families choose themselves, by the model of complete schedules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.proposers import aligned_gpu
from tilewright.compiler.tuning.proposers.gpu_dispatch import GpuDispatch
from tilewright.compiler.tuning.roller.options import ConstructOptions

POOL = 32
"""Aligned schedules that are listed to be ranked: fewer proposals are the first of more."""


def propose(subject: GpuDispatch, count: int, options: ConstructOptions) -> list[Candidate]:
    """At most `count` schedules, those first that the model predicts to be fastest; raises ScheduleError where it counts none."""
    most = max(POOL, count)
    try:
        found = aligned_gpu.propose(subject, most, replace(options, top_k=most, candidates=max(40, most)))
    except ScheduleError:
        # What has no axes to cut has kernels all the same.
        found = []
    known = {replace(candidate.schedule, levels=()) for candidate in found}
    own = [space.default() for space in subject.kernels.values()]
    found += [Candidate(schedule, 0.0, "") for schedule in own if schedule not in known]
    predicted = subject.predictions([candidate.schedule for candidate in found])
    return [
        replace(found[place], us=round(float(predicted.us[place]), 3), bound=predicted.bound[place])
        for place in np.argsort(predicted.us, kind="stable")[:count]
    ]
