"""GPU kernels on the CPU: gpu-level IR to an x86-64 object whose `tw_kernel` is one GPU thread, and runs of it.

    run_kernel(module, [a, b, result])      # computes `result`; raises EmulationError when the kernel misbehaves

The object calls the emulator in the runtime library for all that a GPU thread does beside arithmetic: see
docs/emulator.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tilewright.compiler.codegen.llvm_text import for_older_llvm
from tilewright.compiler.codegen.machine_code import SYMBOL, CpuCode, emit_object
from tilewright.compiler.errors import PassError
from tilewright.compiler.gpu.launch import LAUNCH, launch_of
from tilewright.compiler.ir import ir, llvm, walk
from tilewright.compiler.passes.lower_cpu.approximate_math import ApproximateMath
from tilewright.compiler.passes.lower_gpu.lower_to_emulator import EMULATED, LowerToEmulator
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.runtime.emulated import aligned_bytes
from tilewright.runtime.emulated_kernel import EmulatedKernel, Memory
from tilewright.runtime.errors import EmulationError
from tilewright.runtime.program import Launch

__all__ = ["EmulationError", "compile_object", "load_kernel", "run_kernel"]

CPU = CpuCode("x86-64-v3", "", 256)
"""What emulated kernels are compiled for: any x86-64 CPU since 2015. Conversions of half precision are instructions."""


def pipeline(checked: bool) -> str:
    """The passes from gpu-level IR to the LLVM dialect."""
    return f"""builtin.module(
        lower-affine,
        {LowerToEmulator(checked).spec()},
        memref-expand,
        math-expand-ops{{ops=clampf}},
        canonicalize,cse,
        expand-strided-metadata,lower-affine,
        convert-scf-to-cf,
        convert-vector-to-llvm,
        convert-complex-to-libm,convert-complex-to-standard,
        func.func({ApproximateMath(only_corrected=True).spec()}),
        convert-math-to-llvm,convert-math-to-libm,
        convert-complex-to-llvm,
        finalize-memref-to-llvm,
        convert-func-to-llvm{{use-bare-ptr-memref-call-conv=true}},
        convert-arith-to-llvm,convert-cf-to-llvm,convert-ub-to-llvm,convert-index-to-llvm,
        canonicalize,cse,
        reconcile-unrealized-casts,widen-booleans)""".replace("\n", "").replace("        ", "")


def compile_object(module: ir.Module, checked: bool = True) -> bytes:
    """The object code of a module's kernel, which may be run unchecked too if compiled `checked`; keeps the module.

    Shared memory is placed if it has not been. Raises PassError for operations that the emulator does not know.
    """
    return _compile(module, checked)[0]


def _compile(module: ir.Module, checked: bool) -> tuple[bytes, str, Launch]:
    """Object code, name and launch data of a module's kernel."""
    with module.context, ir.Location.unknown(module.context):
        clone = module.operation.clone().operation
        try:
            (kernel,) = walk(clone, "gpu.func")
            if LAUNCH not in kernel.attributes or "shared_bytes" not in ir.DictAttr(
                kernel.attributes[LAUNCH]
            ):
                run_pipeline(clone, "builtin.module(gpu.module(gpu.func(place-shared)))")
                (kernel,) = walk(clone, "gpu.func")
            launch = launch_of(kernel)
            run_pipeline(clone, pipeline(checked))
            function = next(f for f in walk(clone, "llvm.func") if EMULATED in f.attributes)
            description = ir.StringAttr(function.attributes[EMULATED]).value
            name = ir.StringAttr(function.attributes["sym_name"]).value
            del function.attributes[EMULATED]
            lowered = for_older_llvm(llvm.translate_module_to_llvmir(clone))
        finally:
            clone.erase()
    # Compiling takes longer than running: test_attention_kernels, test_rows and test_hopper_gemm in test/py/gpu took 121 s
    # together as kernels of CPUs are optimised, and 109 s so (Ice Lake Xeon, one process).
    return emit_object(_with_entry(lowered, name, description), CPU, opt_level=1)[0], name, launch


def _with_entry(text: str, name: str, description: str) -> str:
    """LLVM IR with `tw_kernel(void **args)` added; args: thread, block, shared memory, array of parameters.

    Called with null it returns the description.
    """
    body = re.search(rf"define void @{re.escape(name)}\((.*)\) ", text)
    if body is None:
        raise PassError(f"expected a function `{name}` without results in LLVM IR of an emulated kernel")
    parameters = len(body[1].split(",")) - 4
    attributes = f'nounwind "target-cpu"="{CPU.cpu}" "no-trapping-math"="true"'
    text = text.replace(body[0], f"define internal void @{name}({body[1]}) alwaysinline #999 ")
    raw = description.encode() + b"\0"
    escaped = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in raw)
    loads = "\n".join(
        f"  %a{i} = getelementptr ptr, ptr %parameters, i64 {i}\n  %p{i} = load ptr, ptr %a{i}"
        for i in range(parameters)
    )
    arguments = ", ".join(
        ["ptr %args", "i64 %thread", "i64 %block", "ptr %shared", *(f"ptr %p{i}" for i in range(parameters))]
    )
    return f"""{text}
@tw_description = private constant [{len(raw)} x i8] c"{escaped}"
define ptr @{SYMBOL}(ptr %args) #999 {{
  %is_question = icmp eq ptr %args, null
  br i1 %is_question, label %describe, label %run
describe:
  ret ptr @tw_description
run:
  %thread = load i64, ptr %args
  %block_at = getelementptr i64, ptr %args, i64 1
  %block = load i64, ptr %block_at
  %shared_at = getelementptr i64, ptr %args, i64 2
  %shared = load ptr, ptr %shared_at
  %parameters_at = getelementptr i64, ptr %args, i64 3
  %parameters = load ptr, ptr %parameters_at
{loads}
  call void @{name}({arguments})
  ret ptr null
}}
attributes #999 = {{ {attributes} }}
"""


def load_kernel(module: ir.Module, checked: bool = True) -> EmulatedKernel:
    """A module's kernel, compiled and loaded, to be run several times."""
    code, name, launch = _compile(module, checked)
    return EmulatedKernel(name, code, launch)


def run_kernel(
    module: ir.Module,
    arrays: Sequence[np.ndarray],
    seed: int = 0,
    checked: bool = True,
    ready: Sequence[int] = (),
) -> None:
    """Runs the module's kernel on `arrays`, which are its buffers in order and are changed in place.

    Buffers that the kernel writes to hold nothing before, except those numbered in `ready`. bf16 is uint16 or
    `ml_dtypes.bfloat16`. Raises EmulationError with everything that was found.
    """
    execute(load_kernel(module, checked), arrays, seed, checked, ready)


def execute(
    kernel: EmulatedKernel,
    arrays: Sequence[np.ndarray],
    seed: int = 0,
    checked: bool = True,
    ready: Sequence[int] = (),
) -> None:
    """`run_kernel` for a kernel that has been loaded."""
    launch, described = kernel.launch, kernel.description["buffers"]
    given = [d for d in described if d["kind"] == "buffer"]
    if len(arrays) != len(given):
        raise ValueError(f"kernel `{kernel.name}` has {len(given)} buffers, found {len(arrays)} arrays")
    held = [aligned_bytes(array.nbytes) for array in arrays]
    for copy, array in zip(held, arrays):
        copy[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    memory = [
        Memory(copy.ctypes.data, array.nbytes, array.nbytes if number in ready else -1)
        for number, (copy, array) in enumerate(zip(held, arrays))
    ]
    workspace, status = aligned_bytes(launch.workspace_bytes), np.zeros(1, np.int32)
    workspace[: launch.zeroed_bytes] = 0
    for entry in described[len(given) :]:
        extra = workspace if entry["kind"] == "workspace" else status
        memory.append(Memory(extra.ctypes.data, extra.nbytes))
    kernel.run(memory, seed=seed, checked=checked)
    if workspace[: launch.zeroed_bytes].any():
        raise EmulationError(
            f"kernel `{kernel.name}`: the first {launch.zeroed_bytes} B of its workspace must be zero after a launch"
        )
    for copy, array in zip(held, arrays):
        array[...] = copy[: array.nbytes].view(array.dtype).reshape(array.shape)
    if status[0]:
        raise EmulationError(f"kernel `{kernel.name}`: run-time check {status[0] - 1} failed")
