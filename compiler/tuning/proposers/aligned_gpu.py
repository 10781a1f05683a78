"""All tiles that conform to the alignment rules, by predicted time: what enumeration proposes on GPUs."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.proposers.gpu_dispatch import GpuDispatch
from tilewright.compiler.tuning.roller.options import ConstructOptions


def propose(subject: GpuDispatch, count: int, options: ConstructOptions) -> list[Candidate]:
    """At most `count` schedules with all that their kernels are made of, each once."""
    return completed(subject, subject.enumerate(options, "aligned"), count)


def completed(subject: GpuDispatch, listed: list[Candidate], count: int) -> list[Candidate]:
    """The first `count` distinct schedules that candidates become once their families have filled in what they leave open."""
    found: dict[Schedule, Candidate] = {}
    for candidate in listed:
        schedule = subject.complete(candidate.schedule)
        # What the memories hold follows from the rest.
        found.setdefault(replace(schedule, levels=()), replace(candidate, schedule=schedule))
        if len(found) == count:
            break
    return list(found.values())
