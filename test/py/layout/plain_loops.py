"""Runs linalg-on-tensors modules by upstream's plain loops: the reference that layout passes are compared with."""

from __future__ import annotations

import ctypes

import numpy as np

from tilewright.compiler.ir import context, execution_engine, ir, run_upstream

_LOWER = (
    "builtin.module(func.func(linalg-generalize-named-ops),"
    "one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},"
    "buffer-results-to-out-params{hoist-static-allocs=1 modify-public-functions=1 add-result-attr=0},"
    "func.func(refback-munge-memref-copy,convert-linalg-to-loops),canonicalize,cse,expand-strided-metadata,lower-affine,"
    "convert-scf-to-cf,convert-complex-to-standard,convert-math-to-llvm,convert-math-to-libm,convert-cf-to-llvm,"
    "finalize-memref-to-llvm,convert-func-to-llvm,convert-arith-to-llvm,convert-cf-to-llvm,convert-ub-to-llvm,"
    "canonicalize,cse,reconcile-unrealized-casts)"
)


def run(module: ir.Module, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Compiles a copy of `module` and calls its `main` on dense arrays; returns the results."""
    with context():
        copy = ir.Module.parse(str(module))
        main = next(op for op in copy.body.operations if op.operation.name == "func.func")
        main.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        results = [ir.RankedTensorType(type_) for type_ in main.type.results]
        run_upstream(copy.operation, _LOWER)
        engine = execution_engine.ExecutionEngine(copy, opt_level=1)
        outputs = [np.empty(tuple(type_.shape), _dtype(str(type_.element_type))) for type_ in results]
        arrays = [np.ascontiguousarray(array) for array in inputs] + outputs
        descriptors = [_descriptor(array) for array in arrays]
        pointers = [ctypes.pointer(ctypes.pointer(descriptor)) for descriptor in descriptors]
        call = engine.lookup("main")
        call((ctypes.c_void_p * len(pointers))(*[ctypes.cast(p, ctypes.c_void_p) for p in pointers]))
    return outputs


def _dtype(name: str) -> np.dtype:
    return np.dtype({"f32": "f4", "f64": "f8", "i64": "i8", "i32": "i4", "i8": "i1", "i1": "?"}[name])


def _descriptor(array: np.ndarray) -> ctypes.Structure:
    rank = array.ndim

    class Descriptor(ctypes.Structure):
        _fields_ = [
            ("allocated", ctypes.c_void_p),
            ("aligned", ctypes.c_void_p),
            ("offset", ctypes.c_longlong),
            ("shape", ctypes.c_longlong * rank),
            ("strides", ctypes.c_longlong * rank),
        ]

    strides = [stride // array.itemsize for stride in array.strides]
    pointer = array.ctypes.data
    return Descriptor(
        pointer, pointer, 0, (ctypes.c_longlong * rank)(*array.shape), (ctypes.c_longlong * rank)(*strides)
    )
