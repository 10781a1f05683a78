"""The choices that a graph is fastest with: one is moved at a time, and the dispatches that this changes are measured.

    found = search_choices(space, graphs_of, device, seconds=200)
    found.values        // {"conv2d_3.algorithm": "direct", "matmul_2.block": 32}: what differs from the space's default

A choice decides which dispatches there are (`nouns/choices.py`), so that no schedule of one dispatch tells what it is worth. Two
graphs differ in time by the dispatches that they do not share. Each of those counts as the fastest of its first few
candidates, those that Roller constructs, times its calls.

Moves are drafted by what was predicted of their dispatches, and verified by measurements, best first, as Pruner (ASPLOS'25,
Algorithm 1) does with schedules. Moves that were faster are then put together, largest gain first; one is kept where the graph
with it and with those before it takes less.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.nouns.choices import Choices, Value
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.tuning.search.interruptible import Interruptible
from tilewright.compiler.tuning.search.search_task import Device, SearchTask

CANDIDATES = 4
"""Schedules of a dispatch that are measured: as many as a task of the tuner begins with."""
GAIN = 1.02
"""How many times longer what a move replaces has to take: kernels are measured one after the other, and times drift by a percent."""
HOPELESS = 1.5
"""A move whose dispatches are predicted to take so many times what they replace is not measured."""
DRAFTING = 0.5
"""The part of the time that drafts may take: graphs are made by the passes."""
FIRST = ("algorithm", "copy", "block")
"""Fields that are moved before all others: what they decide was measured to matter most, where there is time for a few only."""
_AT_ONCE = 8
"""Graphs that are asked for together."""


@dataclass(frozen=True)
class Graph:
    """The dispatches that a set of choices makes, by the key of their work.

    `calls` has all of them, `tasks` those with more than one schedule, `predicted_us` what each is expected to take.
    """

    tasks: Mapping[str, SearchTask]
    calls: Mapping[str, int]
    predicted_us: Mapping[str, float]


GraphsOf = Callable[[Sequence[Mapping[str, Value]]], Sequence[Graph | TilewrightError]]
"""The graph of each set of choices, or the error where the compiler refuses it or dies of it."""


@dataclass(frozen=True)
class Move:
    """Choices that were moved from `before` to `after`: microseconds that a call of the model spends on what differs.

    `us` are None of what was not measured, for the reason `why`. One that `is_taken` is part of what was found.
    """

    before: Mapping[str, Value]
    after: Mapping[str, Value]
    predicted_us: tuple[float, float] = (math.nan, math.nan)
    us: tuple[float, float] | None = None
    is_taken: bool = False
    why: str = ""

    @property
    def runs_without(self) -> bool:
        """Whether it was measured, and what it replaces ran."""
        return self.us is not None and math.isfinite(self.us[0])

    @property
    def gain_us(self) -> float:
        """What it was measured to save; 0 where there is nothing to compare it with."""
        return self.us[0] - self.us[1] if self.us is not None and self.runs_without else 0.0

    @property
    def is_faster(self) -> bool:
        """Whether it saves more than noise."""
        return self.gain_us > 0.0 and self.us is not None and self.us[0] >= GAIN * self.us[1]

    def text(self) -> str:
        """`conv2d_3.algorithm = direct, matmul_2.block = 32`."""
        return ", ".join(f"{name} = {value}" for name, value in self.after.items())


@dataclass(frozen=True)
class ChoiceResult:
    """What differs from the default, every move that was looked at, and what it took; an interrupted search keeps what it has."""

    values: Mapping[str, Value]
    moves: Sequence[Move]
    trials: int
    seconds: float
    is_interrupted: bool = False

    @property
    def measured(self) -> list[Move]:
        """The moves that were measured."""
        return [move for move in self.moves if move.us is not None]


OnMove = Callable[[Move, int, int], None]
"""Told of every move that was measured: how many have been, and how many there are."""


def search_choices(
    space: Space[Choices],
    graphs_of: GraphsOf,
    device: Device,
    *,
    trials: int | None = None,
    seconds: float | None = None,
    on_move: OnMove = lambda move, done, total: None,
) -> ChoiceResult:
    """Moves every choice of a space from its default, as far as `trials` and `seconds` go; one of them is given.

    The device stays open. Ctrl-C ends the search with what is known. Raises the error of the default's own graph.
    """
    if trials is None and seconds is None:
        raise TilewrightError("a search needs an end; give it trials or seconds")
    return _ChoiceSearch(space, graphs_of, device, trials, seconds, on_move).run()


class _ChoiceSearch:
    def __init__(
        self,
        space: Space[Choices],
        graphs_of: GraphsOf,
        device: Device,
        trials: int | None,
        seconds: float | None,
        on_move: OnMove,
    ):
        self._space, self._graphs_of, self._device, self._on_move = space, graphs_of, device, on_move
        self._start = time.monotonic()
        self._seconds = math.inf if seconds is None else seconds
        self._most = math.inf if trials is None else trials
        self._trials = 0
        self._us: dict[str, float] = {}
        """The fastest candidate of each piece of work; infinite where none ran."""
        self._moves: list[Move] = []
        self._usual = dict(space.read(space.default()))
        self._values = dict(self._usual)

    def run(self) -> ChoiceResult:
        default = self._graph(self._usual)
        with Interruptible() as searching:
            searching.check()
            drafts = self._drafted(default)
            self._moves = [move for move, _ in drafts]
            for number, (move, graph) in enumerate(drafts):
                searching.check()
                if graph is not None and not move.why:
                    self._moves[number] = self._verified(move, default, graph)
                    self._on_move(self._moves[number], number + 1, len(drafts))
            self._put_together(default)
        return ChoiceResult(
            {n: v for n, v in sorted(self._values.items()) if self._usual.get(n) != v},
            tuple(self._moves),
            self._trials,
            self._passed,
            searching.is_interrupted,
        )

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._start

    def _graph(self, values: Mapping[str, Value]) -> Graph:
        (graph,) = self._graphs_of([values])
        if isinstance(graph, Graph):
            return graph
        raise graph

    def _drafted(self, default: Graph) -> list[tuple[Move, Graph | None]]:
        """All moves of one choice, those that are predicted to save most first."""
        points = self._space.neighbours(self._space.point(self._space.default()))
        asked = [dict(self._space.schedule(point).values) for point in points]
        drafts = [(self._move_to(values), values) for values in asked]
        drafts.sort(key=lambda draft: _place(draft[0]))
        found: list[tuple[Move, Graph | None]] = []
        # The default's graph tells how long one takes: of a large model none is begun that outlasts the budget.
        count, each_s = 1, self._passed
        while drafts and self._passed + count * each_s <= DRAFTING * self._seconds:
            batch, drafts, begun = drafts[:count], drafts[count:], self._passed
            for (move, _), graph in zip(batch, self._graphs_of([values for _, values in batch])):
                if isinstance(graph, TilewrightError):
                    found.append((replace(move, why=str(graph)), None))
                else:
                    found.append((self._predicted(move, default, graph), graph))
            each_s = (self._passed - begun) / count
            count = min(2 * count, _AT_ONCE)
        found += [(replace(move, why=_SPENT), None) for move, _ in drafts]
        return sorted(found, key=lambda draft: _expected_loss_us(draft[0]))

    def _move_to(self, values: Mapping[str, Value]) -> Move:
        """What differs between the default and these values."""
        usual = self._usual
        changed = [n for n in sorted(usual.keys() | values.keys()) if usual.get(n) != values.get(n)]
        return Move(
            {n: usual[n] for n in changed if n in usual}, {n: values[n] for n in changed if n in values}
        )

    def _predicted(self, move: Move, default: Graph, graph: Graph) -> Move:
        before, after = _differences(default, graph)
        if not before and not after:
            return replace(move, why="it changes no dispatch")
        fixed = sorted((before.keys() | after.keys()) - (default.tasks.keys() | graph.tasks.keys()))
        if fixed:
            return replace(move, why=f"{len(fixed)} of its dispatches cannot be measured")
        predicted = _total(before, default.predicted_us), _total(after, graph.predicted_us)
        why = "it is predicted to be slower by far" if predicted[1] > HOPELESS * predicted[0] else ""
        return replace(move, predicted_us=predicted, why=why)

    def _verified(self, move: Move, default: Graph, graph: Graph) -> Move:
        """The move with the times of what it changes, where the budget goes so far."""
        before, after = _differences(default, graph)
        if not (self._measured(default, before) and self._measured(graph, after)):
            return replace(move, why=_SPENT)
        us = _total(before, self._us), _total(after, self._us)
        if math.isinf(us[1]):
            return replace(move, why="no candidate of one of its dispatches ran")
        return replace(move, us=us)

    def _measured(self, graph: Graph, calls: Mapping[str, int]) -> bool:
        """Measures what is not known of these dispatches; false where the budget ends before that."""
        unknown = sorted(key for key in calls if key not in self._us)
        if not unknown:
            return True
        if self._passed >= self._seconds:
            return False
        asked = {key: list(graph.tasks[key].seeds(CANDIDATES)) for key in unknown}
        count = sum(map(len, asked.values()))
        if self._trials + count > self._most:
            return False
        self._trials += count
        for key, points in asked.items():
            self._device.submit(graph.tasks[key], points)
        found = dict.fromkeys(unknown, math.inf)
        for outcome in self._device.outcomes():
            found[outcome.task] = min(found[outcome.task], outcome.us)
        self._us |= found
        return True

    def _put_together(self, default: Graph) -> None:
        """Takes the moves that are faster, each where it still is behind those before it."""
        graph = default
        for number in sorted(range(len(self._moves)), key=lambda n: -self._moves[n].gain_us):
            move = self._moves[number]
            if not move.is_faster or any(self._values.get(n) != v for n, v in move.before.items()):
                continue
            values = {n: v for n, v in self._values.items() if n not in move.before} | dict(move.after)
            if Choices(values) not in self._space:
                continue
            (moved,) = self._graphs_of([values])
            if isinstance(moved, TilewrightError):
                continue
            before, after = _differences(graph, moved)
            known = after.keys() <= moved.tasks.keys() and before.keys() <= graph.tasks.keys()
            if not (known and self._measured(graph, before) and self._measured(moved, after)):
                continue
            if _total(before, self._us) >= GAIN * _total(after, self._us):
                self._values, graph = values, moved
                self._moves[number] = replace(move, is_taken=True)


_SPENT = "the budget was spent"


def _place(move: Move) -> tuple[int, str]:
    """Where a move stands before anything is known of it."""
    name, _, field = next(iter({**move.before, **move.after})).rpartition(".")
    return FIRST.index(field) if field in FIRST else len(FIRST), name


def _expected_loss_us(move: Move) -> float:
    """What a move is predicted to cost; those without a prediction are last."""
    lost = move.predicted_us[1] - move.predicted_us[0]
    return math.inf if math.isnan(lost) else lost


def _differences(before: Graph, after: Graph) -> tuple[Counter[str], Counter[str]]:
    """The calls that only one of two graphs has."""
    mine, other = Counter(before.calls), Counter(after.calls)
    return mine - other, other - mine


def _total(calls: Mapping[str, int], us: Mapping[str, float]) -> float:
    return sum(count * us[key] for key, count in calls.items())
