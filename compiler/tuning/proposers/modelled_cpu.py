"""The schedules that aligned tiles make, in the order of the micro-performance model of complete schedules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch
from tilewright.compiler.tuning.model.micro_performance import predict
from tilewright.compiler.tuning.proposers import aligned_cpu
from tilewright.compiler.tuning.roller.options import ConstructOptions

POOL = 32
"""Schedules that are listed to be ranked: fewer proposals are the first of more."""


def propose(subject: CpuDispatch, count: int, options: ConstructOptions) -> list[Candidate]:
    """At most `count` of the aligned schedules, those first that the model predicts to be fastest."""
    listed = max(POOL, count)
    found = aligned_cpu.propose(subject, listed, replace(options, top_k=listed))
    predicted = predict(subject.described, [candidate.schedule for candidate in found], subject.target)
    return [
        replace(found[place], us=round(float(predicted.us[place]), 3), bound=predicted.bound[place])
        for place in np.argsort(predicted.us, kind="stable")[:count]
    ]
