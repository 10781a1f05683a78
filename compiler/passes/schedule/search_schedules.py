"""Replaces the schedules of dispatches by what a search finds, on a device that runs nothing: simulated or replayed.

    func private @matmul_128x768x3072(...) {tilewright.schedule = {..., tile = [64, 192]}}
      =>
    func private @matmul_128x768x3072(...) {
      tilewright.proposer = "random", tilewright.schedule = {..., tile = [32, 128]}}

The same options give the same schedules: what a device measures is said by the micro-performance model and a
noise that the seed draws, or by the records of a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import RecordError, TilewrightError
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask, dispatch_tasks
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.record import key_of, target_text
from tilewright.compiler.nouns.schedule import PREDICTED, PROPOSER
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.feature_set import Table
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search.replay import RecordedTask, ReplayDevice, recorded_outcomes
from tilewright.compiler.tuning.search.search_task import Device, SearchTask
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice
from tilewright.compiler.tuning.search.strategies import strategy_named
from tilewright.compiler.tuning.search.tuner import tune

_READS = frozenset({"micro-performance"})


@dataclass(frozen=True)
class SearchSchedules(Pass):
    """`strategy` searches the schedules of the dispatches that @main calls, `trials` in all, and asks the cost
    model `model`, its own where that is empty. `device=simulated` takes what the micro-performance model
    says, and a `noise` of that share; `device=replay` what is on record in the store `records` of the `target`, and
    searches nothing else. A dispatch ends early where `patience` trials in a row brought nothing faster, if that is
    not 0. The dispatches have schedules: the pass runs behind `construct-schedules`.
    """

    target: str = "cpu"
    strategy: str = "random"
    model: str = ""
    trials: int = 64
    patience: int = 0
    seed: int = 0
    device: Literal["simulated", "replay"] = "simulated"
    noise: float = 0.02
    records: str = ""

    def run(self, op: ir.Operation) -> None:
        target = self.target_named(op, self.target)
        for function in functions(op.opview):
            if "tilewright.operator" in function.attributes and schedule_attribute.read(function) is None:
                raise self.refusal(
                    function, "expected a schedule, found none; run `construct-schedules` before"
                )
        with op.context, op.location:
            module = ir.Module.parse(str(op))
        try:
            tasks = dispatch_tasks(module, target)
            searched, device = self._searched(tasks, target)
            strategy = strategy_named(self.strategy).with_model(self.model)
            result = tune(
                searched, device, strategy, trials=self.trials, patience=self.patience or None, seed=self.seed
            )
        except TilewrightError as error:
            raise self.refusal(op, str(error)) from None
        here = {function.attributes["sym_name"].value: function for function in functions(op.opview)}
        for task, found in zip(tasks, result.tasks):
            if found.chosen is None:
                continue
            task.apply(found.task.space.schedule(np.asarray(found.chosen.point)))
            for function in task.functions:
                self._put(function, here[function.attributes["sym_name"].value])

    def _searched(self, tasks: Sequence[DispatchTask], target: Target) -> tuple[Sequence[SearchTask], Device]:
        if self.device == "simulated":
            return tasks, SimulatedDevice(_modelled_us, noise=self.noise, seed=self.seed)
        if not self.records or not Path(self.records).exists():
            raise RecordError(
                f"expected a store of records to replay, found `{self.records}`; write records=FILE"
            )
        searched = []
        with RecordStore(Path(self.records)) as store:
            for task in tasks:
                records = store.find(task.key, key_of(target_text(target)))
                devices = sorted({f"{record.device}, {record.threads} threads" for record in records})
                if len(devices) > 1:
                    raise RecordError(
                        f"`{task.name}` was measured by {'; '.join(devices)}: export the records of one of them "
                        "to a store"
                    )
                searched.append(RecordedTask(task, recorded_outcomes(task, records)))
        return searched, ReplayDevice()

    def _put(self, searched: ir.Operation, function: ir.Operation) -> None:
        """What was found, where it differs: a prediction of another schedule says nothing of this one."""
        schedule = schedule_attribute.read(searched)
        if schedule is None or schedule == schedule_attribute.read(function):
            return
        schedule_attribute.write(function, schedule)
        function.attributes[PROPOSER] = ir.StringAttr.get(self.strategy, function.context)
        if PREDICTED in function.attributes:
            del function.attributes[PREDICTED]


def _modelled_us(task: SearchTask, points: np.ndarray) -> np.ndarray:
    """Microseconds of candidates by the micro-performance model: [n]."""
    table = task.features(points, _READS)["micro-performance"]
    assert isinstance(table, Table)
    return table.matrix[:, table.names.index("us")]
