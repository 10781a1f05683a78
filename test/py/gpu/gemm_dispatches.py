"""Contractions for tests of their GPU kernels: any index maps, types and epilogues as a dispatch, and the same in numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.families.contraction.problem import read_contraction
from tilewright.compiler.ir import context, functions, ir, parse

NUMPY = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i32": np.int32,
    "i1": np.bool_,
}
_TOTALS = {"f64": "f64", "i8": "i32", "i32": "i32"}
_MATH = {"gelu": np.vectorize(math.erf)}


@dataclass(frozen=True)
class Case:
    """`out[...] = epilogue(sum over the other loops of a[...] * b[...])`.

    `loops` are extents by name; `a` and `b` are index expressions of them in MLIR's syntax, `out` loop names. The
    epilogue reads the extra operands `bias[last loop of out]` or `other[out]`. `strides` are of arguments and results by
    number, in elements; `alignments` in bytes.
    """

    loops: dict[str, int]
    a: tuple[str, ...]
    b: tuple[str, ...]
    out: tuple[str, ...]
    dtype: str = "f32"
    result: str = ""
    epilogue: str = "none"
    strides: dict[int, tuple[int, ...]] = field(default_factory=dict)
    alignments: dict[int, int] = field(default_factory=dict)

    @property
    def total(self) -> str:
        return _TOTALS.get(self.dtype, "f32")

    @property
    def result_dtype(self) -> str:
        return self.result or self.total

    def shapes(self) -> list[tuple[int, ...]]:
        """Of a, b and the epilogue's operand, if it has one."""
        out = tuple(self.loops[name] for name in self.out)
        extra = {"bias_relu": [out[-1:]], "residual": [out], "gelu": [out[-1:]]}.get(self.epilogue, [])
        return [self._shape(self.a), self._shape(self.b), *extra]

    def dtypes(self) -> list[str]:
        return [self.dtype, self.dtype, *["f32"] * (len(self.shapes()) - 2)]

    def _shape(self, index: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(int(np.max(self._at(expr))) + 1 for expr in index)

    def _at(self, expr: str) -> np.ndarray:
        names = list(self.loops)
        grids = np.ogrid[tuple(slice(self.loops[name]) for name in names)]
        return eval(expr.replace("floordiv", "//").replace("mod", "%"), {}, dict(zip(names, grids)))

    def text(self) -> str:
        """The dispatch as MLIR."""
        names = ", ".join(self.loops)
        maps = ", ".join(
            f"affine_map<({names}) -> ({', '.join(index)})>" for index in (self.a, self.b, self.out)
        )
        kinds = ", ".join('"parallel"' if name in self.out else '"reduction"' for name in self.loops)
        out_shape = tuple(self.loops[name] for name in self.out)
        a, b = (_tensor(shape, self.dtype) for shape in self.shapes()[:2])
        total, result = _tensor(out_shape, self.total), _tensor(out_shape, self.result_dtype)
        integer = self.total.startswith("i")
        kind = "i" if integer else "f"
        widen = "" if self.dtype == self.total else ("arith.extsi" if integer else "arith.extf")
        x, y = ("%x", "%y") if not widen else ("%x1", "%y1")
        widened = [f"    {v}1 = {widen} {v} : {self.dtype} to {self.total}" for v in ("%x", "%y") if widen]
        extra, epilogue = self._epilogue(out_shape, total, result)
        arguments = ", ".join(
            f"%{name}: {type_}{self._attributes(i)}"
            for i, (name, type_) in enumerate([("a", a), ("b", b), *extra])
        )
        results = self._attributes(len(extra) + 2)
        newline = "\n"
        return f"""
func.func @dispatch({arguments}) -> ({result}{results}) attributes {{tilewright.operator = "matmul"}} {{
  %zero = arith.constant {"0" if integer else "0.0"} : {self.total}
  %empty = tensor.empty() : {total}
  %start = linalg.fill ins(%zero : {self.total}) outs(%empty : {total}) -> {total}
  %sum = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins(%a, %b : {a}, {b}) outs(%start : {total}) {{
  ^bb0(%x: {self.dtype}, %y: {self.dtype}, %z: {self.total}):
{newline.join(widened)}
    %p = arith.mul{kind} {x}, {y} : {self.total}
    %q = arith.add{kind} %z, %p : {self.total}
    linalg.yield %q : {self.total}
  }} -> {total}
{epilogue}
}}"""

    def _attributes(self, number: int) -> str:
        found = []
        if number in self.strides:
            found.append(f"tilewright.strides = array<i64: {', '.join(map(str, self.strides[number]))}>")
        if number in self.alignments:
            found.append(f"tilewright.alignment = {self.alignments[number]} : i64")
        return f" {{{', '.join(found)}}}" if found else ""

    def _epilogue(self, shape: tuple[int, ...], total: str, result: str) -> tuple[list[tuple[str, str]], str]:
        if self.epilogue == "none" and self.result_dtype == self.total:
            return [], f"  return %sum : {result}"
        loops = ", ".join(self.out)
        full, last = f"affine_map<({loops}) -> ({loops})>", f"affine_map<({loops}) -> ({self.out[-1]})>"
        kinds = ", ".join(['"parallel"'] * len(shape))
        read = {"bias_relu": last, "residual": full, "gelu": last}.get(self.epilogue)
        extra = [("extra", _tensor(self.shapes()[2], "f32"))] if read else []
        t = self.total
        lines = {
            "none": ["%v = arith.addi %s, %zero : i32" if t == "i32" else f"%v = arith.addf %s, %zero : {t}"],
            "bias_relu": ["%u = arith.addf %s, %e : f32", "%v = arith.maximumf %u, %zero : f32"],
            "residual": ["%v = arith.addf %s, %e : f32"],
            "gelu": [
                "%u = arith.addf %s, %e : f32", "%h = arith.constant 0.5 : f32", "%k = arith.constant 0.70710678 : f32",
                "%one = arith.constant 1.0 : f32", "%w = arith.mulf %u, %k : f32", "%f = math.erf %w : f32",
                "%g = arith.addf %f, %one : f32", "%i = arith.mulf %u, %h : f32", "%v = arith.mulf %i, %g : f32",
            ],
            "positive": ["%v = arith.cmpf ogt, %s, %zero : f32"],
            "scale": ["%f = arith.sitofp %s : i32 to f32", "%c = arith.constant 0.125 : f32", "%v = arith.mulf %f, %c : f32"],
        }[self.epilogue]  # fmt: skip
        if self.result_dtype in ("f16", "bf16"):
            lines.append(f"%n = arith.truncf %v : f32 to {self.result_dtype}")
        value = lines[-1].partition(" ")[0]
        body = "\n".join(f"    {line}" for line in lines)
        names = ", ".join(["%sum", *(f"%{name}" for name, _ in extra)])
        types = ", ".join([total, *(type_ for _, type_ in extra)])
        arguments = ", ".join([f"%s: {t}", *("%e: f32" for _ in extra), f"%o: {self.result_dtype}"])
        return (
            extra,
            f"""
  %place = tensor.empty() : {result}
  %r = linalg.generic {{indexing_maps = [{", ".join([full, *([read] if read else []), full])}], iterator_types = [{kinds}]}}
      ins({names} : {types}) outs(%place : {result}) {{
  ^bb0({arguments}):
{body}
    linalg.yield {value} : {self.result_dtype}
  }} -> {result}
  return %r : {result}""",
        )

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Random operands; whole numbers from -4 to 4 of integers, so that sums are exact."""
        rng = np.random.default_rng(seed)
        found = []
        for shape, dtype in zip(self.shapes(), self.dtypes()):
            if dtype.startswith("i"):
                found.append(rng.integers(-100, 100, shape).astype(NUMPY[dtype]))
            else:
                found.append(rng.standard_normal(shape).astype(NUMPY[dtype]))
        return found

    def expected(self, arrays: list[np.ndarray]) -> np.ndarray:
        """The result in float64, or exact integers, before it is rounded."""
        exact = np.int64 if self.total.startswith("i") else np.float64
        names = list(self.loops)
        shape = tuple(self.loops.values())
        factors = [
            np.broadcast_to(array.astype(exact)[tuple(self._at(e) for e in index)], shape)
            for array, index in zip(arrays, (self.a, self.b))
        ]
        letters = [chr(ord("a") + i) for i in range(len(names))]
        all_, kept = "".join(letters), "".join(letters[names.index(name)] for name in self.out)
        total = np.einsum(f"{all_},{all_}->{kept}", *factors)
        if self.epilogue == "bias_relu":
            return np.maximum(total + arrays[2].astype(exact), 0)
        if self.epilogue == "residual":
            return total + arrays[2].astype(exact)
        if self.epilogue == "gelu":
            value = total + arrays[2].astype(exact)
            return value * 0.5 * (1 + _MATH["gelu"](value * 0.70710678))
        if self.epilogue == "positive":
            return total > 0
        return total * 0.125 if self.epilogue == "scale" else total

    def module(self) -> ir.Module:
        return parse(self.text())

    def run(self, emit, seed: int = 0, order: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """(what the emitted kernel computes under the checking emulator, what is expected).

        `emit` takes the dispatch's contraction and gives the kernel's module; `order` seeds the order of threads.
        """
        module = self.module()
        (function,) = functions(module)
        with context(), ir.Location.unknown():
            kernel = emit(read_contraction(function))
        return self.emulate(kernel, seed, order)

    def emulate(self, kernel: ir.Module, seed: int = 0, order: int = 0) -> tuple[np.ndarray, np.ndarray]:
        arrays = self.inputs(seed)
        expected = self.expected(arrays)
        placed = [self._placed(array, number) for number, array in enumerate(arrays)]
        result = np.zeros(tuple(self.loops[name] for name in self.out), NUMPY[self.result_dtype])
        held, view = self._placed(result, len(arrays))
        run_kernel(kernel, [*(flat for flat, _ in placed), held], seed=order)
        return view(held), expected

    def _placed(self, array: np.ndarray, number: int):
        """(memory with the array at its strides, how to read the array from such memory)."""
        strides = self.strides.get(number)
        if strides is None:
            return np.ascontiguousarray(array), lambda held: held
        span = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides))
        flat = np.zeros(span, array.dtype)
        nbytes = tuple(s * array.itemsize for s in strides)

        def view(held: np.ndarray) -> np.ndarray:
            return np.lib.stride_tricks.as_strided(held, array.shape, nbytes)

        view(flat)[...] = array
        return flat, view


def matmul(m: int, n: int, k: int, a: str = "mk", b: str = "kn", **more) -> Case:
    """[m, k] x [k, n]; `a` and `b` say how the factors lie."""
    return Case({"m": m, "n": n, "k": k}, tuple(a), tuple(b), ("m", "n"), **more)


def convolution(
    batch: int,
    size: tuple[int, int],
    channels: int,
    filters: int,
    window: int = 3,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    **more,
) -> Case:
    """NHWC data without padding, filters [window, window, channels, filters], of every group where there are several."""
    loops = {"n": batch, "h": size[0], "w": size[1]}
    at = (f"h * {stride} + i * {dilation}", f"w * {stride} + j * {dilation}")
    if groups == 1:
        loops |= {"f": filters, "i": window, "j": window, "c": channels}
        return Case(loops, ("n", *at, "c"), ("i", "j", "c", "f"), ("n", "h", "w", "f"), **more)
    loops |= {"g": groups, "f": filters, "i": window, "j": window, "c": channels}
    return Case(loops, ("n", *at, "g", "c"), ("g", "i", "j", "c", "f"), ("n", "h", "w", "g", "f"), **more)


def assert_close(found: np.ndarray, expected: np.ndarray, dtype: str, factors: str = "") -> None:
    """Equal for integers, else up to the rounding of `dtype` and of sums of some hundred products."""
    if np.issubdtype(NUMPY[dtype], np.integer) or dtype == "i1":
        np.testing.assert_array_equal(found, expected)
        return
    kind = factors or dtype
    relative = {"f64": 1e-12, "f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2, "tf32": 3e-3}[kind]
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=relative, atol=relative * scale)


def _tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{dtype}>"
