"""Every scalar and vector operation a kernel may hold, on every type, compiles to PTX that the assembler takes.

A form that LLVM cannot select ends the process, so a failure here may be a worker that dies.
"""

from __future__ import annotations

import pytest

from tilewright.compiler.codegen.amdgpu import compile_amdgpu
from tilewright.compiler.codegen.ptx import compile_ptx
from tilewright.compiler.codegen.ptxas import assemble, find
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import parse

ARCHS = ["sm_70", "sm_80", "sm_90a"]
FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
INTEGERS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
ROUNDINGS = ["absf", "ceil", "floor", "round", "roundeven", "trunc", "sqrt", "rsqrt"]
FUNCTIONS = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "log10",
    "tanh",
    "erf",
    "erfc",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
]
LIBRARY = ["sinh", "cosh", "asinh", "acosh", "atanh", "cbrt"]


class Body:
    """Operations on `%x0, %x1, ...` whose results are all stored, each to a row of its own."""

    def __init__(self, types: list[str]):
        self.types, self.lines, self.outputs = types, [], {}

    def add(self, operation: str, type_: str, lanes: int = 0) -> None:
        """`operation` gives a value of `type_`, or a vector of `lanes` of them; `$` in it is a fresh name."""
        name = f"%v{len(self.lines)}"
        rows = self.outputs.setdefault(type_, 0)
        self.outputs[type_] += 1
        self.lines.append(f"{name} = {operation.replace('$', name)}")
        self.lines.append(f"{name}_row = arith.constant {rows} : index")
        place = f"%o_{type_}[{name}_row, %i] : memref<200x512x{type_}>"
        if lanes:
            self.lines.append(f"vector.store {name}, {place}, vector<{lanes}x{type_}>")
        else:
            self.lines.append(f"memref.store {name}, {place}")

    def text(self) -> str:
        inputs = [f"%a{i}: memref<512x{t}> {{llvm.noalias}}" for i, t in enumerate(self.types)]
        outputs = [f"%o_{t}: memref<200x512x{t}> {{llvm.noalias}}" for t in self.outputs]
        loads = []
        for i, t in enumerate(self.types):
            loads.append(f"%x{i} = memref.load %a{i}[%i] : memref<512x{t}>")
            loads.append(f"%w{i} = vector.load %a{i}[%i] : memref<512x{t}>, vector<4x{t}>")
        return "\n".join(
            [
                "module attributes {gpu.container_module} { gpu.module @kernels {",
                f"gpu.func @k({', '.join(inputs + outputs)}) kernel",
                "attributes {known_block_size = array<i32: 128, 1, 1>} {",
                "%i = gpu.thread_id x",
                *loads,
                *self.lines,
                "gpu.return } } }",
            ]
        )


def float_body(t: str) -> Body:
    body = Body([t, t, "i32"])
    for op in ["addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf"]:
        body.add(f"arith.{op} %x0, %x1 : {t}", t)
        body.add(f"arith.{op} %w0, %w1 : vector<4x{t}>", t, 4)
    for op in ("negf",):
        body.add(f"arith.{op} %x0 : {t}", t)
    for op in (*ROUNDINGS, *FUNCTIONS):
        body.add(f"math.{op} %x0 : {t}", t)
    body.add(f"math.copysign %x0, %x1 : {t}", t)
    body.add(f"math.powf %x0, %x1 : {t}", t)
    body.add(f"math.atan2 %x0, %x1 : {t}", t)
    body.add(f"math.fpowi %x0, %x2 : {t}, i32", t)
    body.add(f"math.fma %x0, %x1, %x0 : {t}", t)
    body.add(f"math.clampf %x0 to [%x1, %x0] : {t}", t)
    body.add(f"vector.fma %w0, %w1, %w0 : vector<4x{t}>", t, 4)
    body.add(f"vector.shuffle %w0, %w1 [3, 4, 0, 7] : vector<4x{t}>, vector<4x{t}>", t, 4)
    for kind in ("add", "mul", "maximumf", "minimumf", "maxnumf"):
        body.add(f"vector.reduction <{kind}>, %w0 : vector<4x{t}> into {t}", t)
    for op in ("isnan", "isfinite"):
        body.add(f"math.{op} %x0 : {t}", "i1")
    for predicate in ("oeq", "ogt", "une", "ult", "uno", "ord", "ueq"):
        body.add(f"arith.cmpf {predicate}, %x0, %x1 : {t}", "i1")
    for u in INTEGERS:
        if u != "i1":
            body.add(f"arith.fptosi %x0 : {t} to {u}", u)
            body.add(f"arith.fptoui %x0 : {t} to {u}", u)
    for other, bits in FLOATS.items():
        if bits > FLOATS[t]:
            body.add(f"arith.extf %w0 : vector<4x{t}> to vector<4x{other}>", other, 4)
        if bits < FLOATS[t]:
            body.add(f"arith.truncf %x0 : {t} to {other}", other)
            body.add(f"arith.truncf %w0 : vector<4x{t}> to vector<4x{other}>", other, 4)
    return body


def integer_body(t: str) -> Body:
    body = Body([t, t])
    for op in [
        "addi",
        "subi",
        "muli",
        "divsi",
        "divui",
        "remsi",
        "remui",
        "floordivsi",
        "ceildivsi",
        "ceildivui",
        "shli",
        "shrsi",
        "shrui",
        "andi",
        "ori",
        "xori",
        "maxsi",
        "minsi",
        "maxui",
        "minui",
    ]:
        body.add(f"arith.{op} %x0, %x1 : {t}", t)
    body.add(f"arith.addi %w0, %w1 : vector<4x{t}>", t, 4)
    body.add(f"vector.reduction <add>, %w0 : vector<4x{t}> into {t}", t)
    body.add(f"arith.cmpi slt, %x0, %x1 : {t}", "i1")
    for op in ("ctlz", "cttz", "ctpop", "absi"):
        body.add(f"math.{op} %x0 : {t}", t)
    for other, bits in INTEGERS.items():
        if bits > INTEGERS[t]:
            body.add(f"arith.extsi %x0 : {t} to {other}", other)
            body.add(f"arith.extui %w0 : vector<4x{t}> to vector<4x{other}>", other, 4)
        if bits < INTEGERS[t]:
            body.add(f"arith.trunci %x0 : {t} to {other}", other)
    for f in FLOATS:
        body.add(f"arith.sitofp %x0 : {t} to {f}", f)
        body.add(f"arith.uitofp %x0 : {t} to {f}", f)
    return body


def exchange_body(t: str) -> Body:
    body = Body([t, "i32"])
    body.lines.append("%one = arith.constant 1 : i32\n%width = arith.constant 32 : i32")
    for mode in ("xor", "up", "down", "idx"):
        name = f"%s_{mode}"
        body.lines.append(f"{name}, {name}_valid = gpu.shuffle {mode} %x0, %one, %width : {t}")
        body.add(f"arith.select {name}_valid, {name}, %x0 : {t}", t)
    kinds = (
        ("addf", "maximumf", "maxnumf", "assign")
        if t in FLOATS
        else ("addi", "maxs", "minu", "ori", "assign")
    )
    for kind in kinds if t != "i1" else ():
        body.add(f"memref.atomic_rmw {kind} %x0, %a0[%i] : ({t}, memref<512x{t}>) -> {t}", t)
    return body


def check(body: Body, arch: str) -> None:
    code = compile_ptx(parse(body.text()), arch)
    assert ".extern .func" not in code.text, "a function that nothing defines is called"
    assert find(arch) is not None, "the development extra brings an assembler"
    resources = assemble(code.text, arch).resources
    assert resources.warnings == ()
    assert resources.spill_bytes == 0


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("t", FLOATS)
def test_floats(t: str, arch: str) -> None:
    check(float_body(t), arch)


@pytest.mark.parametrize("t", ["f16", "f32", "f64"])
def test_functions_of_the_library_alone(t: str) -> None:
    body = Body([t, t])
    for op in LIBRARY:
        body.add(f"math.{op} %x0 : {t}", t)
    body.add(f"arith.remf %x0, %x1 : {t}", t)
    check(body, "sm_80")


@pytest.mark.parametrize("arch", ["sm_70", "sm_90a"])
@pytest.mark.parametrize("t", INTEGERS)
def test_integers(t: str, arch: str) -> None:
    check(integer_body(t), arch)


@pytest.mark.parametrize("arch", ["sm_70", "sm_90a"])
@pytest.mark.parametrize("t", [*FLOATS, *INTEGERS])
def test_shuffles_and_atomics(t: str, arch: str) -> None:
    check(exchange_body(t), arch)


@pytest.mark.parametrize("t", ["f16", "bf16", "f32", "i1", "i8", "i64"])
def test_amd_takes_the_same(t: str) -> None:
    """All but the library's functions."""
    body = float_body(t) if t in FLOATS else integer_body(t)
    assert "s_endpgm" in compile_amdgpu(parse(body.text()), "gfx90a").text
    assert "ds_bpermute_b32" in compile_amdgpu(parse(exchange_body(t).text()), "gfx90a").text


def test_amd_refuses_what_it_has_no_formula_for() -> None:
    taken, body = Body(["f64"]), Body(["f64"])
    taken.add("math.exp %x0 : f64", "f64")
    assert "s_endpgm" in compile_amdgpu(parse(taken.text()), "gfx90a").text
    body.add("math.sin %x0 : f64", "f64")
    with pytest.raises(
        PassError, match=r"no formula for `math.sin` on f64 and no library of gfx90a; compute in f32"
    ):
        compile_amdgpu(parse(body.text()), "gfx90a")


def test_complex_arithmetic() -> None:
    body = Body(["complex<f32>"])
    body.outputs["f32"] = 0
    body.lines.append("%z = complex.mul %x0, %x0 : complex<f32>\n%e = complex.exp %z : complex<f32>")
    body.add("complex.abs %e : complex<f32>", "f32")
    body.add("complex.im %z : complex<f32>", "f32")
    text = body.text().replace(
        "%w0 = vector.load %a0[%i] : memref<512xcomplex<f32>>, vector<4xcomplex<f32>>", ""
    )
    assert assemble(compile_ptx(parse(text), "sm_80").text, "sm_80").resources.warnings == ()
