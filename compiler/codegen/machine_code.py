"""Kernels in the LLVM dialect to machine code: LLVM IR text, optimised and emitted by llvmlite for one CPU."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm_binding

from tilewright.compiler.codegen.llvm_text import for_older_llvm, with_fixed_tiles, with_scalar_stores
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir, llvm

SYMBOL = "tw_kernel"

MANY_ADDRESSES = 150
"""Code of so many `getelementptr` is emitted without LLVM's loop strength reduction, unless `REDUCED` says otherwise.

The pass weighs the addresses of a loop against each other, which takes up to 40 times as long as all the rest of the
emission where rows are unrolled; code of so many accesses runs no slower without it, that of fewer may.
Source: `python -m tilewright.bench.strength_reduction`, recorded in bench/results/strength_reduction.json.
"""
REDUCED = "tilewright-strength-reduction"
"""An attribute of functions in LLVM IR: "always" or "never", however many addresses they have."""
UNROLLED = "tilewright-unrolled"
"""An attribute of functions in LLVM IR: "never" keeps LLVM from unrolling their loops."""
_emitting = threading.Lock()


@dataclass(frozen=True)
class CpuCode:
    """What LLVM needs to know of the CPU: its name, `+feature,-feature` list, and preferred vector bits."""

    cpu: str
    features: str
    vector_bits: int


@cache
def _machine(code: CpuCode) -> llvm_binding.TargetMachine:
    llvm_binding.initialize_native_target()
    llvm_binding.initialize_native_asmprinter()
    llvm_binding.initialize_native_asmparser()
    target = llvm_binding.Target.from_default_triple()
    return target.create_target_machine(
        cpu=code.cpu, features=code.features, opt=3, reloc="pic", codemodel="small"
    )


def llvm_ir(
    module: ir.Module,
    name: str,
    buffers: int,
    code: CpuCode,
    reports: bool,
    fences: bool,
    reduced: str = "",
    unrolled: str = "",
) -> str:
    """The module's LLVM IR with the kernel entry added: `int32 tw_kernel(buffers, first, end, scratch)`.

    The entry loops over its range of rTasks around the body of function `name`, which LLVM inlines with
    what it knows about aliasing. `reports` tells whether the body can fail a run-time check, `fences` whether its
    stores have to be ordered before what the caller stores next, `reduced` is for `REDUCED`, `unrolled` for `UNROLLED`.
    """
    text = for_older_llvm(llvm.translate_module_to_llvmir(module.operation))
    attributes = f'"target-cpu"="{code.cpu}" "target-features"="{code.features}" "prefer-vector-width"="{code.vector_bits}" "no-trapping-math"="true"'
    attributes += f' "{REDUCED}"="{reduced}"' if reduced else ""
    attributes += f' "{UNROLLED}"="{unrolled}"' if unrolled else ""
    text = re.sub(
        rf"define void @{re.escape(name)}\((.*)\) ",
        rf"define internal void @{name}(\1) alwaysinline #999 ",
        text,
    )
    loads = "\n".join(
        f"  %p{i} = getelementptr inbounds ptr, ptr %buffers, i64 {i}\n  %b{i} = load ptr, ptr %p{i}, align 8"
        for i in range(buffers)
    )
    arguments = ", ".join(
        ["i64 %task", *(f"ptr %b{i}" for i in range(buffers)), "ptr %status", "ptr %scratch"]
    )
    fence = "\n  call void @llvm.x86.sse.sfence()" if fences else ""
    return (
        text
        + ("\ndeclare void @llvm.x86.sse.sfence()\n" if fences else "")
        + f"""
define i32 @{SYMBOL}(ptr noalias readonly %buffers, i64 %first, i64 %end, ptr noalias %scratch) #999 {{
entry:
  %status = alloca i32, align 4
  store i32 0, ptr %status, align 4
{loads}
  %any = icmp slt i64 %first, %end
  br i1 %any, label %loop, label %done
loop:
  %task = phi i64 [ %first, %entry ], [ %next, %loop ]
  call void @{name}({arguments})
  %next = add nsw i64 %task, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:{fence}
  %result = load i32, ptr %status, align 4
  ret i32 {"%result" if reports else "0"}
}}
attributes #999 = {{ nounwind {attributes} }}
"""
    )


def emit_object(text: str, code: CpuCode, opt_level: int = 2) -> tuple[bytes, str]:
    """Optimises LLVM IR text; returns the relocatable object and the optimised IR; raises PassError if LLVM refuses."""
    machine = _machine(code)
    try:
        module = llvm_binding.parse_assembly(with_fixed_tiles(text))
    except RuntimeError as error:
        raise PassError(f"LLVM does not take the generated IR: {error}") from None
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm_binding.create_pipeline_tuning_options(speed_level=opt_level)
    options.loop_vectorization = True
    options.loop_unrolling = f'"{UNROLLED}"="never"' not in text
    options.loop_interleaving = True
    builder = llvm_binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    optimised = str(module)  # emission rewrites the module further
    emitted = with_scalar_stores(optimised)
    if emitted != optimised:
        module = llvm_binding.parse_assembly(emitted)
    with _strength_reduced(emitted):
        return machine.emit_object(module), emitted


@contextmanager
def _strength_reduced(optimised: str) -> Iterator[None]:
    """LLVM's loop strength reduction as this code wants it, in whatever is emitted meanwhile: the option is the process's."""
    said = re.search(rf'"{REDUCED}"="(\w+)"', optimised)
    left_out = said[1] == "never" if said else optimised.count(" getelementptr ") >= MANY_ADDRESSES
    with _emitting:
        if left_out:
            llvm_binding.set_option("tilewright", "--disable-lsr=true")
        try:
            yield
        finally:
            if left_out:
                llvm_binding.set_option("tilewright", "--disable-lsr=false")


def assembly(optimised: str, code: CpuCode) -> str:
    """The assembly of LLVM IR as `emit_object` gave it back."""
    with _strength_reduced(optimised):
        return _machine(code).emit_assembly(llvm_binding.parse_assembly(optimised))
