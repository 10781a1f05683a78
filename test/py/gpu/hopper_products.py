"""Dispatches for tests of wgmma kernels: products and convolutions with epilogues, as text, and the same in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Product:
    """[batch, m, k] x [batch, k, n] in `dtype`; `a` and `b` are how factors lie, `result` the type that is returned."""

    m: int
    n: int
    k: int
    dtype: str = "f16"
    a: str = "mk"
    b: str = "nk"
    result: str = "f16"
    epilogue: str = "none"
    batch: int = 0

    @property
    def total(self) -> str:
        return "i32" if self.dtype == "i8" else "f32"

    def shape(self, letters: str) -> list[int]:
        sizes = {"m": self.m, "n": self.n, "k": self.k, "b": self.batch}
        return [sizes[letter] for letter in (["b"] if self.batch else []) + list(letters)]

    def text(self) -> str:
        """The dispatch as MLIR."""
        batch = ["b"] if self.batch else []
        loops = ", ".join([*batch, "m", "n", "k"])
        maps = [f"affine_map<({loops}) -> ({', '.join([*batch, *own])})>" for own in (self.a, self.b, "mn")]
        kinds = ", ".join(['"parallel"'] * (2 + len(batch)) + ['"reduction"'])
        a, b = (_tensor(self.shape(own), self.dtype) for own in (self.a, self.b))
        total, out = _tensor(self.shape("mn"), self.total), _tensor(self.shape("mn"), self.result)
        integer = self.total == "i32"
        widen = "arith.extsi" if integer else "arith.extf"
        multiply, add = ("arith.muli", "arith.addi") if integer else ("arith.mulf", "arith.addf")
        same = self.dtype == self.total
        factors = ("%x", "%y") if same else ("%x1", "%y1")
        widening = (
            ""
            if same
            else f"""
    %x1 = {widen} %x : {self.dtype} to {self.total}
    %y1 = {widen} %y : {self.dtype} to {self.total}"""
        )
        arguments, epilogue = self._epilogue(out)
        zero = "0" if integer else "0.0"
        return f"""
func.func @product(%a: {a}, %b: {b}{arguments}) -> {out} attributes {{tilewright.operator = "matmul"}} {{
  %zero = arith.constant {zero} : {self.total}
  %empty = tensor.empty() : {total}
  %start = linalg.fill ins(%zero : {self.total}) outs(%empty : {total}) -> {total}
  %sum = linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = [{kinds}]}}
      ins(%a, %b : {a}, {b}) outs(%start : {total}) {{
  ^bb0(%x: {self.dtype}, %y: {self.dtype}, %z: {self.total}):{widening}
    %p = {multiply} {factors[0]}, {factors[1]} : {self.total}
    %q = {add} %z, %p : {self.total}
    linalg.yield %q : {self.total}
  }} -> {total}
{epilogue}
}}"""

    def _epilogue(self, out: str) -> tuple[str, str]:
        """(further arguments, operations from the sum to the return)."""
        if self.epilogue == "none" and self.result == self.total:
            return "", f"  return %sum : {out}"
        batch = ["b"] if self.batch else []
        loops = ", ".join([*batch, "m", "n"])
        full, row = f"affine_map<({loops}) -> ({loops})>", f"affine_map<({loops}) -> (n)>"
        total = _tensor(self.shape("mn"), self.total)
        narrow = f"    %t = arith.truncf %v : f32 to {self.result}" if self.result != "f32" else ""
        last = "%t" if narrow else "%v"
        extra, values, maps = self._operands(out, full, row)
        body = {
            "none": "    %v = arith.addf %x, %none : f32",
            "bias_relu": "    %s = arith.addf %x, %y : f32\n    %v = arith.maximumf %s, %none : f32",
            "residual_gelu": "    %s = arith.addf %x, %w : f32\n    %r = arith.mulf %s, %half : f32\n"
            "    %e = math.erf %s : f32\n    %u = arith.addf %e, %one : f32\n    %v = arith.mulf %r, %u : f32",
            "scaled": "    %v = arith.sitofp %x : i32 to f32",
        }[self.epilogue]
        widen = "    %w = arith.extf %y : f16 to f32\n" if self.epilogue == "residual_gelu" else ""
        operands, types = (
            ", ".join(["%sum", *(name for name, _ in values)]),
            ", ".join([total, *(t for _, t in values)]),
        )
        names = {"bias_relu": ", %y: f32", "residual_gelu": ", %y: f16"}.get(self.epilogue, "")
        return (
            extra,
            f"""
  %none = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %place = tensor.empty() : {out}
  %result = linalg.generic {{indexing_maps = [{", ".join([full, *maps, full])}],
      iterator_types = [{", ".join(['"parallel"'] * (2 + len(batch)))}]}}
      ins({operands} : {types}) outs(%place : {out}) {{
  ^bb0(%x: {self.total}{names}, %o: {self.result}):
{widen}{body}
{narrow}
    linalg.yield {last} : {self.result}
  }} -> {out}
  return %result : {out}""",
        )

    def _operands(self, out: str, full: str, row: str) -> tuple[str, list[tuple[str, str]], list[str]]:
        if self.epilogue == "bias_relu":
            type_ = _tensor([self.n], "f32")
            return f", %bias: {type_}", [("%bias", type_)], [row]
        if self.epilogue == "residual_gelu":
            type_ = _tensor(self.shape("mn"), "f16")
            return f", %other: {type_}", [("%other", type_)], [full]
        return "", [], []

    def extra_shape(self) -> tuple[list[int], str] | None:
        """Shape and type of the epilogue's operand."""
        return {"bias_relu": ([self.n], "f32"), "residual_gelu": (self.shape("mn"), "f16")}.get(self.epilogue)

    def expected(self, a: np.ndarray, b: np.ndarray, extra: np.ndarray | None) -> np.ndarray:
        """The result in float64 (or exact integers), before it is rounded to the result's type."""
        exact = np.int64 if self.dtype == "i8" else np.float64
        left, right = a.astype(exact), b.astype(exact)
        left = left if self.a == "mk" else np.swapaxes(left, -1, -2)
        right = right if self.b == "kn" else np.swapaxes(right, -1, -2)
        total = left @ right
        if self.epilogue == "bias_relu":
            return np.maximum(total + extra.astype(np.float64), 0)
        if self.epilogue == "residual_gelu":
            from math import erf

            value = total + extra.astype(np.float64)
            return value * 0.5 * (1 + np.vectorize(erf)(value))
        return total


@dataclass(frozen=True)
class Convolution:
    """NHWC data, filters [window, window, channels, filters] or [filters, window, window, channels], no padding."""

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    window: int = 3
    stride: int = 1
    dilation: int = 1
    filters_first: bool = False
    channels_first_result: bool = False
    dtype: str = "f16"

    @property
    def result(self) -> str:
        return "i32" if self.dtype == "i8" else self.dtype

    @property
    def out(self) -> tuple[int, int]:
        reach = self.dilation * (self.window - 1) + 1
        return tuple((size - reach) // self.stride + 1 for size in (self.height, self.width))

    @property
    def filter_shape(self) -> list[int]:
        if self.filters_first:
            return [self.filters, self.window, self.window, self.channels]
        return [self.window, self.window, self.channels, self.filters]

    def text(self) -> str:
        """The dispatch as MLIR: factors of `dtype`, sums in f32 or i32, a relu, floats narrowed to `dtype` again."""
        h, w = self.out
        loops = "n, h, w, f, i, j, c"
        at = lambda loop, step: f"{loop} * {self.stride} + {step} * {self.dilation}"  # noqa: E731
        integer = self.dtype == "i8"
        sum_type, zero, widen = ("i32", "0", "extsi") if integer else ("f32", "0.0", "extf")
        multiply, add, most = ("muli", "addi", "maxsi") if integer else ("mulf", "addf", "maximumf")
        narrow = "" if integer else f"    %t = arith.truncf %r : f32 to {self.result}\n"
        x = _tensor([self.batch, self.height, self.width, self.channels], self.dtype)
        f = _tensor(self.filter_shape, self.dtype)
        filters = "f, i, j, c" if self.filters_first else "i, j, c, f"
        total = _tensor([self.batch, h, w, self.filters], sum_type)
        order, shape = ("n, h, w, f", [self.batch, h, w, self.filters])
        if self.channels_first_result:
            order, shape = ("n, f, h, w", [self.batch, self.filters, h, w])
        out = _tensor(shape, self.result)
        return f"""
func.func @product(%x: {x}, %f: {f}) -> {out} attributes {{tilewright.operator = "conv"}} {{
  %zero = arith.constant {zero} : {sum_type}
  %empty = tensor.empty() : {total}
  %start = linalg.fill ins(%zero : {sum_type}) outs(%empty : {total}) -> {total}
  %sum = linalg.generic {{
      indexing_maps = [affine_map<({loops}) -> (n, {at("h", "i")}, {at("w", "j")}, c)>,
                       affine_map<({loops}) -> ({filters})>, affine_map<({loops}) -> (n, h, w, f)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}}
      ins(%x, %f : {x}, {f}) outs(%start : {total}) {{
  ^bb0(%a: {self.dtype}, %b: {self.dtype}, %s: {sum_type}):
    %a1 = arith.{widen} %a : {self.dtype} to {sum_type}
    %b1 = arith.{widen} %b : {self.dtype} to {sum_type}
    %p = arith.{multiply} %a1, %b1 : {sum_type}
    %q = arith.{add} %s, %p : {sum_type}
    linalg.yield %q : {sum_type}
  }} -> {total}
  %place = tensor.empty() : {out}
  %result = linalg.generic {{indexing_maps = [affine_map<(n, h, w, f) -> (n, h, w, f)>, affine_map<(n, h, w, f) -> ({order})>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}} ins(%sum : {total}) outs(%place : {out}) {{
  ^bb0(%s: {sum_type}, %o: {self.result}):
    %r = arith.{most} %s, %zero : {sum_type}
{narrow}    linalg.yield {"%r" if integer else "%t"} : {self.result}
  }} -> {out}
  return %result : {out}
}}"""

    def expected(self, x: np.ndarray, f: np.ndarray) -> np.ndarray:
        """The result in float64, exact for integers."""
        h, w = self.out
        x, f = x.astype(np.float64), f.astype(np.float64)
        if self.filters_first:
            f = np.moveaxis(f, 0, -1)
        total = np.zeros((self.batch, h, w, self.filters))
        for i in range(self.window):
            for j in range(self.window):
                rows = slice(i * self.dilation, i * self.dilation + (h - 1) * self.stride + 1, self.stride)
                columns = slice(j * self.dilation, j * self.dilation + (w - 1) * self.stride + 1, self.stride)
                total += x[:, rows, columns] @ f[i, j]
        total = np.maximum(total, 0)
        return np.moveaxis(total, 3, 1) if self.channels_first_result else total


def _tensor(shape: list[int], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{dtype}>"


def two_results(m: int, n: int, k: int, dtypes: tuple[str, str]) -> str:
    """A product [m, k] x [n, k] of f16 that is returned twice: as it is, and at least zero."""
    total = _tensor([m, n], "f32")
    a, b = _tensor([m, k], "f16"), _tensor([n, k], "f16")
    first, second = (_tensor([m, n], dtype) for dtype in dtypes)
    casts = "\n".join(
        f"    %t{i} = arith.truncf %{value} : f32 to {dtype}"
        for i, (value, dtype) in enumerate(zip("sr", dtypes))
        if dtype != "f32"
    )
    values = [value if dtype == "f32" else f"t{i}" for i, (value, dtype) in enumerate(zip("sr", dtypes))]
    same = "affine_map<(m, n) -> (m, n)>"
    return f"""
func.func @product(%a: {a}, %b: {b}) -> ({first}, {second}) attributes {{tilewright.operator = "matmul"}} {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {total}
  %start = linalg.fill ins(%zero : f32) outs(%empty : {total}) -> {total}
  %sum = linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
      affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %b : {a}, {b}) outs(%start : {total}) {{
  ^bb0(%x: f16, %y: f16, %z: f32):
    %x1 = arith.extf %x : f16 to f32
    %y1 = arith.extf %y : f16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %q = arith.addf %z, %p : f32
    linalg.yield %q : f32
  }} -> {total}
  %place0 = tensor.empty() : {first}
  %place1 = tensor.empty() : {second}
  %results:2 = linalg.generic {{indexing_maps = [{same}, {same}, {same}], iterator_types = ["parallel", "parallel"]}}
      ins(%sum : {total}) outs(%place0, %place1 : {first}, {second}) {{
  ^bb0(%s: f32, %o: {dtypes[0]}, %u: {dtypes[1]}):
    %r = arith.maximumf %s, %zero : f32
{casts}
    linalg.yield %{values[0]}, %{values[1]} : {dtypes[0]}, {dtypes[1]}
  }} -> ({first}, {second})
  return %results#0, %results#1 : {first}, {second}
}}"""
