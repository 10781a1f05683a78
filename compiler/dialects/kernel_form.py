"""The form of a kernel's function: the rTask first, buffers, then the status word and the scratch."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir

ONCE = "tilewright.once"
"""On a dispatch that runs when weights are bound and never again: its code need not be the fastest."""
EXPECTED = (
    "expected a kernel (rTask index first, memref<1xi32> and memref<...xi8> last); run `form-kernels` first"
)


@dataclass(frozen=True)
class KernelArguments:
    """The arguments that every kernel has, beside its buffers."""

    task: ir.Value
    status: ir.Value
    scratch: ir.Value

    @classmethod
    def of(cls, function: ir.Operation) -> KernelArguments | None:
        """Reads them off a function with a body; None when it has another form."""
        arguments = list(function.regions[0].blocks[0].arguments)
        if len(arguments) < 3:
            return None
        task, (status, scratch) = arguments[0], arguments[-2:]
        bytes_ = (
            isinstance(scratch.type, ir.MemRefType) and str(ir.MemRefType(scratch.type).element_type) == "i8"
        )
        if not isinstance(task.type, ir.IndexType) or str(status.type) != "memref<1xi32>" or not bytes_:
            return None
        return cls(task, status, scratch)


def is_declaration(function: ir.Operation) -> bool:
    """True for a function without a body, which passes leave alone."""
    return not len(function.regions[0].blocks)


def kernel_of(module: ir.Module) -> ir.Operation:
    """The module's only `gpu.func` kernel."""
    modules = [op.operation for op in module.body.operations if op.operation.name == "gpu.module"]
    functions = [f for gpu_module in modules for f in contents(gpu_module) if f.name == "gpu.func"]
    # The bindings' builder writes the first name, the parser the second.
    kernels = [f for f in functions if "gpu.kernel" in f.attributes or "kernel" in f.attributes]
    if len(kernels) != 1:
        raise PassError(f"expected one kernel in the module, found {len(kernels)}")
    return kernels[0]


def contents(op: ir.Operation) -> list[ir.Operation]:
    """The operations directly inside the first block of one."""
    return [inner.operation for inner in op.regions[0].blocks[0].operations]
