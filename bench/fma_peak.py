"""GFLOP/s of a loop of nothing but f32 multiply-adds: the limit that the benchmarks' tables are read against.

    python -m tilewright.bench.fma_peak --threads 2

Twelve independent accumulators of one vector register each keep two units of four cycles' latency busy.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm

from tilewright.compiler.lower import cpu_code
from tilewright.compiler.target import resolve

_ACCUMULATORS, _STEPS, _ROUNDS = 12, 5_000_000, 20


def source(lanes: int) -> str:
    """LLVM IR of `void peak(ptr out, i64 steps)`."""
    vector = f"<{lanes} x float>"
    numbers = range(_ACCUMULATORS)
    starts = "\n".join(
        f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in numbers
    )
    steps = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{i}, {vector} splat (float 5.0e-1), "
        f"{vector} splat (float {i}.0))"
        for i in numbers
    )
    stores = "\n".join(
        f"  %p{i} = getelementptr {vector}, ptr %out, i64 {i}\n  store {vector} %b{i}, ptr %p{i}, align 4"
        for i in numbers
    )
    return f"""
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
define void @peak(ptr %out, i64 %steps) {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %m, %loop ]
{starts}
{steps}
  %m = add i64 %n, 1
  %more = icmp slt i64 %m, %steps
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}
"""


def measure(threads: int) -> float:
    """The best GFLOP/s of `threads` threads together over a few rounds."""
    target = resolve("cpu")
    lanes, code = target.vector_bits // 32, cpu_code(target)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=code.cpu, features=code.features, opt=2
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(source(lanes)), machine)
    engine.finalize_object()
    peak = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("peak"))
    outputs = [(ctypes.c_float * (_ACCUMULATORS * lanes))() for _ in range(threads)]
    flops = 2.0 * _ACCUMULATORS * lanes * _STEPS * threads
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            list(pool.map(lambda out: peak(ctypes.addressof(out), _STEPS), outputs))
            best = max(best, flops / (time.perf_counter() - start) / 1e9)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    print(f"{measure(threads):.0f} GFLOP/s on {threads} thread(s)")


if __name__ == "__main__":
    main()
