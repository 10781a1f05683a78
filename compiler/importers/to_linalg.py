"""torch-mlir's pipeline to linalg on tensors, in which operations of our own dialect stay."""

from __future__ import annotations

from functools import cache

from tilewright.compiler.dialects.fourier import FOURIER
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import context, ir, passmanager, walk
from tilewright.compiler.workers import modules

TO_LINALG = "torch-backend-to-linalg-on-tensors-backend-pipeline"
"""torch-mlir's pipeline, by name."""
_CHECK = ",torch-verify-linalg-on-tensors-backend-contract"


def lower_to_linalg(module: ir.Module, pipeline: str, what: str, is_kept: bool = False) -> None:
    """Runs a pipeline that ends with `TO_LINALG` on a module in place, in a worker.

    Raises PassError for what is not lowered, and CompilerCrashError about `what`. That pipeline ends by refusing operations of
    all dialects but some: where there are operations of ours, it is checked here that none of torch-mlir's are left.
    """
    if not walk(module.operation, FOURIER):
        modules.run_upstream(module, pipeline, what, is_kept)
        return
    modules.run_upstream(module, _unchecked(pipeline), what, is_kept)
    for op in walk(module.operation):
        if op.name.startswith(("torch.", "torch_c.")):
            raise PassError(f"failed to legalize operation '{op.name}'", op.location)


@cache
def _unchecked(pipeline: str) -> str:
    """The passes that a pipeline consists of, without the check at its end."""
    with context():
        return str(passmanager.PassManager.parse(pipeline)).replace(_CHECK, "")
