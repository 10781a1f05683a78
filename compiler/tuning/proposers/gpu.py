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

_CONSTRUCTED = {
    "attention": ("attention", "wgmma"),
    "loops": ("rows", "windows", "elementwise", "transpose"),
    "whole": ("scatter", "sort", "scan"),
}
"""By the form of a dispatch, kernels whose schedules are constructed where nobody names a proposer: of others that take a whole
dispatch, as copies of parts of tensors, the model counts too little."""


def in_turn(subject: GpuDispatch) -> tuple[str, ...]:
    """Where nobody names a proposer: that whose first schedules the model predicts to be the faster ones (docs/roller.md),
    then others for what it does not fill up."""
    constructed = _CONSTRUCTED.get(subject.form, ())
    if constructed and next(iter(subject.rivals)) in constructed:
        return "roller", "aligned"
    return ("aligned",)
