"""Modules that are rewritten in a worker: passes run on them as if here, and what dies of one is a worker."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from tilewright.compiler.cache.store import ImportCache
from tilewright.compiler.codegen.lower_cpu import compiler_digest, text_without
from tilewright.compiler.ir import functions, ir, take_over
from tilewright.compiler.passes.dispatch.outline_dispatches import UNFUSED
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
    """`run_phase` for a phase that decides about one dispatch at a time, by attributes of its function.

    Of dispatches that are alike one is decided about, once in a process, and several workers take some each. Raises what is raised
    of the first dispatch that an error is about. Where phases are to be seen or replaced, the module stays whole.
    """
    asked = settings()
    if asked.debug or asked.dump or asked.override:
        run_phase(module, target, phase, pipeline)
        return
    attributes = module.operation.attributes
    said = [pipeline, *(f"{name} = {attributes[name]}" for name in attributes)]
    alike: dict[str, list[ir.Operation]] = {}
    for function in functions(module):
        if "tilewright.operator" in function.attributes:
            # Why it is not fused is its own; a schedule that was written by hand is what is decided about it.
            text = "\n".join([*said, text_without(function, UNFUSED)])
            alike.setdefault(hashlib.sha256(text.encode()).hexdigest(), []).append(function)
    found = {key: known for key in alike if (known := _decided.get(key)) is not None}
    unknown = [(key, first) for key, (first, *_) in alike.items() if key not in found]
    shares = [unknown[i : i + _DISPATCHES] for i in range(0, len(unknown), _DISPATCHES)]
    parts = [_part(module, [function for _, function in share]) for share in shares]
    results: dict[int, Any] = {}
    pool().run([_phase_job(data, target, phase, pipeline) for data in parts], results.__setitem__)
    for number, share in enumerate(shares):
        if isinstance(results[number], Exception):
            raise results[number]
        for (key, before), after in zip(share, functions(from_bytes(results[number])), strict=True):
            found[key] = _changes(before, after)
    if len(_decided) > _MOST_DECIDED:
        _decided.clear()
    _decided.update(found)
    for key, group in alike.items():
        for function in group:
            for name, value in found[key].items():
                function.attributes[name] = value


_DISPATCHES = 16
"""Dispatches of a part: enough that reading and writing it takes little of the time."""
_decided: dict[str, dict[str, ir.Attribute]] = {}
"""Attributes that a phase put on dispatches, by a hash of its pipeline, what the module says of itself and the dispatch's text."""
_MOST_DECIDED = 4096


def _changes(before: ir.Operation, after: ir.Operation) -> dict[str, ir.Attribute]:
    """The attributes of a function that a phase has changed."""
    old = before.attributes
    return {
        name: after.attributes[name]
        for name in after.attributes
        if name not in old or old[name] != after.attributes[name]
    }


def _part(module: ir.Module, dispatches: Sequence[ir.Operation]) -> bytes:
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
