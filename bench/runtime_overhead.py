"""Measures what the runtime adds to kernels: call, step and hand-over costs, contention, and loading.

    python -m tilewright.bench.runtime_overhead [--threads N] [--only quiet|contended|load] [--json PATH]

Kernels are generated with llvmlite: `nothing` returns at once, `work` runs a chain of dependent additions
whose length sets its time per rTask.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

import llvmlite.binding as llvm
import numpy as np

from tilewright.runtime import artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.program import BufferRef, Kernel, Package, Program, Step, TensorSpec
from tilewright.runtime.signature import Signature

NOTHING = "define i32 @kernel(ptr %b, i64 %first, i64 %end, ptr %s) { ret i32 0 }"
WORK = """
define i32 @kernel(ptr %b, i64 %first, i64 %end, ptr %s) {{
entry:
  %tasks = sub i64 %end, %first
  %turns = mul i64 %tasks, {turns}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = phi double [ 1.0, %entry ], [ %y, %loop ]
  %y = fadd double %x, 1.0
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %exit
exit:
  %never = fcmp olt double %y, 0.0
  %status = zext i1 %never to i32
  ret i32 %status
}}
"""


def compiled(text: str) -> Kernel:
    """LLVM IR text as a kernel."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")
    return Kernel("kernel", "kernel", machine.emit_object(llvm.parse_assembly(text)))


def executable(text: str, steps: int, tasks: int, threads: int, inputs: int = 1) -> Executable:
    """`steps` equal steps of `tasks` rTasks each over `inputs` inputs and one output."""
    specs = tuple(TensorSpec(f"x{i}", "f32", (16,)) for i in range(inputs))
    refs = (*(BufferRef("input", i) for i in range(inputs)), BufferRef("output"))
    main = Program(tuple(Step(0, refs, tasks) for _ in range(steps)))
    outputs = (TensorSpec("y", "f32", (16,)),)
    package = Package("cpu", (), specs, outputs, (), (), (compiled(text),), main)
    return Executable(package, (), threads)


def median_us(function, seconds: float = 0.3) -> float:
    """Median microseconds of one call, over as many calls as fit in `seconds` after a short warm-up."""
    for _ in range(5):
        function()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def percentile_us(function, percent: float, seconds: float) -> float:
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.percentile(times, percent)) * 1e6


def caller(run: Executable):
    """A call through the raw path with addresses at hand."""
    arrays = [np.zeros(16, np.float32) for _ in range(len(run.inputs) + 1)]
    pointers = [array.ctypes.data for array in arrays]
    inputs, outputs = pointers[:-1], pointers[-1:]
    return lambda: run.run(inputs, outputs)


def turns_per_us(threads: int) -> float:
    """Loop turns of `work` in one microsecond."""
    turns = 1_000_000
    return turns / median_us(caller(executable(WORK.format(turns=turns), 1, 1, 1)))


def quiet(threads: int) -> dict[str, float]:
    """Call overhead, step overheads and parallel efficiency on a quiet machine, in microseconds."""
    found = {}
    x = np.zeros(16, np.float32)
    one = executable(NOTHING, 1, 1, threads, inputs=3)
    found["raw call, 3 inputs, 1 step"] = median_us(caller(one))
    found["numpy call, 3 inputs, 1 step"] = median_us(lambda: one(x, x, x))
    base = median_us(caller(executable(NOTHING, 1, 1, threads)))
    found["single-task step"] = (median_us(caller(executable(NOTHING, 5000, 1, threads))) - base) / 4999
    speed = turns_per_us(threads)
    for work_us in (5, 20, 100):
        tasks = 4 * threads
        text = WORK.format(turns=int(speed * work_us / tasks))
        serial = median_us(caller(executable(text, 200, tasks, 1))) / 200
        shared = median_us(caller(executable(text, 200, tasks, threads))) / 200
        found[f"step of {work_us} us work, 1 thread"] = serial
        found[f"step of {work_us} us work, {threads} threads"] = shared
        found[f"  beyond an even share, {work_us} us"] = shared - serial / threads
    sleepy = caller(executable(WORK.format(turns=int(speed * 200 / 8)), 1, 8, threads))

    def after_a_pause():
        time.sleep(0.002)
        start = time.perf_counter()
        sleepy()
        pauses.append(time.perf_counter() - start)

    pauses: list[float] = []
    median_us(after_a_pause, 0.5)
    found["call of 200 us work after 2 ms of sleep"] = statistics.median(pauses) * 1e6
    return found


def contended(threads: int, busy: int) -> dict[str, float]:
    """Latency of a 10 ms program alone and beside `busy` spinning processes, in microseconds."""
    speed = turns_per_us(threads)
    # 100 steps of 200 us of work: as a small convolutional network on two threads.
    run = caller(executable(WORK.format(turns=int(speed * 200 / 64)), 100, 64, threads))
    tiny = caller(executable(WORK.format(turns=int(speed * 1)), 5000, 2, threads))
    programs = {"100 steps of 200 us": run, "5000 steps of 2 us": tiny}
    found = {}
    for name, function in programs.items():
        found[f"{name}, quiet: median"] = percentile_us(function, 50, 1.5)
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        time.sleep(0.2)
        for name, function in programs.items():
            found[f"{name}, {busy} busy processes: median"] = percentile_us(function, 50, 4)
            found[f"{name}, {busy} busy processes: p90"] = percentile_us(function, 90, 4)
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    for name in programs:
        ratio = found[f"{name}, {busy} busy processes: median"] / found[f"{name}, quiet: median"]
        found[f"{name}: contended / quiet"] = ratio
    return found


LOAD = "import tilewright; tilewright.load({path!r})"


def load() -> dict[str, float]:
    """Fresh processes that load 45 MB of weights and 25 kernels, in microseconds from start to end."""
    count, elements = 45, 250_000
    kernels = tuple(compiled(WORK.format(turns=turns + 1)) for turns in range(25))
    specs = tuple(TensorSpec(f"w{i}", "f32", (elements,)) for i in range(count))
    package = Package("cpu", (), (), (), specs, (), kernels, Program())
    weights = [np.full(elements, i, np.float32) for i in range(count)]
    model = CompiledModel(Executable(package, weights), Signature.flat((), ()))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.twm"
        model.save(path)
        programs = {
            "python and numpy": "import numpy",
            "python, numpy, tilewright.load": LOAD.format(path=path),
        }
        found = {}
        for name, program in programs.items():
            times = []
            for _ in range(7):
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", program], check=True)
                times.append(time.perf_counter() - start)
            found[f"fresh process: {name}"] = statistics.median(times) * 1e6
        found["tilewright.load alone"] = median_us(lambda: artifact.load(path), 0.5)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, default=2, help="spinning processes of the contended part")
    parser.add_argument("--only", choices=["quiet", "contended", "load"])
    parser.add_argument("--json", help="write the numbers there too")
    options = parser.parse_args()
    found = {}
    if options.only in (None, "quiet"):
        found |= quiet(options.threads)
    if options.only in (None, "contended"):
        found |= contended(options.threads, options.busy)
    if options.only in (None, "load"):
        found |= load()
    for name, value in found.items():
        print(f"{name:60} {value:12.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
