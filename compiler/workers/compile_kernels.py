"""Kernels of all dispatches of a module, each distinct one compiled once, in a worker, or taken from the cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.compiler import debug
from tilewright.compiler.cache.store import KernelCache
from tilewright.compiler.codegen.lower_cpu import LoweredKernel, kernel_key, pipeline, shape_free
from tilewright.compiler.ir import ir
from tilewright.compiler.pipeline.diagnostics import place
from tilewright.compiler.pipeline.reproducer import reproducer_text
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.target import Target
from tilewright.compiler.workers.pool import Job, pool
from tilewright.compiler.workers.tasks import from_bytes, to_bytes


def compile_kernels(
    dispatches: dict[str, ir.Operation], target: Target
) -> tuple[dict[str, LoweredKernel], int]:
    """Kernels by dispatch, and how many of them were compiled now.

    Raises the error of the first dispatch that has one, when all the others are in the cache.
    """
    cache = KernelCache.open()
    found: dict[str, LoweredKernel] = {}
    jobs: dict[str, Job] = {}
    keys = {name: kernel_key(function, target) for name, function in dispatches.items()}
    first = {key: name for name, key in reversed(keys.items())}
    for name, function in dispatches.items():
        if first[keys[name]] != name:
            continue
        cached = None if debug.wants_kernels() else cache.find(keys[name], name)
        if cached is not None:
            found[name] = cached
        else:
            jobs[name] = _job(name, function, target, keys[name])
    order = sorted(jobs, key=lambda name: -len(jobs[name].arguments[0]))
    errors: dict[str, Exception] = {}

    def done(number: int, result: Any) -> None:
        name = order[number]
        if isinstance(result, Exception):
            errors[name] = result
            return
        found[name] = result
        if not settings().override:
            cache.store(keys[name], result)

    pool().run([jobs[name] for name in order], done)
    for name in dispatches:
        if name in errors:
            raise errors[name]
    kernels = {}
    for name, function in dispatches.items():
        shared = found[first[keys[name]]]
        form = shape_free(function) if target.kind == "cpu" else None
        tasks = shared.tasks if form is None else form.tasks
        kernels[name] = replace(shared, kernel=replace(shared.kernel, name=name), tasks=tasks)
    return kernels, len(jobs)


def _job(name: str, function: ir.Operation, target: Target, key: str) -> Job:
    module = ir.Module.create(ir.Location.unknown(function.context))
    module.body.append(function.clone().operation)
    data = to_bytes(module)
    operator = ir.StringAttr(function.attributes["tilewright.operator"]).value
    where = place(function.location)
    what = f"dispatch `{name}` ({operator}{f' of {where}' if where else ''})"

    def reproduce() -> str:
        text = from_bytes(data).operation.get_asm(enable_debug_info=True)
        return reproducer_text(text, pipeline(target) if target.kind == "cpu" else "builtin.module()")

    return Job("tilewright.compiler.workers.tasks:compile_kernel", (data, target, key), what, reproduce)
