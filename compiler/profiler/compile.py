"""One candidate of a dispatch compiled, in a worker: LLVM giving up ends the worker, and the candidate is out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.compiler.codegen.lower_cpu import LoweredKernel, cpu_code, kernel_key, lower
from tilewright.compiler.codegen.machine_code import emit_object
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import CompilerCrashError, TilewrightError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target


def compile_candidate(dispatch: str, schedule: dict[str, Any], target: Target) -> LoweredKernel:
    """The kernel of a dispatch's text under a schedule; raises TilewrightError."""
    module = parse(dispatch)
    with module.context, ir.Location.unknown(module.context):
        function = next(functions(module))
        schedule_attribute.write(function, Schedule.from_dict(schedule))
        if target.is_cuda:
            from tilewright.compiler.codegen import lower_gpu as gpu

            return gpu.assemble(gpu.lower(function, target, kernel_key(function, target)), target)
        text, lowered = lower(function, target)
    code, _ = emit_object(text, cpu_code(target))
    return replace(lowered, kernel=replace(lowered.kernel, object=code))


def refusal(result: Any) -> str | None:
    """Why there is no kernel in what a worker gave; None where there is one. Raises what is a fault of the compiler's."""
    if isinstance(result, CompilerCrashError):
        return result.how
    if isinstance(result, TilewrightError):
        return str(result).splitlines()[0]
    if isinstance(result, Exception):
        raise result
    return None
