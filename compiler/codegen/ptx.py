"""Kernels to PTX: gpu-level IR through the LLVM dialect and LLVM IR to text for NVIDIA's assembler or driver.

code = compile_ptx(module, "sm_90a")     # module: one kernel, shared memory placed by `place-shared`
print(code.text)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm_binding

from tilewright.compiler.codegen import libdevice, nvvm
from tilewright.compiler.codegen.coherence import coherent
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir
from tilewright.compiler.pipeline.pipeline import OnPass

TRIPLE = "nvptx64-nvidia-cuda"
_ISA = {
    80: "sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_89 sm_90 sm_90a",
    86: "sm_100 sm_100a sm_101 sm_101a",
    87: "sm_120 sm_120a",
    88: "sm_100f sm_101f sm_103 sm_103a sm_103f sm_120f sm_121 sm_121a sm_121f",
    90: "sm_88 sm_110 sm_110a sm_110f",
}
"""PTX version, times ten, by architecture: the oldest that has it and what kernels use, so that older drivers take it."""
_OPTIONS = ("-nvptx-short-ptr", "-nvptx-fma-level=2")
"""32-bit shared pointers, as the hardware has them; a product and a sum may become one FMA."""


@dataclass(frozen=True)
class DeviceCode:
    """One kernel's code: entry symbol, architecture, assembly text, and LLVM IR before and after optimisation."""

    symbol: str
    arch: str
    text: str
    llvm_ir: str
    optimised: str


@cache
def _initialise() -> None:
    llvm_binding.initialize_all_targets()
    llvm_binding.initialize_all_asmprinters()
    for option in _OPTIONS:
        llvm_binding.set_option("tilewright", option)


@cache
def _machine(arch: str) -> llvm_binding.TargetMachine:
    _initialise()
    version = next((number for number, names in _ISA.items() if arch in names.split()), 0)
    if not version:
        known = ", ".join(" ".join(_ISA.values()).split())
        raise PassError(f"no PTX for the architecture `{arch}`; expected one of {known}")
    target = llvm_binding.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=arch, features=f"+ptx{version}", opt=3)


def compile_ptx(
    module: ir.Module, arch: str, *, opt_level: int = 3, on_pass: OnPass | None = None
) -> DeviceCode:
    """PTX of the module's one kernel; the module is left as it is.

    Raises PassError when the kernel holds what the target lacks, LibdeviceError when it needs a libdevice that is not
    installed.
    """
    _machine(arch)
    symbol = ir.StringAttr(nvvm.kernel_of(module).attributes["sym_name"]).value
    text = with_instructions(nvvm.llvm_ir(nvvm.lower(module, arch, on_pass)))
    optimised, assembly = emit(text, arch, opt_level)
    return DeviceCode(symbol, arch, coherent(assembly), text, optimised)


def with_instructions(text: str) -> str:
    """LLVM IR whose calls of libdevice for what the machine does in one instruction are LLVM's own operations."""
    return _SINGLE.sub(
        lambda f: f"@llvm.{'roundeven' if f[1] == 'rint' else f[1]}.{'f32' if f[2] else 'f64'}", text
    )


_SINGLE = re.compile(r"@__nv_(fabs|floor|ceil|trunc|rint|sqrt|fma|copysign)(f?)(?=\()")


def emit(text: str, arch: str, opt_level: int = 3) -> tuple[str, str]:
    """Optimised LLVM IR and PTX of LLVM IR text; libdevice is linked when it is called."""
    machine = _machine(arch)
    try:
        module = llvm_binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise PassError(f"LLVM does not take the generated IR: {error}") from None
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    tuning = llvm_binding.create_pipeline_tuning_options(speed_level=opt_level)
    builder = llvm_binding.create_pass_builder(machine, tuning)
    if "@__nv_" in text:
        _link_libdevice(module, machine)
    builder.getModulePassManager().run(module, builder)
    return str(module), machine.emit_assembly(module)


def _link_libdevice(module: llvm_binding.ModuleRef, machine: llvm_binding.TargetMachine) -> None:
    """Links the functions that are called, for the optimiser to inline."""
    called = frozenset(f.name for f in module.functions if f.is_declaration and f.name.startswith("__nv_"))
    library = llvm_binding.parse_bitcode(_subset(called))
    library.triple, library.data_layout = TRIPLE, str(machine.target_data)
    module.link_in(library)
    for function in module.functions:
        if function.name in called:
            function.linkage = "internal"


@cache
def _subset(called: frozenset[str]) -> bytes:
    """Bitcode of libdevice with only these functions and what they call: 60 ms, so done once for each set."""
    library = llvm_binding.parse_bitcode(libdevice.find().read_bytes())
    defined = {function.name: function for function in library.functions if not function.is_declaration}
    missing = sorted(called - defined.keys())
    if missing:
        raise PassError(
            f"libdevice has no {', '.join(missing)}; it knows f32 and f64 only, so convert before"
        )
    for name, function in defined.items():
        if name not in called:
            function.linkage = "internal"
    builder = llvm_binding.create_pass_builder(
        _machine("sm_80"), llvm_binding.create_pipeline_tuning_options()
    )
    unused = llvm_binding.create_new_module_pass_manager()
    unused.add_global_dead_code_eliminate_pass()
    unused.run(library, builder)
    return library.as_bitcode()
