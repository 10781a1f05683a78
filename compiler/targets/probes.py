"""Micro-benchmarks as LLVM IR, compiled in this process: multiply-adds, reads, copies and chains of dependent loads.

Every probe is one function `void probe(ptr a, ptr b, i64 count, i64 rounds)`. Only LLVM's code generator runs on it, no
optimisation: what is measured is what is written here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as llvm

from tilewright.compiler.targets.target import Target

ACCUMULATORS = 12
"""Independent sums: more than the 8 (10 on Intel) that two units of 4 (5) cycles' latency need, and all in registers."""

READ_VECTORS, COPY_VECTORS, CHASE_LOADS = 8, 4, 8
"""Vectors or loads per turn of the loops, so that the loop's own instructions do not count."""

Call = Callable[[int, int, int, int], None]


@dataclass(frozen=True)
class Probe:
    """IR text, and what one turn of its loop does: operations of arithmetic, or bytes moved."""

    text: str
    per_turn: int


def _function(entry: str, loop: str, done: str = "", counted: str = "%rounds") -> str:
    """A loop of `counted` turns; `loop` may use %n, the turn's number, and %entry and %loop as predecessors."""
    return f"""
define void @probe(ptr %a, ptr %b, i64 %count, i64 %rounds) {{
entry:
{entry}
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %m, %loop ]
{loop}
  %m = add i64 %n, 1
  %more = icmp slt i64 %m, {counted}
  br i1 %more, label %loop, label %done
done:
{done}
  ret void
}}
"""


def _sums(vector: str, step: Callable[[int], str], per_turn: int, declare: str) -> Probe:
    """ACCUMULATORS sums of type `vector`; `step(i)` is the instruction that makes %b{i} of %a{i}."""
    numbers = range(ACCUMULATORS)
    phis = [f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in numbers]
    steps = [f"  %b{i} = {step(i)}" for i in numbers]
    # Stored so that no sum is without a use.
    stores = [
        f"  %p{i} = getelementptr {vector}, ptr %b, i64 {i}\n  store {vector} %b{i}, ptr %p{i}, align 4"
        for i in numbers
    ]
    text = f"{declare}\n" + _function("", "\n".join([*phis, *steps]), "\n".join(stores))
    return Probe(text, per_turn * ACCUMULATORS)


def multiply_add(dtype: str, vector_bits: int) -> Probe:
    """f64, f32 or f16 multiply-adds of whole vectors."""
    scalar, bits = {"f64": ("double", 64), "f32": ("float", 32), "f16": ("half", 16)}[dtype]
    lanes = vector_bits // bits
    vector, name = f"<{lanes} x {scalar}>", f"@llvm.fma.v{lanes}f{bits}"

    # Sums tend to twice their addend: neither infinite nor denormal.
    def step(i: int) -> str:
        return (
            f"call {vector} {name}({vector} %a{i}, {vector} splat ({scalar} 5.0e-1), "
            f"{vector} splat ({scalar} {i}.0))"
        )

    return _sums(vector, step, 2 * lanes, f"declare {vector} {name}({vector}, {vector}, {vector})")


def dot_product(dtype: str) -> Probe:
    """512-bit dot products: VDPBF16PS sums pairs of bf16, VPDPBUSD groups of four bytes."""
    name, vector, operand, scalar = {
        "bf16": ("@llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>", "bfloat 1.0"),
        "i8": ("@llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<64 x i8>", "i8 1"),
    }[dtype]
    products = {"bf16": 32, "i8": 64}[dtype]

    def step(i: int) -> str:
        return f"call {vector} {name}({vector} %a{i}, {operand} splat ({scalar}), {operand} splat ({scalar}))"

    return _sums(vector, step, 2 * products, f"declare {vector} {name}({vector}, {operand}, {operand})")


def tile_product(dtype: str) -> Probe:
    """AMX: four tiles of sums, each a product of a 16-row and a 16-column tile; `a` holds the tile configuration."""
    name, products = {"bf16": ("tdpbf16ps", 16 * 16 * 32), "i8": ("tdpbssd", 16 * 16 * 64)}[dtype]
    tiles = "".join(f",~{{tmm{i}}}" for i in range(8))
    zero = "\\0A".join(f"tilezero %tmm{i}" for i in range(8))
    body = "\\0A".join(f"{name} %tmm{6 + i % 2}, %tmm{4 + i // 2}, %tmm{i}" for i in range(4))
    entry = (
        '  call void asm sideeffect "ldtilecfg ($0)", "r,~{memory}"(ptr %a)\n'
        f'  call void asm sideeffect "{zero}", "{tiles[1:]}"()'
    )
    loop = f'  call void asm sideeffect "{body}", "{tiles[1:]}"()'
    done = '  call void asm sideeffect "tilerelease", "~{memory}"()'
    return Probe(_function(entry, loop, done), 2 * products * 4)


TILE_CONFIGURATION = bytes([1, 0, *[0] * 14, *([64, 0] * 8), *[0] * 16, *[16] * 8, *[0] * 8])
"""LDTILECFG's 64 bytes: palette 1, eight tiles of 16 rows of 64 B. Source: Intel 319433, ch. 3."""


def read(vector_bits: int) -> Probe:
    """Loads `count` groups of READ_VECTORS vectors at %a, `rounds` times."""
    lanes = vector_bits // 64
    vector, numbers = f"<{lanes} x i64>", range(READ_VECTORS)
    phis = [f"  %s{i} = phi {vector} [ zeroinitializer, %entry ], [ %t{i}, %loop ]" for i in numbers]
    loads = [
        f"  %p{i} = getelementptr {vector}, ptr %a, i64 %v{i}\n"
        f"  %x{i} = load volatile {vector}, ptr %p{i}, align {vector_bits // 8}\n"
        f"  %t{i} = or {vector} %s{i}, %x{i}"
        for i in numbers
    ]
    stores = [
        f"  %o{i} = getelementptr {vector}, ptr %b, i64 {i}\n  store {vector} %t{i}, ptr %o{i}, align 8"
        for i in numbers
    ]
    loop = [*phis, _wrapped(READ_VECTORS), *loads]
    text = _function("  %total = mul i64 %count, %rounds", "\n".join(loop), "\n".join(stores), "%total")
    return Probe(text, READ_VECTORS * vector_bits // 8)


def copy(vector_bits: int, streaming: bool) -> Probe:
    """Copies `count` groups of COPY_VECTORS vectors from %a to %b, `rounds` times; bytes count twice.

    `streaming` stores past the caches.
    """
    lanes = vector_bits // 64
    vector, numbers = f"<{lanes} x i64>", range(COPY_VECTORS)
    past = ", !nontemporal !0" if streaming else ""
    moves = [
        f"  %p{i} = getelementptr {vector}, ptr %a, i64 %v{i}\n"
        f"  %q{i} = getelementptr {vector}, ptr %b, i64 %v{i}\n"
        f"  %x{i} = load {vector}, ptr %p{i}, align {vector_bits // 8}\n"
        f"  store {vector} %x{i}, ptr %q{i}, align {vector_bits // 8}{past}"
        for i in numbers
    ]
    loop = "\n".join([_wrapped(COPY_VECTORS), *moves])
    text = _function("  %total = mul i64 %count, %rounds", loop, counted="%total")
    return Probe(f"{text}\n!0 = !{{i32 1}}\n" if streaming else text, 2 * COPY_VECTORS * vector_bits // 8)


def _wrapped(group: int) -> str:
    """%v0, %v1, …: numbers of the vectors of this turn's group; after `count` groups it starts over."""
    numbers = "\n".join(f"  %v{i} = add i64 %first, {i}" for i in range(group))
    return f"""  %g = phi i64 [ 0, %entry ], [ %g_next, %loop ]
  %g_plus = add i64 %g, 1
  %over = icmp eq i64 %g_plus, %count
  %g_next = select i1 %over, i64 0, i64 %g_plus
  %first = mul i64 %g, {group}
{numbers}"""


def chase() -> Probe:
    """CHASE_LOADS loads per turn, each of the address that the one before it read; `per_turn` counts loads."""
    loads = "\n".join(f"  %x{i + 1} = load ptr, ptr %x{i}, align 8" for i in range(CHASE_LOADS))
    loop = f"  %x0 = phi ptr [ %a, %entry ], [ %x{CHASE_LOADS}, %loop ]\n{loads}"
    return Probe(_function("", loop, f"  store ptr %x{CHASE_LOADS}, ptr %b, align 8"), CHASE_LOADS)


class Compiled:
    """A probe's machine code in this process; calling it releases Python's global lock."""

    def __init__(self, probe: Probe, target: Target):
        machine = machine_of(target)
        # The engine owns the code: it must live as long as the address is called.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(probe.text), machine)
        self._engine.finalize_object()
        address = self._engine.get_function_address("probe")
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._call = signature(address)
        self.per_turn = probe.per_turn

    def __call__(self, a: int, b: int, count: int, rounds: int) -> None:
        """Runs on the addresses `a` and `b`."""
        self._call(a, b, count, rounds)


def machine_of(target: Target, position_independent: bool = False) -> llvm.TargetMachine:
    """LLVM's code generator for `target`'s features; a new one each time, as engines own theirs."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=target.llvm_cpu,
        features=target.llvm_features,
        opt=2,
        reloc="pic" if position_independent else "default",
        codemodel="small" if position_independent else "jitdefault",
    )


def object_code(text: str, target: Target) -> bytes:
    """LLVM IR text as a relocatable object, which the runtime loads as a kernel."""
    machine = machine_of(target, position_independent=True)
    return machine.emit_object(llvm.parse_assembly(text))


def arithmetic(target: Target) -> dict[tuple[str, str], Probe]:
    """(dtype, instruction) -> the probe of its peak, for all that `target` has."""
    features = target.cpu_features
    found = {
        ("f32", "multiply-add"): multiply_add("f32", target.vector_bits),
        ("f64", "multiply-add"): multiply_add("f64", target.vector_bits),
    }
    if "avx512fp16" in features:
        found["f16", "multiply-add"] = multiply_add("f16", target.vector_bits)
    if "avx512bf16" in features:
        found["bf16", "vdpbf16ps"] = dot_product("bf16")
    if "avx512vnni" in features:
        found["i8", "vpdpbusd"] = dot_product("i8")
    if "amx-bf16" in features:
        found["bf16", "tdpbf16ps"] = tile_product("bf16")
    if "amx-int8" in features:
        found["i8", "tdpbssd"] = tile_product("i8")
    return found
