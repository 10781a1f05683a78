"""One dispatch to one kernel: the pipeline from linalg on tensors to machine code."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tilewright import __version__
from tilewright.compiler.analysis.strided_form import StridedForm, strided_form
from tilewright.compiler.codegen import machine_code as codegen
from tilewright.compiler.codegen.machine_code import CpuCode
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import ONCE
from tilewright.compiler.families.cpu import strided_loops
from tilewright.compiler.families.cpu.complete_schedule import complete
from tilewright.compiler.ir import ir, parse
from tilewright.compiler.nouns.schedule import ATTRIBUTE, PREDICTED, PROPOSER, UNSCHEDULED, Schedule
from tilewright.compiler.passes.dispatch.outline_dispatches import UNFUSED
from tilewright.compiler.passes.lower_cpu.approximate_math import ApproximateMath
from tilewright.compiler.passes.lower_cpu.keep_rows import KeepRows
from tilewright.compiler.passes.lower_cpu.lower_attention import LowerAttention
from tilewright.compiler.passes.lower_cpu.lower_fourier import LowerFourier
from tilewright.compiler.passes.lower_cpu.lower_scans import LowerScans
from tilewright.compiler.passes.lower_cpu.lower_scatters import LowerScatters
from tilewright.compiler.passes.lower_cpu.lower_sorts import LowerSorts
from tilewright.compiler.passes.lower_cpu.lower_winograd import LowerWinograd
from tilewright.compiler.passes.lower_cpu.stream_stores import FENCE, StreamStores
from tilewright.compiler.passes.lower_cpu.tile_dots import TileDots
from tilewright.compiler.passes.lower_cpu.vectorize_dots import VectorizeDots
from tilewright.compiler.passes.lower_cpu.vectorize_interleaves import VectorizeInterleaves
from tilewright.compiler.passes.lower_cpu.vectorize_reductions import VectorizeReductions
from tilewright.compiler.passes.lower_cpu.vectorize_transposes import VectorizeTransposes
from tilewright.compiler.passes.lower_cpu.vectorize_windows import VectorizeWindows
from tilewright.compiler.pipeline.pipeline import OnPass, run_pipeline
from tilewright.compiler.targets.target import Target
from tilewright.runtime.program import Kernel


def pipeline(target: Target) -> str:
    """The passes that lower a module with one dispatch to the LLVM dialect."""
    registers = (target.vector_bits, target.registers_per_thread)
    return f"""builtin.module(
        func.func(refback-generalize-tensor-pad,refback-generalize-tensor-concat,multiply-by-reciprocals),
        apply-schedule,canonicalize,cse,
        func.func(separate-fills),form-kernels,func.func({LowerAttention.for_target(target).spec()}),eliminate-empty-tensors,
        func.func(bufferize-lines),
        one-shot-bufferize{{allow-unknown-ops=false}},
        canonicalize,cse,canonicalize,
        func.func(
            map-tasks,split-pads,
            {LowerWinograd(*registers).spec()},
            {TileDots.for_target(target).spec()},
            {VectorizeDots.for_target(target).spec()},
            {VectorizeWindows(*registers).spec()},
            {StreamStores(target.vector_bits).spec()},
            {VectorizeReductions(*registers).spec()},
            {VectorizeInterleaves(target.vector_bits).spec()},
            {VectorizeTransposes(target.vector_bits).spec()},
            {LowerFourier(target.vector_bits).spec()},{LowerSorts(target.vector_bits).spec()},{LowerScans(target.vector_bits).spec()},{LowerScatters(target.vector_bits).spec()},tm-tensor-to-loops,
            refback-munge-memref-copy,
            convert-linalg-to-loops,{KeepRows.for_target(target).spec()},
            place-scratch,
            report-asserts,
            canonicalize,cse,
            canonicalize),
        {_to_llvm(target)})""".replace("\n", "").replace("        ", "")


def _to_llvm(target: Target) -> str:
    """The passes that lower loops over buffers to the LLVM dialect."""
    return f"""lower-affine,
        convert-scf-to-cf,
        expand-strided-metadata,
        lower-affine,
        convert-vector-to-llvm{{enable-x86=true}},
        convert-complex-to-libm,convert-complex-to-standard,func.func({ApproximateMath.for_target(target).spec()}),
        convert-math-to-llvm,convert-math-to-libm,convert-vector-to-llvm,
        convert-complex-to-llvm,
        finalize-memref-to-llvm,
        convert-func-to-llvm{{use-bare-ptr-memref-call-conv=true}},
        convert-arith-to-llvm,convert-cf-to-llvm,convert-ub-to-llvm,convert-index-to-llvm,
        canonicalize,cse,
        reconcile-unrealized-casts,attach-loop-annotations,widen-booleans,move-short-floats"""


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel, how many rTasks its dispatch has, and in `family` which emitter of GPU kernels wrote it."""

    kernel: Kernel
    tasks: int
    family: str = ""


@cache
def compiler_digest() -> str:
    """A hash of the compiler's own sources, so that a change of any pass misses the cache."""
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def compiler_version() -> str:
    """The version with the beginning of the sources' digest, for people and for records."""
    return f"{__version__}+{compiler_digest()[:16]}"


def bare_text(function: ir.Operation, schedule: bool = True) -> str:
    """The dispatch's text without what its code does not depend on: name, locations, reasons, tiles of memory levels.

    `schedule=False` leaves the whole schedule out too. Raises ScheduleError for a schedule that is malformed.
    """
    bare = function.clone().operation
    decided = schedule_attribute.read(bare)
    if schedule and decided is not None:
        schedule_attribute.write(bare, replace(decided, levels=()))
    return _printed(bare, UNFUSED, PREDICTED, PROPOSER, UNSCHEDULED, *(() if schedule else (ATTRIBUTE,)))


def text_without(function: ir.Operation, *attributes: str) -> str:
    """The dispatch's text without its name, its locations and these attributes."""
    return _printed(function.clone().operation, *attributes)


def _printed(bare: ir.Operation, *attributes: str) -> str:
    """The same of a copy, which is erased."""
    name = ir.StringAttr(bare.attributes["sym_name"]).value
    for attribute in attributes:
        if attribute in bare.attributes:
            del bare.attributes[attribute]
    text = bare.get_asm(enable_debug_info=False, use_local_scope=True).replace(f"@{name}(", "@dispatch(")
    bare.erase()
    return text


def code_key(target: Target) -> str:
    """What all code depends on beside its dispatch, hashed: the compiler, and what it reads of the target."""
    if target.kind == "cpu":
        facts = (target.llvm_cpu, target.llvm_features, str(target.vector_bits), pipeline(target))
    else:
        facts = (json.dumps(target.to_json(), sort_keys=True),)
    return hashlib.sha256("\n".join((compiler_digest(), *facts)).encode()).hexdigest()


def shape_free(function: ir.Operation) -> StridedForm | None:
    """The form of a dispatch whose kernel is told extents and strides; None for one that has a kernel of its own.

    Such is what runs once and has no schedule: written by hand, one gets the kernel that it says.
    """
    if ONCE not in function.attributes or ATTRIBUTE in function.attributes:
        return None
    return strided_form(function)


def kernel_key(function: ir.Operation, target: Target) -> str:
    """What a kernel's code depends on, hashed: the dispatch without name, locations and reasons, target and version."""
    form = shape_free(function) if target.kind == "cpu" else None
    if form is not None:
        return hashlib.sha256(f"{form.text()}\n{code_key(target)}".encode()).hexdigest()
    return hashlib.sha256(f"{bare_text(function)}\n{code_key(target)}".encode()).hexdigest()


def lower(function: ir.Operation, target: Target, on_pass: OnPass | None = None) -> tuple[str, LoweredKernel]:
    """LLVM IR text of a dispatch's kernel, and the kernel without its code.

    Raises ScheduleError for a schedule that the kernel cannot have.
    """
    name = ir.StringAttr(function.attributes["sym_name"]).value
    form = shape_free(function)
    if form is not None:
        return _lower_strided(form, name, target, on_pass)
    module = parse("module {}")
    clone = function.clone().operation
    del clone.attributes["sym_visibility"]
    module.body.append(clone)
    inputs = len(clone.attributes["function_type"].value.inputs)
    outputs = len(clone.attributes["function_type"].value.results)
    schedule = complete(clone, schedule_attribute.read(clone) or Schedule(), target)
    schedule_attribute.write(clone, schedule)
    run_pipeline(module.operation, pipeline(target), on_pass, late=True)
    lowered = next(
        v.operation for v in module.body.operations if v.operation.name == "llvm.func" and _named(v, name)
    )
    tasks = lowered.attributes["tilewright.tasks"].value
    scratch = lowered.attributes["tilewright.scratch_bytes"].value
    asserts = tuple(ir.StringAttr(a).value for a in lowered.attributes["tilewright.asserts"])
    fences = FENCE in lowered.attributes
    once = ONCE in function.attributes
    reduced = "never" if once else _REDUCED.get(_operator(function), "")
    # LLVM takes up to forty times as long for a copy of unrolled rows, which are copied once.
    unrolled = "never" if once or _lacks_registers(schedule, target) else ""
    text = codegen.llvm_ir(
        module, name, inputs + outputs, cpu_code(target), bool(asserts), fences, reduced, unrolled
    )
    return text, LoweredKernel(Kernel(name, codegen.SYMBOL, b"", scratch, asserts), tasks)


def _lower_strided(
    form: StridedForm, name: str, target: Target, on_pass: OnPass | None
) -> tuple[str, LoweredKernel]:
    module = strided_loops.emit(form, name)
    run_pipeline(module.operation, f"builtin.module({_to_llvm(target)})", on_pass, late=True)
    buffers = len(set(form.reads)) + len(("table", "result"))
    text = codegen.llvm_ir(
        module,
        name,
        buffers,
        cpu_code(target),
        reports=False,
        fences=False,
        reduced="never",
        unrolled="never",
    )
    return text, LoweredKernel(Kernel(name, codegen.SYMBOL, b"", 0, ()), form.tasks)


def _lacks_registers(schedule: Schedule, target: Target) -> bool:
    """Whether products of one vector of columns have too few registers for two steps at once.

    LLVM broadcasts the rows of both before it multiplies, and keeps sums in memory meanwhile, where every step waits for
    them. AVX-512 broadcasts as it multiplies. Measured on Zen 3, one core, 480 x 512 x 512 in tiles of 8 x 8 and 10 x 8: 17 ms,
    and 5.7 ms where loops are left as they are; 9 and 11 rows 1.7 times as fast, 7 and 12 to 14 alike.
    """
    return target.vector_bits < 512 and any(
        said.loops == "products"
        and said.sizes[1] * 32 <= target.vector_bits
        and 2 * said.sizes[0] + 2 > target.registers_per_thread
        for said in schedule.reductions
    )


_REDUCED = {"attention": "always", "matmul": "always"}
"""Loops of products gain by strength reduction, if little, and it takes little time there; see `machine_code.REDUCED`."""


def _operator(function: ir.Operation) -> str:
    found = function.attributes
    return ir.StringAttr(found["tilewright.operator"]).value if "tilewright.operator" in found else ""


def _named(view, name: str) -> bool:
    return ir.StringAttr(view.operation.attributes["sym_name"]).value == name


def cpu_code(target: Target) -> CpuCode:
    """What LLVM is told of the target."""
    return CpuCode(target.llvm_cpu, target.llvm_features, target.vector_bits)
