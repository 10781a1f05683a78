"""The store of records: one sqlite file that many processes append to at once, and that nothing is ever removed from.

| table | holds |
| --- | --- |
| `records` | every `Record` as its JSON, once, with the four things it is looked up by, and its object |
| `texts` | what the keys of workloads and targets stand for: the key is the text's SHA-256 |
| `objects` | which object a version of the compiler makes of a dispatch and a schedule, so that known candidates need not be compiled |

Exported, it is lines of JSON, `{"text": ...}` before the records that it explains; importing such lines merges stores.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.record import Record, key_of, parse_object, schedule_text
from tilewright.compiler.nouns.schedule import Schedule

SCHEMA_VERSION = 2
_WAIT_S = 30.0
_TABLES = {
    "records": """(
        id TEXT PRIMARY KEY, workload TEXT NOT NULL, target TEXT NOT NULL, device TEXT NOT NULL,
        threads INTEGER NOT NULL, object TEXT NOT NULL, record TEXT NOT NULL)""",
    "texts": "(key TEXT PRIMARY KEY, text TEXT NOT NULL)",
    "objects": """(
        code TEXT NOT NULL, compiler TEXT NOT NULL, schedule TEXT NOT NULL, object TEXT NOT NULL,
        PRIMARY KEY (code, compiler, schedule)) WITHOUT ROWID""",
}
_KEYS = ("workload", "target", "device", "threads")
_COLUMNS = (*_KEYS, "object")

OnMalformed = Callable[[RecordError], None]
"""Told of every row that is no record, which is then passed over and stays where it is."""


def _refuse(error: RecordError) -> None:
    raise error


class RecordStore:
    """Records in a file, which is made where there is none; everything raises RecordError that names the file."""

    def __init__(self, path: Path | None, *, shown: Path | None = None):
        """Opens the file; errors name `shown` where it is a copy of another."""
        self.path = shown or path
        with self._told():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path or ":memory:", timeout=_WAIT_S, isolation_level=None)
            self._connection.text_factory = lambda data: data.decode(errors="replace")
        try:
            with self._told():
                self._prepare()
        except RecordError:
            self._connection.close()
            raise

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def append(self, records: Iterable[Record], texts: Iterable[str] = ()) -> int:
        """Adds records, and texts that their keys stand for, all or none; returns how many records are new."""
        return self._add(records, {key_of(text): text for text in texts})

    def find(
        self,
        workload: str | None = None,
        target: str | None = None,
        device: str | None = None,
        threads: int | None = None,
        *,
        objects: Collection[str] | None = None,
        residence: Sequence[str] | None = None,
        compiler: str | None = None,
        malformed: OnMalformed = _refuse,
    ) -> list[Record]:
        """The records that have what is given, and one of `objects`, oldest first, in an order that only they decide."""
        asked = dict(zip(_KEYS, (workload, target, device, threads)))
        given = {name: value for name, value in asked.items() if value is not None}
        where = [f"{name} = ?" for name in given]
        if objects is not None:
            where.append(f"object IN ({', '.join('?' * len(objects))})")
        with self._told():
            rows = self._connection.execute(
                f"SELECT id, {', '.join(_COLUMNS)}, record FROM records WHERE {' AND '.join(where) or '1'}",
                (*given.values(), *(objects or ())),
            ).fetchall()
        found: list[tuple[str, str, Record]] = []
        for row in rows:
            try:
                record = self._parsed(row)
            except RecordError as error:
                malformed(error)
                continue
            if residence is not None and record.residence != tuple(residence):
                continue
            if compiler is not None and record.compiler != compiler:
                continue
            found.append((record.at, str(row[0]), record))
        return [record for *_, record in sorted(found, key=lambda entry: entry[:2])]

    def best(
        self, workload: str, target: str, device: str, threads: int, *, residence: Sequence[str] | None = None
    ) -> Record | None:
        """The record with the fastest round; None where nothing was measured."""
        found = self.find(workload, target, device, threads, residence=residence)
        return min((r for r in found if r.rounds_us), key=lambda record: record.us, default=None)

    def faults(self) -> list[RecordError]:
        """What is wrong with the file besides the rows that `find` tells of: pages, indices, texts under other keys."""
        with self._told():
            pages = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check").fetchall()]
            texts = self._connection.execute("SELECT key, text FROM texts ORDER BY key").fetchall()
        damage = [] if pages == ["ok"] else pages
        damage += [
            f"text `{str(key)[:12]}` is not what its key stands for"
            for key, text in texts
            if key != key_of(text)
        ]
        return [RecordError(f"records in `{self.path}`: {fault}; it is kept, and no use") for fault in damage]

    def text(self, key: str) -> str | None:
        """The text that a key stands for; None where nobody said."""
        with self._told():
            row = self._connection.execute("SELECT text FROM texts WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def keep_objects(self, code: str, compiler: str, objects: Iterable[tuple[Schedule, str]]) -> None:
        """Keeps which objects a version of the compiler, for a target, makes of schedules of a dispatch.

        `code` is the digest of the dispatch's IR: work that is equal may be written in more than one way.
        """
        rows = [(code, compiler, _code_text(schedule), digest) for schedule, digest in objects]
        with self._told(), self._transaction():
            self._connection.executemany("INSERT OR IGNORE INTO objects VALUES (?, ?, ?, ?)", rows)

    def objects(self, code: str, compiler: str, schedules: Sequence[Schedule]) -> list[str]:
        """For each schedule the object that is made of it, "" where that is not known."""
        with self._told():
            rows = self._connection.execute(
                "SELECT schedule, object FROM objects WHERE code = ? AND compiler = ?",
                (code, compiler),
            ).fetchall()
        known = {str(schedule): str(digest) for schedule, digest in rows}
        return [known.get(_code_text(schedule), "") for schedule in schedules]

    def lines(self, malformed: OnMalformed = _refuse) -> Iterator[str]:
        """Everything that another store can take in, oldest first: texts, then records."""
        with self._told():
            texts = self._connection.execute("SELECT text FROM texts ORDER BY key").fetchall()
        for (text,) in texts:
            yield json.dumps({"text": text})
        for record in self.find(malformed=malformed):
            yield record.to_text()

    def add_lines(self, lines: Iterable[str], source: str) -> tuple[int, int]:
        """Takes in what `lines` gave, all or nothing; returns how many records there were, and how many were new.

        A line that is neither a text nor a record raises RecordError with its number in `source`.
        """
        records: list[Record] = []
        texts: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                values = parse_object(line)
                if set(values) == {"text"} and isinstance(values["text"], str):
                    texts[key_of(values["text"])] = values["text"]
                else:
                    records.append(Record.from_text(line))
            except RecordError as error:
                raise RecordError(
                    f"{source}:{number}: {error}; nothing was imported: mend or remove the line"
                ) from None
        return len(records), self._add(records, texts)

    def _add(self, records: Iterable[Record], texts: dict[str, str]) -> int:
        rows = []
        for record in records:
            text = record.to_text()
            rows.append((_id(text), *(getattr(record, name) for name in _COLUMNS), text))
        with self._told(), self._transaction():
            before = self._connection.total_changes
            self._connection.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            added = self._connection.total_changes - before
            self._connection.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", texts.items())
        return added

    def _parsed(self, row: tuple) -> Record:
        """The record of a row; raises RecordError where it is none, or another than its columns say."""
        identity, *keys, text = row
        try:
            if not isinstance(text, str) or identity != _id(text):
                raise RecordError("its text is not what was written")
            record = Record.from_text(text)
            if keys != [getattr(record, name) for name in _COLUMNS]:
                raise RecordError("its columns are not those of its record")
        except RecordError as error:
            raise RecordError(
                f"records in `{self.path}`: row `{str(identity)[:12]}` is malformed: {error}; it is kept, and no use"
            ) from None
        return record

    def _prepare(self) -> None:
        """Makes the tables where they are missing; raises RecordError for a file of another version."""
        self._execute_when_free("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if self._version() == 0:
            with self._transaction():
                if self._version() == 0:
                    self._create()
        if self._version() == 1:
            with self._transaction():
                if self._version() == 1:  # its keys of workloads were what `code` is
                    self._connection.execute("ALTER TABLE objects RENAME COLUMN workload TO code")
                    self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        if self._version() != SCHEMA_VERSION:
            raise RecordError(
                f"records in `{self.path}`: expected a file of version {SCHEMA_VERSION}, found version {self._version()}; "
                "use the tilewright that wrote it, or name another folder with TILEWRIGHT_CACHE_DIR"
            )

    def _create(self) -> None:
        for name, columns in _TABLES.items():
            self._connection.execute(f"CREATE TABLE {name} {columns}")
            for change in ("UPDATE", "DELETE"):
                self._connection.execute(
                    f"CREATE TRIGGER no_{change.lower()}_of_{name} BEFORE {change} ON {name} "
                    "BEGIN SELECT RAISE(ABORT, 'records are only ever added'); END"
                )
        self._connection.execute(f"CREATE INDEX by_key ON records ({', '.join(_COLUMNS)})")
        self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _execute_when_free(self, statement: str) -> None:
        """Runs a statement that sqlite gives up at once, without its usual wait, while another process begins."""
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                self._connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns what sqlite and the system say into a RecordError with the file and the remedy."""
        try:
            yield
        except (
            UnicodeDecodeError
        ) as error:  # sqlite quotes the damaged text of a table, which Python cannot decode
            text = error.object.decode(errors="replace")
            raise RecordError(
                f"records in `{self.path}`: {text}; move the file away, and a new one is begun"
            ) from None
        except sqlite3.DatabaseError as error:
            damaged = any(word in str(error) for word in ("malformed", "not a database"))
            remedy = (
                "move the file away, and a new one is begun"
                if damaged
                else "the file and its folder must be writable, with room on the disk"
            )
            raise RecordError(f"records in `{self.path}`: {error}; {remedy}") from None
        except OSError as error:
            raise RecordError(
                f"records in `{self.path}`: {error.strerror}; name a folder that can be written with TILEWRIGHT_CACHE_DIR"
            ) from None


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _code_text(schedule: Schedule) -> str:
    """What code generation reads of a schedule."""
    return schedule_text(replace(schedule, levels=()))
