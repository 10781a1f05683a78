"""Floating-point constants keep every bit on their way through MLIR's LLVM text and the older LLVM's parser."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm_binding
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.codegen.llvm_text import constant, for_older_llvm
from tilewright.compiler.ir import llvm, parse, run_upstream

UNSIGNED = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}


def compiled(element: str, bits: np.ndarray) -> np.ndarray:
    """The bits of a constant array after both LLVMs have had it."""
    type_ = f"vector<{len(bits)}x{element}>"
    module = parse(
        f'llvm.mlir.global external constant @table(dense<"0x{bits.tobytes().hex().upper()}"> : '
        f"{type_.replace('vector', 'tensor')}) : !llvm.array<{len(bits)} x {element}>"
    )
    run_upstream(module.operation, "builtin.module(canonicalize)")
    text = for_older_llvm(llvm.translate_module_to_llvmir(module.operation))
    llvm_binding.initialize_native_target()
    llvm_binding.initialize_native_asmprinter()
    machine = llvm_binding.Target.from_default_triple().create_target_machine(jit=True)
    with llvm_binding.create_mcjit_compiler(llvm_binding.parse_assembly(text), machine) as engine:
        engine.finalize_object()
        address = engine.get_global_value_address("table")
        return np.frombuffer(ctypes.string_at(address, bits.nbytes), bits.dtype).copy()


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_all_patterns_of_16_bits(element):
    bits = np.arange(65536, dtype=np.uint16)
    assert (compiled(element, bits) == bits).all()


def classes(element: str) -> np.ndarray:
    """Zeros, denormals, ones, extremes, infinities, quiet and signalling not-a-numbers, and random ones; both signs."""
    width, fraction = {"f32": (32, 23), "f64": (64, 52)}[element]
    top = ((1 << (width - 1 - fraction)) - 1) << fraction
    one = (top >> fraction >> 1) << fraction
    quiet = 1 << (fraction - 1)
    positive = [0, 1, 2, (1 << fraction) - 1, 1 << fraction, one - 1, one, one + 1, one | quiet, top - 1, top]
    positive += [top | quiet, top | quiet | 1, top | 1, top | 5, top | (quiet - 1), top | (quiet << 1) - 1]
    random = np.random.default_rng(0).integers(0, 2 ** (width - 1), 2000, dtype=np.uint64)
    both = np.array([*positive, *random.tolist()], np.uint64)
    return np.concatenate([both, both | np.uint64(1 << (width - 1))]).astype(UNSIGNED[element])


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_all_classes_of_wider_ones(element):
    bits = classes(element)
    found = compiled(element, bits)
    assert (found == bits).all(), [f"{a:#x} became {b:#x}" for a, b in zip(bits, found) if a != b][:5]


NUMPY = {"half": np.float16, "float": np.float32, "double": np.float64}


@settings(max_examples=200)
@given(st.sampled_from(sorted(NUMPY)), st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_are_rounded_to_the_type_that_stands_before_them(type_, number):
    with np.errstate(over="ignore"):
        rounded = NUMPY[type_](number)
    if not np.isfinite(rounded):
        return
    written = constant(f"{float(rounded):e}" if type_ == "half" else f"{float(rounded):.17e}", type_)
    if type_ == "half":
        expected = f"0xH{np.float16(float(f'{float(rounded):e}')).view(np.uint16):04X}"
    else:
        expected = f"0x{np.float64(rounded).view(np.uint64):016X}"
    assert written == expected


@pytest.mark.parametrize(
    "line",
    [
        'source_filename = "f0x3F80 model"',
        "!3 = !{float 1.500000e+00}",
        '  call void @"+inf"()',
        "  %1.5 = add i32 1, 2",
        "  %v2.0 = getelementptr i8, ptr %p1.5, i64 15",
    ],
)
def test_what_only_looks_like_a_constant_stays(line):
    assert for_older_llvm(line) == line


def test_types_carry_over_a_list():
    assert for_older_llvm("@t = constant [2 x half] [half 1.000000e+00, half f0x0001]") == (
        "@t = constant [2 x half] [half 0xH3C00, half 0xH0001]"
    )
    assert for_older_llvm("  %r = select i1 %c, float -qnan, float 0.000000e+00") == (
        "  %r = select i1 %c, float 0xFFF8000000000000, float 0x0000000000000000"
    )
