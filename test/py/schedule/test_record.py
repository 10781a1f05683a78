"""Records go through JSON and back, and whatever is no record is refused by its field."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.record import Record, key_of, schedule_text, target_text
from tilewright.compiler.nouns.schedule import GpuTile, Reduction, Schedule
from tilewright.compiler.targets.target import PRESETS, resolve

RECORD = Record(
    workload="a" * 64,
    target="b" * 64,
    device="a processor",
    threads=2,
    residence=("", "DRAM"),
    schedule=schedule_text(Schedule((0, 64), 4, 32)),
    object="c" * 64,
    rounds_us=(12.5, 12.25),
    error="",
    compiler="0.1.0+0123",
    host="somewhere",
    at="2026-01-31T23:59:59.000000+00:00",
)

digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
sizes = st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple)
tiles = st.builds(
    GpuTile, kernel=st.sampled_from(["", "mma"]), threads=st.sampled_from([0, 32]), instruction=texts
)
levels = st.dictionaries(texts, st.tuples(st.integers(1, 9)), max_size=2).map(lambda d: tuple(d.items()))
products = st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda sizes: Reduction("products", sizes))
schedules = st.one_of(
    st.builds(Schedule, sizes, st.integers(0, 9), st.integers(0, 9), levels, st.none() | tiles),
    st.builds(Schedule, sizes, levels=levels, reductions=st.lists(products, max_size=2).map(tuple)),
)
times = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
outcomes = st.one_of(
    st.tuples(digests, st.lists(times, min_size=1, max_size=9).map(tuple), st.just("")),
    st.tuples(digests | st.just(""), st.just(()), texts.filter(bool)),
)
moments = st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat(timespec="microseconds"))


@st.composite
def records(draw: st.DrawFn) -> Record:
    digest, rounds_us, error = draw(outcomes)
    threads = st.integers(1, 1 << 30)
    residence = st.lists(texts, max_size=3).map(tuple)
    return Record(
        *(draw(digests), draw(digests), draw(texts), draw(threads), draw(residence)),
        schedule_text(draw(schedules)),
        *(digest, rounds_us, error, draw(texts), draw(texts), draw(moments)),
    )


@given(records())
def test_records_go_through_json_and_back(record: Record) -> None:
    text = record.to_text()
    assert "\n" not in text and text.isascii()
    assert Record.from_text(text) == record
    assert Record.from_text(text).to_text() == text


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"workload": "A" * 64}, "workload: expected 64 hexadecimal digits"),
        ({"target": 3}, "target: expected 64 hexadecimal digits"),
        ({"object": "abc"}, "object: expected 64 hexadecimal digits"),
        ({"object": ""}, "expected the digest of the object"),
        ({"threads": 0}, "threads: expected an integer from 1 on"),
        ({"threads": True}, "threads: expected an integer from 1 on"),
        ({"threads": 1 << 80}, "threads: expected an integer from 1 on"),
        ({"residence": "DRAM"}, "residence: expected a list"),
        ({"residence": [1]}, "residence: expected strings"),
        ({"rounds_us": [0]}, "rounds_us: expected numbers > 0"),
        ({"rounds_us": [-1.0]}, "rounds_us: expected numbers > 0"),
        ({"rounds_us": ["1"]}, "rounds_us: expected numbers > 0"),
        ({"rounds_us": [True]}, "rounds_us: expected numbers > 0"),
        ({"rounds_us": [10**400]}, "rounds_us: expected numbers > 0"),
        ({"rounds_us": []}, "expected rounds or an error, found 0 rounds and the error ``"),
        ({"error": "but"}, "expected rounds or an error, found 2 rounds and the error `but`"),
        ({"error": None}, "error: expected a string"),
        ({"device": "\ud800"}, "device: expected a string"),
        ({"at": "2026-01-31"}, "at: expected a time in UTC"),
        ({"at": "2026-01-31T23:59:59.000000+01:00"}, "at: expected a time in UTC"),
        ({"at": 5}, "at: expected a time in UTC"),
        ({"schedule": []}, "schedule: expected a dictionary"),
        ({"version": 2}, "expected a record of version 1"),
        ({"colour": "red"}, "colour: no field of a record"),
    ],
)
def test_what_is_no_record_is_refused_by_its_field(changed: dict, why: str) -> None:
    values = {**json.loads(RECORD.to_text()), **changed}
    with pytest.raises(RecordError, match=why):
        Record.from_text(json.dumps(values))


@given(schedules)
def test_schedules_are_read_as_they_were(schedule: Schedule) -> None:
    assert replace(RECORD, schedule=schedule_text(schedule)).read_schedule() == schedule


def test_schedules_of_another_version_are_kept_and_refused_only_when_they_are_read() -> None:
    values = {**json.loads(RECORD.to_text()), "schedule": {"tile": [8], "colour": {"red": [1, 2]}}}
    record = Record.from_text(json.dumps(values))
    assert Record.from_text(record.to_text()) == record
    with pytest.raises(RecordError, match="schedule: unknown field `colour`"):
        record.read_schedule()


@pytest.mark.parametrize("schedule", ["", "[]", '{"tile":[]}', '{"b": 1, "a": 2}', Schedule()])
def test_schedules_are_canonical_text(schedule) -> None:
    with pytest.raises(RecordError, match="schedule: expected a JSON object with sorted keys"):
        replace(RECORD, schedule=schedule)


@pytest.mark.parametrize("name", sorted(json.loads(RECORD.to_text())))
def test_every_field_is_asked_for(name: str) -> None:
    values = json.loads(RECORD.to_text())
    del values[name]
    with pytest.raises(
        RecordError, match="version" if name == "version" else f"{name}: a field that is missing"
    ):
        Record.from_text(json.dumps(values))


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "3", "null", "{", "\x80\x04K\x03.", "[" * 99999),
        RECORD.to_text()[:-9],
        RECORD.to_text() + "}",
        RECORD.to_text().replace("12.5", "NaN"),
        RECORD.to_text().replace("12.5", "Infinity"),
        RECORD.to_text().replace("12.5", "1e999"),
        RECORD.to_text().replace('"threads": 2', '"threads": 2, "threads": 2'),
    ],
    ids=lambda text: text[:12] + str(len(text)),
)
def test_text_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        Record.from_text(text)


def test_the_best_round_counts_and_failures_have_none() -> None:
    assert RECORD.us == 12.25
    assert replace(RECORD, rounds_us=(), error="died").us == math.inf
    assert replace(RECORD, rounds_us=[3]).rounds_us == (3.0,)


class TestTargets:
    @pytest.mark.parametrize("name", PRESETS)
    def test_are_keyed_by_what_they_are_and_not_by_name_or_figures(self, name: str) -> None:
        target = resolve(name)
        faster = replace(
            target,
            name="another",
            peak_gflops={dtype: 2 * value for dtype, value in target.peak_gflops.items()},
            memory=tuple(replace(level, bandwidth_gbps=1.0, latency_ns=5.0) for level in target.memory),
            measured="0123",
            clock_ghz=9.0,
        )
        assert target_text(faster) == target_text(target)

    @pytest.mark.parametrize(
        "changed",
        [
            {"cpu_features": ("avx2",)},
            {"num_cores": 99},
            {"llvm_cpu": "another"},
            {"vector_bits": 128},
            {"arch": "x86-64-v2"},
            {"registers_per_thread": 8},
        ],
        ids=lambda changed: next(iter(changed)),
    )
    def test_that_differ_have_keys_that_do(self, changed: dict) -> None:
        target = resolve("x86-64-v4")
        assert key_of(target_text(target)) != key_of(target_text(replace(target, **changed)))

    def test_with_other_caches_are_others(self) -> None:
        target = resolve("x86-64-v4")
        memory = tuple(replace(level, capacity_bytes=level.capacity_bytes * 2) for level in target.memory)
        assert target_text(target) != target_text(replace(target, memory=memory))

    def test_all_have_keys_of_their_own(self) -> None:
        texts_of = {target_text(resolve(name)) for name in PRESETS if name != "cpu"}
        assert len(texts_of) == len(PRESETS) - 1


def test_moments_are_those_of_the_profiler() -> None:
    from tilewright.compiler.profiler.recording import now

    found = replace(RECORD, at=now())
    assert abs((datetime.fromisoformat(found.at) - datetime.now(UTC)).total_seconds()) < 60
