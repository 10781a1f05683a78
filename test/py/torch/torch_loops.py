"""Runs linalg-on-tensors through plain loops and MLIR's own JIT: a slow, independent stand-in for an executable."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np

from tilewright.compiler.ir import context, execution_engine, ir, run_upstream
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.runtime import native
from tilewright.runtime.output_pool import OutputPool

_PIPELINE = """builtin.module(
  func.func(tm-tensor-bufferize),
  one-shot-bufferize{bufferize-function-boundaries copy-before-write function-boundary-type-conversion=identity-layout-map},
  buffer-results-to-out-params{modify-public-functions=true},
  func.func(tm-tensor-to-loops, convert-linalg-to-loops),
  expand-strided-metadata, lower-affine, convert-scf-to-cf,
  convert-complex-to-standard, convert-math-to-llvm, convert-math-to-libm,
  expand-strided-metadata, lower-affine, convert-arith-to-llvm, finalize-memref-to-llvm,
  convert-complex-to-llvm, convert-func-to-llvm, convert-cf-to-llvm, convert-index-to-llvm,
  reconcile-unrealized-casts)"""


class _Unranked(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int64), ("descriptor", ctypes.c_void_p)]


@ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.POINTER(_Unranked), ctypes.POINTER(_Unranked))
def _memref_copy(item_bytes, source, target):
    """MLIR's runtime function that copies between strided buffers."""
    np.copyto(_array(target.contents, item_bytes), _array(source.contents, item_bytes))


def _array(unranked, item_bytes: int) -> np.ndarray:
    rank = unranked.rank
    fields = (ctypes.c_int64 * (3 + 2 * rank)).from_address(unranked.descriptor)
    interface = {
        "data": (fields[1] + fields[2] * item_bytes, False),
        "shape": tuple(fields[3 : 3 + rank]),
        "strides": tuple(step * item_bytes for step in fields[3 + rank :]),
        "typestr": f"|V{item_bytes}",
        "version": 3,
    }
    return np.asarray(type("Memory", (), {"__array_interface__": interface})())


def _descriptor(address: int, shape: tuple[int, ...]):
    strides, step = [0] * len(shape), 1
    for d in reversed(range(len(shape))):
        strides[d] = step
        step *= shape[d]
    fields = (address, address, 0, *shape, *strides)
    return (ctypes.c_int64 * len(fields))(*fields)


class LoopExecutable:
    """What a `CompiledModel` needs of an executable, for the module of an `Imported`."""

    def __init__(self, imported):
        self.weights = [w.detach().contiguous() for w in imported.weights]
        self.pool = OutputPool()
        self.inputs = [*imported.signature.inputs, *imported.signature.state]
        self.outputs = imported.signature.results
        self.package = SimpleNamespace(inputs=self.inputs, outputs=self.outputs, updates=())
        module = imported.module
        function = next(op for op in module.body.operations if op.operation.name == "func.func")
        with context():
            function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        run_pipeline(module.operation, "builtin.module(number-lines,expand-fourier)")
        run_upstream(module.operation, " ".join(_PIPELINE.split()))
        self._engine = execution_engine.ExecutionEngine(module, opt_level=1)
        self._engine.raw_register_runtime("memrefCopy", ctypes.cast(_memref_copy, ctypes.c_void_p))
        for name in native.BUILTINS:
            self._engine.raw_register_runtime(name, ctypes.c_void_p(native.builtin_address(name)))
        self._main = self._engine.lookup("main")

    def run(self, inputs, outputs):
        descriptors = [_descriptor(w.data_ptr(), tuple(w.shape)) for w in self.weights]
        descriptors += [_descriptor(a, spec.shape) for a, spec in zip(inputs, self.inputs)]
        descriptors += [_descriptor(a, spec.shape) for a, spec in zip(outputs, self.outputs)]
        pointers = [ctypes.pointer(d) for d in descriptors]
        packed = (ctypes.c_void_p * len(pointers))(
            *(ctypes.cast(ctypes.pointer(p), ctypes.c_void_p) for p in pointers)
        )
        self._main(ctypes.cast(packed, ctypes.c_void_p))
