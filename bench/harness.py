"""Runs cases: every contender prepared, checked against eager, then timed in interleaved rounds."""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.bench import adapters
from tilewright.bench.adapters import OURS, OWN, Prepared, Task, Unavailable
from tilewright.bench.limits import Limits
from tilewright.bench.measure import Budget, interleave, ratio
from tilewright.bench.suites import Case
from tilewright.compiler.settings import settings

TOLERANCE = {"f32": 1e-3, "bf16": 2e-2}
"""Largest relative error, by norm, that a result may have against eager's, by what products are computed from.

A number rounded to bf16 is off by up to 2^-9; networks of them were seen to end within 1e-2 by norm.
"""

GRADIENT_TOLERANCE = 2e-2
"""As above, of training steps: gradients jump where rounding decides the sign that a relu sees.

Eager's own gradients of ResNet-18 were seen to be 1e-2 from those in double precision, the median over parameters 4e-3.
"""

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
    """A case's outcomes by contender; `flops` counts a multiply-add as two.

    `read_bytes` and `written_bytes` are those of inputs and weights that a call reads, and of outputs, each touched once; `limit_us` is
    the least time that this work takes on this machine, and `bound` what takes it (see `limits`).
    """

    name: str
    flops: int | None
    published: dict
    outcomes: dict[str, Outcome]
    dtype: str = "f32"
    read_bytes: int = 0
    written_bytes: int = 0
    limit_us: float | None = None
    bound: str = ""

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
    """A compile cache of this run's own, so that compile times are those of a first compilation.

    Measurements of the machine are taken along: they are part of what is compiled for.
    """
    before, kept = os.environ.get("TILEWRIGHT_CACHE_DIR"), settings().cache_dir / "targets"
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        cache = Path(folder) / "cache"
        if kept.is_dir():
            shutil.copytree(kept, cache / "targets")
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(cache)
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["TILEWRIGHT_CACHE_DIR"]
            else:
                os.environ["TILEWRIGHT_CACHE_DIR"] = before


def count_flops(module, inputs: tuple, training: bool = False) -> int | None:
    """Floating-point operations of matrix products and convolutions in one call; None when there are none."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.set_grad_enabled(training), FlopCounterMode(display=False) as counter:
        found = module(*inputs)
        if training:
            outputs = [found] if isinstance(found, torch.Tensor) else list(found)
            torch.autograd.backward(outputs, [torch.ones_like(y) for y in outputs])
    return counter.get_total_flops() or None


def moved_bytes(module, inputs: tuple, outputs: Sequence) -> tuple[int, int]:
    """Bytes that a call must read (inputs, and weights once each) and write (outputs).

    Tables that are only looked up in are left out: a call reads a few of their rows.
    """
    from torch import nn

    looked_up, used = set(), set()
    for part in module.modules():
        owned = looked_up if isinstance(part, nn.Embedding) else used
        owned |= {id(t) for t in part.parameters(recurse=False)}
    weights = [t for t in (*module.parameters(), *module.buffers()) if id(t) not in looked_up - used]
    read = {id(t): t.numel() * t.element_size() for t in weights}
    read |= {id(t): t.numel() * t.element_size() for t in inputs if hasattr(t, "element_size")}
    return sum(read.values()), sum(np.asarray(array).nbytes for array in outputs)


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
def time_limit(seconds: float) -> Iterator[threading.Event]:
    """Raises Unavailable in what runs under it after `seconds`, once that is back in Python code; 0 sets none.

    Gives an event that tells whether that came to pass: what runs under it may raise its own error from ours. Works
    in the main thread only, as signals do; elsewhere nothing is limited.
    """
    expired = threading.Event()
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield expired
        return

    def stop(number, frame):
        expired.set()
        raise Unavailable(f"not ready after {seconds:g} s (--compile-limit)")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield expired
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
    precision: str = "f32",
    limits: Limits | None = None,
    search: Mapping[str, Any] | None = None,
) -> CaseResult:
    """Prepares, checks and times `contenders` on one case; a contender's failure is an outcome.

    Results are checked against eager in the model's own dtype, also where `precision` lets others round more.
    """
    module, inputs = case.build()
    outcomes: dict[str, Outcome] = {}
    ready: dict[str, Prepared] = {}
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        task = Task(module, inputs, threads, Path(folder), opt, precision, case.training, search or {})
        if "torch" in sys.modules:
            sys.modules["torch"]._dynamo.reset()
        say("eager")
        expected = adapters.load("eager")(replace(task, precision="f32")).outputs()
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
        flops = case.flops if case.flops is not None else count_flops(module, inputs, case.training)
        ready.clear()
    gc.collect()
    result = CaseResult(case.name, flops, case.published, outcomes, task.dtype)
    result.read_bytes, result.written_bytes = moved_bytes(module, inputs, expected)
    result.read_bytes -= case.unread_bytes
    if limits:
        least, result.bound = limits.bound(flops or 0, result.read_bytes, result.written_bytes, result.dtype)
        result.limit_us = round(least, 3)
    return result


def _prepare(name: str, task: Task, expected: Sequence, limit_s: float) -> tuple[Outcome, Prepared | None]:
    start, expired = time.perf_counter(), threading.Event()
    if task.training and name not in adapters.TRAINERS:
        return Outcome("unavailable", "it computes no gradients"), None
    try:
        with warnings.catch_warnings(), time_limit(0 if name in OWN else limit_s) as expired:
            # Deprecations inside competitors are not for those who read the table.
            warnings.simplefilter("ignore")
            prepared = adapters.load(name)(task)
            found = prepared.outputs()
    except Unavailable as reason:
        return Outcome("unavailable", str(reason)), None
    except Exception as error:
        if expired.is_set():
            return Outcome("unavailable", f"not ready after {limit_s:g} s (--compile-limit)"), None
        first = (str(error).strip().splitlines() or [""])[0]
        return Outcome("failed", f"{type(error).__name__}: {first[:200]}"), None
    seconds = time.perf_counter() - start
    error = relative_error(found, expected)
    tolerance = TOLERANCE[task.dtype]
    status = (
        "ok" if error <= (max(tolerance, GRADIENT_TOLERANCE) if task.training else tolerance) else "wrong"
    )
    return Outcome(status, prepared.note, round(seconds, 3), error), prepared


def best_competitor(result: CaseResult) -> str | None:
    """The fastest contender besides ours whose result was right; None when there is none."""
    times = {
        name: outcome.median_us
        for name, outcome in result.outcomes.items()
        if name not in OWN and outcome.status == "ok" and outcome.median_us
    }
    return min(times, key=lambda name: (times[name], name)) if times else None


def _right(result: CaseResult, name: str | None) -> float | None:
    """How many times longer `name` takes than ours, where both were right."""
    ours = result.outcomes.get(OURS)
    outcome = result.outcomes.get(name or "")
    both = ours and outcome and ours.status == "ok" and outcome.status == "ok"
    return outcome.speed if outcome and both else None


def _geometric(ratios: Iterable[float | None]) -> float | None:
    found = [value for value in ratios if value]
    return round(math.exp(sum(map(math.log, found)) / len(found)), 4) if found else None


def geometric_means(results: Sequence[CaseResult]) -> dict[str, float]:
    """Per competitor, the geometric mean of (its time / ours) over the cases where both were right."""
    names = dict.fromkeys(n for result in results for n in result.outcomes if n != OURS)
    means = {name: _geometric(_right(result, name) for result in results) for name in names}
    return {name: mean for name, mean in means.items() if mean}


def best_mean(results: Sequence[CaseResult]) -> float | None:
    """The geometric mean of (the best competitor's time / ours) over the cases where both were right."""
    return _geometric(_right(result, best_competitor(result)) for result in results)
