"""The child process that compiles one candidate after another; LLVM giving up ends the child, not the compiler."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.codegen import emit_object
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.lower import cpu_code, kernel_key, lower
from tilewright.compiler.profiler.kernel_messages import to_message
from tilewright.compiler.profiler.processes import Message, requests
from tilewright.compiler.schedule import Schedule
from tilewright.compiler.target import Target


def compile_candidate(dispatch: str, schedule: dict, target: Target) -> Message:
    """The kernel of a dispatch's text under a schedule, or `{"error": why}`."""
    module = parse(dispatch)
    with module.context, ir.Location.unknown(module.context):
        function = next(functions(module))
        schedule_attribute.write(function, Schedule.from_dict(schedule))
        if target.is_cuda:
            from tilewright.compiler.gpu import lower as gpu

            made = gpu.assemble(gpu.lower(function, target, kernel_key(function, target)), target)
            return {**to_message(made.kernel, made.tasks), "family": made.family}
        text, lowered = lower(function, target)
    if lowered.whole:
        return {"error": f"lowered whole: {lowered.whole}"}
    code, _ = emit_object(text, cpu_code(target))
    return to_message(replace(lowered.kernel, object=code), lowered.tasks)


def serve() -> None:
    """Answers requests `{"dispatch", "schedule", "target"}` until the parent is gone."""
    for request, answer in requests():
        try:
            target = Target.from_json(request["target"])
            answer(compile_candidate(request["dispatch"], request["schedule"], target))
        except TilewrightError as error:
            answer({"error": str(error).splitlines()[0]})


if __name__ == "__main__":
    serve()
