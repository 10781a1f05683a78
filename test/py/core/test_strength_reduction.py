"""Code of very many addresses is emitted without loop strength reduction, and nothing else of the process is."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest

from tilewright.compiler.codegen import machine_code
from tilewright.compiler.codegen.llvm_text import _MAY_BE_NUMBER, _NUMBER
from tilewright.compiler.codegen.lower_cpu import cpu_code
from tilewright.compiler.codegen.machine_code import MANY_ADDRESSES, REDUCED, SYMBOL, assembly, emit_object
from tilewright.compiler.targets.target import resolve

FEW, MANY = 24, MANY_ADDRESSES + 10
CODE = cpu_code(resolve("x86-64-v3"))


def rows(count: int, reduced: str = "") -> str:
    """`%q[i] = %p[i * step] + %p[i * step + 1000] + ...` in a loop: LLVM IR of a kernel with `count` addresses or more."""
    said = f'"{REDUCED}"="{reduced}"' if reduced else ""
    body = []
    for i in range(count):
        body += [
            f"  %o{i} = add i64 %at, {i * 1000}",
            f"  %a{i} = getelementptr float, ptr %p, i64 %o{i}",
            f"  %v{i} = load float, ptr %a{i}, align 4",
            f"  %s{i + 1} = fadd float %s{i}, %v{i}",
        ]
    return f"""
define i32 @{SYMBOL}(ptr noalias %p, i64 %step, i64 %end, ptr noalias %q) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = mul i64 %i, %step
  %s0 = fadd float 0.0, 0.0
{chr(10).join(body)}
  %to = getelementptr float, ptr %q, i64 %i
  store float %s{count}, ptr %to, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
attributes #0 = {{ nounwind {said} "target-cpu"="{CODE.cpu}" "target-features"="{CODE.features}" }}
"""


def instructions(text: str) -> bytes:
    """The kernel's object without the attribute, which leaves no trace in it."""
    return emit_object(text, CODE)[0]


@pytest.mark.parametrize(
    ("count", "by_itself", "other"), [(FEW, "always", "never"), (MANY, "never", "always")]
)
def test_addresses_decide_unless_the_kernel_says(count, by_itself, other):
    assert instructions(rows(count)) == instructions(rows(count, by_itself))
    assert instructions(rows(count)) != instructions(rows(count, other))


def test_the_process_s_option_is_put_back():
    before = instructions(rows(FEW))
    instructions(rows(MANY))
    assert instructions(rows(FEW)) == before
    with pytest.raises(RuntimeError, match="broken"), machine_code._strength_reduced(rows(MANY)):
        raise RuntimeError("broken")
    assert instructions(rows(FEW)) == before


@pytest.mark.parametrize("count", [FEW, MANY])
def test_assembly_shown_is_the_object_s(count):
    code, optimised = emit_object(rows(count), CODE)
    machine = machine_code._machine(CODE)
    shown = assembly(optimised, CODE)
    with machine_code._strength_reduced(optimised):
        assert machine.emit_object(llvm.parse_assembly(optimised)) == code
        other = machine.emit_assembly(llvm.parse_assembly(optimised))
    assert shown == other and SYMBOL in shown


@pytest.mark.parametrize(
    "token", ["1.0", "-2.5e-07", "f0x3727C5AC", "+inf", "-inf", "+qnan", "-nan", "+snan(0x1)"]
)
def test_lines_with_numbers_are_found_by_the_faster_look(token):
    assert re.fullmatch(_NUMBER, token) and _MAY_BE_NUMBER.search(f"  %1 = fadd float %0, {token}")
