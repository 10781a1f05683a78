"""Which schedule of a CPU comes first where the construction's estimate of rTasks does not tell: by the model of complete schedules.

The construction knows no order of register tiles and no pages. Where rows of an operand pass a core in whole, that decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch
from tilewright.compiler.tuning.cpu.register_layers import Chains
from tilewright.compiler.tuning.model.cpu_features import cpu_features, own_cache
from tilewright.compiler.tuning.model.micro_performance import from_features, predict

POOL = 8
"""Schedules that are listed to find the first one among."""
_ALIKE = 0.9
"""Predictions within this factor do not tell which schedule is faster."""


def loads_least(subject: CpuDispatch, candidates: Sequence[Candidate]) -> int:
    """The place of the candidate whose rTasks load least in all, of those that are predicted to be about as fast as the best.

    Rows of an operand that is not packed are fetched ahead by nothing: 128x4032x1000 of two inputs, where 32 rows make an
    rTask, took 1.4 times as long on Zen 4 as where all of them do, and the second operand comes into a core once.
    """
    schedules = [subject.complete(candidate.schedule) for candidate in candidates]
    found = cpu_features(subject.described, schedules, subject.target)
    us = from_features(subject.described, found, subject.target).us
    loaded = found["tasks"] * found[f"traffic.{own_cache(subject.target).name}"]
    loaded = np.where(us * _ALIKE <= us.min(), loaded, np.inf)
    return int(np.argmin(loaded))


def fastest(subject: CpuDispatch, candidates: Sequence[Candidate]) -> int:
    """The place of the candidate that is predicted to be fastest, 0 where the first one is about as fast.

    Products along rows take the rows of one operand for each few rows of the other: 32x4096x4096 took 27 ms on one core of a
    Zen 4 with 2,048 of them in an rTask, which no cache holds, and 12 ms with 64.
    """
    schedules = [subject.complete(candidate.schedule) for candidate in candidates]
    return least(predict(subject.described, schedules, subject.target).us)


def least(us: np.ndarray) -> int:
    """The place of the least of predictions, 0 where the first one is about as fast."""
    return int(np.argmin(us)) if us.min() < _ALIKE * us[0] else 0


def shares_rows(subject: CpuDispatch) -> bool:
    """Whether the work is products along rows, of which a register tile shares some of either operand."""
    registers = subject.registers
    return registers is not None and isinstance(registers.layer, Chains) and registers.layer.reuses
