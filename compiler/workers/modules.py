"""Modules that are rewritten in a worker: passes run on them as if here, and what dies of one is a worker."""

from __future__ import annotations

import hashlib
from typing import Any

from tilewright.compiler.cache.store import ImportCache
from tilewright.compiler.codegen.lower_cpu import compiler_digest
from tilewright.compiler.ir import functions, ir, take_over
from tilewright.compiler.pipeline.reproducer import reproducer_text
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.target import Target
from tilewright.compiler.workers.pool import Job, pool, run
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
    take_over(module, from_bytes(run(_phase_job(to_bytes(module), target, phase, pipeline))))


def run_phase_apart(module: ir.Module, target: Target, phase: str, pipeline: str) -> None:
    """`run_phase` for a phase that looks at one dispatch at a time: several workers take some dispatches each.

    Raises what is raised of the first dispatch that an error is about. Where phases are to be seen or replaced, the module
    stays whole.
    """
    dispatches = [f for f in functions(module) if "tilewright.operator" in f.attributes]
    asked = settings()
    if asked.debug or asked.dump or asked.override or len(dispatches) < 2 * _DISPATCHES:
        run_phase(module, target, phase, pipeline)
        return
    shares = [dispatches[i : i + _DISPATCHES] for i in range(0, len(dispatches), _DISPATCHES)]
    parts = [_part(module, share) for share in shares]
    results: dict[int, Any] = {}
    pool().run([_phase_job(data, target, phase, pipeline) for data in parts], results.__setitem__)
    for number in range(len(parts)):
        if isinstance(results[number], Exception):
            raise results[number]
    for number, share in enumerate(shares):
        part = from_bytes(results[number])
        for old, new in zip(share, list(functions(part)), strict=True):
            new.detach_from_parent()
            old.parent.regions[0].blocks[0].append(new)
            new.move_before(old)
            old.erase()


_DISPATCHES = 16
"""Dispatches of a part: enough that reading and writing it takes little of the time."""


def _part(module: ir.Module, dispatches: list[ir.Operation]) -> bytes:
    """A module with what the module says of itself and some of its dispatches."""
    part = ir.Module.create(ir.Location.unknown(module.context))
    for name in module.operation.attributes:
        part.operation.attributes[name] = module.operation.attributes[name]
    for function in dispatches:
        part.body.append(function.clone().operation)
    return to_bytes(part)


def _phase_job(data: bytes, target: Target, phase: str, pipeline: str) -> Job:
    return Job(
        f"{_TASKS}:run_phase", (data, target, phase), f"phase `{phase}`", lambda: _reproducer(data, pipeline)
    )


def _reproducer(module: bytes, pipeline: str) -> str:
    return reproducer_text(from_bytes(module).operation.get_asm(enable_debug_info=True), pipeline)
