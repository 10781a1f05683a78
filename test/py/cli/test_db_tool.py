"""`tilewright db`: what was measured is listed and shown, goes to another store, and what is no record is told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from tilewright.compiler.nouns.record import Record, key_of, schedule_text, target_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.recording import record_path
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.operators import matmul
from tilewright.compiler.tuning.record_store import RecordStore

Tool = Callable[..., Result]
TEXTS = [matmul(2, 4, size).to_text() for size in (8, 16)]
MACHINE = target_text(resolve("x86-64-v3"))


def record(text: str, digit: str, *rounds_us: float, **changed) -> Record:
    return Record(
        workload=key_of(text),
        target=key_of(MACHINE),
        device="a processor",
        threads=2,
        residence=("", "DRAM"),
        schedule=schedule_text(Schedule((0, int(digit)))),
        object=digit * 64,
        rounds_us=rounds_us,
        error=changed.pop("error", ""),
        compiler="0.1.0",
        host="here",
        at="2026-01-31T23:59:59.000000+00:00",
        **changed,
    )


@pytest.fixture
def store(folder: Path) -> RecordStore:
    """The tool's store, with two workloads in it."""
    made = RecordStore(record_path())
    made.append(
        [
            record(TEXTS[0], "1", 12.5, 11.5),
            record(TEXTS[0], "1", 10.5),
            record(TEXTS[0], "2", 9.25, 9.5),
            record(TEXTS[0], "3", error="died of signal 11"),
            record(TEXTS[1], "4", error="no such tile"),
        ],
        [*TEXTS, MACHINE],
    )
    return made


def test_workloads_are_listed_with_their_best(store: RecordStore, tool: Tool) -> None:
    result = tool("db", "list", "--json")
    assert result.exit_code == 0, result.output
    second, first = (json.loads(line) for line in result.output.splitlines())
    assert (first["operator"], first["shapes"]) == ("matmul", "2x8xf32, 8x4xf32 -> 2x4xf32")
    assert (first["kernels"], first["failed"], first["best_us"]) == (2, 1, 9.25)
    assert first["schedule"] == Schedule((0, 2)).text()
    assert (first["weights"], first["threads"], first["device"]) == ("DRAM", 2, "a processor")
    assert (second["kernels"], second["failed"], second["best_us"]) == (0, 1, None)
    shown = tool("db", "list").output
    assert "workloads measured: 2" in shown and "2x8xf32, 8x4xf32 -> 2x4xf32" in shown
    assert first["workload"][:12] in shown and "9.2" in shown


def test_threads_devices_and_places_of_weights_are_listed_apart(store: RecordStore, tool: Tool) -> None:
    one = record(TEXTS[0], "2", 9.0)
    store.append([replace(one, threads=1), replace(one, device="b"), replace(one, residence=("", "L2"))])
    assert len(tool("db", "list", "--json").output.splitlines()) == 2 + 3


def test_schedules_of_another_version_are_shown_as_they_are_stored(store: RecordStore, tool: Tool) -> None:
    later = '{"colour": "red"}'
    store.append([replace(record(TEXTS[0], "2", 1.5), schedule=later)])
    assert later in tool("db", "list", "--json").output.replace("\\", "")
    assert later in tool("db", "show", key_of(TEXTS[0])).output


def test_texts_of_another_version_are_shown_as_they_are_stored(store: RecordStore, tool: Tool) -> None:
    store.append([record("work of another kind", "2", 1.5)], ["work of another kind"])
    assert '"operator": "?"' in tool("db", "list", "--json").output
    assert "work of another kind" in tool("db", "show", key_of("work of another kind")).output


def test_operators_filter_the_list(store: RecordStore, tool: Tool) -> None:
    assert len(tool("db", "list", "--operator", "matmul", "--json").output.splitlines()) == 2
    assert tool("db", "list", "--operator", "conv", "--json").output == ""


def test_one_workload_is_shown_in_full(store: RecordStore, tool: Tool) -> None:
    key = key_of(TEXTS[0])
    result = tool("db", "show", key[:9])
    assert result.exit_code == 0, result.output
    assert "a0: 2 parallel, a1: 4 parallel, a2: 8 reduction\nin0 2x8xf32 [a0, a2]" in result.output
    assert "records: 4" in result.output and "died of signal 11" in result.output
    assert "no such tile" not in result.output
    lines = tool("db", "show", key, "--json").output.splitlines()
    assert [Record.from_text(line).us for line in lines][:3] == [9.25, 10.5, 11.5]


@pytest.mark.parametrize(("named", "why"), [("", "several do"), ("x", "none does")])
def test_a_workload_is_named_by_the_beginning_of_one_key(store, tool: Tool, named: str, why: str) -> None:
    result = tool("db", "show", named)
    assert result.exit_code == 1
    assert f"expected the beginning of one workload's key, found `{named}`; {why}" in result.output


def test_stores_merge(store: RecordStore, tool: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tool("db", "export", "mine.jsonl").exit_code == 0
    printed = tool("db", "export").output
    assert printed == (folder / "mine.jsonl").read_text()
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "other"))
    with RecordStore(record_path()) as other:
        other.append([record(TEXTS[0], "2", 9.25, 9.5), record(TEXTS[0], "5", 3.5)])
        assert tool("db", "import", "mine.jsonl").output == "mine.jsonl: 5 records, 4 of them new\n"
        assert tool("db", "import", "mine.jsonl").output == "mine.jsonl: 5 records, 0 of them new\n"
        assert len(other.find()) == 6
    lines = tool("db", "list", "--json").output.splitlines()
    assert {json.loads(line)["best_us"] for line in lines} == {3.5, None}
    assert "a2: 16 reduction" in tool("db", "show", key_of(TEXTS[1])).output


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"version": 1}\n', "bad.jsonl:1: at: a field that is missing of a record; nothing was imported"),
        (b"\xff\xfe\n", "cannot read `bad.jsonl`: it is not UTF-8"),
        (None, "cannot read `bad.jsonl`: No such file"),
    ],
    ids=["incomplete", "binary", "absent"],
)
def test_a_file_of_no_records_is_refused_whole(
    store: RecordStore, tool: Tool, folder: Path, data: bytes | None, why: str
) -> None:
    if data is not None:
        line = record(TEXTS[0], "6", 1.0).to_text().encode()
        (folder / "bad.jsonl").write_bytes(data + line)
    before = store.find()
    result = tool("db", "import", "bad.jsonl")
    assert result.exit_code == 1 and why in result.output
    assert store.find() == before


@pytest.mark.parametrize("arguments", [("list",), ("show", "a"), ("export",)])
def test_without_records_the_tool_says_how_to_come_by_some(tool: Tool, arguments: tuple[str, ...]) -> None:
    result = tool("db", *arguments)
    assert result.exit_code == 1
    assert "there are no records in" in result.output and "--opt O1" in result.output
    assert not record_path().exists()


@pytest.mark.parametrize("arguments", [("list", "--json"), ("show", "--json"), ("export",)])
def test_a_malformed_row_is_told_and_the_rest_is_there(
    store: RecordStore, tool: Tool, arguments: tuple[str, ...]
) -> None:
    with closing(sqlite3.connect(record_path())) as connection, connection:
        connection.execute(
            "INSERT INTO records SELECT 'strange', workload, target, device, threads, object, '{}' FROM records LIMIT 1"
        )
    named = [key_of(TEXTS[0])] if arguments[0] == "show" else []
    result = tool("db", *arguments, *named)
    assert result.exit_code == 1
    assert "row `strange` is malformed" in result.output
    assert "matmul" in result.output or '"workload"' in result.output


def test_a_model_at_o1_leaves_records(folder: Path, tool: Tool) -> None:
    assert tool("compile", "tiny_models:tiny", "--opt", "O1").exit_code == 0
    result = tool("db", "list", "--json")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert rows and all(row["operator"] == "matmul" for row in rows)
    assert all(row["kernels"] >= 2 and row["best_us"] > 0 for row in rows)
    assert all(row["machine"].startswith(resolve("cpu").llvm_cpu) for row in rows)


def test_the_best_of_every_place_are_shown_and_can_be_carried_elsewhere(
    store: RecordStore, tool: Tool
) -> None:
    fast = replace(record(TEXTS[0], "2", 4.0), threads=1)
    store.append([fast, replace(record(TEXTS[0], "3", 7.0), threads=1)])
    lines = tool("db", "best", "--json").output.splitlines()
    assert [(found.threads, found.us) for found in map(Record.from_text, lines)] == [(1, 4.0), (2, 9.25)]
    assert "best records: 2" in tool("db", "best", key_of(TEXTS[0])[:8]).output
    none = tool("db", "best", key_of(TEXTS[1]))
    assert none.exit_code == 1 and "no measurement of a workload whose key begins with" in none.output


def test_databases_merge_and_those_taken_in_are_not_changed(
    store: RecordStore, tool: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = record_path()
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "other"))
    before = theirs.read_bytes()
    assert tool("db", "merge", theirs).output == f"{theirs}: 5 records, 5 of them new\n"
    assert tool("db", "merge", theirs, theirs).output.count("0 of them new") == 2
    with RecordStore(record_path()) as merged:
        assert merged.find() == store.find() and merged.text(key_of(TEXTS[1])) == TEXTS[1]
    assert theirs.read_bytes() == before


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "there is no database"),
        (b"", "it has no table `records`"),
        (b"x" * 4096, "file is not a database"),
    ],
)
def test_what_is_no_database_is_told(tool: Tool, folder: Path, data: bytes | None, why: str) -> None:
    if data is not None:
        (folder / "other.sqlite").write_bytes(data)
    for command in ("merge", "verify"):
        result = tool("db", command, "other.sqlite")
        assert result.exit_code == 1 and why in result.output, result.output


def changed_row(statement: str) -> None:
    """Changes the database behind the back of what refuses it."""
    with closing(sqlite3.connect(record_path())) as connection, connection:
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement)


class TestVerify:
    def test_a_whole_database_is_said_to_be_whole(self, store: RecordStore, tool: Tool) -> None:
        store.append([replace(record(TEXTS[0], "2", 1.5), schedule='{"colour": "red"}')])
        result = tool("db", "verify")
        assert result.exit_code == 0, result.output
        assert "6 records, 2 of them failures, 1 with schedules of other versions; faults: 0" in result.output

    @pytest.mark.parametrize(
        ("statement", "why"),
        [
            ("UPDATE records SET record = replace(record, '9.25', '0.25')", "malformed"),
            ("UPDATE records SET threads = 7", "malformed"),
            ("UPDATE texts SET text = text || ' '", "is not what its key stands for"),
        ],
    )
    def test_a_changed_row_is_found(self, store: RecordStore, tool: Tool, statement: str, why: str) -> None:
        changed_row(statement)
        result = tool("db", "verify")
        assert result.exit_code == 1 and why in result.output, result.output

    def test_a_damaged_page_is_found(self, store: RecordStore, tool: Tool) -> None:
        store.append([record(TEXTS[0], "7", float(number + 1)) for number in range(200)])
        store.close()
        data = bytearray(record_path().read_bytes())
        data[len(data) // 2 : len(data) // 2 + 2048] = b"\x5a" * 2048
        record_path().write_bytes(data)
        result = tool("db", "verify")
        assert result.exit_code == 1 and str(record_path()) in result.output, result.output
        assert "Traceback" not in result.output
