"""The child's side of measuring candidates as they come: one dispatch at a time, each candidate checked against its first.

    {"stream": "begin", "kernels": [first], ...}     -> {"begun": true}        buffers are filled, the first has run
    {"stream": "try", "kernel": ..., ...}            -> {"rounds_us": [...]}   or {"error": why}
    {"stream": "race", "kernels": [...], ...}        -> {"raced_us": [...]}    in turns, or {"error": why, "place": whose}

`{"running": place}` says whom to blame for what follows. After `"last": true` the process is not to be used any more;
with `"stale": true` the fault lies with it, and not with the candidate. `"is_own": false` is said of what others may use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.compiler.profiler.comparison import OTHER_BITS
from tilewright.compiler.profiler.guarded_buffers import Untrusted
from tilewright.compiler.profiler.processes import Message

_HOPELESS, _FIRST_CALL_US = 10.0, 1000.0
"""The first call of a kernel brings its code, its operands and its threads: by more than that it is the kernel itself."""

Say = Callable[[Message], None]


class Stream:
    """The dispatch that is being measured, on the bench that `make` gives for it."""

    def __init__(self, make: Callable[[Message], Any]):
        self._make = make
        self._bench: Any = None

    def answer(self, request: Message, say: Say) -> None:
        """Does what a request asks for; raises Untrusted after it has said so."""
        act = {"begin": self._begin, "try": self._try, "race": self._race}[request["stream"]]
        try:
            say(act(request, say))
        except Untrusted as untrusted:
            say({"error": str(untrusted), "last": True})
            raise

    def _begin(self, request: Message, say: Say) -> Message:
        """Makes buffers for a dispatch, in place of those of the one before, and runs its first kernel."""
        self._bench = None
        bench = self._make(request)
        say({"running": 0})
        error = bench.judge(0)
        if error is not None:
            return {"error": error}
        self._bench = bench
        return {"begun": True}

    def _try(self, request: Message, say: Say) -> Message:
        """Checks a kernel and times it, unless its first run is much slower than the best."""
        fault = self._judge([request["kernel"]], say)
        try:
            return fault or {"rounds_us": self._time(request)}
        finally:
            self._forget(1)

    def _time(self, request: Message) -> list[float]:
        """Microseconds per round, until time is up, or until the best is out of reach by a factor of `kept`."""
        bench, best = self._bench, request["best_us"]
        if best is not None and (us := self._out_of_reach(request["stop"] * best)) is not None:
            return [us]
        rounds: list[float] = []
        deadline = time.perf_counter() + request["seconds"]
        for done in range(1, request["rounds"] + 1):
            rounds.append(bench.visit(1))
            behind = best is not None and any(
                done >= after and min(rounds) > factor * best for after, factor in request["kept"]
            )
            if behind or time.perf_counter() > deadline:
                break
        return rounds

    def _out_of_reach(self, limit_us: float) -> float | None:
        """What the kernel takes where its first call, and the next one, are above the limit; None where it may be fast.

        The first call may be slow for another reason: unless it was very slow, the second one decides.
        """
        bench = self._bench
        first = bench.at_least(1) if bench.checked_us is None else bench.checked_us
        if first > limit_us and first <= _HOPELESS * limit_us + _FIRST_CALL_US:
            first = bench.at_least(1)
        return first if first > limit_us else None

    def _race(self, request: Message, say: Say) -> Message:
        """Times kernels in turns, every other round backwards: what the machine does meanwhile, it does to all."""
        kernels = request["kernels"]
        fault = self._judge(kernels, say, request["exact"])
        try:
            if fault is not None:
                return fault
            places = list(range(len(kernels)))
            raced: list[list[float]] = [[] for _ in kernels]
            for turn in range(request["rounds"]):
                for place in reversed(places) if turn % 2 else places:
                    say({"running": place})
                    raced[place].append(self._bench.visit(1 + place))
            return {"raced_us": raced}
        finally:
            self._forget(len(kernels))

    def _judge(self, kernels: Sequence[Message], say: Say, exact: bool = False) -> Message | None:
        """What to say of the first kernel that is not to be used; None where all compute what the first one does."""
        bench = self._bench
        bench.request["kernels"][1:] = kernels
        for place in range(len(kernels)):
            say({"running": place})
            error = bench.judge(1 + place, exact)
            if error is None:
                continue
            if changed := bench.differs(bench.compute(0)):
                # An earlier candidate has changed what results are compared with.
                return {"error": f"the first kernel's result changed: {changed}", "last": True, "stale": True}
            return {"error": error, "place": place, "is_own": error != OTHER_BITS}
        return None

    def _forget(self, count: int) -> None:
        for number in range(1, 1 + count):
            self._bench.forget(number)
