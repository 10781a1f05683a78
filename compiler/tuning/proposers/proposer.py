"""What a proposer is: a function from a dispatch and its space to the schedules that it would try first, best first.

propose(subject, count, options) -> [Candidate]      legal points of `subject.space`, at most `count`

roller     constructed by the recursion of OSDI'22, Figure 8, through the knobs of the space
aligned    all tiles that conform to the alignment rules, by predicted time of their rTasks
modelled   the first of these in the order of the model of complete schedules
default    what each family of loops takes where nobody chooses
random     legal points, each as likely as any other
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.roller.options import ConstructOptions

SEED = 0
"""Of random proposals: the same input gives the same schedules."""


class Subject(Protocol):
    """A dispatch that schedules are proposed for."""

    @property
    def space(self) -> Space: ...

    @property
    def workload(self) -> Workload: ...

    @property
    def target(self) -> Target: ...

    def predicted(self, schedule: Schedule) -> tuple[float, str]:
        """Microseconds that a schedule should take, and what bounds it."""
        ...


Of = TypeVar("Of", bound=Subject)
Proposer = Callable[[Of, int, ConstructOptions], list[Candidate]]


@dataclass(frozen=True)
class Unguided:
    """A proposer that knows nothing of the machine: it takes points as `points(space, count)` gives them."""

    points: Callable[[Space, int], list[Schedule]]

    def __call__(self, subject: Subject, count: int, options: ConstructOptions) -> list[Candidate]:
        schedules = self.points(subject.space, count)
        return [Candidate(schedule, *subject.predicted(schedule)) for schedule in schedules]


def _sampled(space: Space, count: int) -> list[Schedule]:
    return [space.schedule(point) for point in space.sample(count, np.random.default_rng(SEED))]


UNGUIDED: dict[str, Proposer] = {
    "default": Unguided(lambda space, count: [space.default()]),
    "random": Unguided(_sampled),
}
"""Proposers of any space."""
