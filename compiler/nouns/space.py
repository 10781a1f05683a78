"""Spaces of schedules: bounded knobs under constraints, over arrays of points, for whatever searches among them.

A point is a row of integers, one for each knob: the position of its value in the knob's domain, or -1 where another
knob's value leaves it no meaning.

    space.sample(1000, rng)              // [1000, knobs], distinct and legal
    space.legal(points)                  // [n], the number of the first of `space.rules` that each breaks, -1 for none
    space.neighbours(point)              // [m, knobs], legal, one knob moved
    space.encode(points)                 // [n, features] for a learned model
    space.schedule(point)                // what the compiler is given; `space.point` is its inverse
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.schedule import Schedule

KEPT = -1
"""In place of a rule's number: none is broken."""
ENUMERATED = 1 << 14
"""Spaces of at most so many points are listed whole to be sampled; of larger ones points are drawn."""
_ROUNDS, _FEWEST_DRAWN = 32, 2048
"""Batches drawn for a sample before it stays smaller than was asked for, and what each has at least: of spaces of GPU
kernels a hundredth is legal."""

Made = TypeVar("Made")
"""What the points of a space are of: schedules, or choices of a graph."""
Value = int | str
Columns = Mapping[str, np.ndarray]
"""By knob, the values of many points: 0 or "" where a knob has no meaning."""


@dataclass(frozen=True)
class Knob:
    """One choice: the field of a schedule that it fills in, and the values that it takes, ascending numbers or words.

    With `when` = (another knob, one of its values) it has a meaning only where that one has this value; `usual` is the
    position that it has when it comes to have one. `mended` are words of which a point that breaks a rule takes the one
    before, as numbers go down: the first breaks none.
    """

    name: str
    domain: tuple[Value, ...]
    when: tuple[str, Value] | None = None
    usual: int = 0
    mended: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether its values are numbers, of which neighbours are alike."""
        return not isinstance(self.domain[0], str)


@dataclass(frozen=True)
class Rule:
    """What a schedule has to keep to: the knob whose value breaks it, and what is wrong then."""

    field: str
    text: str


@dataclass(frozen=True)
class Constraint:
    """Rules that are read together: `broken(columns)` numbers the first of them that each point breaks, or is `KEPT`."""

    rules: tuple[Rule, ...]
    broken: Callable[[Columns], np.ndarray]


def rule(field: str, text: str, breaks: Callable[[Columns], np.ndarray]) -> Constraint:
    """One rule alone: `breaks(columns)` is true for the points that break it."""
    return Constraint((Rule(field, text),), lambda columns: np.where(breaks(columns), 0, KEPT))


def first_broken(constraints: Sequence[Constraint], columns: Columns, count: int) -> np.ndarray:
    """The number of the first rule that each of `count` points breaks, `KEPT` where it keeps all: [count].

    Each constraint is asked of the points that keep those before it.
    """
    found, first = np.full(count, KEPT, dtype=np.int64), 0
    open_ = np.arange(count)
    for constraint in constraints:
        broken = constraint.broken(columns)
        breaks = broken != KEPT
        if breaks.any():
            found[open_[breaks]] = broken[breaks] + first
            open_ = open_[~breaks]
            columns = {name: values[~breaks] for name, values in columns.items()}
        if not len(open_):
            break
        first += len(constraint.rules)
    return found


def by_values(function: Callable[..., int | bool], *columns: np.ndarray) -> np.ndarray:
    """`function` of the numbers in each row of these columns, called once for rows that are equal: [n]."""
    if len(columns[0]) == 1:
        return np.asarray([function(*(column.item() for column in columns))], dtype=np.int64)
    rows, places = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return np.asarray([function(*row) for row in rows.tolist()], dtype=np.int64)[places.reshape(-1)]


@dataclass(frozen=True)
class Space(Generic[Made]):
    """All schedules that `knobs` can make and `constraints` keep.

    A knob stands behind the one that it depends on. `write` makes a schedule of values by knob and `read` is its
    inverse, which raises ScheduleError for a schedule that no values make; `constructed` is the schedule to use without
    a search. Of one that is `balanced` each value of the first knob is drawn as often as any other, however many points
    have it.
    """

    knobs: tuple[Knob, ...]
    constraints: tuple[Constraint, ...]
    write: Callable[[Mapping[str, Value]], Made]
    read: Callable[[Made], Mapping[str, Value]]
    constructed: Made
    balanced: bool = False

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all constraints, as `legal` numbers them."""
        return tuple(rule for constraint in self.constraints for rule in constraint.rules)

    @cached_property
    def size(self) -> int:
        """Points, legal and illegal."""
        return math.prod(self._counts[number] for number in self._free)

    def default(self) -> Made:
        """The schedule to use without a search."""
        return self.constructed

    def held(self, names: Collection[str]) -> Space[Made]:
        """The points that have the default's values in these knobs; what a value that is left out gives a meaning is gone."""
        values = self.columns(self.point(self.constructed)[None])
        knobs: list[Knob] = []
        for knob in self.knobs:
            domains = {kept.name: kept.domain for kept in knobs}
            if knob.when is not None and knob.when[1] not in domains.get(knob.when[0], ()):
                continue
            value = values[knob.name][0].item()
            held = knob.name in names and value in knob.domain
            knobs.append(replace(knob, domain=(value,), usual=0) if held else knob)
        kept = {knob.name for knob in knobs}
        absent = {k.name: 0 if k.is_ordered else "" for k in self.knobs if k.name not in kept}

        def constraint(of: Constraint) -> Constraint:
            def broken(columns: Columns) -> np.ndarray:
                count = len(next(iter(columns.values()))) if columns else 0
                return of.broken({**columns, **{name: np.full(count, v) for name, v in absent.items()}})

            return Constraint(of.rules, broken)

        return replace(self, knobs=tuple(knobs), constraints=tuple(map(constraint, self.constraints)))

    # Points and schedules.

    def schedule(self, point: np.ndarray) -> Made:
        """The schedule of one point."""
        return self.write({k.name: k.domain[place] for k, place in zip(self.knobs, point) if place >= 0})

    def point(self, schedule: Made) -> np.ndarray:
        """The point of a schedule; raises ScheduleError where it is none of the space, with the field."""
        values = self.read(schedule)
        point = np.full(len(self.knobs), -1, dtype=np.int64)
        for number, knob in enumerate(self.knobs):
            if knob.name not in values:
                continue
            if values[knob.name] not in knob.domain:
                listed = ", ".join(map(str, knob.domain))
                raise ScheduleError(
                    f"{knob.name} is {values[knob.name]}, which is not in its domain; choose of {listed}"
                )
            point[number] = knob.domain.index(values[knob.name])
        if (self.settled(point[None]) != point).any():
            raise ScheduleError(f"the fields {', '.join(values)} do not go together")
        return point

    def points(self, schedules: Sequence[Made]) -> np.ndarray:
        """The points of many schedules: [n, knobs]."""
        found = [self.point(schedule) for schedule in schedules]
        return np.asarray(found, dtype=np.int64).reshape(len(found), len(self.knobs))

    def columns(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """The values of many points by knob."""
        found = {}
        for knob, places, values in zip(self.knobs, points.T, self._values):
            found[knob.name] = values[places]
        return found

    # Rules.

    def legal(self, points: np.ndarray) -> np.ndarray:
        """The number of the first rule that each point breaks, `KEPT` where it keeps all: [n]."""
        return first_broken(self.constraints, self.columns(points), len(points))

    def __contains__(self, schedule: Made) -> bool:
        try:
            point = self.point(schedule)
        except ScheduleError:
            return False
        return bool(self.legal(point[None])[0] == KEPT)

    # Walking.

    def sample(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """At most `count` distinct legal points, each as likely as any other: fewer where there are no more to find.

        Where hardly any point of a large space is legal, those near the points that were drawn fill it up. Of a balanced
        space, points of each value of the first knob come as often as those of any other.
        """
        if self.size <= ENUMERATED and not self.balanced:
            every = self.every()
            legal = every[self.legal(every) == KEPT]
            return legal[rng.permutation(len(legal))[:count]]
        found: dict[bytes, np.ndarray] = {}
        for _ in range(_ROUNDS):
            drawn = self.draw(max(2 * count, _FEWEST_DRAWN), rng)
            for point in drawn[self.legal(drawn) == KEPT]:
                found.setdefault(point.tobytes(), point)
            if len(found) >= count:
                break
        if len(found) < count:
            for point in self.repaired(self.draw(2 * count, rng)):
                found.setdefault(point.tobytes(), point)
        return self._stacked(list(found.values())[:count])

    def neighbours(self, point: np.ndarray) -> np.ndarray:
        """The distinct legal points that one knob's move leads to: [m, knobs].

        A number moves by 1, 2, 4, … places and a word to any other. What the move makes illegal moves down as far as it
        must, as a register tile does with the tile of the rTask around it.
        """
        moved = []
        for number, knob in enumerate(self.knobs):
            place, most = int(point[number]), len(knob.domain)
            if place < 0:
                continue
            steps = [sign << shift for shift in range(most.bit_length()) for sign in (1, -1)]
            others = [place + s for s in steps] if knob.is_ordered else range(most)
            for other in others:
                if 0 <= other < most and other != place:
                    moved.append(point.copy())
                    moved[-1][number] = other
        repaired = self.repaired(self.settled(self._stacked(moved)))
        found = {p.tobytes(): p for p in repaired}
        found.pop(np.ascontiguousarray(point, dtype=np.int64).tobytes(), None)
        return self._stacked(list(found.values()))

    def settled(self, points: np.ndarray) -> np.ndarray:
        """The points with -1 where a knob has no meaning, and the usual place where it comes to have one: [n, knobs]."""
        points, number_of = points.copy(), {knob.name: number for number, knob in enumerate(self.knobs)}
        for number, knob in enumerate(self.knobs):
            if knob.when is None:
                continue
            parent = number_of[knob.when[0]]
            means = points[:, parent] == self.knobs[parent].domain.index(knob.when[1])
            own = np.where(points[:, number] < 0, knob.usual, points[:, number])
            points[:, number] = np.where(means, own, -1)
        return points

    def repaired(self, points: np.ndarray) -> np.ndarray:
        """Legal points near these: the number that breaks a rule goes down in its domain until it does not.

        Points that this does not make legal are left out.
        """
        points, kept = self.repair(points)
        return points[kept]

    def repair(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What `repaired` makes of each point, and whether that is legal: [n, knobs] and [n]."""
        points = points.copy()
        number_of = {knob.name: number for number, knob in enumerate(self.knobs)}
        # No point breaks a rule of a knob that `held` has left out.
        fields = np.asarray([number_of.get(rule.field, 0) for rule in self.rules], dtype=np.int64)
        ordered = np.asarray([knob.is_ordered or knob.mended for knob in self.knobs])
        open_, lost = np.arange(len(points)), np.zeros(len(points), dtype=bool)
        while len(open_):
            broken = self.legal(points[open_])
            open_, broken = open_[broken != KEPT], broken[broken != KEPT]
            columns = fields[broken]
            lost[open_] = (points[open_, columns] <= 0) | ~ordered[columns]
            open_, columns = open_[~lost[open_]], columns[~lost[open_]]
            points[open_, columns] -= 1
        return points, ~lost

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Points drawn evenly from the space, legal and illegal: [count, knobs]."""
        points = np.full((count, len(self.knobs)), -1, dtype=np.int64)
        for number in self._free:
            ways = rng.integers(self._counts[number], size=count)
            if self.balanced and not number:
                own = np.asarray(self._ways[number])
                places = rng.integers(len(own), size=count)
                ways = (np.cumsum(own) - own)[places] + ways % own[places]
            self._decode(number, ways, points, np.arange(count))
        return points

    def every(self) -> np.ndarray:
        """All points, legal and illegal, of a space that is small enough to list: [size, knobs]."""
        numbers = np.arange(self.size, dtype=np.int64)
        points = np.full((len(numbers), len(self.knobs)), -1, dtype=np.int64)
        for number in reversed(self._free):
            self._decode(number, numbers % self._counts[number], points, np.arange(len(points)))
            numbers //= self._counts[number]
        return points

    # What a model learns from.

    @cached_property
    def features(self) -> tuple[str, ...]:
        """What `encode` gives: a knob with numbers once, one with words for each of them."""
        return tuple(
            name
            for knob in self.knobs
            for name in ([knob.name] if knob.is_ordered else [f"{knob.name}={word}" for word in knob.domain])
        )

    def encode(self, points: np.ndarray) -> np.ndarray:
        """Numbers as log2(1 + value), words as 0 and 1, all 0 where they have no meaning: [n, features]."""
        parts = []
        for knob, places, values in zip(self.knobs, points.T, self._values):
            if knob.is_ordered:
                parts.append(np.log2(1.0 + values[places]))
            else:
                parts += [(places == place).astype(float) for place in range(len(knob.domain))]
        return np.stack(parts, axis=1) if parts else np.zeros((len(points), 0))

    # The tree of knobs.

    @cached_property
    def _values(self) -> list[np.ndarray]:
        """The domain of each knob, and at its end, where -1 finds it, what stands for no value."""
        return [np.asarray([*knob.domain, 0 if knob.is_ordered else ""]) for knob in self.knobs]

    @cached_property
    def _free(self) -> list[int]:
        """The knobs that depend on no other."""
        return [number for number, knob in enumerate(self.knobs) if knob.when is None]

    @cached_property
    def _children(self) -> list[dict[int, list[int]]]:
        """Of each knob, by the place that lets them have a meaning, the knobs that depend on it."""
        found: list[dict[int, list[int]]] = [{} for _ in self.knobs]
        for number, knob in enumerate(self.knobs):
            if knob.when is not None:
                parent = next(i for i, k in enumerate(self.knobs) if k.name == knob.when[0])
                place = self.knobs[parent].domain.index(knob.when[1])
                found[parent].setdefault(place, []).append(number)
        return found

    @cached_property
    def _ways(self) -> list[list[int]]:
        """Of each knob and each of its places: how many ways there are with all that depends on it."""
        ways: list[list[int]] = [[] for _ in self.knobs]
        for number in reversed(range(len(self.knobs))):
            children, places = self._children[number], range(len(self.knobs[number].domain))
            ways[number] = [math.prod(sum(ways[child]) for child in children.get(p, [])) for p in places]
        return ways

    @cached_property
    def _counts(self) -> list[int]:
        """Of each knob: how many ways it has to be, with all that depends on it."""
        return [sum(ways) for ways in self._ways]

    def _decode(self, number: int, ways: np.ndarray, points: np.ndarray, rows: np.ndarray) -> None:
        """Sets a knob, and all that depends on it, in some rows to the way of its `_counts` that each is given."""
        starts = np.cumsum([0, *self._ways[number]])
        places = np.searchsorted(starts, ways, side="right") - 1
        points[rows, number] = places
        left = ways - starts[places]
        for place, children in self._children[number].items():
            here = places == place
            rest = left[here]
            for child in reversed(children):
                self._decode(child, rest % self._counts[child], points, rows[here])
                rest = rest // self._counts[child]

    def _stacked(self, points: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(points, dtype=np.int64).reshape(len(points), len(self.knobs))


def union(field: str, spaces: Mapping[str, Space]) -> Space:
    """The schedules of several spaces, by family or algorithm: a first knob says of which, as `field`; its default is
    the first one's. It is balanced: small spaces are drawn from as often as large ones."""
    root = Knob(field, tuple(spaces))
    knobs, constraints = [root], []
    for label, space in spaces.items():
        for knob in space.knobs:
            parent, value = knob.when if knob.when is not None else (None, label)
            when = (field, value) if parent is None else (f"{label}.{parent}", value)
            knobs.append(replace(knob, name=f"{label}.{knob.name}", when=when))
        constraints += [_within(field, label, constraint) for constraint in space.constraints]

    def write(values: Mapping[str, Value]) -> Schedule:
        label = str(values[field])
        return spaces[label].write(_own(label, values))

    def read(schedule: Schedule) -> Mapping[str, Value]:
        refusals = []
        for label, space in spaces.items():
            try:
                space.point(schedule)
            except ScheduleError as refusal:
                refusals.append(f"{label}: {refusal}")
                continue
            return {field: label, **{f"{label}.{n}": v for n, v in space.read(schedule).items()}}
        raise ScheduleError(f"the schedule is of no {field}: {'; '.join(refusals)}")

    first = next(iter(spaces.values()))
    return Space(tuple(knobs), tuple(constraints), write, read, first.constructed, True)


def _own(label: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What is one space's of a union's, by its own names."""
    return {n.removeprefix(f"{label}."): v for n, v in values.items() if n.startswith(f"{label}.")}


def _within(field: str, label: str, constraint: Constraint) -> Constraint:
    """A constraint of one space on the points of a union that are of it."""

    def broken(columns: Columns) -> np.ndarray:
        of_it = columns[field] == label
        found = np.full(len(of_it), KEPT, dtype=np.int64)
        found[of_it] = constraint.broken({n: c[of_it] for n, c in _own(label, columns).items()})
        return found

    return Constraint(tuple(Rule(f"{label}.{r.field}", r.text) for r in constraint.rules), broken)
