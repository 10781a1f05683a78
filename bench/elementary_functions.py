"""Error and speed (fastest of 20 calls) of elementary functions on one core: `python -m tilewright.bench.elementary_functions [f64]`."""

from __future__ import annotations

import math
import sys
import time

import numpy as np

from tilewright.bench.array_function import binary, error_ulps, unary

ERF, ERFC = (np.vectorize(function, otypes=[np.float64]) for function in (math.erf, math.erfc))
UNARY = {
    "exp": (np.exp, (-80, 80)), "exp2": (np.exp2, (-120, 120)), "expm1": (np.expm1, (-20, 80)),
    "log": (np.log, (0, 4)), "log2": (np.log2, (0, 4)), "log10": (np.log10, (0, 4)), "log1p": (np.log1p, (-1, 4)),
    "tanh": (np.tanh, (-10, 10)), "erf": (ERF, (-5, 5)), "erfc": (ERFC, (-5, 10)), "sin": (np.sin, (-100, 100)), "cos": (np.cos, (-100, 100)),
    "tan": (np.tan, (-100, 100)), "atan": (np.arctan, (-5, 5)), "asin": (np.arcsin, (-1, 1)),
    "acos": (np.arccos, (-1, 1)), "sinh": (np.sinh, (-10, 10)), "cosh": (np.cosh, (-10, 10)), "asinh": (np.arcsinh, (-5, 5)),
    "acosh": (np.arccosh, (1, 5)), "atanh": (np.arctanh, (-1, 1)),
}  # fmt: skip
BINARY = {"powf": (np.power, (0.01, 20)), "atan2": (np.arctan2, (-5, 5))}
COUNT = 1 << 20


WIDE = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "atan", "asin", "acos", "atan2"),
    *("sinh", "cosh", "asinh", "acosh", "atanh"),
)
"""Functions of f64 of which numpy has a wider reference."""


def main(type_: str = "f32") -> None:
    rng = np.random.default_rng(0)
    kind = np.dtype({"f32": np.float32, "f64": np.float64}[type_])
    print(
        f"{'function':8} {'interval':>14} {'largest error, ulp':>19} {'ns per element':>15} {'GB/s read':>10}"
    )
    for name, (reference, (low, high)) in {**UNARY, **BINARY}.items():
        if type_ == "f64" and name not in WIDE:
            continue
        function = unary(name, type_) if name in UNARY else binary(name, type_)
        arrays = [rng.uniform(low, high, COUNT).astype(kind) for _ in range(1 if name in UNARY else 2)]
        precision = np.float64 if name.startswith("erf") else np.longdouble
        exact = reference(*[array.astype(precision) for array in arrays])
        out = np.empty_like(arrays[0])
        times = []
        for _ in range(20):
            start = time.perf_counter()
            function(*arrays, out=out)
            times.append(time.perf_counter() - start)
        seconds = min(times)
        error = error_ulps(out, exact).max()
        rate = sum(array.nbytes for array in arrays) / seconds / 1e9
        print(f"{name:8} {f'[{low}, {high}]':>14} {error:19.2f} {seconds / COUNT * 1e9:15.2f} {rate:10.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
