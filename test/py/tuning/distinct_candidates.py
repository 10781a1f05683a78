"""A compiler whose candidates are all right and all different: as many loads of their operand as their number says."""

from __future__ import annotations

from failing_candidates import kernel_text

from tilewright.compiler.codegen.lower_cpu import LoweredKernel, cpu_code
from tilewright.compiler.codegen.machine_code import SYMBOL, emit_object
from tilewright.compiler.targets.target import Target, resolve
from tilewright.runtime.program import Kernel


def compile_candidate(dispatch: str, schedule: dict, target: Target) -> LoweredKernel:
    loads = schedule["unroll"] % 1000
    unused = "\n".join(f"%unused{n} = load volatile float, ptr %in, align 4" for n in range(loads))
    text = kernel_text("").replace("br label %round", f"{unused}\nbr label %round", 1)
    code, _ = emit_object(text, cpu_code(resolve("cpu")))
    return LoweredKernel(Kernel("candidate", SYMBOL, code, 0), 1)
