"""Choices of real graphs, searched on a simulated device: what is given stays, and what is found compiles, locks and computes the same."""

from __future__ import annotations

import json
import math

import choice_models
import numpy as np
import pytest
import torch

import tilewright
from tilewright.compiler import driver, searched_choices
from tilewright.compiler.choice_space import choice_space
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.importers import Imported
from tilewright.compiler.nouns.choices import Choices
from tilewright.compiler.profiler.program_bench import ProgramBench
from tilewright.compiler.profiler.schedule_search import SearchOptions
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.lockfile import Lock
from tilewright.compiler.tuning.search.choice_search import ChoiceResult
from tilewright.compiler.tuning.search.program_race import Raced, Sitting
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice

ODDS = SearchOptions(seconds=None, trials=3000)


def imported(model: str) -> Imported:
    module, inputs = choice_models.models()[model]
    return driver.import_model(module, inputs)


def fewest_calls(task, points: np.ndarray) -> np.ndarray:
    """A machine that spends the same on every dispatch: what joins is faster."""
    return np.full(len(points), 10.0)


def blocks_of_16(task, points: np.ndarray) -> np.ndarray:
    """One that likes operands in blocks of 16."""
    likes = any(shape[-1] == 16 for shape in (o.shape for o in task.workload.operands) if len(shape) > 2)
    return np.full(len(points), 5.0 if likes else 10.0)


def searched(model: str, target: str, us, **given) -> ChoiceResult:
    return searched_choices.searched_choices(
        imported(model).module, resolve(target), ODDS, make_device=lambda *_: SimulatedDevice(us), **given
    )


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("residual", "x86-64-v4"),
        ("normalized", "x86-64-v3"),
        ("scores", "x86-64-v4"),
        ("normalized", "cuda:sm_80"),
    ],
)
def test_every_move_is_measured_or_says_why_not(model: str, target: str) -> None:
    module = imported(model).module
    before = str(module)
    result = searched(model, target, fewest_calls)
    assert str(module) == before
    space = choice_space(module, resolve(target))
    assert len(result.moves) == len(space.neighbours(space.point(space.default())))
    for move in result.moves:
        assert (move.us is None) == bool(move.why), move
        assert move.us is None or all(map(math.isfinite, move.us))
    assert any(move.us is not None for move in result.moves)
    assert Choices({**space.default().values, **result.values}) in space


def test_the_machine_decides() -> None:
    """Whether the tail joins its product is the same question on two machines, with two answers."""

    def dear_products(task, points: np.ndarray) -> np.ndarray:
        return np.full(len(points), 100.0 if len(task.workload.inputs) > 2 else 1.0)

    assert not any(move.is_taken for move in searched("perceptron", "x86-64-v4", fewest_calls).moves)
    values = searched("perceptron", "x86-64-v4", dear_products).values
    assert any(name.endswith(".joins") and value == 0 for name, value in values.items())


def test_blocks_are_chosen_by_what_was_measured() -> None:
    result = searched("perceptron", "x86-64-v4", blocks_of_16)
    blocks = {name: value for name, value in result.values.items() if name.endswith(".block")}
    assert blocks and set(blocks.values()) == {16}


def test_what_is_given_stays() -> None:
    free = searched("perceptron", "x86-64-v4", blocks_of_16).values
    name = next(name for name in free if name.endswith(".block"))
    given = {name: 0}
    result = searched("perceptron", "x86-64-v4", blocks_of_16, given=given)
    assert name not in result.values and not any(name in move.after for move in result.moves)


def test_fields_may_be_held() -> None:
    result = searched("residual", "x86-64-v4", fewest_calls, held=("algorithm",))
    assert not any(name.endswith(".algorithm") for move in result.moves for name in move.after)
    assert any(
        name.endswith(".algorithm")
        for move in searched("residual", "x86-64-v4", fewest_calls).moves
        for name in move.after
    )


def test_choices_that_no_graph_has_are_refused() -> None:
    with pytest.raises(TilewrightError, match="there is no operation `matmul_99`"):
        searched("perceptron", "x86-64-v4", fewest_calls, given={"matmul_99.block": 16})


class TestTuned:
    """The whole way: found, compiled, locked, compiled from the lock."""

    @pytest.fixture
    def tuned(self, monkeypatch: pytest.MonkeyPatch, tmp_path) -> driver.Tuned:
        search = searched_choices.searched_choices

        def on_simulated(module, target, options, given, held, on_move):
            device = SimulatedDevice(blocks_of_16)
            return search(module, target, ODDS, given, held, on_move, lambda *_: device)

        monkeypatch.setattr(searched_choices, "searched_choices", on_simulated)
        monkeypatch.setattr(ProgramBench, "race", lambda *_: Raced((Sitting((3.0,), (2.0,)),) * 8))
        return driver.tune_imported(
            imported("perceptron"), "cpu", {"trials": 4, "strategy": "random", "seed": 1}
        )

    def test_the_lock_has_the_choices_and_compiles_to_the_same_bytes(
        self, tuned: driver.Tuned, tmp_path
    ) -> None:
        assert tuned.choices.values and dict(tuned.lock.choices) == dict(tuned.choices.values)
        module, inputs = choice_models.models()["perceptron"]
        lock = tmp_path / "perceptron.lock"
        tuned.lock.write(lock)
        assert json.loads(lock.read_text())["choices"] == dict(tuned.choices.values)
        again = tilewright.compile(module, inputs, lock=str(lock))
        tuned.model.save(str(tmp_path / "tuned.twm"))
        again.save(str(tmp_path / "again.twm"))
        assert (tmp_path / "tuned.twm").read_bytes() == (tmp_path / "again.twm").read_bytes()
        with torch.no_grad():
            torch.testing.assert_close(again(*inputs), module(*inputs))

    def test_a_lock_and_choices_contradict(self, tuned: driver.Tuned) -> None:
        module, inputs = choice_models.models()["perceptron"]
        with pytest.raises(TilewrightError, match="choices: the lock says what is chosen"):
            tilewright.compile(module, inputs, lock=tuned.lock, choices={"matmul_0.block": 0})

    def test_a_lock_whose_choices_the_model_lacks_is_refused(self, tuned: driver.Tuned) -> None:
        module, inputs = choice_models.models()["perceptron"]
        other = Lock(
            tuned.lock.target, tuned.lock.compiler, tuned.lock.dispatches, {"conv2d_7.algorithm": "direct"}
        )
        with pytest.raises(TilewrightError, match="there is no operation `conv2d_7`"):
            tilewright.compile(module, inputs, lock=other)


def test_bitwise_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        searched_choices, "searched_choices", lambda *_, **__: pytest.fail("choices were searched")
    )
    found = driver.tune_imported(
        imported("perceptron"), "cpu", {"trials": 2, "strategy": "random", "bitwise": True}
    )
    assert not found.choices.moves and not found.lock.choices
