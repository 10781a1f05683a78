"""The parent's side of racing whole programs: packages with a model's weights, each in a process of its own, in turns.

    with ProgramBench(constructed, weights, threads=2) as bench:
        raced = bench.race(before, after)        // Raced: microseconds of both, round by round, or why there are none

Both load and bind as any process does that runs the model. Where memory comes to lie differs from process to process, and is
worth something (`bench/race_programs.py`): there are several sittings, each with processes of its own. Results are compared with the constructed program's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.compiler import debug
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.profiler.processes import Child, ChildLost, Message
from tilewright.compiler.profiler.turns import turn
from tilewright.compiler.targets.host import processor
from tilewright.compiler.tuning.search.program_race import Raced, Sitting, verdict
from tilewright.runtime import arrays, container
from tilewright.runtime.artifact import save_package
from tilewright.runtime.errors import PackageError
from tilewright.runtime.program import Package

MEASURING = "tilewright.compiler.profiler.measure_program"
ROUNDS, LEAST, SITTING_S = 7, 3, 1.5
"""Rounds of a sitting, and how many of them at least where they take longer than so many seconds."""
_LOADING_S = 120.0
"""To start a process, bind weights and, for the constructed program, which nothing is known of yet, to run once."""
_HANG_S, _HANG = 10.0, 20.0
"""A program hangs that runs for so many seconds and for so many times as long as the constructed one."""
_TRIES = 2
"""A sitting that loses a process through no fault of the program is tried so often."""
_INTEGERS = ((1, 4), (1, 2), (0, 1))
"""Arguments that are integers are drawn from the first of these ranges that the constructed program takes: where they are
places in a tensor, they have to lie in it, and where something is divided by them, none is 0."""


class NoReference(TilewrightError):
    """The constructed program does not run on arguments that are drawn, so that there is nothing to compare with."""


class _Failed(Exception):
    """A program crashed, hung, refused to run or was wrong; the message says how."""


class _Refused(_Failed):
    """A program says itself why it does not run."""


class ProgramBench:
    """A model's programs on this machine's processor; `exact` ones have to compute the constructed program's bits.

    Raises NoReference where the constructed program does not run, PackageError where weights are others than its, and OSError where there is no room for them on the disk.
    """

    def __init__(
        self,
        constructed: Package,
        weights: Sequence[Any],
        threads: int,
        exact: bool = False,
        measuring: str = MEASURING,
    ):
        self._threads, self._exact, self._measuring = threads, exact, measuring
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-race-")
        self._files: list[tuple[Package, Path]] = []
        self._drawn: Message = {}
        self._run_s = _LOADING_S
        try:
            self._write_weights(constructed, weights)
            self._draw(self._file(constructed))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ProgramBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes what was written for the programs."""
        self._folder.cleanup()

    def race(self, before: Package, after: Package) -> Raced:
        """Times two programs in turns, every other round backwards; raises OSError where there is no room on the disk."""
        files, sittings = [self._file(before), self._file(after)], list[Sitting]()
        try:
            while verdict([sitting.gain for sitting in sittings]) is None:
                first, second = self._sitting(files)
                sittings.append(Sitting(tuple(first), tuple(second)))
        except _Failed as failed:
            return Raced(tuple(sittings), str(failed))
        return Raced(tuple(sittings))

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / f"{name}.safetensors"

    def _file(self, package: Package) -> Path:
        """Where a package lies; it is written once, without what it says for people."""
        for known, path in self._files:
            if known is package:
                return path
        path = self._path(f"program{len(self._files)}")
        save_package(replace(package, notes={}), path)
        self._files.append((package, path))
        return path

    def _write_weights(self, package: Package, weights: Sequence[Any]) -> None:
        if len(weights) != len(package.weights):
            raise PackageError(f"expected {len(package.weights)} weights, found {len(weights)}")
        storages = [arrays.weight_storage(weight, spec) for weight, spec in zip(weights, package.weights)]
        entries = {
            str(number): container.Entry("u8", (storage.nbytes,), storage.view() if storage.nbytes else b"")
            for number, storage in enumerate(storages)
        }
        container.write(self._path("weights"), entries, {})

    def _draw(self, constructed: Path) -> None:
        """Finds arguments that the constructed program takes, and keeps its results of them."""
        reasons = []
        for integers in _INTEGERS:
            for positive in (False, True):
                drawn = {"compute": {"integers": list(integers), "positive": positive}}
                try:
                    finite = self._computed(constructed, drawn)
                except _Refused as refused:
                    reasons.append(str(refused))
                    break
                except (_Failed, ChildLost) as failed:
                    raise NoReference(f"the constructed program failed: {failed}") from None
                self._drawn = drawn
                if finite >= 0.5:
                    return
            if self._drawn:  # mostly no numbers, whatever the signs
                return
        raise NoReference(f"the constructed program does not run on random arguments: {reasons[0]}")

    def _computed(self, path: Path, drawn: Message) -> float:
        """Runs the constructed program, and sees how long it takes; returns the share of its results that is finite."""
        with ExitStack() as held:
            child = self._started(held)
            self._load(child, path)
            finite = self._ask(child, {**drawn, "save": str(self._path("results"))})["finite"]
            begun = time.monotonic()
            self._ask(child, {"visit": True})
            self._run_s = max(_HANG_S, _HANG * (time.monotonic() - begun))
            return finite

    def _sitting(self, files: Sequence[Path]) -> list[list[float]]:
        for tries in range(1, _TRIES + 1):
            try:
                with turn(f"{processor()} 0"):
                    return self._sat(files)
            except ChildLost as lost:
                if tries == _TRIES:
                    raise _Failed(f"its process {lost}") from None
                debug.log(1, f"racing programs: a process {lost}; the sitting begins anew")
        raise AssertionError("unreachable")

    def _sat(self, files: Sequence[Path]) -> list[list[float]]:
        """The rounds of programs, each in a process of its own: [len(files)][rounds]."""
        with ExitStack() as held:
            children = [self._started(held) for _ in files]
            for child, path in zip(children, files):
                self._load(child, path)
                request = {**self._drawn, "compare": str(self._path("results")), "exact": self._exact}
                if wrong := self._ask(child, request)["wrong"]:
                    raise _Failed(wrong)
            rounds: list[list[float]] = [[] for _ in files]
            places, begun = list(range(len(files))), time.monotonic()
            for number in range(ROUNDS):
                if number >= LEAST and time.monotonic() - begun > SITTING_S:
                    break
                for place in reversed(places) if number % 2 else places:
                    rounds[place].append(float(self._ask(children[place], {"visit": True})["us"]))
            return rounds

    def _started(self, held: ExitStack) -> Child:
        child = Child(self._measuring)
        held.callback(child.stop)
        return child

    def _load(self, child: Child, path: Path) -> None:
        weights = str(self._path("weights"))
        self._ask(
            child,
            {"load": str(path), "weights": weights, "threads": self._threads},
            max(_LOADING_S, self._run_s),
        )

    def _ask(self, child: Child, request: Message, limit_s: float | None = None) -> Message:
        """A process's answer; raises _Failed where the program is to blame, ChildLost where somebody ended its process."""
        try:
            child.send(request)
            message = child.receive(limit_s or self._run_s)
        except ChildLost as lost:
            if lost.is_killed:
                raise
            raise _Failed(str(lost)) from None
        if "error" in message:
            raise _Refused(str(message["error"]))
        return message
