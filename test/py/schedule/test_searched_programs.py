"""`O2` whole: what a race of programs leaves is what is compiled and locked, and a program that does not race is used as it was found."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import choice_models
import numpy as np
import pytest
import torch

import tilewright
from tilewright.compiler import driver, searched_choices, searched_programs
from tilewright.compiler.importers import Imported
from tilewright.compiler.options import check_options
from tilewright.compiler.profiler import program_bench, schedule_search
from tilewright.compiler.profiler.program_bench import NoReference
from tilewright.compiler.profiler.schedule_search import SearchOptions
from tilewright.compiler.searched_programs import FoundProgram, Reports, search_program
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.lockfile import Lock
from tilewright.compiler.tuning.search.interruptible import holding_interrupts
from tilewright.compiler.tuning.search.program_race import GroupTest, Raced, Sitting
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice
from tilewright.runtime.program import Package

FIND = searched_choices.searched_choices
Faster = Callable[[Package, Package], float]
"""How many times as fast the second of two packages is."""


def imported(model: str = "perceptron") -> Imported:
    module, inputs = choice_models.models()[model]
    return driver.import_model(module, inputs)


def us(task, points: np.ndarray) -> np.ndarray:
    """A machine that likes operands in blocks of 16, and of the schedules any better than the constructed one."""
    likes = any(shape[-1] == 16 for shape in (o.shape for o in task.workload.operands) if len(shape) > 2)
    constructed = task.space.point(task.space.default())
    found = (5.0 if likes else 10.0) + (points @ np.arange(1, 1 + points.shape[1])) % 7 / 10
    return np.where((points == constructed).all(axis=1), found + 5.0, found)


class Bench:
    """Programs that race in no time; `made` are all that were made."""

    made: list[Any]

    def __init__(self, gain: Faster, raises: BaseException | None = None):
        self._gain, self._raises = gain, raises
        self.made, self.raced = [], 0

    def __call__(self, constructed: Package, weights, threads: int, exact: bool = False) -> Bench:
        self.made.append((constructed, list(weights), threads, exact))
        return self

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def race(self, before: Package, after: Package) -> Raced:
        self.raced += 1
        if self._raises is not None:
            raise self._raises
        gain = self._gain(before, after)
        return Raced((Sitting((10.0 * gain,), (10.0,)),) * 8)


def search(
    model: Imported, bench: Bench, monkeypatch: pytest.MonkeyPatch, target: str = "cpu", **options: Any
) -> FoundProgram:
    """A search on a machine that is simulated, with enough trials for all choices."""

    def simulated(module, target, options, given, held, on_move):
        odds = SearchOptions(seconds=None, trials=3000)
        return FIND(module, target, odds, given, held, on_move, lambda *_: SimulatedDevice(us))

    monkeypatch.setattr(searched_choices, "searched_choices", simulated)
    keeps, reports = options.pop("keeps", True), options.pop("reports", None)
    return search_program(
        model.module,
        resolve(target),
        check_options({"opt": "O2", "trials": 64, "strategy": "random", **options}),
        model.weights,
        reports,
        make_device=lambda *_: SimulatedDevice(us),
        make_bench=bench,  # type: ignore[arg-type]
        keeps=keeps,
    )


def code(package: Package) -> tuple:
    return (
        tuple(kernel.object for kernel in package.kernels),
        package.main,
        package.prepack,
        package.constants,
    )


def packaged(found: FoundProgram) -> Package:
    return driver._packaged(found, resolve("cpu"), {})


def from_lock(model: str, lock: Lock) -> Package:
    module, inputs = choice_models.models()[model]
    read = Lock.from_text(lock.to_text())
    return tilewright.compile(module, inputs, lock=read).executable.package


def plain(model: str) -> Package:
    module, inputs = choice_models.models()[model]
    return tilewright.compile(module, inputs).executable.package


@pytest.mark.parametrize("model", ["perceptron", "residual"])
def test_a_program_that_is_faster_as_a_whole_is_used_and_locked(model: str, monkeypatch) -> None:
    told = list[GroupTest]()
    bench = Bench(lambda before, after: 1.2)
    found = search(imported(model), bench, monkeypatch, reports=Reports(on_test=told.append))
    assert bench.raced == 1 == len(told) and found.raced.used == "searched"
    assert found.choices.values and dict(found.lock.choices) == dict(found.choices.values)
    assert (found.lock.program.used, found.lock.program.gain) == ("searched", 1.2)
    assert code(packaged(found)) == code(from_lock(model, found.lock)) != code(plain(model))
    ((constructed, weights, threads, exact),) = bench.made
    assert code(constructed) == code(plain(model)) and len(weights) == len(constructed.weights)
    assert threads >= 1 and exact is False


@pytest.mark.parametrize("model", ["perceptron", "residual"])
def test_one_that_is_slower_leaves_the_constructed_program(model: str, monkeypatch) -> None:
    bench = Bench(lambda before, after: 0.97)
    found = search(imported(model), bench, monkeypatch)
    assert not found.raced.kept and bench.raced > 1
    assert found.choices.values and not found.lock.choices
    assert (found.lock.program.used, found.lock.program.gain) == ("constructed", 1.0)
    assert code(packaged(found)) == code(from_lock(model, found.lock)) == code(plain(model))
    assert {decision.chosen for decision in found.decisions.values()} == {0}
    assert {task.gain for task in found.result.tasks} <= {1.0, None}


def test_choices_may_be_left_and_schedules_taken(monkeypatch) -> None:
    """The packed block tells programs with other choices apart: a machine on which they are slow."""
    blocks = plain("perceptron").packed_bytes, plain("perceptron").prepack
    bench = Bench(lambda before, after: 1.1 if (after.packed_bytes, after.prepack) == blocks else 0.9)
    found = search(imported(), bench, monkeypatch)
    assert found.raced.kept and all(change.key for change in found.raced.kept)
    assert found.choices.values and not found.lock.choices
    built = packaged(found)
    assert code(built) == code(from_lock("perceptron", found.lock))
    assert code(built) != code(plain("perceptron")) and built.prepack == plain("perceptron").prepack


def test_schedules_may_be_left_and_choices_taken(monkeypatch) -> None:
    raced = list[Package]()

    def gain(before: Package, after: Package) -> float:
        raced.append(after)
        return 1.1 if len(raced) == 2 else 0.9

    found = search(imported(), Bench(gain), monkeypatch)
    assert found.raced.kept and not any(change.key for change in found.raced.kept)
    assert dict(found.lock.choices) == dict(found.choices.values)
    module, inputs = choice_models.models()["perceptron"]
    chosen = tilewright.compile(module, inputs, choices=dict(found.lock.choices)).executable.package
    assert code(packaged(found)) == code(from_lock("perceptron", found.lock)) == code(chosen)


def test_what_is_given_is_in_both_programs(monkeypatch) -> None:
    given = {"matmul_0.block": 48}
    bench = Bench(lambda before, after: 0.9)
    found = search(imported(), bench, monkeypatch, choices=given)
    assert dict(found.lock.choices) == given
    module, inputs = choice_models.models()["perceptron"]
    asked = tilewright.compile(module, inputs, choices=given).executable.package
    assert code(bench.made[0][0]) == code(asked) == code(packaged(found))


@pytest.mark.parametrize(
    "reason",
    [NoReference("it takes no arguments"), OSError(28, "No space left on device")],
    ids=["no", "full"],
)
def test_where_nothing_races_the_program_is_as_it_was_searched(reason: Exception, monkeypatch) -> None:
    found = search(imported(), Bench(lambda *_: 1.0, reason), monkeypatch)
    assert found.raced.why and found.lock.program.why == found.raced.why and found.raced.gain is None
    assert dict(found.lock.choices) == dict(found.choices.values)
    assert code(packaged(found)) == code(from_lock("perceptron", found.lock))


def test_programs_of_gpus_do_not_race_and_the_lock_says_so(monkeypatch) -> None:
    bench = Bench(lambda *_: 1.0)
    found = search(imported(), bench, monkeypatch, target="cuda:sm_80")
    assert not bench.made and found.raced.why == "`cuda:sm_80` is no CPU" == found.lock.program.why
    assert found.raced.kept and found.lock.program.used == "searched"


def test_ctrl_c_in_a_race_keeps_what_there_is_or_ends_the_compilation(monkeypatch) -> None:
    found = search(imported(), Bench(lambda *_: 1.0, KeyboardInterrupt()), monkeypatch)
    assert found.raced.is_interrupted and found.raced.why and found.lock.choices
    with pytest.raises(KeyboardInterrupt):
        search(imported(), Bench(lambda *_: 1.0, KeyboardInterrupt()), monkeypatch, keeps=False)


PLACES = {
    "when choices are searched, before there is a graph": (searched_choices, "dispatch_tasks", 1),
    "when the device of the choices is given back": (SimulatedDevice, "close", 1),
    "between choices and schedules": (searched_programs._Programs, "scheduled", 1),
    "before the search of the schedules begins": (schedule_search, "dispatch_tasks", 1),
    "when the device of the schedules is given back": (SimulatedDevice, "close", 2),
    "when the race is prepared": (searched_programs._Programs, "package", 1),
    "when the program is made": (searched_programs, "used_of", 1),
}


@pytest.mark.parametrize(("owner", "name", "number"), PLACES.values(), ids=PLACES)
def test_ctrl_c_between_the_parts_of_a_search_keeps_what_it_has(
    owner: Any, name: str, number: int, monkeypatch
) -> None:
    """The signal itself, at a call of something that no part of the search runs."""
    called, calls = getattr(owner, name), list[int]()

    def interrupted(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            signal.raise_signal(signal.SIGINT)
        return called(*given, **named)

    monkeypatch.setattr(owner, name, interrupted)
    bench = Bench(lambda *_: 1.0)
    with holding_interrupts() as interrupts:
        found = search(imported(), bench, monkeypatch)
    assert interrupts.is_interrupted and len(calls) >= number
    ended = list(PLACES.values()).index((owner, name, number))
    assert bool(found.choices.measured) == (ended > 0)
    assert bool(found.result.trials) == (ended > 3)
    assert bool(bench.raced) == (ended > 5)
    assert code(packaged(found)) == code(from_lock("perceptron", found.lock))


def test_a_second_ctrl_c_between_the_parts_of_a_search_ends_it(monkeypatch) -> None:
    def interrupted(*given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(searched_programs._Programs, "scheduled", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), holding_interrupts():
        search(imported(), Bench(lambda *_: 1.0), monkeypatch)
    assert signal.getsignal(signal.SIGINT) is before


def test_bits_are_compared_where_they_are_to_stay(monkeypatch) -> None:
    bench = Bench(lambda before, after: 1.1)
    found = search(imported(), bench, monkeypatch, bitwise=True)
    assert bench.made[0][3] is True and not found.choices.moves


class TestHere:
    """On this machine, nothing simulated but what a kernel is said to take."""

    @pytest.fixture(autouse=True)
    def own_cache(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setattr(searched_programs, "found_changes", self.all_changes)

    @staticmethod
    def all_changes(choices, searched):
        """Each task's slowest candidate in place of the one that is used: a search that went wrong."""
        made = []
        for number, found in enumerate(searched.result.tasks):
            ran = [outcome for outcome in found.outcomes if outcome.rounds_us]
            slowest = max(ran, key=lambda outcome: outcome.us, default=found.constructed)
            if slowest.point != found.constructed.point:
                object.__setattr__(found, "chosen", slowest)
                made.append(searched_programs.Change(f"{number}", 1e6, key=found.task.key))
        return tuple(made)

    def test_a_search_that_went_wrong_costs_nothing(self) -> None:
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
        ).eval()
        x = torch.randn(200, 256)
        tuned = driver.tune_imported(
            driver.import_model(module, (x,)), options={"trials": 24, "strategy": "random"}
        )
        assert tuned.raced.tests and not tuned.raced.tests[0].raced.is_faster
        assert tuned.raced.tests[0].raced.gain is not None and tuned.raced.tests[0].raced.gain < 1.0
        package = tilewright.compile(module, (x,)).executable.package
        assert code(tuned.model.executable.package) == code(package)
        torch.testing.assert_close(tuned.model(x), module(x))

    def test_training_graphs_race_and_train(self, monkeypatch) -> None:
        sittings = list[Raced]()
        race = program_bench.ProgramBench.race

        def told(self, before, after):
            sittings.append(race(self, before, after))
            return sittings[-1]

        monkeypatch.setattr(program_bench.ProgramBench, "race", told)
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Embedding(11, 32), torch.nn.Linear(32, 96), torch.nn.ReLU(), torch.nn.Linear(96, 7)
        )
        compiled = torch.compile(
            module,
            backend="tilewright",
            options={"opt": "O2", "trials": 24, "strategy": "random", "strict": True},
        )
        x = torch.randint(0, 11, (40,))
        found = torch.autograd.grad(compiled(x).square().sum(), list(module.parameters()))
        wanted = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        # The graph of the call and that of the gradients, each with programs of its own.
        assert len(sittings) >= 2 and not any(raced.error for raced in sittings)
