"""Runs cases: every contender prepared, checked against eager, then timed in interleaved rounds."""

from __future__ import annotations

import gc
import math
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tilewright.bench import adapters
from tilewright.bench.adapters import OURS, Prepared, Task, Unavailable
from tilewright.bench.measure import Budget, interleave, ratio
from tilewright.bench.suites import Case

TOLERANCE = 1e-3
"""Largest relative error, by norm, that a result may have against eager's in f32."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS", "TILEWRIGHT_NUM_THREADS")


@dataclass
class Outcome:
    """What became of one contender on one case; times in us, `error` relative by norm, `speed` theirs / ours.

    `status` is ok, wrong (ran, but beyond TOLERANCE), unavailable or failed, the latter two with a `note`.
    """

    status: str
    note: str = ""
    compile_s: float | None = None
    error: float | None = None
    median_us: float | None = None
    rounds_us: list[float] = field(default_factory=list)
    speed: float | None = None


@dataclass
class CaseResult:
    """A case's outcomes by contender; `flops` counts a multiply-add as two."""

    name: str
    flops: int | None
    published: dict
    outcomes: dict[str, Outcome]

    def to_json(self) -> dict:
        return asdict(self)


def pin_threads(threads: int) -> None:
    """Gives every library the same number of threads; must come before any of them is imported.

    Raises RuntimeError when torch already runs with its pools started at another size.
    """
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(threads)
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)


@contextmanager
def cold_cache() -> Iterator[Path]:
    """A compile cache of this run's own, so that compile times are those of a first compilation."""
    before = os.environ.get("TILEWRIGHT_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(Path(folder) / "cache")
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["TILEWRIGHT_CACHE_DIR"]
            else:
                os.environ["TILEWRIGHT_CACHE_DIR"] = before


def count_flops(module, inputs: tuple) -> int | None:
    """Floating-point operations of matrix products and convolutions in one call; None when there are none."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return counter.get_total_flops() or None


def relative_error(found: Sequence, expected: Sequence) -> float:
    """The largest `|found - expected| / |expected|` (2-norms) over outputs; inf where shapes differ."""
    if len(found) != len(expected):
        return math.inf
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return math.inf
        keep = np.isfinite(b)
        a, b = a[keep].astype(np.float64), b[keep].astype(np.float64)
        norm = np.linalg.norm(b)
        worst = max(worst, float(np.linalg.norm(a - b) / (norm or 1.0)))
    return worst


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises Unavailable in what runs under it after `seconds`, once that is back in Python code; 0 sets none.

    Works in the main thread only, as signals do; elsewhere nothing is limited.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number, frame):
        raise Unavailable(f"not ready after {seconds:g} s (--compile-limit)")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_case(
    case: Case,
    contenders: Sequence[str],
    threads: int,
    budget: Budget,
    opt: str = "O0",
    compile_limit_s: float = 0,
    say: Callable[[str], None] = lambda text: None,
) -> CaseResult:
    """Prepares, checks and times `contenders` on one case; a contender's failure is an outcome."""
    module, inputs = case.build()
    outcomes: dict[str, Outcome] = {}
    ready: dict[str, Prepared] = {}
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        task = Task(module, inputs, threads, Path(folder), opt)
        if "torch" in sys.modules:
            sys.modules["torch"]._dynamo.reset()
        say("eager")
        expected = adapters.load("eager")(task).outputs()
        for name in contenders:
            say(f"preparing {name}")
            outcomes[name], prepared = _prepare(name, task, expected, compile_limit_s)
            if prepared:
                ready[name] = prepared
        say(f"timing {len(ready)} contenders, {budget.rounds} rounds")
        times = interleave({name: prepared.call for name, prepared in ready.items()}, budget)
        ours = times.get(OURS)
        for name, rounds in times.items():
            outcomes[name].rounds_us = [round(us, 2) for us in rounds]
            outcomes[name].median_us = round(statistics.median(rounds), 2)
            outcomes[name].speed = round(ratio(rounds, ours), 4) if ours else None
        flops = count_flops(module, inputs)
        ready.clear()
    gc.collect()
    return CaseResult(case.name, flops, case.published, outcomes)


def _prepare(name: str, task: Task, expected: Sequence, limit_s: float) -> tuple[Outcome, Prepared | None]:
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), time_limit(0 if name == OURS else limit_s):
            # Deprecations inside competitors are not for those who read the table.
            warnings.simplefilter("ignore")
            prepared = adapters.load(name)(task)
            found = prepared.outputs()
    except Unavailable as reason:
        return Outcome("unavailable", str(reason)), None
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return Outcome("failed", f"{type(error).__name__}: {first[:200]}"), None
    seconds = time.perf_counter() - start
    error = relative_error(found, expected)
    status = "ok" if error <= TOLERANCE else "wrong"
    return Outcome(status, prepared.note, round(seconds, 3), error), prepared


def geometric_means(results: Sequence[CaseResult]) -> dict[str, float]:
    """Per competitor, the geometric mean of (its time / ours) over the cases where both were right."""
    means = {}
    for name in dict.fromkeys(n for result in results for n in result.outcomes if n != OURS):
        ratios = [
            result.outcomes[name].speed
            for result in results
            if name in result.outcomes
            and result.outcomes[name].status == "ok"
            and result.outcomes.get(OURS, Outcome("failed")).status == "ok"
        ]
        found = [value for value in ratios if value]
        if found:
            means[name] = round(math.exp(sum(map(math.log, found)) / len(found)), 4)
    return means
