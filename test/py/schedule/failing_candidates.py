"""A compiler of candidates whose kernels misbehave as their `unroll` says: real machine code that crashes, hangs, or is wrong.

Every kernel doubles 64 numbers in one rTask, but for what `DEEDS` names.
"""

from __future__ import annotations

import os
import time

from tilewright.compiler.codegen.lower_cpu import LoweredKernel, cpu_code
from tilewright.compiler.codegen.machine_code import SYMBOL, emit_object
from tilewright.compiler.errors import PassError
from tilewright.compiler.targets.target import Target, resolve
from tilewright.runtime.program import Kernel

DEEDS = {
    901: "crash",
    902: "hang",
    903: "wrong",
    904: "outside",
    905: "compiler dies",
    906: "compiler refuses",
    907: "compiler hangs",
    908: "fine",
    909: "part",
    910: "slow",
    911: "nan",
    912: "slowish",
    913: "as slow",
    914: "changes its operand",
}
_NUMBERS = 64

_AT_ENTRY = {
    "fine": "%unused = load volatile float, ptr %in, align 4",
    "changes its operand": f"%last = getelementptr float, ptr %in, i64 {_NUMBERS - 1}\nstore float 0.5, ptr %last, align 4",
    "crash": "store volatile i32 1, ptr inttoptr (i64 8 to ptr), align 4",
    "outside": f"%beyond = getelementptr float, ptr %out, i64 {_NUMBERS}\nstore float 0.0, ptr %beyond, align 4",
}


def kernel_text(deed: str) -> str:
    """LLVM IR of a kernel that doubles `_NUMBERS` floats and does the deed."""
    factor = {"wrong": "2.5", "nan": "0x7FF8000000000000"}.get(deed, "2.0")
    count = _NUMBERS - 1 if deed == "part" else _NUMBERS
    rounds = {"slow": 3000, "slowish": 1000, "as slow": 1001}.get(deed, 1)
    step = "0" if deed == "hang" else "1"
    return f"""
define i32 @{SYMBOL}(ptr %buffers, i64 %first, i64 %end, ptr %scratch) {{
entry:
  %in = load ptr, ptr %buffers, align 8
  %second = getelementptr ptr, ptr %buffers, i64 1
  %out = load ptr, ptr %second, align 8
  {_AT_ENTRY.get(deed, "")}
  br label %round
round:
  %r = phi i64 [ 0, %entry ], [ %r1, %again ]
  br label %loop
loop:
  %i = phi i64 [ 0, %round ], [ %i1, %loop ]
  %p = getelementptr float, ptr %in, i64 %i
  %v = load volatile float, ptr %p, align 4
  %d = fmul float %v, {factor}
  %q = getelementptr float, ptr %out, i64 %i
  store volatile float %d, ptr %q, align 4
  %i1 = add i64 %i, {step}
  %more = icmp slt i64 %i1, {count}
  br i1 %more, label %loop, label %again
again:
  %r1 = add i64 %r, 1
  %left = icmp slt i64 %r1, {rounds}
  br i1 %left, label %round, label %done
done:
  ret i32 0
}}
"""


def compile_candidate(dispatch: str, schedule: dict, target: Target) -> LoweredKernel:
    deed = DEEDS.get(schedule["unroll"], "")
    if deed == "compiler dies":
        os.abort()
    if deed == "compiler refuses":
        raise PassError("no such tile")
    if deed == "compiler hangs":
        time.sleep(1000)
    code, _ = emit_object(kernel_text(deed), cpu_code(resolve("cpu")))
    return LoweredKernel(Kernel("candidate", SYMBOL, code, 0), 1)


def compile_better_candidate(dispatch: str, schedule: dict, target: Target) -> LoweredKernel:
    """As a later compiler might: what was slow or refused is fine."""
    changed = {910: 908, 906: 908}.get(schedule["unroll"], schedule["unroll"])
    return compile_candidate(dispatch, {**schedule, "unroll": changed}, target)


def compile_slow_first_candidate(dispatch: str, schedule: dict, target: Target) -> LoweredKernel:
    """As a compiler might whose edit made the first candidate slow."""
    changed = {0: 910}.get(schedule["unroll"], schedule["unroll"])
    return compile_candidate(dispatch, {**schedule, "unroll": changed}, target)
