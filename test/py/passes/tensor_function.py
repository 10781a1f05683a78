"""Runs a module of linalg on tensors on numpy arrays through plain loops: a reference for rewrites."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import llvmlite.binding as llvm_binding
import numpy as np

from tilewright.bench.array_function import host_machine
from tilewright.compiler.analysis.weight_flow import ROLE
from tilewright.compiler.codegen.llvm_text import for_older_llvm
from tilewright.compiler.ir import ir, llvm, parse
from tilewright.compiler.pipeline.pipeline import run_pipeline

LOWERING = """builtin.module(
  func.func(refback-generalize-tensor-pad,refback-generalize-tensor-concat,tm-tensor-bufferize,restrict-tensors),
  one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},
  buffer-results-to-out-params{modify-public-functions=true},canonicalize,cse,func.func(lower-sorts,tm-tensor-to-loops,refback-munge-memref-copy),
  convert-linalg-to-loops,lower-affine,convert-scf-to-cf,
  expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-math-to-libm,finalize-memref-to-llvm,
  convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-arith-to-llvm,convert-cf-to-llvm,
  convert-index-to-llvm,canonicalize,cse,reconcile-unrealized-casts)""".replace("\n", "")

DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i1": np.bool_,
}


@dataclass(frozen=True)
class Signature:
    """Argument roles, and result shapes and dtypes, of a function."""

    roles: tuple[str, ...]
    results: tuple[tuple[tuple[int, ...], type], ...]

    @classmethod
    def of(cls, function: ir.Operation) -> Signature:
        type_ = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        attributes = (
            function.attributes["arg_attrs"]
            if "arg_attrs" in function.attributes
            else [{}] * len(type_.inputs)
        )
        roles = tuple(ir.StringAttr(entry[ROLE]).value if ROLE in entry else "" for entry in attributes)
        results = tuple((tuple(t.shape), DTYPES[str(t.element_type)]) for t in type_.results)
        return cls(roles, results)


class TensorModule:
    """@main of a module as a Python function; @prepack, when there is one, feeds its packed arguments."""

    def __init__(self, module: ir.Module):
        module = parse(str(module))
        self._signatures = {
            ir.StringAttr(view.operation.attributes["sym_name"]).value: Signature.of(view.operation)
            for view in module.body.operations
        }
        run_pipeline(module.operation, LOWERING)
        parsed = llvm_binding.parse_assembly(
            for_older_llvm(llvm.translate_module_to_llvmir(module.operation))
        )
        self._engine = llvm_binding.create_mcjit_compiler(parsed, host_machine())
        self._engine.finalize_object()

    def _call(self, name: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
        results = [np.empty(shape, dtype) for shape, dtype in self._signatures[name].results]
        arrays = [np.ascontiguousarray(array) for array in arguments] + results
        address = self._engine.get_function_address(name)
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(address)(*[a.ctypes.data for a in arrays])
        return results

    def __call__(self, *arguments: np.ndarray) -> list[np.ndarray]:
        """Results for all arguments of @main but the packed ones."""
        given = list(arguments)
        if "prepack" in self._signatures:
            roles = [role for role in self._signatures["main"].roles if role != "packed"]
            given += self._call("prepack", [a for a, role in zip(arguments, roles) if role == "weight"])
        return self._call("main", given)
