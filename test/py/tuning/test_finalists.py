"""Which candidate is used: the fastest by more than noise, else one by a fixed order, however often and whenever it is asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from bowl_task import BowlTask, bowl_us
from recording_tuner import COMPILER, TARGET, TilesTask, record_of

from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search import finalists
from tilewright.compiler.tuning.search.replay import outcomes_on_record
from tilewright.compiler.tuning.search.search_task import Outcome
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice
from tilewright.compiler.tuning.search.tuner import tune


class TestFinalists:
    def test_level_candidates_are_chosen_by_the_fixed_order(self) -> None:
        """Twenty searches, each with noise of its own, of a task whose five best candidates are level."""

        def us(task, points):
            return np.where(task.us(points) < 1.6 * task.fastest_us, task.fastest_us, task.us(points))

        task = BowlTask()
        level = sorted(tuple(p) for p in task.legal[us(task, task.legal) == task.fastest_us].tolist())
        assert len(level) > 2
        records = {
            task.key: [
                Outcome(task.key, p, (task.fastest_us * (1 + 0.001 * n),)) for n, p in enumerate(level[:5])
            ]
        }
        chosen = set()
        for seed in range(20):
            device = SimulatedDevice(us, noise=0.004, seed=seed)
            (found,) = tune([task], device, "random", trials=len(records[task.key]), records=records).tasks
            assert found.chosen is not None
            chosen.add(found.chosen.point)
        assert chosen == {level[0]}

    def test_one_that_is_faster_wins_against_the_order(self) -> None:
        rounds = np.asarray([[10.0, 10.2, 10.1], [9.7, 9.8, 9.75], [9.0, 9.1, 30.0]])
        assert finalists.winner(rounds) == 2
        assert finalists.winner(rounds[:2]) == 1
        assert finalists.winner(rounds[:2], tie=1.1) == 0

    def test_what_slows_all_of_a_round_decides_nothing(self) -> None:
        drift = np.linspace(1.0, 3.0, 9)
        rounds = np.stack([10.0 * drift, 10.3 * drift])
        assert finalists.winner(rounds) == 0 and finalists.winner(rounds[::-1]) == 1

    def test_the_constructed_schedule_wins_a_tie(self) -> None:
        task = BowlTask()
        constructed = tuple(map(int, task.space.point(task.space.default())))
        outcomes = [
            Outcome("bowl", (0, 0, 0, -1), (10.0,), object="a"),
            Outcome("bowl", constructed, (10.05,)),
        ]
        found = finalists.decide(task, outcomes, None).chosen
        assert found is not None and found.point == constructed

    def test_equal_objects_are_one_finalist(self) -> None:
        outcomes = [Outcome("bowl", (n, 0, 0, -1), (10.0,), object="same") for n in range(4)]
        assert [o.point for o in finalists.finalists(BowlTask(), outcomes)] == [(0, 0, 0, -1)]

    def test_a_finalist_that_fails_in_the_race_is_out(self) -> None:
        class Failing(SimulatedDevice):
            def race(self, task, points, rounds=9):
                return [Outcome(task.key, tuple(p), error="hung") for p in points[:1]] + super().race(
                    task, points[1:], rounds
                )

        outcomes = [Outcome("bowl", (n, 0, 0, -1), (10.0 + n / 10,)) for n in range(2)]
        found = finalists.decide(BowlTask(), outcomes, Failing(bowl_us))
        assert found.chosen is not None and found.chosen.point != found.raced[0].point
        assert found.raced[0].error == "hung"
        assert finalists.decide(BowlTask(), outcomes[:0], None).chosen is None

    def test_the_constructed_schedule_stands_for_its_object(self) -> None:
        task = BowlTask()
        constructed = tuple(map(int, task.space.point(task.space.default())))
        outcomes = [
            Outcome("bowl", (0, 0, 0, -1), (10.0,), object="same"),
            Outcome("bowl", constructed, (10.9,), object="same"),
            Outcome("bowl", (1, 0, 0, -1), (10.05,), object="other"),
        ]
        first, second = finalists.finalists(task, outcomes)
        assert (first.point, first.us, second.point) == (constructed, 10.0, (1, 0, 0, -1))


TASK = TilesTask("level")
LEVEL = [(30, 21), (12, 40), (12, 5), (45, 2), (61, 9)]
"""Points that take the same time but for noise."""
OBJECTS = (0, 1, 2, 3, 2)


def measured() -> list[Outcome]:
    """What is on record of a task: sittings of level candidates, slower ones, failures, some of both."""
    rng = np.random.default_rng(5)
    found = []
    for number, point in zip(OBJECTS, LEVEL):
        sittings = (100.0 + rng.uniform(0, 0.4, (3, 3))).tolist()
        found += [Outcome(TASK.key, point, tuple(r), object=f"{number:064x}") for r in sittings]
    for number in range(12):
        found.append(Outcome(TASK.key, (number, 60), (150.0 + number,), object=f"{100 + number:064x}"))
        found.append(Outcome(TASK.key, (number, 61), error="crashed"))
    found.append(Outcome(TASK.key, (2, 2), (1.0,), object="f" * 64))
    found.append(Outcome(TASK.key, (2, 2), error="its results differ"))
    return found


def level_us(task, points: np.ndarray) -> np.ndarray:
    return np.full(len(points), 100.0)


class TestOneDatabase:
    """Whatever the order in which outcomes arrived in a store, the same candidate is chosen."""

    def filled(self, path: Path, order: np.ndarray) -> Path:
        """A store that outcomes came to one after another."""
        outcomes, began = measured(), datetime(2026, 1, 1, tzinfo=UTC)
        with RecordStore(path) as store:
            for number, place in enumerate(order):
                at = (began + timedelta(seconds=number)).isoformat(timespec="microseconds")
                store.append([replace(record_of(TASK, outcomes[place]), at=at)])
        return path

    def chosen(self, path: Path, device: SimulatedDevice) -> tuple[int, ...]:
        with RecordStore(path) as store:
            known = outcomes_on_record([TASK], store, TARGET, "simulated", 1, COMPILER)
        points = {outcome.point for outcome in known[TASK.key]}
        (found,) = tune([TASK], device, "random", trials=len(points), records=known).tasks
        assert device.measured == 0 and found.chosen is not None
        return found.chosen.point

    @pytest.mark.parametrize("races", [True, False])
    def test_the_order_of_arrival_decides_nothing(self, tmp_path, races) -> None:
        class Plain(SimulatedDevice):
            race = None

        rng = np.random.default_rng(0)
        made = SimulatedDevice if races else Plain
        chosen = [
            self.chosen(
                self.filled(tmp_path / f"{number}.sqlite", rng.permutation(len(measured()))), made(level_us)
            )
            for number in range(24)
        ]
        # Without the constructed schedule, which races always, the first of those that are level.
        constructed = tuple(map(int, TASK.space.point(TASK.space.default())))
        assert set(chosen) == {constructed if races else min(LEVEL)}

    def test_twenty_processes_with_noise_of_their_own_choose_the_same(self, tmp_path) -> None:
        path = self.filled(tmp_path / "records.sqlite", np.arange(len(measured())))

        def us(task, points):
            return np.where((points == [7, 7]).all(axis=1), 130.0, 100.0)

        chosen = {self.chosen(path, SimulatedDevice(us, noise=0.004, seed=seed)) for seed in range(20)}
        assert chosen == {min(LEVEL)}
