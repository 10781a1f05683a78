"""GFLOP/s of a loop of nothing but multiply-adds: the limit that the benchmarks' tables are read against.

    python -m tilewright.bench.fma_peak [--threads 2] [--dtype f32|f64|bf16|i8]

`tilewright targets --measure` finds the same and more, and keeps it.
"""

from __future__ import annotations

import argparse

from tilewright.compiler.targets.measure import peak_gflops
from tilewright.compiler.targets.target import resolve


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="f32")
    options = parser.parse_args()
    peak = peak_gflops(resolve("cpu"), options.dtype, options.threads)
    print(f"{peak:.0f} GFLOP/s of {options.dtype} on {options.threads} thread(s)")


if __name__ == "__main__":
    main()
