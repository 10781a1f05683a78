"""All tiles of rTasks that conform to the alignment rules, by predicted time: what enumeration proposes on CPUs."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate, cpu_candidates
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch
from tilewright.compiler.tuning.roller.options import ConstructOptions


def propose(subject: CpuDispatch, count: int, options: ConstructOptions) -> list[Candidate]:
    """At most `count` schedules with all that their kernels are made of, each once, without those that no kernel is."""
    listed = cpu_candidates(
        subject.workload, subject.cuts, subject.target, options, subject.task_us, subject.others
    )
    found: dict[Schedule, Candidate] = {}
    bare: set[Schedule] = set()
    for candidate in listed:
        asked = candidate.schedule
        if not asked.reductions and subject.others(asked.tile) is not None:
            asked = replace(asked, unroll=0, vector=0)
        try:
            schedule = subject.complete(asked)
        except ScheduleError:
            continue
        # What the caches hold follows from the rest.
        known = replace(schedule, levels=())
        if known not in bare:
            bare.add(known)
            found[schedule] = replace(candidate, schedule=schedule)
        if len(found) == count:
            break
    return list(found.values())
