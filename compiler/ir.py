"""The one door to the MLIR bindings: contexts, parsing, and small readers used by every pass.

No other module imports ``torch_mlir`` bindings directly, so a change of wheel is a change of this file.
Builders of a dialect's operations come from here too, imported when first named:

    from tilewright.compiler.ir import arith, ir, linalg, transform
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType

from torch_mlir import ir, passmanager

# Registers torch-mlir's dialects and passes; `torch_mlir.dialects.torch` would bring in builders too, for 0.1 s.
from torch_mlir._mlir_libs import _torchMlir as _torch_dialect

from tilewright.compiler.errors import PassError
from tilewright.compiler.nouns import primitive_table

__all__ = ["context", "ir", "parse", "passmanager", "run_upstream", "static_shape", "walk"]

_DIALECTS = """
affine amdgpu arith async_dialect bufferization builtin cf complex emitc ext func gpu index irdl linalg llvm
math memref ml_program nvgpu nvvm openmp pdl quant rocdl scf shape sparse_tensor tensor tosa transform ub
vector x86
"""
_DIALECT_NAMES = """
acc affine amdgpu arith arm_neon arm_sme arm_sve async bufferization builtin cf complex dlti emitc func gpu
index irdl linalg llvm math memref ml_program mpi nvgpu nvvm omp pdl pdl_interp ptr quant rocdl scf shape
shard smt sparse_tensor spirv tensor tilewright tm_tensor torch torch_c tosa transform ub vcix vector wasmssa
x86 xegpu xevm
"""
_TRANSFORM = """
bufferization debug extras gpu interpreter loop memref nvgpu pdl structured tensor tune vector x86
"""
_LAZY = {
    **{name: f"torch_mlir.dialects.{name}" for name in _DIALECTS.split()},
    **{f"transform_{name}": f"torch_mlir.dialects.transform.{name}" for name in _TRANSFORM.split()},
    "execution_engine": "torch_mlir.execution_engine",
    "fx_importer": "torch_mlir.extras.fx_importer",
    "onnx_importer": "torch_mlir.extras.onnx_importer",
    "rewrite": "torch_mlir.rewrite",
    "torch_dialect": "torch_mlir.dialects.torch",
}
"""Names importable from here -> the bindings' module each one is. `fx_importer` alone imports torch."""

for _name in ("tm_tensor", "tilewright"):
    # These have no builders in the bindings, which look for them again, on disk, at every operation that is read.
    sys.modules.setdefault(f"torch_mlir.dialects.{_name}", ModuleType(_name))

_OWN_DIALECT = """
irdl.dialect @tilewright {
  irdl.operation @attention {
    %q = irdl.any
    %k = irdl.any
    %v = irdl.any
    %r = irdl.any
    %0 = irdl.any
    %1 = irdl.any
    %2 = irdl.any
    %3 = irdl.any
    irdl.operands(queries: %q, keys: %k, values: %v, a: optional %0, b: optional %1, c: optional %2, d: optional %3)
    irdl.results(result: %r)
    %scores = irdl.region
    irdl.regions(scores: %scores)
  }
  irdl.operation @yield {
    %any = irdl.any
    irdl.operands(score: %any)
  }
  irdl.operation @fourier {
    %0 = irdl.any
    %1 = irdl.any
    %2 = irdl.any
    %3 = irdl.any
    %4 = irdl.any
    %r = irdl.any
    %s = irdl.any
    irdl.operands(a: %0, b: %1, c: %2, d: %3, e: optional %4)
    irdl.results(r: optional %r, s: optional %s)
  }
}
"""


def __getattr__(name: str) -> ModuleType:
    """The bindings' module called `name` (PEP 562), imported when first used: a dialect costs 1 to 60 ms."""
    if name not in _LAZY:
        raise AttributeError(
            f"module `{__name__}` has no `{name}`; from the bindings it gives: {', '.join(sorted(_LAZY))}"
        )
    return import_module(_LAZY[name])


@cache
def context() -> ir.Context:
    """The process-wide context: one, so that modules, types and attributes can be mixed freely.

    Threading inside MLIR is off: dispatches are compiled in parallel by the driver, and a context
    without threads survives ``fork``.
    """
    ctx = ir.Context()
    ctx.enable_multithreading(False)
    _torch_dialect.register_dialect(ctx)
    # Discardable attributes of ours (`tilewright.*`) are checked by our own verifier, not by a C++ dialect.
    ctx.allow_unregistered_dialects = True
    # No registration loads the dialect of scans and sorts, but this pass depends on it: 0.1 ms on nothing.
    with ctx, ir.Location.unknown():
        loader = passmanager.PassManager.parse("builtin.module(func.func(convert-torch-to-tmtensor))")
        loader.run(ir.Module.create().operation)
        _load_own_dialect()
    return ctx


def _load_own_dialect() -> None:
    """Defines the dialect's operations as IRDL.

    `tilewright.attention` and its terminator are pure, checked further by `Attention.read`; GPU primitives that are
    not pure have no known effects, so no pass touches them.
    """
    irdl, pure = import_module(_LAZY["irdl"]), import_module(_LAZY["ext"]).Pure
    end = _OWN_DIALECT.rindex("}")
    irdl.load_dialects(ir.Module.parse(_OWN_DIALECT[:end] + primitive_table.irdl() + "}"))
    for name in ("attention", "yield", *(p.name for p in primitive_table.PRIMITIVES.values() if p.pure)):
        pure.attach(f"tilewright.{name}")
    ir.IsTerminatorTrait.attach("tilewright.yield")


def loaded_dialects() -> list[str]:
    """Names of the dialects that `context()` knows, sorted; the bindings only answer for a name."""
    return sorted(name for name in _DIALECT_NAMES.split() if context().is_dialect_loaded(name))


def parse(text: str, source: str = "<string>") -> ir.Module:
    """Parses MLIR text into a module; raises PassError with `source:line:col: error: ...` when it is malformed."""
    try:
        with context():
            return ir.Module.parse(text)
    except ir.MLIRError as error:
        _, _, diagnostics = str(error).partition("\n")
        placed = re.sub(
            r'(\w+): "-":(\d+):(\d+): ',
            lambda found: f"{source}:{found[2]}:{found[3]}: {found[1]}: ",
            diagnostics,
        )
        raise PassError(placed or f"{source}: {error}") from None


class _Managers(threading.local):
    """The pass managers that a thread has run before: what a pass rewrites by is put together once for each."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, bool], passmanager.PassManager] = {}


_managers, _MOST_MANAGERS = _Managers(), 256


def run_upstream(op: ir.Operation, pipeline: str, verify: bool = True) -> None:
    """Runs a pipeline of upstream and torch-mlir passes on `op`; failures become PassError with the place."""
    try:
        with context():
            key = (pipeline, verify)
            # Taken out while it runs: a pass may run other pipelines, and one that failed is not used again.
            manager = _managers.kept.pop(key, None) or passmanager.PassManager.parse(pipeline)
            manager.enable_verifier(verify)
            manager.run(op)
            if len(_managers.kept) < _MOST_MANAGERS:
                _managers.kept[key] = manager
    except ir.MLIRError as error:
        location = error.error_diagnostics[0].location if error.error_diagnostics else None
        raise PassError(str(error), location) from error
    except ValueError as error:
        raise PassError(str(error)) from None


def take_over(module: ir.Module, other: ir.Module) -> None:
    """Replaces what `module` holds by what `other` holds, which is empty afterwards."""
    for op in list(module.body.operations):
        op.operation.erase()
    for op in list(other.body.operations):
        op.operation.detach_from_parent()
        module.body.append(op)
    mine, theirs = module.operation.attributes, other.operation.attributes
    for name in [name for name in mine if name not in theirs]:
        del mine[name]
    for name in theirs:
        mine[name] = theirs[name]


def walk(op: ir.Operation, name: str | None = None) -> list[ir.Operation]:
    """All operations in `op`, itself included, in post-order, or those called `name`; safe to mutate over."""
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if name is None or inner.name == name:
            found.append(inner)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return found


def functions(module: ir.Module) -> Iterator[ir.Operation]:
    """The module's `func.func` operations that have a body, in order."""
    for op in module.body.operations:
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
            yield op.operation


def static_shape(type_: ir.Type) -> tuple[int, ...]:
    """The shape of a ranked tensor or memref type; raises ValueError when any extent is dynamic."""
    shaped = ir.ShapedType(type_)
    if not shaped.has_static_shape:
        raise ValueError(f"expected a static shape, found {type_}")
    return tuple(shaped.shape)


def element_bytes(type_: ir.Type) -> int:
    """Bytes of one element in memory: booleans take one, complex numbers twice their part."""
    if isinstance(type_, ir.ComplexType):
        return 2 * element_bytes(type_.element_type)
    if isinstance(type_, ir.IndexType):
        return 8
    return max(1, type_.width // 8)
