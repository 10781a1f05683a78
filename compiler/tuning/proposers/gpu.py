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

_CONSTRUCTED = ("attention", "wgmma", "rows", "elementwise", "transpose")
"""Kernels whose schedules are constructed where nobody names a proposer: of others, and of what is read whole, the model
counts too little. Of windows it predicts the same time for blocks far larger than a small image, whose threads spill."""


def in_turn(subject: GpuDispatch) -> tuple[str, ...]:
    """Where nobody names a proposer: that whose first schedules the model predicts to be the faster ones (docs/roller.md),
    then others for what it does not fill up."""
    if subject.form in ("attention", "loops") and next(iter(subject.rivals)) in _CONSTRUCTED:
        return "roller", "aligned"
    return ("aligned",)
