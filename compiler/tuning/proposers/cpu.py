"""The proposers of a CPU's schedules by name, and which are asked where nobody names one."""

from __future__ import annotations

from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch
from tilewright.compiler.tuning.proposers import aligned_cpu, modelled_cpu, roller_cpu
from tilewright.compiler.tuning.proposers.proposer import UNGUIDED, Proposer

CPU_PROPOSERS: dict[str, Proposer[CpuDispatch]] = {
    "roller": roller_cpu.propose,
    "aligned": aligned_cpu.propose,
    "modelled": modelled_cpu.propose,
    **UNGUIDED,
}
"""By the name that `construct-schedules` knows them by."""

IN_TURN = ("roller", "aligned")
"""Where nobody names a proposer: that whose first schedules were the faster ones where they were measured (docs/roller.md),
then others for what it does not fill up."""
