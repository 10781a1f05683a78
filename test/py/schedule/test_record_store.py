"""The store keeps every record once, for many processes at once, merges, and says what is wrong with its file."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_record import RECORD, records

from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.record import Record, key_of
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.recorded_choice import fastest

KEYS = (RECORD.workload, RECORD.target, RECORD.device, RECORD.threads)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "records.sqlite"


def at(second: int) -> str:
    return f"2026-01-31T23:59:{second:02}.000000+00:00"


def measured(digit: str, *rounds_us: float, second: int = 0, error: str = "", **changed) -> Record:
    return replace(RECORD, object=digit * 64, rounds_us=rounds_us, error=error, at=at(second), **changed)


@given(st.lists(records(), max_size=6))
def test_what_was_appended_is_found_and_goes_to_another_store(appended: list[Record]) -> None:
    with RecordStore(None) as store, RecordStore(None) as other:
        assert store.append(appended) == len({record.to_text() for record in appended})
        found = store.find()
        assert sorted(r.to_text() for r in found) == sorted({r.to_text() for r in appended})
        assert store.append(appended) == 0
        assert other.add_lines(store.lines(), "export") == (len(found), len(found))
        assert other.add_lines(store.lines(), "export") == (len(found), 0)
        assert other.find() == found
        for record in appended:
            key = (record.workload, record.target, record.device, record.threads)
            assert record in store.find(*key)
            assert record in store.find(*key, residence=record.residence, compiler=record.compiler)


def test_records_are_found_by_any_of_their_keys() -> None:
    others = [
        replace(RECORD, workload="d" * 64),
        replace(RECORD, target="d" * 64),
        replace(RECORD, device="another"),
        replace(RECORD, threads=1),
    ]
    with RecordStore(None) as store:
        store.append([RECORD, *others])
        assert store.find(*KEYS) == [RECORD]
        for number, other in enumerate(others):
            asked = [None] * 4
            asked[number] = [other.workload, other.target, other.device, other.threads][number]
            assert store.find(*asked) == [other]


def test_versions_and_places_filter_and_are_no_keys() -> None:
    newer, near = replace(RECORD, compiler="2"), replace(RECORD, residence=("", "L2"))
    with RecordStore(None) as store:
        store.append([RECORD, newer, near])
        assert len(store.find(*KEYS)) == 3
        assert store.find(*KEYS, compiler="2") == [newer]
        assert store.find(*KEYS, residence=["", "L2"]) == [near]


def test_records_are_found_by_their_objects() -> None:
    refused = replace(RECORD, object="", rounds_us=(), error="no such tile")
    with RecordStore(None) as store:
        store.append([*(measured(digit, 1.0) for digit in "123"), refused])
        assert {record.object[:1] for record in store.find(*KEYS, objects={"1" * 64, "3" * 64})} == {"1", "3"}
        assert store.find(*KEYS, objects=[""]) == [refused]
        assert store.find(*KEYS, objects=[]) == store.find(*KEYS, objects=["9" * 64]) == []


def test_the_best_has_the_fastest_round_and_no_error() -> None:
    with RecordStore(None) as store:
        assert store.best(*KEYS) is None
        store.append([measured("1", error="died")])
        assert store.best(*KEYS) is None
        store.append([measured("2", 9.0, 5.0), measured("3", 6.0, 6.0), measured("4", 1.0, threads=1)])
        found = store.best(*KEYS)
        assert found is not None and found.object == "2" * 64


def test_stores_with_the_same_records_answer_alike() -> None:
    appended = [measured(str(n), float(n + 1), second=n % 3) for n in range(9)]
    answers = []
    for seed in range(5):
        random.Random(seed).shuffle(appended)
        with RecordStore(None) as store:
            for record in appended:
                store.append([record])
            answers.append((store.find(), list(store.lines())))
    assert all(answer == answers[0] for answer in answers)


def test_texts_are_what_keys_stand_for(path: Path) -> None:
    with RecordStore(path) as store, RecordStore(None) as other:
        store.append([RECORD], ["a dispatch", "a machine"])
        assert store.text(key_of("a dispatch")) == "a dispatch"
        assert store.text("0" * 64) is None
        other.add_lines(store.lines(), "export")
        assert other.text(key_of("a machine")) == "a machine"


def test_objects_are_known_by_what_code_generation_reads() -> None:
    plain, levelled = Schedule((8,)), Schedule((8,), levels=(("L1", (4,)),))
    with RecordStore(None) as store:
        store.keep_objects("w", "compiler", [(plain, "c" * 64)])
        assert store.objects("w", "compiler", [levelled, Schedule((9,))]) == ["c" * 64, ""]
        assert store.objects("w", "another", [plain]) == store.objects("v", "compiler", [plain]) == [""]


@pytest.mark.parametrize("statement", ["DELETE FROM", "UPDATE"])
@pytest.mark.parametrize("table", ["records", "texts", "objects"])
def test_nothing_is_ever_changed(path: Path, statement: str, table: str) -> None:
    with RecordStore(path) as store:
        store.append([RECORD], ["a dispatch"])
        store.keep_objects("w", "compiler", [(Schedule(), "c" * 64)])
    column = {"records": "record", "texts": "text", "objects": "object"}[table]
    with (
        closing(sqlite3.connect(path)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="only ever added"),
    ):
        connection.execute(f"{statement} {table}" + (f" SET {column} = 'x'" if statement == "UPDATE" else ""))


def test_many_processes_begin_and_append_at_once(path: Path) -> None:
    """All begin the same file at the same moment, and nothing of any is lost or doubled."""
    script = """
import sys, time
from dataclasses import replace
from pathlib import Path
from test_record import RECORD
from tilewright.compiler.tuning.record_store import RecordStore
sys.stdin.readline()
with RecordStore(Path(sys.argv[1])) as store:
    for number in range(40):
        store.append([replace(RECORD, host=sys.argv[2], rounds_us=(number + 1.0, n + 1.0)) for n in range(3)])
        store.append([RECORD], ["a dispatch"])
        assert len(store.find()) > 3 * number
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), f"host {n}"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for n in range(4)
    ]  # fmt: skip
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
    with RecordStore(path) as store:
        found = store.find()
    assert len(found) == len(set(found)) == 4 * 40 * 3 + 1
    for n in range(4):
        assert sum(record.host == f"host {n}" for record in found) == 120


def test_many_processes_begin_the_same_file(tmp_path: Path) -> None:
    """sqlite refuses at once, instead of waiting, where two processes make a new file's log together."""
    script = """
import multiprocessing, sys
from pathlib import Path
from tilewright.compiler.tuning.record_store import RecordStore
processes, files = 5, 150
barrier = multiprocessing.Barrier(processes)
def begin():
    for number in range(files):
        barrier.wait()
        RecordStore(Path(sys.argv[1]) / f"{number}.sqlite").close()
context = multiprocessing.get_context("fork")
children = [context.Process(target=begin) for _ in range(processes)]
for child in children: child.start()
for child in children: child.join(60)
sys.exit(any(child.exitcode for child in children))
"""
    run = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr


def test_a_process_killed_in_the_middle_leaves_a_valid_store(path: Path) -> None:
    script = """
import sys
from dataclasses import replace
from pathlib import Path
from test_record import RECORD
from tilewright.compiler.tuning.record_store import RecordStore
with RecordStore(Path(sys.argv[1])) as store:
    for number in range(10**9):
        store.append([replace(RECORD, rounds_us=(number + 1.0, n + 1.0)) for n in range(3)])
        print(number, flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    told = -1
    for kill in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert child.stdout is not None
        for _ in range(5 + kill):
            told = max(told, int(child.stdout.readline()))
        child.kill()
        child.communicate()
        with RecordStore(path) as store:
            found = store.find()
            # Whole transactions, and at least all that were told of.
            assert len(found) % 3 == 0 and len(found) >= 3 * (told + 1)
            assert store.append([measured("e", 1.0, second=kill)] * 2) == 1
            path = path.with_name(f"{kill}.sqlite")
            told = -1


class TestDamage:
    @pytest.fixture
    def filled(self, path: Path) -> Path:
        with RecordStore(path) as store:
            for number in range(50):
                store.append([replace(RECORD, rounds_us=(number + 1.0,), device=f"device {number}")])
        return path

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"this is no database at all" * 99, "not a database.*move the file away"),
            (b"SQLite format 3\0" + b"\xff" * 5000, "move the file away"),
        ],
    )
    def test_of_the_whole_file_is_told_with_a_remedy(self, path: Path, data: bytes, why: str) -> None:
        path.parent.mkdir()
        path.write_bytes(data)
        with pytest.raises(RecordError, match=why) as told:
            RecordStore(path)
        assert str(path) in str(told.value)
        assert path.read_bytes() == data

    @pytest.mark.parametrize("seed", range(12))
    def test_anywhere_is_told_or_harmless(self, filled: Path, seed: int) -> None:
        """A torn page or a shorter file: an error of ours, malformed rows, or no harm; never records that were not."""
        with RecordStore(filled) as store:
            whole = set(store.find())
        data = bytearray(filled.read_bytes())
        draw = random.Random(seed)
        if seed % 3 == 0:
            del data[draw.randrange(100, len(data)) :]
        else:
            start = draw.randrange(100, len(data) - 600)
            data[start : start + 512] = draw.randbytes(512)
        filled.write_bytes(data)
        told: list[RecordError] = []
        found: list[Record] = []
        try:
            with RecordStore(filled) as store:
                found = store.find(malformed=told.append)
                store.append([replace(RECORD, host="later")])
        except RecordError as error:
            assert str(filled) in str(error)
        assert set(found) <= whole
        assert all("is malformed" in str(error) for error in told)

    def test_of_text_that_sqlite_quotes_is_told(self, filled: Path) -> None:
        """Python raises a UnicodeDecodeError in place of sqlite's message."""
        data = filled.read_bytes()
        assert b"no_update_of_records" in data
        filled.write_bytes(data.replace(b"no_update_of_records", b"no_updat\xc3_of_records", 1))
        with pytest.raises(RecordError, match=r"malformed database schema \(no_updat.*move the file away"):
            RecordStore(filled)

    def test_of_a_few_bits_is_told_or_harmless(self, filled: Path) -> None:
        data = filled.read_bytes()
        told = 0
        for seed in range(300):
            draw, copy = random.Random(seed), bytearray(data)
            end = 4096 if seed % 2 else len(copy)  # the tables are described in the first page
            for _ in range(draw.randint(1, 4)):
                copy[draw.randrange(end)] ^= 1 << draw.randrange(8)
            path = filled.with_name(f"{seed}.sqlite")
            path.write_bytes(copy)
            rows: list[RecordError] = []
            try:
                with RecordStore(path) as store:
                    store.find(malformed=rows.append)
                    told += bool(rows + store.faults())
            except RecordError as error:
                assert str(path) in str(error)
                told += 1
        assert told > 100

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ("record = '{}'", "its text is not what was written"),
            ("record = NULL", None),
            ("record = replace(record, '12.5', '1.5')", "its text is not what was written"),
            ("device = 'another'", "its columns are not those of its record"),
            ("record = CAST(x'ff00ff' AS TEXT)", "its text is not what was written"),
        ],
    )
    def test_of_a_row_is_told_and_the_others_are_found(
        self, path: Path, change: str, why: str | None
    ) -> None:
        with RecordStore(path) as store:
            store.append([RECORD, replace(RECORD, rounds_us=(7.0,))])
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TRIGGER no_update_of_records")
            if why is None:
                with pytest.raises(sqlite3.IntegrityError):
                    connection.execute(f"UPDATE records SET {change}")
                return
            connection.execute(f"UPDATE records SET {change} WHERE record LIKE '%12.5%'")
        told: list[str] = []
        with RecordStore(path) as store:
            assert store.find(malformed=lambda error: told.append(str(error))) == [
                replace(RECORD, rounds_us=(7.0,))
            ]
            with pytest.raises(RecordError, match=f"{path}.*{why}"):
                store.find()
        assert len(told) == 1 and why in told[0]

    def test_a_later_version_is_refused_and_left_alone(self, filled: Path) -> None:
        with closing(sqlite3.connect(filled)) as connection, connection:
            connection.execute("PRAGMA user_version = 7")
        with pytest.raises(
            RecordError, match="expected a file of version 2, found version 7; use the tilewright"
        ):
            RecordStore(filled)

    def test_a_file_of_the_first_version_keeps_its_records_and_objects(self, filled: Path) -> None:
        with RecordStore(filled) as store:
            before = store.find()
            store.keep_objects(RECORD.workload, "c", [(Schedule((8,)), "5" * 64)])
        with closing(sqlite3.connect(filled)) as connection, connection:
            connection.execute("ALTER TABLE objects RENAME COLUMN code TO workload")
            connection.execute("PRAGMA user_version = 1")
        for _ in range(2):
            with RecordStore(filled) as store:
                assert store.find() == before
                assert store.objects(RECORD.workload, "c", [Schedule((8,))]) == ["5" * 64]

    def test_a_folder_that_is_a_file_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(RecordError, match="name a folder that can be written with TILEWRIGHT_CACHE_DIR"):
            RecordStore(tmp_path / "file" / "records.sqlite")

    def test_a_full_disk_is_told_and_loses_nothing(self, path: Path) -> None:
        with RecordStore(path) as store:
            store.append([RECORD])
            pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
            store._connection.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(RecordError, match=r"full; .*room on the disk"):
                store.append([replace(RECORD, error="x" * 99999, rounds_us=())])
            assert store.find() == [RECORD]


@pytest.mark.parametrize(
    "bad",
    ["{", "[]", '{"text": 3}', '{"text": "a", "more": 1}', RECORD.to_text().replace("12.5", "-1")],
    ids=["torn", "list", "number", "more", "negative"],
)
def test_a_bad_line_is_named_and_nothing_is_imported(bad: str) -> None:
    lines = [RECORD.to_text(), "", bad, replace(RECORD, host="b").to_text()]
    with RecordStore(None) as store:
        with pytest.raises(RecordError, match=r"^team.jsonl:3: .*nothing was imported"):
            store.add_lines(lines, "team.jsonl")
        assert store.find() == []


def test_keys_are_the_same_in_any_process() -> None:
    script = """
import json
from tilewright.compiler.ir import functions, parse
from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.nouns.record import key_of, target_text
from tilewright.compiler.targets.target import resolve
from profiled_dispatch import MODEL
from test_record import RECORD
text = MODEL.replace("@double", "@%s")
module = parse(text)
function = [f for f in functions(module) if "tilewright.operator" in f.attributes][0]
print(json.dumps([workload_of(function).key, key_of(target_text(resolve("v100"))), RECORD.to_text()]))
"""
    found = []
    for seed, name in (("0", "double"), ("1", "another"), ("4711", "elementwise_64_7")):
        paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        run = [sys.executable, "-c", script.replace("%s", name)]
        done = subprocess.run(run, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] == found[2]


FIRST, OTHER, THIRD = ("1" * 64, "2" * 64, "3" * 64)


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ([], 0),
        ([measured("2", 1.0)], 0),
        ([measured("1", 9.0), measured("3", 1.0)], 2),
        # The best round decides who is fastest, a sitting of both whether that is more than luck.
        (
            [
                measured("1", 10.0),
                measured("2", 9.0),
                measured("1", 8.0, second=1),
                measured("2", 8.0, second=1),
            ],
            0,
        ),
        ([measured("1", 10.0, 11.0, 10.0), measured("2", 9.0, 9.5, 9.0)], 1),
        ([measured("1", 10.0, 11.0, 10.0), measured("2", 9.9, 9.9, 9.9)], 0),
        ([measured("1", 10.0, 11.0, 10.0), measured("2", 8.0, 12.0, 12.0)], 0),
        ([measured("1", 10.0, 20.0, 20.0), measured("2", 10.0, 10.0, 10.0)], 0),
        # The last sitting, not the first one.
        (
            [
                measured("1", 5.0, second=2),
                measured("2", 9.0, second=2),
                measured("1", 9.0),
                measured("2", 4.0),
            ],
            0,
        ),
        # Never in one sitting: all rounds.
        ([measured("1", 9.0, second=1), measured("2", 4.0, second=2), measured("2", 99.0, second=3)], 0),
        ([measured("1", 9.0, second=1), measured("2", 4.0, second=2), measured("2", 5.0, second=3)], 1),
        # A time of another host at the same moment is another sitting.
        ([measured("1", 9.0), measured("2", 4.0, host="b"), measured("2", 99.0, second=3)], 0),
        # What failed once is not used, and neither is anything where the first one did.
        ([measured("1", 9.0), measured("2", 1.0), measured("2", error="wrong"), measured("3", 8.0)], 2),
        ([measured("1", 9.0), measured("2", 1.0), measured("1", error="died")], 0),
        # Objects that are no candidate's do not count.
        ([measured("1", 9.0), measured("7", 1.0)], 0),
    ],
)
def test_a_candidate_is_chosen_from_records_alone(found: list[Record], chosen: int) -> None:
    for seed in range(3):
        random.Random(seed).shuffle(found)
        assert fastest([FIRST, OTHER, THIRD], found, 1.02) == chosen


def test_candidates_without_objects_are_not_chosen() -> None:
    found = [measured("1", 9.0), measured("2", 1.0)]
    assert fastest([], found, 1.02) == fastest(["", OTHER], found, 1.02) == 0
    assert fastest([FIRST, "", OTHER, OTHER], found, 1.02) == 2
