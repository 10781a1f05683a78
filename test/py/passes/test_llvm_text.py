"""Floats of newer LLVM text forms keep their bits when the older LLVM reads them."""

from __future__ import annotations

import ctypes
import math
import re
import struct

import llvmlite.binding as llvm_binding
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.codegen.llvm_text import for_older_llvm, with_fixed_tiles, with_scalar_stores
from tilewright.compiler.codegen.machine_code import CpuCode, assembly, emit_object
from tilewright.compiler.ir import llvm, parse, run_upstream


@pytest.mark.parametrize(
    "line, expected",
    [
        ("  %1 = fadd float %0, f0x3F8CCCCD", "  %1 = fadd float %0, 0x3FF19999A0000000"),
        ("  %1 = fadd float %0, 1.100000e+00", "  %1 = fadd float %0, 0x3FF19999A0000000"),
        ("  %1 = fadd double %0, 1.100000e+00", "  %1 = fadd double %0, 0x3FF199999999999A"),
        ("  %1 = fcmp olt double %0, +inf", "  %1 = fcmp olt double %0, 0x7FF0000000000000"),
        ("  %1 = fcmp olt float %0, -inf", "  %1 = fcmp olt float %0, 0xFFF0000000000000"),
        ("  ret float +qnan", "  ret float 0x7FF8000000000000"),
        ("  ret half f0x3C66", "  ret half 0xH3C66"),
        ("  ret half -5.000000e-01", "  ret half 0xHB800"),
        ("  ret bfloat 1.003906e+00", "  ret bfloat 0xR3F80"),
        ("  ret <2 x bfloat> splat (bfloat f0x7FC0)", "  ret <2 x bfloat> splat (bfloat 0xR7FC0)"),
        ("  %1 = fpext half f0x3C00 to float", "  %1 = fpext half 0xH3C00 to float"),
        ("define nocreateundeforpoison i32 @f()", "define i32 @f()"),
        ('  call void @g(ptr @"a f0x12.5 b")', '  call void @g(ptr @"a f0x12.5 b")'),
    ],
)
def test_lines(line: str, expected: str):
    assert for_older_llvm(line) == expected


@given(st.floats(width=32))
def test_round_trip_through_both_llvms(number: float):
    if math.isnan(number):
        number = math.nan
    bits = struct.unpack("I", struct.pack("f", number))[0]
    module = parse(
        f"func.func @constant() -> f32 {{ %r = arith.constant 0x{bits:08X} : f32 return %r : f32 }}"
    )
    run_upstream(module.operation, "builtin.module(convert-to-llvm)")
    text = for_older_llvm(llvm.translate_module_to_llvmir(module.operation))
    llvm_binding.initialize_native_target()
    llvm_binding.initialize_native_asmprinter()
    machine = llvm_binding.Target.from_default_triple().create_target_machine(jit=True)
    with llvm_binding.create_mcjit_compiler(llvm_binding.parse_assembly(text), machine) as engine:
        engine.finalize_object()
        call = ctypes.CFUNCTYPE(ctypes.c_float)(engine.get_function_address("constant"))
        assert struct.pack("f", call()) == struct.pack("f", number)


def test_tiles_become_assembly_with_the_registers_they_were_given() -> None:
    text = """declare void @llvm.x86.ldtilecfg(ptr)
  call void @llvm.x86.ldtilecfg(ptr %c)
  call void @llvm.x86.tilezero(i8 3)
  call void @llvm.x86.tileloadd64(i8 4, ptr %p, i64 64)
  call void @llvm.x86.tdpbusd(i8 0, i8 1, i8 2)
  call void @llvm.x86.tilestored64(i8 7, ptr %q, i64 %s)
  call void @llvm.x86.tilerelease()"""
    assert with_fixed_tiles(text).splitlines()[1:] == [
        '  call void asm sideeffect "ldtilecfg ($0)", "r,~{memory}"(ptr %c)',
        '  call void asm sideeffect "tilezero %tmm3", "~{memory}"()',
        '  call void asm sideeffect "tileloadd ($0,$1), %tmm4", "r,r,~{memory}"(ptr %p, i64 64)',
        '  call void asm sideeffect "tdpbusd %tmm2, %tmm1, %tmm0", "~{memory}"()',
        '  call void asm sideeffect "tilestored %tmm7, ($0,$1)", "r,r,~{memory}"(ptr %q, i64 %s)',
        '  call void asm sideeffect "tilerelease", "~{memory}"()',
    ]
    assert with_fixed_tiles("no tiles") == "no tiles"


def _truncated_store(lanes: int, wide: str, narrow: str, stored: tuple[int, ...]) -> str:
    """IR that stores some lanes of truncated values."""
    mask = ", ".join(f"i1 {str(lane in stored).lower()}" for lane in range(lanes))
    return f"""define void @tw_kernel(ptr %from, ptr %to) {{
  %wide = load <{lanes} x {wide}>, ptr %from, align 8
  %cut = lshr <{lanes} x {wide}> %wide, splat ({wide} 3)
  %value = trunc <{lanes} x {wide}> %cut to <{lanes} x {narrow}>
  call void @llvm.masked.store.v{lanes}{narrow}.p0(<{lanes} x {narrow}> %value, ptr align 1 %to, <{lanes} x i1> <{mask}>)
  ret void
}}
declare void @llvm.masked.store.v{lanes}{narrow}.p0(<{lanes} x {narrow}>, ptr, <{lanes} x i1>)
"""


@pytest.mark.parametrize("cpu", ["x86-64-v3", "skylake-avx512", "znver5", "sapphirerapids"])
@pytest.mark.parametrize(
    "lanes, wide, narrow", [(8, "i32", "i16"), (4, "i64", "i32"), (16, "i32", "i8"), (8, "i64", "i8")]
)
@pytest.mark.parametrize("lane", [0, 1, 3])
def test_a_store_of_one_lane_writes_that_lane_alone(
    cpu: str, lanes: int, wide: str, narrow: str, lane: int
) -> None:
    code = CpuCode(cpu, "", 512)
    _, optimised = emit_object(_truncated_store(lanes, wide, narrow, (lane,)), code)
    assert "call void @llvm.masked.store" not in optimised
    suffix = {"i8": "b", "i16": "w", "i32": "d|l"}[narrow]
    stores = [line for line in assembly(optimised, code).splitlines() if line.endswith("(%rsi)")]
    assert len(stores) == 1
    assert re.search(rf"\t(v?(mov|pextr)({suffix})|v?movs?s|v?extractps)\t", stores[0]), stores


def test_stores_of_several_lanes_stay_masked() -> None:
    text = _truncated_store(8, "i32", "i16", (0, 2))
    assert with_scalar_stores(text) == text
