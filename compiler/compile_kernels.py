"""Kernels of all dispatches of a module, each distinct one compiled once or taken from the cache."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from tilewright.compiler import debug
from tilewright.compiler.cache import KernelCache
from tilewright.compiler.codegen import assembly, emit_object
from tilewright.compiler.ir import ir
from tilewright.compiler.lower import LoweredKernel, cpu_code, kernel_key, lower
from tilewright.compiler.settings import settings
from tilewright.compiler.target import Target


def compile_kernels(
    dispatches: dict[str, ir.Operation], target: Target
) -> tuple[dict[str, LoweredKernel], int]:
    """Kernels by dispatch, and how many of them were compiled now."""
    cache = KernelCache.open()
    found: dict[str, LoweredKernel] = {}
    pending: dict[str, Future[LoweredKernel]] = {}
    keys = {name: kernel_key(function, target) for name, function in dispatches.items()}
    first = {key: name for name, key in reversed(keys.items())}
    # The assembler of GPU code is a process of its own: it works on one kernel while the next one is lowered.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, function in dispatches.items():
            if first[keys[name]] != name:
                continue
            cached = None if debug.wants_kernels() else cache.find(keys[name], name)
            if cached is not None:
                found[name] = cached
            elif target.kind == "cpu":
                pending[name] = _done(_compile_cpu(name, function, target))
            else:
                from tilewright.compiler.gpu import lower as gpu

                written = gpu.lower(function, target, keys[name])
                pending[name] = (
                    _done(written) if target.emulated else pool.submit(gpu.assemble, written, target)
                )
    for name, future in pending.items():
        found[name] = future.result()
        if not settings().override:
            cache.store(keys[name], found[name])
    kernels = {}
    for name in dispatches:
        shared = found[first[keys[name]]]
        kernels[name] = replace(shared, kernel=replace(shared.kernel, name=name))
    return kernels, len(pending)


def _compile_cpu(name: str, function: ir.Operation, target: Target) -> LoweredKernel:
    text, lowered = lower(function, target)
    code, optimised = emit_object(debug.override_text(f"{name}.ll") or text, cpu_code(target))
    if debug.wants_kernels():
        debug.dump_kernel(name, optimised, assembly(optimised, cpu_code(target)))
    return replace(lowered, kernel=replace(lowered.kernel, object=code))


def _done(kernel: LoweredKernel) -> Future[LoweredKernel]:
    future: Future[LoweredKernel] = Future()
    future.set_result(kernel)
    return future
