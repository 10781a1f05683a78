"""The proposers of a GPU's schedules by name, and which are asked where nobody names one."""

from __future__ import annotations

from tilewright.compiler.tuning.proposers import aligned_gpu, modelled_gpu, roller_gpu
from tilewright.compiler.tuning.proposers.gpu_dispatch import GpuDispatch
from tilewright.compiler.tuning.proposers.proposer import UNGUIDED, Proposer

GPU_PROPOSERS: dict[str, Proposer[GpuDispatch]] = {
    "aligned": aligned_gpu.propose,
    "roller": roller_gpu.propose,
    "modelled": modelled_gpu.propose,
    **UNGUIDED,
}
"""By the name that `construct-schedules` knows them by."""

IN_TURN = ("aligned",)
"""Where nobody names a proposer."""
