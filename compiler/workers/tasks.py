"""What workers do; every function takes and gives plain values, and modules as MLIR bytecode."""

from __future__ import annotations

import io
from dataclasses import replace

from tilewright.compiler import debug
from tilewright.compiler.codegen import lower_cpu as lower
from tilewright.compiler.codegen.machine_code import assembly, emit_object
from tilewright.compiler.dialects.choice_attribute import ask_choices
from tilewright.compiler.ir import context, functions, ir
from tilewright.compiler.ir import run_upstream as run_passes
from tilewright.compiler.pipeline import registry
from tilewright.compiler.targets.target import Target


def preload() -> None:
    """Brings in what a compilation for a CPU needs, before workers are forked off.

    Kernels of GPUs, and what searches schedules, are many modules more, which a worker loads when it meets them.
    """
    from tilewright.compiler import phases  # noqa: F401 (with it come the passes that construct schedules)

    context()
    for name in registry.names():
        if registry.folder_of(name) not in ("schedule", "lower_gpu"):
            registry.load(name)


def to_bytes(module: ir.Module) -> bytes:
    """A module with its places as bytecode."""
    data = io.BytesIO()
    module.operation.write_bytecode(data)
    return data.getvalue()


def from_bytes(data: bytes) -> ir.Module:
    """What `to_bytes` was given, in this process's context."""
    with context():
        return ir.Module.parse(data)


def run_upstream(module: bytes, pipeline: str) -> bytes:
    """The module after upstream passes; raises PassError."""
    parsed = from_bytes(module)
    run_passes(parsed.operation, pipeline)
    return to_bytes(parsed)


def run_phase(module: bytes, target: Target, phase: str) -> bytes:
    """The module after a phase; raises what a pass raises."""
    from tilewright.compiler import phases

    parsed = from_bytes(module)
    phases.run_phases(parsed, target, phase, phase)
    return to_bytes(parsed)


def chosen_dispatches(module: bytes, target: Target, choices: dict[str, int | str], first: str) -> bytes:
    """The module with schedules on its dispatches, made with choices by name; raises what a pass raises."""
    from tilewright.compiler import phases

    parsed = from_bytes(module)
    ask_choices(parsed, choices)
    phases.run_phases(parsed, target, first, "schedule")
    return to_bytes(parsed)


def compile_kernel(module: bytes, target: Target, key: str) -> lower.LoweredKernel:
    """The kernel of the one dispatch in a module; raises what `lower` raises."""
    parsed = from_bytes(module)
    with parsed.context, ir.Location.unknown(parsed.context):
        function = next(functions(parsed))
        if target.kind == "gpu":
            from tilewright.compiler.codegen import lower_gpu as gpu

            written = gpu.lower(function, target, key)
            return written if target.emulated else gpu.assemble(written, target)
        name = ir.StringAttr(function.attributes["sym_name"]).value
        text, lowered = lower.lower(function, target)
    text = debug.override_text(f"{name}.ll") or text
    code, optimised = emit_object(text, lower.cpu_code(target))
    if debug.wants_kernels():
        debug.dump_kernel(name, optimised, assembly(optimised, lower.cpu_code(target)))
    return replace(lowered, kernel=replace(lowered.kernel, object=code))
