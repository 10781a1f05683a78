"""A space of schedules: every point of it is counted, drawn, walked to and written back, and no illegal one is given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns import space as spaces
from tilewright.compiler.nouns.schedule import Reduction, Schedule
from tilewright.compiler.nouns.space import KEPT, Constraint, Knob, Rule, Space, Value, union

SIZES = {"along": ("rows", "chains"), "products": ("unroll",), "scalar": ()}


def write(values: Mapping[str, Value]) -> Schedule:
    kind = str(values["kind"])
    sizes = (2, 1, 1) if kind == "windows" else tuple(int(values[f"{kind}.{n}"]) for n in SIZES[kind])
    return Schedule((int(values["tile"]),), reductions=(Reduction(kind, sizes),))


def read(schedule: Schedule) -> Mapping[str, Value]:
    (reduction,) = schedule.reductions
    if reduction.loops not in SIZES:
        raise ScheduleError(f"kind is {reduction.loops}")
    sizes = {f"{reduction.loops}.{n}": s for n, s in zip(SIZES[reduction.loops], reduction.sizes)}
    return {"tile": schedule.tile[0], "kind": reduction.loops, **sizes}


def small_space(tiles: tuple[int, ...] = (1, 2, 3, 5, 8), most: int = 4) -> Space:
    """A tile, and loops of three kinds; rows fit the tile, products are even."""
    knobs = (
        Knob("tile", tiles),
        Knob("kind", ("along", "products", "scalar")),
        Knob("along.rows", tuple(range(1, most + 1)), ("kind", "along"), usual=1),
        Knob("along.chains", (1, 2), ("kind", "along")),
        Knob("products.unroll", tuple(range(1, 2 * most)), ("kind", "products"), usual=1),
    )
    fits = Constraint(
        (Rule("along.rows", "over its tile"),),
        lambda c: np.where(c["along.rows"] > c["tile"], 0, KEPT),
    )
    even = Constraint(
        (Rule("products.unroll", "over its tile"), Rule("products.unroll", "odd")),
        lambda c: np.where(
            c["products.unroll"] > c["tile"], 0, np.where(c["products.unroll"] % 2 == 1, 1, KEPT)
        ),
    )
    return Space(knobs, (fits, even), write, read, Schedule((8,), reductions=(Reduction("along", (2, 1)),)))


def rows_of(points: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(row) for row in points.tolist()}


def test_every_point_is_counted_once() -> None:
    space = small_space()
    every = space.every()
    assert space.size == 5 * (4 * 2 + 7 + 1) == len(every) == len(rows_of(every))
    for point in every:
        np.testing.assert_array_equal(space.point(space.schedule(point)), point)
    assert len({space.schedule(point) for point in every}) == space.size


def test_points_without_a_meaning_hold_nothing() -> None:
    space = small_space()
    columns = space.columns(space.every())
    for name, kind in (("along.rows", "along"), ("along.chains", "along"), ("products.unroll", "products")):
        assert ((columns[name] == 0) == (columns["kind"] != kind)).all()


def test_the_first_broken_rule_is_named() -> None:
    space = small_space()
    every = space.every()
    columns, broken = space.columns(every), space.legal(every)
    for number, verdict in enumerate(broken):
        at = {name: column[number] for name, column in columns.items()}
        texts = [
            (at["along.rows"] > at["tile"], Rule("along.rows", "over its tile")),
            (at["products.unroll"] > at["tile"], Rule("products.unroll", "over its tile")),
            (at["products.unroll"] % 2 == 1, Rule("products.unroll", "odd")),
        ]
        first = next((rule for breaks, rule in texts if breaks), None)
        assert (None if verdict == KEPT else space.rules[verdict]) == first
        assert (space.schedule(every[number]) in space) == (first is None)


@pytest.mark.parametrize("listed", [True, False])
def test_samples_are_distinct_legal_and_even(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not listed:
        monkeypatch.setattr(spaces, "ENUMERATED", 0)
    space = small_space()
    legal = rows_of(space.every()[space.legal(space.every()) == KEPT])
    counts = dict.fromkeys(legal, 0)
    for seed in range(120):
        sample = space.sample(5, np.random.default_rng(seed))
        assert len(sample) == 5 == len(rows_of(sample)) and rows_of(sample) <= legal
        np.testing.assert_array_equal(sample, space.sample(5, np.random.default_rng(seed)))
        for point in rows_of(sample):
            counts[point] += 1
    expected = 600 / len(legal)
    assert all(expected / 4 < count < expected * 3 for count in counts.values())
    assert rows_of(space.sample(1000, np.random.default_rng(0))) == legal


def test_neighbours_are_legal_and_lead_everywhere() -> None:
    space = small_space()
    legal = rows_of(space.every()[space.legal(space.every()) == KEPT])
    start = tuple(space.point(space.default()).tolist())
    reached, open_ = {start}, [start]
    while open_:
        around = rows_of(space.neighbours(np.asarray(open_.pop())))
        assert around <= legal
        open_ += sorted(around - reached)
        reached |= around
    assert reached == legal
    assert start not in rows_of(space.neighbours(np.asarray(start)))


def test_what_a_move_makes_illegal_follows() -> None:
    space = small_space()
    point = space.point(Schedule((3,), reductions=(Reduction("along", (3, 2)),)))
    around = {space.schedule(n) for n in space.neighbours(point)}
    assert Schedule((2,), reductions=(Reduction("along", (2, 2)),)) in around
    assert Schedule((3,), reductions=(Reduction("products", (2,)),)) in around
    assert Schedule((3,), reductions=(Reduction("scalar"),)) in around


def test_repairing_leaves_out_what_it_cannot_mend() -> None:
    space = small_space(tiles=(1, 8))
    point = space.point(Schedule((1,), reductions=(Reduction("products", (1,)),)))
    assert space.legal(point[None])[0] != KEPT
    assert len(space.repaired(point[None])) == 0


def test_encoding_tells_schedules_apart() -> None:
    space = small_space()
    every = space.every()
    encoded = space.encode(every)
    assert encoded.shape == (space.size, len(space.features))
    assert len(rows_of(encoded)) == space.size
    scalar = space.encode(space.point(Schedule((2,), reductions=(Reduction("scalar"),)))[None])[0]
    named = dict(zip(space.features, scalar))
    assert named == {
        "tile": np.log2(3),
        "kind=scalar": 1,
        **dict.fromkeys(("kind=along", "kind=products", "along.rows", "along.chains", "products.unroll"), 0),
    }


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (Schedule((4,), reductions=(Reduction("scalar"),)), "tile is 4.* 1, 2, 3, 5, 8"),
        (Schedule((2,), reductions=(Reduction("along", (9, 1)),)), "along.rows is 9"),
        (Schedule((2,), reductions=(Reduction("windows", (1, 1, 1)),)), "kind is windows"),
    ],
)
def test_schedules_outside_are_refused_by_field(schedule: Schedule, says: str) -> None:
    space = small_space()
    assert schedule not in space
    with pytest.raises(ScheduleError, match=says):
        space.point(schedule)


def test_a_union_has_the_schedules_of_all() -> None:
    left, right = small_space(), small_space(tiles=(13, 21), most=2)
    both = union("family", {"left": left, "right": right})
    assert both.size == left.size + right.size and both.default() == left.default()
    every = both.every()
    kinds = both.columns(every)["family"]
    for label, space in (("left", left), ("right", right)):
        of_it = every[kinds == label]
        own = [space.point(both.schedule(point)) for point in of_it]
        assert len(rows_of(np.asarray(own))) == space.size
        for verdict, inner in zip(both.legal(of_it), space.legal(np.asarray(own))):
            assert (verdict == KEPT) == (inner == KEPT)
            assert (
                verdict == KEPT
                or both.rules[verdict].field == f"{label}.{space.rules[inner].field}"
            )  # fmt: skip
    np.testing.assert_array_equal(both.points([both.schedule(p) for p in every]), every)
    assert len(rows_of(both.encode(every))) == both.size
    assert any(
        both.schedule(p).tile[0] in (13, 21)
        for p in both.neighbours(both.point(Schedule((8,), reductions=(Reduction("scalar"),))))
    )
    with pytest.raises(ScheduleError, match="no family: left: tile is 4"):
        both.point(Schedule((4,), reductions=(Reduction("scalar"),)))


def test_a_space_without_a_choice_has_one_point() -> None:
    fixed = Space((), (), lambda values: Schedule(), lambda schedule: {}, Schedule())
    assert fixed.size == 1 and fixed.default() in fixed
    assert fixed.sample(5, np.random.default_rng(0)).shape == (1, 0)
    assert fixed.neighbours(fixed.point(Schedule())).shape == (0, 0)
    assert fixed.encode(fixed.every()).shape == (1, 0)
