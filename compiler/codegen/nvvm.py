"""Lowers gpu-level IR of one kernel to the LLVM dialect for NVIDIA GPUs, and to LLVM IR text."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.codegen.llvm_text import for_older_llvm
from tilewright.compiler.dialects.kernel_form import contents, kernel_of
from tilewright.compiler.errors import PassError
from tilewright.compiler.gpu.builder import WIDE
from tilewright.compiler.gpu.launch import LAUNCH
from tilewright.compiler.ir import element_bytes, ir, llvm, parse, walk
from tilewright.compiler.passes.lower_gpu.lower_primitives import LowerPrimitives
from tilewright.compiler.passes.lower_gpu.place_shared import BASE_ALIGNMENT
from tilewright.compiler.pipeline.pipeline import OnPass, run_pipeline

NARROW_BYTES = (1 << 31) - (1 << 24)
"""Buffers below this are indexed in 32 bits; what is left of 2^31 is for positions past the end of a ragged tile."""
TENSOR_MAP_BYTES = 128
_EXPANDED = "clampf"
"""Mathematical operations that become simpler ones before anything else, as no library has them."""
_CONVERGENT, _PURE = "#9999", "#9998"
_OVERFLOW = "intOverflowBehavior"
"""Of `mma` of integers: upstream's lowering lets sums saturate, here they wrap as on CPUs and in wgmma."""


def index_bits(kernel: ir.Operation, names: frozenset[str]) -> int:
    """32 when positions in every buffer and all numbers fit, else 64; `names` are those of the kernel's operations."""
    for argument in kernel.regions[0].blocks[0].arguments:
        if isinstance(argument.type, ir.MemRefType) and extent_bytes(argument.type) >= NARROW_BYTES:
            return 64
    if WIDE in kernel.attributes or any(_is_wide(op) for op in walk(kernel, "arith.constant")):
        return 64
    return 64 if "memref.extract_aligned_pointer_as_index" in names else 32


def _is_wide(constant: ir.Operation) -> bool:
    """Whether a constant is a position or a size that 32 bits do not hold."""
    value = constant.attributes["value"]
    return isinstance(constant.results[0].type, ir.IndexType) and ir.IntegerAttr(value).value >= 1 << 31


def operation_names(kernel: ir.Operation) -> frozenset[str]:
    """Names of all operations in a kernel: they tell which passes it needs."""
    return frozenset(op.name for op in walk(kernel))


def extent_bytes(type_: ir.MemRefType) -> int:
    """Bytes from a buffer's pointer to the end of its last element; shapes, strides and offset are static."""
    if 0 in type_.shape:
        return 0
    strides, offset = type_.get_strides_and_offset()
    last = sum((extent - 1) * stride for extent, stride in zip(type_.shape, strides))
    return (offset + last + 1) * element_bytes(type_.element_type)


def pipeline(arch: str, bits: int, names: frozenset[str]) -> str:
    """The passes from gpu-level IR with placed shared memory to the LLVM dialect, for a kernel of such operations."""
    dialects = {name.partition(".")[0] for name in names}
    has_transfers = any(name.startswith("vector.transfer") for name in names)
    passes = (
        "convert-vector-to-scf{full-unroll=true}" if has_transfers else "",
        "memref-expand" if "memref.atomic_rmw" in names else "",
        "lower-affine,expand-strided-metadata,lower-affine",
        "convert-complex-to-standard" if "complex" in dialects else "",
        f"math-expand-ops{{ops={_EXPANDED}}}" if "math" in dialects else "",
        "widen-shuffles" if "gpu.shuffle" in names else "",
        "canonicalize,cse,convert-scf-to-cf",
        f"convert-gpu-to-nvvm{{index-bitwidth={bits} use-bare-ptr-memref-call-conv=true}}",
        "convert-nvgpu-to-nvvm,join-index-widths" if "nvgpu" in dialects else "",
        LowerPrimitives(arch).spec() if "tilewright" in dialects else "",
        "convert-vector-to-llvm" if "vector" in dialects else "",
        "convert-complex-to-llvm" if "complex" in dialects else "",
        "convert-math-to-llvm" if dialects & {"math", "complex"} else "",
        "convert-ub-to-llvm,canonicalize,cse,reconcile-unrealized-casts",
    )
    return f"builtin.module(gpu.module({','.join(filter(None, passes))}))"


def lower(module: ir.Module, arch: str, on_pass: OnPass | None = None) -> ir.Module:
    """A module of `llvm.func`s made from a copy of a gpu-level module whose shared memory is placed."""
    kernel = kernel_of(module)
    names = operation_names(kernel)
    passes = pipeline(arch, index_bits(kernel, names), names)

    def run(copy: ir.Module) -> None:
        run_pipeline(copy.operation, passes, on_pass)
        for op in walk(copy.operation, "nvvm.mma.sync"):
            if _OVERFLOW in op.attributes:
                op.attributes[_OVERFLOW] = ir.Attribute.parse("#nvvm.mma_int_overflow<wrapped>", op.context)

    return convert(module, arch, names, run)


def convert(
    module: ir.Module, arch: str, names: frozenset[str], run: Callable[[ir.Module], None]
) -> ir.Module:
    """A copy of a gpu-level module after `run` made LLVM dialect of it, without the `gpu.module` around.

    `names` are those of the kernel's operations.
    """
    kernel = kernel_of(module)
    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    if "memref.alloc" in names:
        raise PassError(f"@{name} allocates shared memory that has no place yet; run `place-shared` first")
    launch = kernel.attributes[LAUNCH] if LAUNCH in kernel.attributes else None
    copy = parse("module {}")
    for op in module.body.operations:
        copy.body.append(op.operation.clone())
    run(copy)
    refuse_unconverted(copy.operation, arch)
    plain = parse("module {}")
    for gpu_module in contents(copy.operation):
        for op in contents(gpu_module):
            op.detach_from_parent()
            plain.body.append(op)
    with plain.context, ir.Location.unknown():
        for op in contents(plain.operation):
            if op.name == "llvm.func" and ir.StringAttr(op.attributes["sym_name"]).value == name:
                _finish(op, launch, "memref.atomic_rmw" in names)
            elif op.name == "llvm.mlir.global":
                _share(op)
    return plain


def refuse_unconverted(op: ir.Operation, arch: str) -> None:
    """Raises PassError for the first operation outside of the LLVM dialects: translating it would end the process."""
    for inner in walk(op):
        dialect = inner.name.partition(".")[0]
        if dialect not in ("llvm", "nvvm", "rocdl") and inner.name not in ("builtin.module", "gpu.module"):
            types = ", ".join(str(v.type) for v in (*inner.operands, *inner.results))
            raise PassError(
                f"no lowering to {arch} for `{inner.name}` on ({types}); write the kernel without it",
                inner.location,
            )


def _share(array: ir.Operation) -> None:
    """Makes the dynamic array external: internal and of no bytes, it would be a static variable that overlaps others."""
    if ir.StringAttr(array.attributes["sym_name"]).value.startswith("__dynamic_shmem"):
        array.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")
        array.attributes["alignment"] = _i64(BASE_ALIGNMENT)


def _finish(function: ir.Operation, launch: ir.DictAttr | None, has_atomics: bool) -> None:
    """Sets what no conversion pass knows: atomics' order, tensor maps by value, block and cluster sizes."""
    for atomic in walk(function, "llvm.atomicrmw") if has_atomics else ():
        atomic.attributes["ordering"] = _i64(_MONOTONIC)
        atomic.attributes["syncscope"] = ir.StringAttr.get(_SCOPES["nvvm.kernel" in function.attributes])
    if "nvvm.maxntid" in function.attributes:
        function.attributes["nvvm.reqntid"] = function.attributes["nvvm.maxntid"]
        del function.attributes["nvvm.maxntid"]
    if launch is None:
        return
    fields = ir.DictAttr(launch)
    maps = len(ir.ArrayAttr(fields["tensor_maps"])) if "tensor_maps" in fields else 0
    cluster = ir.IntegerAttr(fields["cluster"]).value if "cluster" in fields else 1
    if cluster > 1:
        function.attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([cluster, 1, 1])
    if maps:
        _pass_maps_by_value(function, maps)


_SCOPES = {True: "device", False: "agent"}
"""What LLVM calls all threads of one device, for NVIDIA's targets and for AMD's."""
_MONOTONIC = 2
"""`monotonic` among LLVM's orderings: atomic operations of kernels order nothing but themselves."""


def _pass_maps_by_value(function: ir.Operation, maps: int) -> None:
    """The last `maps` parameters are tensor maps that stand in the kernel's constant parameters."""
    count = len(function.regions[0].blocks[0].arguments)
    old = (
        list(function.attributes["arg_attrs"])
        if "arg_attrs" in function.attributes
        else [ir.DictAttr.get({})] * count
    )
    for position in range(count - maps, count):
        fields = {field.name: field.attr for field in ir.DictAttr(old[position])}
        fields["llvm.byval"] = ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{TENSOR_MAP_BYTES} x i8>"))
        fields["llvm.align"] = _i64(64)
        fields["nvvm.grid_constant"] = ir.UnitAttr.get()
        old[position] = ir.DictAttr.get(fields)
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(old)


def _i64(number: int) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def llvm_ir(module: ir.Module) -> str:
    """LLVM IR text of an LLVM-dialect module, with inline PTX marked: convergent, or free of effects.

    Without `convergent` LLVM may duplicate or sink what all threads of a warp must run together. Its own `mma` lack it:
    one that stands between two branches on the same condition would go into one of them.
    """
    text = for_older_llvm(llvm.translate_module_to_llvmir(module.operation))
    lines = text.split("\n")
    marks = {number: mark for number, line in enumerate(lines) if (mark := _mark(line))}
    for number, mark in marks.items():
        lines[number] += f" {mark}"
    if marks:
        lines.append(f"attributes {_CONVERGENT} = {{ convergent nounwind }}")
        lines.append(f"attributes {_PURE} = {{ nounwind willreturn memory(none) }}")
    return "\n".join(lines)


def _mark(line: str) -> str:
    """The attributes that a line's call takes, if it is one of inline PTX or of a matrix instruction."""
    if " call " not in line or not line.endswith(")"):
        return ""
    if " asm sideeffect " in line or "@llvm.nvvm.mma." in line:
        return _CONVERGENT
    return _PURE if " asm " in line else ""
