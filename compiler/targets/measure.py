"""Measures this machine: bandwidth and latency per memory level, peak arithmetic per dtype, the cost of a parallel step.

Every figure is the best of several short runs: what the machine can do, not what it does beside other work. Threads are
pinned to one CPU per physical core; memory is in huge pages where the system gives them, as the runtime's is.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.targets import host as target_host
from tilewright.compiler.targets import probes
from tilewright.compiler.targets.measurements import LevelRates, Measurements, PeakRates
from tilewright.compiler.targets.probes import Compiled
from tilewright.compiler.targets.target import MIB, MemoryLevel, Target
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import BufferRef, Kernel, Package, Program, Step, TensorSpec

RUN_S = 0.012
"""Length of one timed run: long beside the start of a thread, short beside a scheduler's slice."""

_HUGE_PAGE = 2 * MIB
_LARGEST_BYTES = 1024 * MIB
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18

_STEP = """
define i32 @step(ptr %b, i64 %first, i64 %end, ptr %s) {
entry:
  %tasks = sub i64 %end, %first
  %turns = mul i64 %tasks, TURNS
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
}
"""
_STEP_TURNS, _STEPS = 4000, 200


class Team:
    """One thread per CPU, each pinned to its own; runs a function on the first few of them at once."""

    def __init__(self, cpus: list[int]):
        self.cpus = cpus
        self._pool = ThreadPoolExecutor(len(cpus))

    def run(self, threads: int, work: Callable[[int], None]) -> float:
        """Seconds from the first thread's start of `work(thread)` to the last one's end."""
        barrier = threading.Barrier(threads)

        def one(thread: int) -> tuple[float, float]:
            os.sched_setaffinity(0, {self.cpus[thread]})
            barrier.wait()
            start = time.perf_counter()
            work(thread)
            return start, time.perf_counter()

        spans = list(self._pool.map(one, range(threads)))
        return max(end for _, end in spans) - min(start for start, _ in spans)

    def close(self) -> None:
        self._pool.shutdown()


@contextmanager
def team(cpus: list[int]) -> Iterator[Team]:
    """A team of threads that ends with the block."""
    made = Team(cpus)
    try:
        yield made
    finally:
        made.close()


class Memory:
    """A block of anonymous memory in huge pages, cut at multiples of a huge page."""

    def __init__(self, size: int):
        self._map = mmap.mmap(-1, size + _HUGE_PAGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        start = self._bytes.ctypes.data
        self.address = -(-start // _HUGE_PAGE) * _HUGE_PAGE
        self._skip = self.address - start

    def touch(self, offset: int, size: int) -> None:
        """Zeroes `size` bytes from `offset` on, which also makes the system provide them."""
        ctypes.memset(self.address + offset, 0, size)

    def words(self, offset: int, size: int) -> np.ndarray:
        """`size` bytes from `offset` on, as 64-bit integers."""
        return self._bytes[self._skip + offset : self._skip + offset + size].view(np.int64)


def measure(target: Target, say: Callable[[str], None] = lambda text: None, rounds: int = 9) -> Measurements:
    """Measures the machine that `target` describes, which must be this one; tells `say` what comes next.

    `rounds` runs of RUN_S seconds are made per figure. Takes 10 to 30 seconds; may be interrupted at any time.
    Raises TilewrightError on a system that cannot pin threads.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise TilewrightError("targets --measure: needs a system that can pin threads to CPUs, as Linux does")
    cpus = target_host.core_cpus()
    with team(cpus) as threads:
        peaks = _peaks(target, threads, say, rounds)
        levels = _levels(target, threads, say, rounds)
    say("cost of a parallel step")
    return Measurements(target_host.processor(), levels, peaks, _significant(_start_us(target, rounds)))


def peak_gflops(target: Target, dtype: str, threads: int, rounds: int = 9) -> float:
    """GFLOP/s of the fastest instruction that multiplies and adds `dtype`, on `threads` cores."""
    with team(target_host.core_cpus()[:threads]) as members:
        rates = [_arithmetic(target, probe, members, threads, rounds)
                 for (of, _), probe in probes.arithmetic(target).items() if of == dtype]  # fmt: skip
    if not rates:
        raise TilewrightError(f"{target.name} has no instruction that multiplies and adds {dtype}")
    return max(rates)


def _significant(value: float) -> float:
    """Three digits that mean something."""
    return float(f"{value:.3g}")


def _rate(
    team: Team, threads: int, call: Callable[[int, int], None], per_turn: float, rounds: int, turns: int = 1
) -> float:
    """The best rate in billions per second of `call(thread, turns)`, worth `per_turn` per turn and thread."""

    def seconds(on: int, count: int) -> float:
        return team.run(on, lambda thread: call(thread, count))

    # One thread tells how many turns fill a run: several may be slow to start beside other work.
    while (once := min(seconds(1, turns) for _ in range(2))) < RUN_S / 4:
        turns *= 2
    turns = max(1, round(turns * RUN_S / once))
    # All cores are seldom free at once where others work too.
    tries = rounds if threads == 1 else 2 * rounds
    return per_turn * turns * threads / min(seconds(threads, turns) for _ in range(tries)) / 1e9


def _peaks(target: Target, team: Team, say: Callable[[str], None], rounds: int) -> dict[str, PeakRates]:
    found: dict[str, PeakRates] = {}
    for (dtype, instruction), probe in probes.arithmetic(target).items():
        say(f"peak of {dtype} ({instruction})")
        one, every = (_arithmetic(target, probe, team, n, rounds) for n in (1, len(team.cpus)))
        if dtype not in found or every > found[dtype].gflops:
            found[dtype] = PeakRates(instruction, _significant(one), _significant(every))
    return found


def _arithmetic(target: Target, probe: probes.Probe, team: Team, threads: int, rounds: int) -> float:
    compiled = Compiled(probe, target)
    # Room for the sums of each thread, on lines of its own; tiles take their configuration from its start.
    memory = Memory(threads * _HUGE_PAGE)
    configuration = np.frombuffer(probes.TILE_CONFIGURATION, np.int64)
    for thread in range(threads):
        memory.words(thread * _HUGE_PAGE, 64)[:] = configuration
    if "ldtilecfg" in probe.text:
        _ask_for_tiles()

    def call(thread: int, turns: int) -> None:
        address = memory.address + thread * _HUGE_PAGE
        compiled(address, address + 4096, 0, turns)

    return _rate(team, threads, call, compiled.per_turn, rounds, 1000)


def _ask_for_tiles() -> None:
    """Linux gives a process AMX's state only on request. Source: Documentation/arch/x86/xstate.rst."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA):
        raise TilewrightError(f"the system refuses AMX tiles: {os.strerror(ctypes.get_errno())}")


def _levels(target: Target, team: Team, say: Callable[[str], None], rounds: int) -> dict[str, LevelRates]:
    compiled = {
        "read": Compiled(probes.read(target.vector_bits), target),
        "copy": Compiled(probes.copy(target.vector_bits, streaming=False), target),
        "streaming": Compiled(probes.copy(target.vector_bits, streaming=True), target),
        "chase": Compiled(probes.chase(), target),
    }
    levels = list(target.memory[:-1])
    dram_bytes = _dram_bytes(target)
    memory = Memory(dram_bytes + len(team.cpus) * _HUGE_PAGE)
    say("touching memory")
    share = dram_bytes // len(team.cpus)
    # Each thread touches its own part first, so that it lies near it where memory is not uniform.
    team.run(len(team.cpus), lambda thread: memory.touch(thread * share, share))
    found = {}
    for index, level in enumerate(levels):
        faster = levels[index + 1] if index + 1 < len(levels) else None
        size = share if level is target.memory[0] else _working_set(level, faster)
        say(f"{level.name}, {size >> 10:,} KiB per core")
        found[level.name] = _level(level, size, share, memory, team, compiled, rounds)
    return found


def _dram_bytes(target: Target) -> int:
    """Eight times all of the last cache, so that little of it is hit; no more than an eighth of memory or 1 GiB."""
    last = target.memory[1]
    caches = last.capacity_bytes * max(1, target.num_cores // last.shared_by)
    bytes_ = min(max(8 * caches, 64 * MIB), target.memory[0].capacity_bytes // 8, _LARGEST_BYTES)
    unit = _HUGE_PAGE * target.num_cores
    return max(1, bytes_ // unit) * unit


def _working_set(level: MemoryLevel, faster: MemoryLevel | None) -> int:
    """Bytes per core that fill half of the level and do not fit the faster one; a power of two."""
    half = level.capacity_bytes // 2 // level.shared_by
    least = 2 * faster.capacity_bytes // faster.shared_by if faster else 0
    return 1 << max(half, least, 4096).bit_length() - 1


def _level(
    level: MemoryLevel,
    size: int,
    share: int,
    memory: Memory,
    team: Team,
    compiled: dict[str, Compiled],
    rounds: int,
) -> LevelRates:
    """One level's rates on working sets of `size` bytes per core, `share` bytes apart."""
    size, every = min(size, share), len(team.cpus)
    # Working sets that overflow the shared cache together would measure the next level instead.
    together = level.shared_by == 1 or size * level.shared_by <= 0.75 * level.capacity_bytes

    def read(thread: int, turns: int) -> None:
        address = memory.address + thread * share
        compiled["read"](address, scratch.address + thread * 4096, size // compiled["read"].per_turn, turns)

    def copying(kind: str) -> Callable[[int, int], None]:
        def call(thread: int, turns: int) -> None:
            address = memory.address + thread * share
            compiled[kind](address, address + size // 2, size // compiled[kind].per_turn, turns)

        return call

    scratch = Memory(every * 4096)
    rates: dict[str, list[float]] = {"read": [], "copy": []}
    for threads in (1, every):
        if threads > 1 and not together:
            rates["read"].append(0.0)
            rates["copy"].append(0.0)
            continue
        rates["read"].append(_rate(team, threads, read, size, rounds))
        copies = [_rate(team, threads, copying(kind), size, rounds) for kind in ("copy", "streaming")]
        rates["copy"].append(max(copies))
    latency = _latency_ns(size, memory, scratch, team, compiled["chase"], rounds)
    one, all_ = rates["read"], rates["copy"]
    return LevelRates(*map(_significant, (one[0], one[1], all_[0], all_[1], latency)))


def _latency_ns(
    size: int, memory: Memory, scratch: Memory, team: Team, chase: Compiled, rounds: int
) -> float:
    """ns per dependent load around one random cycle through every line of `size` bytes."""
    lines = size // 64
    order = np.random.default_rng(0).permutation(lines)
    follows = np.empty(lines, np.int64)
    follows[order] = np.roll(order, -1)
    memory.words(0, size)[::8] = memory.address + 64 * follows

    place = scratch.words(0, 8)
    place[0] = memory.address

    # On from where the last run ended: a run alone would visit no more lines than fit a faster level.
    def call(thread: int, turns: int) -> None:
        chase(int(place[0]), scratch.address, 0, turns)

    call(0, -(-min(lines, 1 << 20) // chase.per_turn))
    return 1 / _rate(team, 1, call, chase.per_turn, rounds, 100)


def _start_us(target: Target, rounds: int) -> float:
    """What one more step costs beyond its work, in us: one rTask per core, handed out by the runtime's own pool."""
    text = _STEP.replace("TURNS", str(_STEP_TURNS))
    code = probes.object_code(text, target)

    def seconds(threads: int) -> float:
        outputs = (TensorSpec("y", "f32", (16,)),)
        steps = tuple(Step(0, (BufferRef("output"),), threads) for _ in range(_STEPS))
        package = Package("cpu", (), (), outputs, (), (), (Kernel("step", "step", code),), Program(steps))
        run, y = Executable(package, (), threads), np.zeros(16, np.float32)
        times = []
        for _ in range(4 * rounds):
            start = time.perf_counter()
            run.run([], [y.ctypes.data])
            times.append(time.perf_counter() - start)
        return min(times)

    return max(0.0, seconds(target.num_cores) - seconds(1)) / _STEPS * 1e6
