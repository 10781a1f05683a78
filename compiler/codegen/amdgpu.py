"""Kernels to AMD's assembly: the same gpu-level IR through ROCDL, without what only NVIDIA's machines have.

    code = compile_amdgpu(module, "gfx90a")     # module: one kernel, shared memory placed by `place-shared`

Nothing here runs it. Kernels keep their warps of 32 threads: two share a wavefront of 64, and shuffles stay within theirs.
Elementary functions are computed by this compiler's own formulas; cube roots, and sines, cosines, tangents, remainders and powers of
f64, need ROCm's device libraries: of these only remainders are LLVM's own, the others are refused.
"""

from __future__ import annotations

import re
from functools import cache

import llvmlite.binding as llvm_binding

from tilewright.compiler.codegen import nvvm
from tilewright.compiler.codegen.ptx import DeviceCode
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import arith, ir, memref, walk
from tilewright.compiler.passes.lower_cpu.approximate_math import ApproximateMath
from tilewright.compiler.pipeline.pipeline import run_pipeline

TRIPLE = "amdgcn-amd-amdhsa"
_ATOMIC_ADD = "tilewright.atomic_add"


def pipeline(arch: str, bits: int) -> str:
    """The passes from gpu-level IR with placed shared memory to the LLVM dialect."""
    return f"""builtin.module(gpu.module(
        convert-vector-to-scf{{full-unroll=true}},
        memref-expand,
        lower-affine,expand-strided-metadata,lower-affine,
        math-expand-ops{{ops=clampf,rsqrt}},
        widen-shuffles,
        canonicalize,cse,
        convert-scf-to-cf,
        convert-gpu-to-rocdl{{chipset={arch} index-bitwidth={bits} use-bare-ptr-memref-call-conv=true}},
        convert-vector-to-llvm,
        convert-complex-to-llvm,
        convert-math-to-llvm,convert-ub-to-llvm,
        canonicalize,cse,
        reconcile-unrealized-casts))""".replace("\n", "").replace("        ", "")


def compile_amdgpu(module: ir.Module, arch: str = "gfx90a") -> DeviceCode:
    """Assembly of the module's one kernel; the module is left as it is.

    Raises PassError for kernels with asynchronous copies, matrix instructions or primitives but atomic addition, which have no
    counterpart here: schedule the SIMT kernel instead.
    """
    machine = _machine(arch)
    kernel = nvvm.kernel_of(module)
    names = nvvm.operation_names(kernel)
    foreign = sorted(
        name for name in names if name.startswith(("nvgpu.", "tilewright.", "nvvm.")) and name != _ATOMIC_ADD
    )
    if foreign:
        found = f"`{foreign[0]}` is an instruction of NVIDIA's, the target is {arch}"
        raise PassError(f"{found}; schedule the SIMT kernel", kernel.location)
    passes = pipeline(arch, nvvm.index_bits(kernel, names))

    def run(copy: ir.Module) -> None:
        _add_atomically(copy)
        run_pipeline(copy.operation, "builtin.module(gpu.module(convert-complex-to-standard))")
        with copy.context, ir.Location.unknown():
            ApproximateMath().run(nvvm.kernel_of(copy))
        _refuse_functions(copy, arch)
        run_pipeline(copy.operation, passes)

    text = without_library(nvvm.llvm_ir(nvvm.convert(module, arch, names, run)))
    symbol = ir.StringAttr(kernel.attributes["sym_name"]).value
    optimised, assembly = _emit(text, machine)
    return DeviceCode(symbol, arch, assembly, text, optimised)


def _add_atomically(module: ir.Module) -> None:
    """Makes the primitive an operation of memref, which orders memory for the whole system: more than was asked."""
    for op in walk(module.operation, _ATOMIC_ADD):
        buffer, position, value = op.operands
        with ir.InsertionPoint(op), op.location:
            if not isinstance(position.type, ir.IndexType):
                position = arith.index_castui(ir.IndexType.get(), position)
            before = memref.atomic_rmw(arith.AtomicRMWKind.addi, value, buffer, [position])
        op.results[0].replace_all_uses_with(before)
        op.erase()


def _refuse_functions(module: ir.Module, arch: str) -> None:
    for op in walk(module.operation):
        if op.name == "arith.remf" and "bf16" in str(op.operands[0].type):
            raise PassError(f"no remainder of bf16 on {arch}; compute in f32", op.location)
        if op.name.startswith("math.") and op.name.removeprefix("math.") not in _INSTRUCTIONS:
            raise PassError(
                f"no formula for `{op.name}` on {op.operands[0].type} and no library of {arch}; compute in f32",
                op.location,
            )


def without_library(text: str) -> str:
    """LLVM IR whose calls of ROCm's library for roundings, roots and remainders are LLVM's own operations."""
    text = re.sub(r"call (\w+) @__ocml_fmod_\w+\(\w+ (\S+), \w+ (\S+)\)", r"frem \1 \2, \3", text)
    return re.sub(r"@__ocml_(\w+)_(f16|f32|f64)\b", lambda found: f"@llvm.{_LLVM[found[1]]}.{found[2]}", text)


_LLVM = {
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round", "rint": "roundeven", "sqrt": "sqrt",
    "fabs": "fabs", "fma": "fma", "copysign": "copysign", "fmod": "floor",
}  # fmt: skip
"""ROCm's function -> LLVM's intrinsic; what remains of `fmod` is its unused declaration."""
_INSTRUCTIONS = {
    "absf", "absi", "ceil", "clampf", "copysign", "ctlz", "ctpop", "cttz", "floor", "fma", "isfinite", "isnan", "round",
    "roundeven", "rsqrt", "sqrt", "trunc",
}  # fmt: skip
"""What the machine computes itself of the math dialect."""


def _emit(text: str, machine: llvm_binding.TargetMachine) -> tuple[str, str]:
    try:
        module = llvm_binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise PassError(f"LLVM does not take the generated IR: {error}") from None
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    builder = llvm_binding.create_pass_builder(
        machine, llvm_binding.create_pipeline_tuning_options(speed_level=3)
    )
    builder.getModulePassManager().run(module, builder)
    return str(module), machine.emit_assembly(module)


@cache
def _machine(arch: str) -> llvm_binding.TargetMachine:
    if not re.fullmatch(r"gfx[0-9a-f]+", arch):
        raise PassError(f"expected an architecture like gfx90a, found `{arch}`")
    llvm_binding.initialize_all_targets()
    llvm_binding.initialize_all_asmprinters()
    return llvm_binding.Target.from_triple(TRIPLE).create_target_machine(cpu=arch, opt=3)
