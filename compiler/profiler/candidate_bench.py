"""The parent's side of measuring candidates as they come: what became of each, whatever it did to the process it ran in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler import debug
from tilewright.compiler.codegen.lower_cpu import LoweredKernel
from tilewright.compiler.profiler.dispatch_facts import DispatchFacts
from tilewright.compiler.profiler.kernel_messages import to_message
from tilewright.compiler.profiler.processes import ChildLost, MeasuringChild, Message
from tilewright.compiler.profiler.turns import turn
from tilewright.compiler.targets.target import Target

MEASURING = "tilewright.compiler.profiler.measure"
MEASURING_ON_GPU = "tilewright.compiler.profiler.measure_cuda"
_TRIES = 2
"""A candidate whose process is lost through no fault of its own is tried so often."""


@dataclass(frozen=True)
class MeasureOptions:
    """How candidates are measured: seconds to compile one, for one run, and of timing each.

    One is timed for at most `rounds`. Where its first run takes more than `stop` times the best it is not timed further,
    nor where after so many rounds it is behind by more than the factor: `kept` are (rounds, factor). `compilers` are
    threads that hand candidates to workers, 0 for as many as the cores that measuring leaves; where it leaves none, what is
    compiled and what is measured take turns. `device` names what measures, and is part of what its records are kept under.
    `exact` lets none win a race whose results are not the bits of the first schedule's.
    """

    threads: int = 1
    compile_timeout_s: int = 30
    run_timeout_s: float = 10.0
    seconds: float = 0.1
    rounds: int = 10
    stop: float = 3.0
    kept: tuple[tuple[int, float], ...] = ((2, 2.0), (5, 1.25))
    compilers: int = 0
    compiling: str = "tilewright.compiler.profiler.compile:compile_candidate"
    measuring: str = MEASURING
    device: str = ""
    device_index: int = 0
    exact: bool = False


@dataclass(frozen=True)
class Tried:
    """What became of one candidate: rounds, or why there are none.

    `is_own` is a failure of the candidate itself, and nothing that went wrong around it; one that `is_final` would be the
    same again. `host` measured, this one where it is "".
    """

    rounds_us: tuple[float, ...] = ()
    error: str = ""
    is_own: bool = True
    is_final: bool = True
    host: str = ""


class _Gone(Exception):
    """The process is gone, and no candidate is to blame; the message says how."""


class CandidateBench:
    """The process that candidates of one dispatch after another run in, and the dispatch that it is set up for."""

    def __init__(self, target: Target, options: MeasureOptions):
        self._target, self._options = target, options
        self._child = MeasuringChild(options.measuring)
        self._set_up = ""
        self._is_over = False

    def stop(self) -> None:
        """Ends the process; the next candidate gets another one."""
        self._child.stop()
        self._set_up = ""

    def kill(self) -> None:
        """Ends the process for good, from another thread: what it measures is lost."""
        self._is_over = True
        self._child.kill()

    def measure(
        self, facts: DispatchFacts, first: LoweredKernel, kernel: LoweredKernel, best_us: float | None
    ) -> Tried:
        """Checks a kernel against the dispatch's first one and times it."""
        request = {
            "stream": "try",
            "kernel": to_message(kernel.kernel, kernel.tasks),
            "best_us": best_us,
            **{name: getattr(self._options, name) for name in ("seconds", "rounds", "stop", "kept")},
        }
        return self._asked(facts, first, request, 1)[0]

    def race(
        self, facts: DispatchFacts, first: LoweredKernel, kernels: Sequence[LoweredKernel], rounds: int
    ) -> list[Tried]:
        """Times kernels that were measured before in turns; one that fails now is out, and the others race on."""
        racing, found = list(range(len(kernels))), [Tried() for _ in kernels]
        while racing:
            entries = [to_message(kernels[n].kernel, kernels[n].tasks) for n in racing]
            request = {
                "stream": "race",
                "kernels": entries,
                "rounds": rounds,
                "exact": self._options.exact,
            }
            done = self._asked(facts, first, request, len(racing))
            for number, tried in zip(racing, done):
                found[number] = tried
            out = [n for n in racing if found[n].error]
            if not out:
                break
            racing = [n for n in racing if n not in out]
        return found

    def _asked(self, facts: DispatchFacts, first: LoweredKernel, request: Message, count: int) -> list[Tried]:
        """What a request gives for each of its kernels; where one fails, rounds of no other."""
        with turn(f"{self._options.device} {self._options.device_index}", lambda: self._is_over):
            return self._answered(facts, first, request, count)

    def _answered(
        self, facts: DispatchFacts, first: LoweredKernel, request: Message, count: int
    ) -> list[Tried]:
        gone = ""
        for _ in range(_TRIES):
            place = 0
            try:
                refused = self._begin(facts, first)
                if refused is not None:
                    return [Tried(error=refused, is_own=False)] * count
                child = self._child.get()
                child.send(request)
                while True:
                    message = child.receive(self._options.run_timeout_s)
                    place = message.get("running", place)
                    if message.get("last"):
                        self.stop()
                    if message.get("stale"):
                        raise _Gone(str(message["error"]))
                    if "error" in message:
                        place = message.get("place", place)
                        return self._blamed(place, count, str(message["error"]), message.get("is_own", True))
                    if "rounds_us" in message:
                        return [Tried(_microseconds(message["rounds_us"]))]
                    if "raced_us" in message:
                        return [Tried(_microseconds(rounds)) for rounds in message["raced_us"]]
            except ChildLost as lost:
                self.stop()
                if not lost.is_killed:
                    return self._blamed(place, count, str(lost))
                gone = str(lost)
            except _Gone as reason:
                self.stop()
                gone = str(reason)
            if self._is_over:
                break
            debug.log(1, f"measuring {facts.name}: {gone}; the candidate is tried again")
        return [Tried(error=gone, is_own=False, is_final=False)] * count

    @staticmethod
    def _blamed(place: int, count: int, error: str, is_own: bool = True) -> list[Tried]:
        return [Tried(error=error, is_own=is_own) if number == place else Tried() for number in range(count)]

    def _begin(self, facts: DispatchFacts, first: LoweredKernel) -> str | None:
        """Sets the process up for a dispatch; returns why its first kernel gives nothing to compare with.

        Raises _Gone where the process itself is the trouble.
        """
        if self._set_up == facts.code + repr(facts.residence):
            return None
        options, running = self._options, False
        request = {
            **facts.request([first], self._target),
            "stream": "begin",
            "threads": options.threads,
            "device_index": options.device_index,
        }
        try:
            child = self._child.get()
            child.send(request)
            while True:
                message = child.receive(max(options.run_timeout_s, 60.0))
                running = running or "running" in message
                if message.get("last"):
                    self.stop()
                if "error" in message:
                    return f"the first schedule, which results are compared with: {message['error']}"
                if "begun" in message:
                    self._set_up = facts.code + repr(facts.residence)
                    return None
        except ChildLost as lost:
            self.stop()
            if not running or lost.is_killed:
                raise _Gone(f"the measuring process {lost}") from None
            return f"the first schedule, which results are compared with: {lost}"


def _microseconds(rounds: Sequence[float]) -> tuple[float, ...]:
    return tuple(max(0.001, round(us, 3)) for us in rounds)
