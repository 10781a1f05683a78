"""One dispatch to one GPU kernel: gpu-level IR by its family, shared memory placed, then machine code or emulation."""

from __future__ import annotations

import re
from dataclasses import replace

from tilewright.compiler import debug
from tilewright.compiler.codegen.limits import check_limits
from tilewright.compiler.codegen.lower_cpu import LoweredKernel
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.families.gpu import families
from tilewright.compiler.gpu.launch import asserts_of, launch_of
from tilewright.compiler.ir import ir, static_shape
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.passes.lower_gpu.overlap_launches import OverlapLaunches
from tilewright.compiler.passes.lower_gpu.place_shared import PlaceShared
from tilewright.compiler.targets.target import Target
from tilewright.runtime.program import Kernel


def gpu_module(function: ir.Operation, target: Target) -> tuple[ir.Module, str]:
    """A dispatch's kernel in gpu-level IR with its shared memory placed, and the family that wrote it.

    Raises ScheduleError for a schedule that its family refuses, PassError for what the target cannot hold.
    """
    with function.context, function.location:
        # What a schedule leaves open is chosen here, and nowhere below.
        completed = families.complete(function, schedule_attribute.read(function) or Schedule(), target)
        module = families.emit(completed, target)
        kernel = kernel_of(module)
        if target.can_overlap_launches:
            OverlapLaunches().run(kernel)
        PlaceShared(max_bytes=target.level("shared").capacity_bytes).run(kernel)
        check_limits(kernel, target)
    return module, completed.kernel


def lower(function: ir.Operation, target: Target, key: str) -> LoweredKernel:
    """A dispatch's kernel: an x86-64 object for an emulated target, else PTX that `assemble` finishes.

    Its symbol is made of what it computes and of `key`, so that the same kernel is called the same in any model.
    """
    name = ir.StringAttr(function.attributes["sym_name"]).value
    operator = ir.StringAttr(function.attributes["tilewright.operator"]).value
    shape = "x".join(map(str, static_shape(function.attributes["function_type"].value.results[0])))
    symbol = re.sub(r"\W", "_", f"{operator}_{shape}_{key[:8]}")
    named = function.clone().operation
    named.attributes["sym_name"] = ir.StringAttr.get(symbol, function.context)
    try:
        module, family = gpu_module(named, target)
    finally:
        named.erase()
    debug.dump_text(f"{name}.gpu.mlir", str(module))
    kernel = kernel_of(module)
    launch, asserts = launch_of(kernel), asserts_of(kernel)
    if target.emulated:
        from tilewright.compiler.codegen.emulation import compile_object

        made = Kernel(name, symbol, compile_object(module), asserts=asserts, launch=launch)
    else:
        from tilewright.compiler.codegen.ptx import compile_ptx

        code = compile_ptx(module, target.arch)
        text = debug.override_text(f"{name}.ptx") or code.text
        debug.dump_text(f"{name}.ll", code.optimised)
        debug.dump_text(f"{name}.ptx", text)
        made = Kernel(name, symbol, text.encode(), asserts=asserts, launch=replace(launch, image="ptx"))
    return LoweredKernel(made, launch.tasks, family=family)


def assemble(lowered: LoweredKernel, target: Target) -> LoweredKernel:
    """The kernel as machine code beside its PTX; as it was when no installed assembler knows the architecture."""
    from tilewright.compiler.codegen import ptxas

    kernel = lowered.kernel
    assert kernel.launch is not None
    made = ptxas.assemble(kernel.object.decode(), target.arch)
    if made is None:
        return lowered
    for warning in made.resources.warnings:
        debug.log(1, f"{kernel.name}: ptxas: {warning}")
    launch = replace(
        kernel.launch,
        image="cubin",
        registers=made.resources.registers,
        spill_bytes=made.resources.spill_bytes,
        ptx=made.ptx.encode(),
    )
    return replace(lowered, kernel=replace(kernel, object=made.cubin, launch=launch))
