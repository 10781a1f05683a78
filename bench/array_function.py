"""JIT-compiles a scalar function written in MLIR over whole arrays, the way kernels are: our pass, then LLVM -O3."""

from __future__ import annotations

import ctypes
import re
from functools import cache

import llvmlite.binding as llvm_binding
import numpy as np

from tilewright.compiler.codegen.llvm_text import for_older_llvm
from tilewright.compiler.ir import ir, llvm, parse, run_upstream
from tilewright.compiler.passes.lower_cpu.approximate_math import ApproximateMath
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.runtime import native

LOWERING = (
    "builtin.module(canonicalize,cse,{extra}convert-scf-to-cf,convert-math-to-llvm,convert-math-to-libm,"
    "convert-arith-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts)"
)


def loop_over(body: str, operands: list[str], result: str) -> ir.Module:
    """A function that applies `body` (MLIR text from %a, %b, … to %r) to each of n elements of its arrays."""
    names = "abcdef"[: len(operands)]
    pointers = ", ".join(f"%p{name}: !llvm.ptr" for name in names)
    loads = "\n".join(
        f"""
        %p{name}_i = llvm.getelementptr %p{name}[%i] : (!llvm.ptr, i64) -> !llvm.ptr, {type_}
        %{name} = llvm.load %p{name}_i : !llvm.ptr -> {type_}"""
        for name, type_ in zip(names, operands)
    )
    return parse(f"""
      func.func @apply(%n: i64, %out: !llvm.ptr, {pointers}) {{
        %zero = arith.constant 0 : i64
        %one = arith.constant 1 : i64
        scf.for %i = %zero to %n step %one : i64 {{
          {loads}
          {body}
          %out_i = llvm.getelementptr %out[%i] : (!llvm.ptr, i64) -> !llvm.ptr, {result}
          llvm.store %r, %out_i : {result}, !llvm.ptr
        }}
        return
      }}""")


def host_machine() -> llvm_binding.TargetMachine:
    """A new machine for this host each time: a JIT engine owns and deletes the one it is given."""
    llvm_binding.initialize_native_target()
    llvm_binding.initialize_native_asmprinter()
    features = llvm_binding.get_host_cpu_features().flatten()
    return llvm_binding.Target.from_default_triple().create_target_machine(
        cpu=llvm_binding.get_host_cpu_name(), features=features, opt=3, reloc="pic", jit=True
    )


class ArrayFunction:
    """`body` applied to numpy arrays element by element; `assembly` is what LLVM made of it."""

    def __init__(self, body: str, operands: list[str], result: str, lowering: str = "", scales: bool = False):
        module = loop_over(body, operands, result)
        run_pipeline(module.operation, f"builtin.module(func.func({ApproximateMath(scales=scales).spec()}))")
        run_upstream(module.operation, LOWERING.format(extra=f"{lowering}," if lowering else ""))
        text = for_older_llvm(llvm.translate_module_to_llvmir(module.operation))
        attributes = 'nounwind "prefer-vector-width"="512" "no-trapping-math"="true"'
        text = re.sub(r"define void @apply\((.*)\) \{", rf"define void @apply(\1) {attributes} {{", text)
        parsed = llvm_binding.parse_assembly(text)
        machine = host_machine()
        parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
        options = llvm_binding.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.loop_unrolling = options.loop_interleaving = True
        builder = llvm_binding.create_pass_builder(machine, options)
        builder.getModulePassManager().run(parsed, builder)
        self.assembly = machine.emit_assembly(parsed)
        for name in native.BUILTINS:
            llvm_binding.add_symbol(name, native.builtin_address(name))
        self._engine = llvm_binding.create_mcjit_compiler(parsed, machine)
        self._engine.finalize_object()
        address = self._engine.get_function_address("apply")
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (1 + len(operands)))(address)

    def __call__(self, *arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        arrays = tuple(np.ascontiguousarray(array) for array in arrays)
        result = np.empty_like(arrays[0]) if out is None else out
        self._call(arrays[0].size, result.ctypes.data, *[array.ctypes.data for array in arrays])
        return result


@cache
def unary(name: str, type_: str = "f32", scales: bool = False) -> ArrayFunction:
    """`math.<name>` on arrays of f32 or f64; `scales` as the pass takes it."""
    return ArrayFunction(f"%r = math.{name} %a : {type_}", [type_], type_, scales=scales)


@cache
def binary(name: str, type_: str = "f32") -> ArrayFunction:
    """`math.<name>` of two arrays of f32 or f64."""
    return ArrayFunction(f"%r = math.{name} %a, %b : {type_}", [type_, type_], type_)


def error_ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|got - exact| in units of the last place of `got`'s type at `exact`, which is of a wider one.

    NaN for NaN and equal infinities count as 0.
    """
    limits = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        _, exponent = np.frexp(np.where(np.isfinite(exact), exact, 0.0))
        least = limits.minexp - limits.nmant
        ulp = np.ldexp(exact.dtype.type(1.0), np.maximum(exponent - 1 - limits.nmant, least))
        error = np.abs(got.astype(exact.dtype) - exact) / ulp
    same = (np.isnan(got) & np.isnan(exact)) | (got == rounded)
    # One side infinite, the other not: right only where rounding overflows, which `same` covers.
    return np.where(same & ~np.isfinite(rounded), 0.0, np.where(np.isnan(error), np.inf, error))
