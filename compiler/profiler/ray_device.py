"""Machines of a Ray cluster as one device of a search: some compile, and those that are alike measure, each one at a time.

    device = RayDevice(target, options, records, compilers=8, measurers=2, resources={"board": 1})

Whatever a candidate does, it does to a process of an actor, as on this machine. An actor that is lost, with its machine or
alone, is made again where there is room, and what it worked on is tried once more. The store is here.
Source of the arrangement: AutoTVM (NeurIPS'18), §5, and its supplement: a tracker that shares devices out.
"""

from __future__ import annotations

import platform
import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.compiler.codegen.lower_cpu import LoweredKernel
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.candidate_bench import CandidateBench, MeasureOptions, Tried
from tilewright.compiler.profiler.compile import refusal
from tilewright.compiler.profiler.dispatch_facts import DispatchFacts
from tilewright.compiler.profiler.local_device import compile_here
from tilewright.compiler.profiler.measuring_device import MachineLost, MeasuringDevice
from tilewright.compiler.targets.host import processor
from tilewright.compiler.targets.target import Target

_TRIES = 2
"""What an actor was lost over is given to so many."""
_LONGEST_S = 600.0
"""After so long without an answer an actor counts as lost."""


class CompilingActor:
    """Compiles candidates on the machine that it is on."""

    def __init__(self, target: Target, options: MeasureOptions):
        self._target, self._options = target, options

    def compile(self, facts: DispatchFacts, schedules: Sequence[Schedule]) -> list[Any]:
        """The kernel of each schedule, or a TilewrightError with the reason that there is none."""
        found = compile_here(facts, schedules, self._target, self._options)
        reasons = [refusal(result) for result in found]
        return [
            result if reason is None else TilewrightError(reason) for result, reason in zip(found, reasons)
        ]


class MeasuringActor:
    """Measures candidates on the machine that it is on, one at a time."""

    def __init__(self, target: Target, options: MeasureOptions):
        self._bench = CandidateBench(target, replace(options, device=options.device or processor()))

    def device(self) -> str:
        """What its records are kept under where nobody says."""
        return processor()

    def measure(self, *arguments: Any) -> Tried:
        """As `CandidateBench.measure`."""
        return replace(self._bench.measure(*arguments), host=platform.node())

    def race(self, *arguments: Any) -> list[Tried]:
        """As `CandidateBench.race`."""
        return [replace(tried, host=platform.node()) for tried in self._bench.race(*arguments)]


class RayActor:
    """An actor that is made again when it is lost; `make` gives a handle."""

    def __init__(self, make: Callable[[], Any]):
        self._make = make
        self._is_over = False
        self.handle = make()

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method gives; raises MachineLost, and what it raises."""
        import ray

        how = "was ended"
        for _ in range(_TRIES):
            if self._is_over:
                break
            try:
                return ray.get(getattr(self.handle, method).remote(*arguments), timeout=_LONGEST_S)
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
                how = str(error).strip().splitlines()[0]
                if not self._is_over:
                    ray.kill(self.handle)
                    self.handle = self._make()
        raise MachineLost(f"an actor was lost: {how}")

    def kill(self) -> None:
        """Ends it for good, and what it is doing."""
        import ray

        self._is_over = True
        ray.kill(self.handle)


class RayBench:
    """What measures candidates in an actor."""

    def __init__(self, actor: RayActor):
        self.actor = actor

    def measure(
        self, facts: DispatchFacts, first: LoweredKernel, kernel: LoweredKernel, best_us: float | None
    ) -> Tried:
        """Checks a kernel against the dispatch's first one and times it."""
        try:
            return self.actor.call("measure", facts, first, kernel, best_us)
        except MachineLost as lost:
            return _lost(lost)

    def race(
        self, facts: DispatchFacts, first: LoweredKernel, kernels: Sequence[LoweredKernel], rounds: int
    ) -> list[Tried]:
        """Times kernels in turns, on one machine."""
        try:
            return self.actor.call("race", facts, first, kernels, rounds)
        except MachineLost as lost:
            return [_lost(lost)] * len(kernels)

    def kill(self) -> None:
        """Ends the actor, whatever it measures."""
        self.actor.kill()

    def stop(self) -> None:
        """Ends the actor."""
        self.actor.kill()


class RayDevice(MeasuringDevice):
    """The cluster that this process is connected to, or that at `address`, or one of this machine alone.

    `resources` are what an actor that measures takes of its machine, beside `options.threads` CPUs: a resource of which
    every machine to measure on has one puts one actor on each. Raises TilewrightError where the cluster has not the CPUs
    for all actors, or where machines that measure are different ones.
    """

    def __init__(
        self,
        target: Target,
        options: MeasureOptions,
        records: Path | None = None,
        *,
        compilers: int = 1,
        measurers: int = 1,
        resources: Mapping[str, float] | None = None,
        address: str | None = None,
    ):
        ray = _ray()
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            ray.init(address=address, include_dashboard=False, log_to_driver=False)
        wanted, there = (
            compilers + measurers * options.threads,
            int(ray.cluster_resources().get("CPU", 0)),
        )
        if wanted > there:
            self._leave()
            raise TilewrightError(
                f"{compilers} actors that compile and {measurers} that measure with {options.threads} threads take "
                f"{wanted} CPUs, the cluster has {there}; ask for fewer"
            )
        compiling = ray.remote(num_cpus=1)(CompilingActor)
        measuring = ray.remote(num_cpus=options.threads, resources=dict(resources or {}))(MeasuringActor)
        self._compiling = [
            RayActor(lambda: compiling.remote(target, options)) for _ in range(max(1, compilers))
        ]
        self._free: queue.Queue[RayActor] = queue.Queue()
        for actor in self._compiling:
            self._free.put(actor)
        actors = [RayActor(lambda: measuring.remote(target, options)) for _ in range(max(1, measurers))]
        names = sorted({actor.call("device") for actor in actors})
        if len(names) > 1 and not options.device:
            for actor in (*actors, *self._compiling):
                actor.kill()
            self._leave()
            raise TilewrightError(
                f"one device is machines that are alike, found {' and '.join(names)}; make a device of each kind, "
                "with a resource that only they have"
            )
        super().__init__(
            target,
            replace(options, device=options.device or names[0]),
            records,
            self._compile_there,
            len(self._compiling),
            [RayBench(actor) for actor in actors],
        )

    def _compile_there(self, facts: DispatchFacts, schedules: Sequence[Schedule]) -> list[Any]:
        """The kernels of schedules from the first actor that is free."""
        actor = self._free.get()
        try:
            return actor.call("compile", facts, schedules)
        except MachineLost as lost:
            return [lost] * len(schedules)
        finally:
            self._free.put(actor)

    def close(self) -> None:
        """Ends the actors, and the cluster where it was made for them; what was measured is kept."""
        super().close()
        for actor in self._compiling:
            actor.kill()
        self._leave()

    def _leave(self) -> None:
        if self._is_ours:
            _ray().shutdown()
            self._is_ours = False


def _lost(lost: MachineLost) -> Tried:
    return Tried(error=str(lost), is_own=False, is_final=False)


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise TilewrightError("measuring on other machines needs Ray; install tilewright[remote]") from None
    return ray
