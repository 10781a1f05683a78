"""The loader links what gcc and LLVM emit, resolves libc and libm, and refuses everything else by name."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from package_builder import kernel, package, step

from tilewright.runtime.errors import PackageError
from tilewright.runtime.executable import Executable

# Constants in .rodata, pointers (.data.rel.ro), zero-filled and initialised data, calls near and far.
EVERYTHING = """
static const float table[4] = {1, 2, 3, 4};
static const float *const rows[2] = {table, table + 2};
static float zeros[4096];
static float bias = 0.5f;
float visible = 0.25f;
__attribute__((noinline)) static float local(float x) { return x + zeros[7] + bias; }
__attribute__((noinline)) float global(float x) { return local(x) + visible; }
KERNEL(kernel) {
  const float *x = b[0]; float *y = b[1];
  float (*volatile indirect)(float) = global;
  for (int64_t i = first; i < end; ++i) {
    float row[2];
    memcpy(row, rows[i % 2], 8);
    y[i] = expf(x[i]) + indirect(row[i / 2 % 2]) + erff(x[i]);
  }
  return 0;
}
"""
FLAGS = [
    ("-fPIC",),
    ("-fPIC", "-mcmodel=large"),
    ("-fno-pic", "-mcmodel=large"),
    ("-fPIC", "-fno-plt"),
    ("-fPIC", "-ffunction-sections", "-fdata-sections"),
    ("-fPIC", "-g"),
    ("-fPIC", "-O0", "-fcf-protection=full"),
]


def run_everything(built):
    erf = np.vectorize(math.erf)
    x = np.linspace(-1, 1, 8).astype(np.float32)
    steps = [step(0, 8, "input", "output")]
    run = Executable(package([built], steps, inputs=("f32[8]",), outputs=("f32[8]",)))
    expected = np.exp(x) + np.array([1, 3, 2, 4] * 2) + 0.75 + erf(x)
    np.testing.assert_allclose(run(x)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_links_what_gcc_emits(compile_c, flags):
    run_everything(kernel(compile_c(EVERYTHING, *flags)))


def test_absolute_addresses_stay_in_reach(compile_c):
    source = """
    static const float table[4] = {1, 2, 3, 4};
    KERNEL(kernel) { float *y = b[0]; for (int64_t i = first; i < end; ++i) y[i] = table[i]; return 0; }
    """
    built = kernel(compile_c(source, "-fno-pic", "-mcmodel=small"))
    run = Executable(package([built], [step(0, 4, "output")], inputs=(), outputs=("f32[4]",)))
    np.testing.assert_array_equal(run()[0], [1, 2, 3, 4])


LLVM_IR = """
target triple = "x86_64-unknown-linux-gnu"
@weights = private unnamed_addr constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0], align 16
declare float @expf(float)
declare ptr @memcpy(ptr, ptr, i64)
define i32 @kernel(ptr %buffers, i64 %first, i64 %end, ptr %scratch) {
entry:
  %xp = load ptr, ptr %buffers
  %slot = getelementptr ptr, ptr %buffers, i64 1
  %yp = load ptr, ptr %slot
  %copied = call ptr @memcpy(ptr %scratch, ptr @weights, i64 16)
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %exit
body:
  %lane = and i64 %i, 3
  %wp = getelementptr float, ptr %scratch, i64 %lane
  %w = load float, ptr %wp
  %xi = getelementptr float, ptr %xp, i64 %i
  %x = load float, ptr %xi
  %e = call float @expf(float %x)
  %h = fptrunc float %e to half
  %b = fptrunc float %w to bfloat
  %eh = fpext half %h to float
  %wb = fpext bfloat %b to float
  %r = fmul float %eh, %wb
  %yi = getelementptr float, ptr %yp, i64 %i
  store float %r, ptr %yi
  %next = add i64 %i, 1
  br label %head
exit:
  ret i32 0
}
"""


def llvm_object(text: str, reloc: str, codemodel: str, cpu: str = "", features: str = "") -> bytes:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu, features, 3, reloc, codemodel)
    return machine.emit_object(llvm.parse_assembly(text))


@pytest.mark.parametrize("codemodel", ["small", "large", "jitdefault"])
@pytest.mark.parametrize("reloc", ["pic", "default"])
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3"])
def test_links_what_llvm_emits(reloc, codemodel, cpu):
    built = kernel(llvm_object(LLVM_IR, reloc, codemodel, cpu), scratch_bytes=64)
    steps = [step(0, 100, "input", "output")]
    run = Executable(package([built], steps, inputs=("f32[100]",), outputs=("f32[100]",)))
    x = np.linspace(-3, 3, 100).astype(np.float32)
    expected = np.exp(x).astype(np.float16).astype(np.float32) * (np.arange(100) % 4 + 1)
    np.testing.assert_allclose(run(x)[0], expected, rtol=1e-3)


def conversions(name: str, source: str, target: str) -> bytes:
    """A kernel that converts each element with LLVM's own instruction, as a call on a plain x86-64."""
    operation = "fptrunc" if name.startswith("trunc") else "fpext"
    return llvm_object(
        f"""
        define i32 @kernel(ptr %b, i64 %first, i64 %end, ptr %scratch) {{
        entry:
          %xp = load ptr, ptr %b
          %slot = getelementptr ptr, ptr %b, i64 1
          %yp = load ptr, ptr %slot
          br label %head
        head:
          %i = phi i64 [ %first, %entry ], [ %next, %body ]
          %more = icmp slt i64 %i, %end
          br i1 %more, label %body, label %exit
        body:
          %xi = getelementptr {source}, ptr %xp, i64 %i
          %x = load {source}, ptr %xi
          %y = {operation} {source} %x to {target}
          %yi = getelementptr {target}, ptr %yp, i64 %i
          store {target} %y, ptr %yi
          %next = add i64 %i, 1
          br label %head
        exit:
          ret i32 0
        }}
        """,
        "pic",
        "small",
        "x86-64",
    )


def run_conversion(name: str, types: tuple[str, str], dtypes: tuple[str, str], x: np.ndarray) -> np.ndarray:
    n = len(x)
    steps = [step(0, n, "input", "output")]
    built = kernel(conversions(name, *types))
    run = Executable(package([built], steps, inputs=(f"{dtypes[0]}[{n}]",), outputs=(f"{dtypes[1]}[{n}]",)))
    return run(x)[0]


def interesting_floats() -> np.ndarray:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    near = (np.arange(1 << 16, dtype=np.uint32) << 16) | np.tile(
        np.uint32([0x7FFF, 0x8000, 0x8001, 0]), 1 << 14
    )
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    ties = halves + np.uint32(0x1000)
    return np.concatenate([bits, near, halves, ties]).view(np.float32)


def same(found: np.ndarray, expected: np.ndarray) -> None:
    both_nan = np.isnan(found.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    assert ((found == expected) & (np.signbit(found) == np.signbit(expected)) | both_nan).all()


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_half_conversions_round_as_numpy_does():
    x = interesting_floats()
    same(run_conversion("truncsf", ("float", "half"), ("f32", "f16"), x), x.astype(np.float16))
    wide = np.concatenate(
        [x.astype(np.float64), np.float64([1e-310, 1e300, 65519.99999, 65520, 2**-25, 2**-24])]
    )
    same(run_conversion("truncdf", ("double", "half"), ("f64", "f16"), wide), wide.astype(np.float16))
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    same(run_conversion("extend", ("half", "float"), ("f16", "f32"), half), half.astype(np.float32))
    same(run_conversion("extend", ("half", "double"), ("f16", "f64"), half), half.astype(np.float64))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_bfloat_conversions_round_as_ml_dtypes_does():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = interesting_floats()
    same(run_conversion("truncsf", ("float", "bfloat"), ("f32", "bf16"), x), x.astype(bfloat16))
    bits = np.arange(1 << 16, dtype=np.uint16).view(bfloat16)
    same(run_conversion("extend", ("bfloat", "float"), ("bf16", "f32"), bits), bits.astype(np.float32))


def load(compiled: bytes, symbol: str = "kernel"):
    return Executable(package([kernel(compiled, symbol)], []))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "int nowhere(void); KERNEL(kernel) { return nowhere(); }",
            "kernel `kernel`: undefined symbol `nowhere`",
        ),
        ("extern int there; KERNEL(kernel) { return there; }", "undefined symbol `there`"),
        ("KERNEL(other) { return 0; }", "defines no function `kernel`"),
        ("int kernel = 3;", "symbol `kernel` is not code"),
        ("static __thread int n; KERNEL(kernel) { return n++; }", "thread-local"),
        ("__attribute__((constructor)) void f(void) {} KERNEL(kernel) { return 0; }", "unsupported type 14"),
    ],
)
def test_refuses_what_it_cannot_link(compile_c, source, message):
    with pytest.raises(PackageError, match=message):
        load(compile_c(source))


GOOD = "KERNEL(kernel) { return (int32_t)expf((float)first); }"


def patched(data: bytes, offset: int, form: str, value: int) -> bytes:
    copy = bytearray(data)
    struct.pack_into(form, copy, offset, value)
    return bytes(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: b"", "ELF header lies outside"),
        (lambda o: o[:63], "ELF header lies outside"),
        (lambda o: b"MZ" + o[2:], "not an ELF object"),
        (lambda o: patched(o, 4, "B", 1), "not an x86-64 ELF object"),
        (lambda o: patched(o, 18, "<H", 183), r"not an x86-64 ELF object \(machine 183\)"),
        (lambda o: patched(o, 16, "<H", 3), "expected a relocatable object, found ELF type 3"),
        (lambda o: patched(o, 40, "<Q", 1 << 63), "section table lies outside"),
        (lambda o: patched(o, 62, "<H", 999), "malformed section table"),
        (lambda o: o[: len(o) // 2], "lies outside the object"),
        (lambda o: patched(o, struct.unpack_from("<Q", o, 40)[0] + 64 + 24, "<Q", 1 << 40), "lies outside"),
        (lambda o: patched(o, struct.unpack_from("<Q", o, 40)[0] + 64 + 48, "<Q", 3), "asks for alignment 3"),
    ],
)
def test_refuses_malformed_objects(compile_c, change, message):
    good = compile_c(GOOD)
    load(good)
    with pytest.raises(PackageError, match=message):
        load(change(good))


def test_many_kernels_share_one_mapping(compile_c):
    compiled = compile_c(GOOD)
    many = Executable(package([kernel(compiled)] * 500, []))
    assert many.code_bytes < 500 * 4096


@pytest.mark.parametrize("seed", range(3))
def test_damaged_objects_never_crash(compile_c, tmp_path, seed):
    path = tmp_path / "kernel.o"
    path.write_bytes(compile_c(EVERYTHING))
    script = Path(__file__).with_name("fuzz_objects.py")
    command = [sys.executable, str(script), str(path), str(seed), "1500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300
