"""Modules that are rewritten in a worker: passes run on them as if here, and what dies of one is a worker."""

from __future__ import annotations

import hashlib

from tilewright.compiler.cache.store import ImportCache
from tilewright.compiler.codegen.lower_cpu import compiler_digest
from tilewright.compiler.ir import ir, take_over
from tilewright.compiler.pipeline.reproducer import reproducer_text
from tilewright.compiler.targets.target import Target
from tilewright.compiler.workers.pool import Job, run
from tilewright.compiler.workers.tasks import from_bytes, to_bytes

_TASKS = "tilewright.compiler.workers.tasks"


def run_upstream(module: ir.Module, pipeline: str, what: str, is_kept: bool = False) -> None:
    """Runs upstream passes on the module in place; raises PassError, and CompilerCrashError about `what`.

    What `is_kept` is in the compile cache from then on: a process that meets it again waits for no worker.
    """
    data = to_bytes(module)
    facts = hashlib.sha256(data)
    facts.update("\n".join((pipeline, compiler_digest())).encode())
    cache, key = ImportCache.open(), facts.hexdigest()
    found = cache.find(key) if is_kept else None
    if found is None:
        found = run(
            Job(f"{_TASKS}:run_upstream", (data, pipeline), what, lambda: _reproducer(data, pipeline))
        )
        if is_kept:
            cache.store(key, found)
    take_over(module, from_bytes(found))


def run_phase(module: ir.Module, target: Target, phase: str, pipeline: str) -> None:
    """Runs one phase on the module in place; raises what its passes raise, and CompilerCrashError."""
    data = to_bytes(module)
    job = Job(
        f"{_TASKS}:run_phase", (data, target, phase), f"phase `{phase}`", lambda: _reproducer(data, pipeline)
    )
    take_over(module, from_bytes(run(job)))


def _reproducer(module: bytes, pipeline: str) -> str:
    return reproducer_text(from_bytes(module).operation.get_asm(enable_debug_info=True), pipeline)
