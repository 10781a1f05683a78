"""Runs a function on memrefs on numpy arrays, after passes of ours and then upstream's plain lowering."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import llvmlite.binding as llvm_binding
import numpy as np

from tilewright.bench.array_function import host_machine
from tilewright.compiler.codegen.llvm_text import for_older_llvm
from tilewright.compiler.dialects import reduction_attribute
from tilewright.compiler.families.cpu.complete_schedule import choose_loops
from tilewright.compiler.families.cpu.cut_reductions import CutReduction
from tilewright.compiler.families.cpu.reduction import Structure
from tilewright.compiler.ir import ir, llvm, parse, walk
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve

LOWERING = """convert-linalg-to-loops,lower-affine,convert-scf-to-cf,expand-strided-metadata,lower-affine,
  convert-vector-to-llvm,convert-math-to-llvm,convert-math-to-libm,finalize-memref-to-llvm,
  convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-arith-to-llvm,convert-cf-to-llvm,
  convert-ub-to-llvm,convert-index-to-llvm,canonicalize,cse,reconcile-unrealized-casts""".replace("\n", "")


class MemrefFunction:
    """@f of `text` as a Python function on arrays, which it changes in place; `left` names the linalg ops left.

    Reductions are marked with the loops that are best for vectors of `vector_bits`.
    """

    def __init__(self, text: str, passes: str, vector_bits: int = 512):
        module = parse(text)
        target = replace(resolve("x86-64-v4"), vector_bits=vector_bits)
        with module.context, ir.Location.unknown(module.context):
            for op in walk(module.operation, "linalg.generic"):
                structure = Structure.read(op)
                if structure is not None and structure.reduction:
                    reduction_attribute.write(
                        op, choose_loops(CutReduction(op, structure), target).reduction()
                    )
        run_pipeline(module.operation, f"builtin.module(func.func({passes}))")
        self.left = [op.name for op in walk(module.operation) if op.name.startswith("linalg.g")]
        run_pipeline(module.operation, f"builtin.module({LOWERING})")
        parsed = llvm_binding.parse_assembly(
            for_older_llvm(llvm.translate_module_to_llvmir(module.operation))
        )
        self._engine = llvm_binding.create_mcjit_compiler(parsed, host_machine())
        self._engine.finalize_object()

    def __call__(self, *arrays: np.ndarray) -> None:
        address = self._engine.get_function_address("f")
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(address)(*[a.ctypes.data for a in arrays])
