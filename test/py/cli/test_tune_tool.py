"""`tilewright tune`: a lock, an artifact that comes from the lock again to the last byte, a page, and what Ctrl-C keeps."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from rich.console import Console
from rich.table import Table

from tilewright.compiler.cli.tuning_display import choices_table, race_table
from tilewright.compiler.explain.tuning_page import curve, page, slowest_first, totals
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Knob, Space
from tilewright.compiler.profiler.recording import record_path
from tilewright.compiler.tuning.lockfile import Lock
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search.choice_search import ChoiceResult, Move
from tilewright.compiler.tuning.search.program_race import Change, GroupTest, Raced, RaceResult, Sitting
from tilewright.compiler.tuning.search.search_task import Outcome
from tilewright.compiler.tuning.search.tune_result import TaskResult, TuneResult

Tool = Callable[..., Result]
MODEL = "tiny_models:tiny"
SEARCH = ("tune", MODEL, "--strategy", "random")


def stored() -> int:
    with RecordStore(record_path()) as store:
        return len(store.find())


class TestTool:
    def test_what_was_tuned_comes_from_its_lock_again_to_the_last_byte(
        self, tool: Tool, folder: Path
    ) -> None:
        result = tool(*SEARCH, "--trials", "10", "-o", "tuned.twm", "--html", "tuned.html")
        assert result.exit_code == 0, result.output
        # Of ten, those that choices were measured with are not in the table of schedules.
        assert re.search(r"^([4-9]|10) trials in", result.output, re.M), result.output
        assert "tiny_models.tiny.tune.lock: the schedules of" in result.output
        assert re.search(r"^the .+ program .*is used: ", result.output, re.M), result.output
        assert (
            tool("compile", MODEL, "--lock", "tiny_models.tiny.tune.lock", "-o", "again.twm").exit_code == 0
        )
        assert (folder / "tuned.twm").read_bytes() == (folder / "again.twm").read_bytes()
        lock = Lock.read(folder / "tiny_models.tiny.tune.lock")
        assert any(entry.us for entry in lock.dispatches.values())
        text = (folder / "tuned.html").read_text()
        assert "tiny_models:tiny" in text and "<svg" in text and "http" not in text.replace("http-equiv", "")

    def test_one_that_resumes_begins_with_what_is_on_record(self, tool: Tool, folder: Path) -> None:
        assert tool(*SEARCH, "--trials", "10").exit_code == 0
        before, lock = stored(), (folder / "tiny_models.tiny.tune.lock").read_bytes()
        again = tool(*SEARCH, "--trials", "10", "--resume", "--lock", "again.lock")
        assert again.exit_code == 0, again.output
        names = [set(json.loads(text)["dispatches"]) for text in (lock, (folder / "again.lock").read_bytes())]
        assert names[0] == names[1]
        # Whoever knows ten candidates asks for no other; finalists that never took turns may do so now.
        with RecordStore(record_path()) as store:
            objects = {record.object for record in store.find()}
        assert tool(*SEARCH, "--trials", "10", "--resume").exit_code == 0
        with RecordStore(record_path()) as store:
            assert {record.object for record in store.find()} == objects
        assert stored() >= before

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (("--strategy", "best"), "no strategy is named `best`"),
            (("--budget", "ten"), "budget: expected seconds > 0, or a time like 90s, 10m or 1h"),
            (("--strategy", "random", "--cost-model", "trees"), "asks no cost model"),
            (("--target", "h100"), "the emulator's times are not a GPU's|no GPU here|driver"),
            (("--bitwise", "--target", "cuda:sm_90a"), "GPU|driver"),
        ],
    )
    def test_mistakes_are_told_before_anything_is_searched(
        self, tool: Tool, given: tuple[str, ...], said: str
    ) -> None:
        result = tool("tune", MODEL, *given)
        assert result.exit_code == 1 and re.search(said, result.output), result.output
        assert not list(Path().glob("*.lock"))

    def test_a_lock_is_of_a_whole_compilation(self, tool: Tool, folder: Path) -> None:
        result = tool("compile", MODEL, "--lock", "any.lock", "--to", "schedule")
        assert result.exit_code == 2 and "leave out --from and --to" in result.output

    def test_ctrl_c_keeps_what_there_is_and_says_so(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tilewright.compiler.cli.main", *SEARCH, "--budget", "5m"]
        process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            start_new_session=True,
            # Tests started in the background ignore it, and so would their children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            end = time.monotonic() + 120
            while time.monotonic() < end and not (record_path().exists() and stored() > 3):
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.1)
            # A terminal sends it to everybody: what compiles and what measures as well.
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 130, said
        assert "interrupted after" in said and "--resume" in said and "Traceback" not in said
        assert Lock.read(folder / "tiny_models.tiny.tune.lock").dispatches
        assert stored() > 3


class Task:
    """A task of ten candidates that nobody measures."""

    key, calls, limit_us = "k", 3, 2.0

    def __init__(self, name: str = "work"):
        self.name = name
        self.space = Space(
            (Knob("number", tuple(range(10))),),
            (),
            lambda values: Schedule((int(values["number"]),)),
            lambda schedule: {"number": schedule.tile[0]},
            Schedule((0,)),
        )

    def features(self, points, sets):
        raise NotImplementedError

    def seeds(self, count: int) -> np.ndarray:
        return np.zeros((0, 1), dtype=np.int64)


def found(*us: float, raced: tuple[Outcome, ...] = (), name: str = "work") -> TaskResult:
    """A search of candidates with these times, infinite for a failure; the first one is the constructed schedule."""
    outcomes = tuple(
        Outcome("k", (number,), () if math.isinf(t) else (t,), "it crashed" if math.isinf(t) else "")
        for number, t in enumerate(us)
    )
    ran = [outcome for outcome in outcomes if outcome.rounds_us]
    return TaskResult(Task(name), outcomes, min(ran, key=lambda o: o.us) if ran else None, "budget", raced)


def raced(*gains: float, error: str = "") -> RaceResult:
    """A race in which each group of one change made the program so many times as fast; the last one may fail."""
    changes = [Change(f"matmul_{number}", 5.0, key=str(number)) for number in range(len(gains))]
    tests = [
        GroupTest((change,), Raced((Sitting((10.0 * gain,), (10.0,)),) * 8))
        for change, gain in zip(changes, gains)
    ]
    failed = [GroupTest(tuple(changes), Raced(error=error))] if error else []
    return RaceResult(tuple(t.changes[0] for t in tests if t.is_taken), (*failed, *tests), 2.5)


def shown(table: Table) -> str:
    console = Console(width=120, record=True)
    console.print(table)
    return console.export_text()


class TestRace:
    def test_every_pair_of_programs_is_told(self) -> None:
        text = shown(race_table(raced(1.25, 0.9, error="died of signal 11")))
        assert "races of whole programs: 3, in 2.50 s" in text
        assert re.search(r"matmul_0, matmul_1 +│ +- │ +- │ +died of signal 11 │ +│", text)
        assert re.search(r"matmul_0 +│ +12.5 us │ +10.0 us │ +1.250x │ +yes │", text)
        assert re.search(r"matmul_1 +│ +9.0 us │ +10.0 us │ +0.900x │ +│", text)

    def test_long_groups_are_cut(self) -> None:
        group = tuple(Change(f"work_{number}", key=str(number)) for number in range(9))
        text = shown(race_table(RaceResult((), (GroupTest(group, Raced(error="hung")),))))
        assert "work_0, work_1, work_2 and 6 more" in text

    def test_the_page_has_races_and_what_is_used(self) -> None:
        text = page("model", "cpu", TuneResult((), 1.0), None, raced(1.25, 0.9))
        assert "<h2>Whole programs</h2>" in text and "1.250x" in text and "0.900x" in text
        assert "1 of 1 changes" not in text and "is used: 1.250x as fast as the constructed one" in text
        left = page("model", "cpu", TuneResult((), 1.0), None, RaceResult((), why="`cuda:sm_80` is no CPU"))
        assert "which did not race: `cuda:sm_80` is no CPU" in left
        assert "Whole programs" not in page("model", "cpu", TuneResult((), 1.0))


class TestPage:
    def test_gains_are_those_of_the_race_where_there_was_one(self) -> None:
        assert found(10.0, 8.0).gain == 10.0 / 8.0
        raced = (Outcome("k", (0,), (10.0, 20.0, 10.0)), Outcome("k", (1,), (9.0, 18.0, 9.5)))
        once = found(10.0, 8.0, raced=raced)
        once = replace(once, chosen=raced[1])
        assert once.gain == 10.0 / 9.0 and once.used_us == 9.5
        assert once.constructed_us == 10.0 and once.compared[(0,)] is raced[0]
        assert found(math.inf, 8.0).gain is None and found(math.inf).used_us == math.inf

    def test_sums_are_of_what_was_measured_on_both_sides(self) -> None:
        result = TuneResult((found(10.0, 8.0), found(math.inf, 5.0, name="other")), 1.0)
        assert totals(result) == (30.0, 24.0)
        assert [entry.task.name for entry in slowest_first(result)] == ["work", "other"]

    def test_curves_fall_from_left_to_right(self) -> None:
        drawn = curve(found(10.0, math.inf, 12.0, 8.0, 9.0))
        assert len(drawn.dots) == 4 and len(drawn.failed) == 1
        xs, ys = zip(*drawn.dots)
        assert list(xs) == sorted(xs) and ys[3 - 1] == max(ys)  # y grows downwards
        assert drawn.constructed == ys[0] and drawn.limit is not None and drawn.limit > max(ys)
        assert drawn.path.startswith("M") and drawn.path.count("V") == 1

    def test_a_task_of_which_nothing_ran_has_no_curve(self) -> None:
        text = page("model", "cpu", TuneResult((found(math.inf, math.inf),), 1.0))
        assert "not measured" in text and "<svg" not in text

    def test_a_page_is_well_formed_and_escapes_names(self) -> None:
        result = TuneResult((found(10.0, 8.0, name="<b>&"),), 1.0)
        text = page("a<script>", "cpu", result)
        assert "<script>" not in text and "&lt;b&gt;&amp;" in text
        ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])


def test_the_page_and_the_table_have_what_choices_were_measured_to_bring() -> None:
    moves = (
        Move(
            {"conv2d_0.algorithm": "direct"},
            {"conv2d_0.algorithm": "winograd4"},
            us=(80.0, 40.0),
            is_taken=True,
        ),
        Move({"matmul_1.block": 48}, {"matmul_1.block": 16}, us=(20.0, 25.0)),
        Move({"add_2.joins": 1}, {"add_2.joins": 0}, us=(math.inf, 5.0)),
        Move({"add_3.joins": 1}, {"add_3.joins": 0}, why="the budget was spent"),
    )
    choices = ChoiceResult({"conv2d_0.algorithm": "winograd4"}, moves, 20, 1.5)
    text = page("model", "cpu", TuneResult((), 1.0), choices)
    rows = re.findall(r"<tr><td><code>(.*?)</code>.*?</tr>", text, re.S)
    assert rows == ["conv2d_0.algorithm = winograd4", "add_2.joins = 0", "matmul_1.block = 16"]
    assert "2.00x" in text and "0.80x" in text and "3 of 4 measured" in text
    console = Console(width=120, record=True)
    console.print(choices_table(choices))
    shown = console.export_text()
    assert "3 of 4 choices measured" in shown and "1 moved" in shown
    assert re.search(r"winograd4 +│ +direct │ +80.0 us │ +40.0 us │ +yes", shown)
    assert "<h2>Choices" not in page("model", "cpu", TuneResult((), 1.0), ChoiceResult({}, (), 0, 0.0))
