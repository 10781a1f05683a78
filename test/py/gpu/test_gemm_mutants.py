"""Every barrier, wait and fence of the contraction kernels is needed: without it, the emulator finds fault."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_dispatches import NUMPY, Case, assert_close, matmul
from kernel_mutants import survivors

from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.families.contraction.mma_gemm import INSTRUCTIONS, MmaTile, emit_mma
from tilewright.compiler.families.contraction.problem import read_contraction
from tilewright.compiler.families.contraction.simt_gemm import SimtTile, emit_simt
from tilewright.compiler.families.contraction.skinny_gemm import SkinnyTile, emit_skinny
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile, emit_volta
from tilewright.compiler.ir import context, functions, ir

F16 = INSTRUCTIONS["mma.m16n8k16.f16"]
KERNELS = {
    "simt, asynchronous": (matmul(32, 32, 48), lambda c: emit_simt(c, SimtTile(32, 32, 8, 4, 4, 3, deferred=True))),
    "simt, by registers, K divided": (matmul(32, 32, 64), lambda c: emit_simt(c, SimtTile(32, 32, 8, 4, 4, split_k=2))),
    "mma": (matmul(32, 32, 96, dtype="f16"), lambda c: emit_mma(c, MmaTile(F16, 32, 32, 16, 16, 16, 3))),
    "volta": (matmul(32, 32, 64, dtype="f16"), lambda c: emit_volta(c, VoltaTile(32, 32, 16, 16, 16))),
    "few rows, K divided": (matmul(2, 32, 256), lambda c: emit_skinny(c, SkinnyTile(2, 4, 4, 8, 8, False, 2))),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_no_mutant_survives(name: str) -> None:
    case, emit = KERNELS[name]
    (function,) = functions(module := case.module())
    assert module
    with context(), ir.Location.unknown():
        kernel = emit(read_contraction(function))
    assert survivors(kernel, lambda mutant, seed: is_right(case, mutant, seed)) == []


def is_right(case: Case, kernel: ir.Module, seed: int) -> bool:
    """Whether the kernel computes the case."""
    arrays = case.inputs()
    result = np.zeros(tuple(case.loops[name] for name in case.out), NUMPY[case.result_dtype])
    run_kernel(kernel, [*arrays, result], seed=seed)
    try:
        assert_close(result, case.expected(arrays), case.result_dtype, case.dtype)
    except AssertionError:
        return False
    return True
