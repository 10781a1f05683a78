"""`tilewright db`: the database of measurements: looked at, its best records, carried elsewhere, and proved to be whole."""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from tilewright.compiler.cli.record_tables import (
    best_table,
    records_table,
    summary,
    workload_of_text,
    workloads_table,
)
from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.record import Record
from tilewright.compiler.profiler.recording import record_path
from tilewright.compiler.terminal import console as new_console
from tilewright.compiler.tuning.record_store import RecordStore


@click.group("db", short_help="Look at, merge and verify the database of measurements.")
def command() -> None:
    """Look at the database of measured kernels, take in those of others, and prove that it is whole.

    It is records.sqlite in the cache folder, written by opt O1 and by searches; nothing in it is ever changed or removed.
    """


@command.command("list")
@click.option("--operator", help="Only workloads of this operator (conv, matmul, ...).")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per workload, target, device and threads."
)
def listrecords_table(operator: str | None, as_json: bool) -> None:
    """List workloads, each with how many kernels were measured, how many failed, and the best."""
    malformed: list[RecordError] = []
    with _existing_store() as store:
        groups: dict[tuple, list[Record]] = {}
        for record in store.find(malformed=malformed.append):
            place = (record.workload, record.target, record.device, record.threads, record.residence)
            groups.setdefault(place, []).append(record)
        rows = [summary(store, found) for found in groups.values()]
    rows = [row for row in rows if operator is None or row["operator"] == operator]
    rows.sort(
        key=lambda row: (row["operator"], row["shapes"], row["workload"], row["device"], row["threads"])
    )
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        new_console().print(workloads_table(rows))
    _tell(malformed)


@command.command("best")
@click.argument("workload", default="")
@click.option(
    "--json", "as_json", is_flag=True, help="The records as they are stored, which `import` takes in."
)
def best(workload: str, as_json: bool) -> None:
    """Show the fastest record of every workload, or of those whose key begins with WORKLOAD.

    There is one for every target, device, number of threads and place of weights. Of equally fast ones it is the oldest.
    """
    malformed: list[RecordError] = []
    with _existing_store() as store:
        fastest: dict[tuple, Record] = {}
        for record in store.find(malformed=malformed.append):
            if not record.rounds_us or not record.workload.startswith(workload):
                continue
            place = (record.workload, record.target, record.device, record.threads, record.residence)
            if place not in fastest or record.us < fastest[place].us:
                fastest[place] = record
        if not fastest and not malformed:
            named = f"of a workload whose key begins with `{workload}` " if workload else ""
            raise RecordError(f"no measurement {named}succeeded; `tilewright db list` shows what was tried")
        if as_json:
            for place in sorted(fastest):
                click.echo(fastest[place].to_text())
        else:
            new_console().print(best_table([summary(store, [fastest[place]]) for place in sorted(fastest)]))
    _tell(malformed)


@command.command("show")
@click.argument("workload")
@click.option("--json", "as_json", is_flag=True, help="The records as they are stored, one per line.")
def show(workload: str, as_json: bool) -> None:
    """Show one workload, named by the beginning of its key, and all its records, best first."""
    malformed: list[RecordError] = []
    with _existing_store() as store:
        found = [r for r in store.find(malformed=malformed.append) if r.workload.startswith(workload)]
        keys = sorted({record.workload for record in found})
        if len(keys) != 1:
            several = (
                f"several do: {', '.join(key[: len(workload) + 4] for key in keys)}" if keys else "none does"
            )
            raise RecordError(
                f"expected the beginning of one workload's key, found `{workload}`; {several}; "
                "`tilewright db list` lists them"
            )
        text = store.text(keys[0])
    found.sort(key=lambda record: (record.us, record.at))
    if as_json:
        for record in found:
            click.echo(record.to_text())
    else:
        read = workload_of_text(text)
        click.echo(read.text() if read else text or "what it computes is not in this store")
        new_console().print(records_table(keys[0], found))
    _tell(malformed)


@command.command("merge")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
def merge(files: tuple[Path, ...]) -> None:
    """Take in the records of other databases, which are not changed; what is there already is not doubled.

    Rows that are no records are told of and left out, and the command fails after all others were taken in.
    """
    malformed: list[RecordError] = []
    with RecordStore(record_path()) as store:
        for file in files:
            with _copy(file) as other:
                count, new = store.add_lines(other.lines(malformed.append), str(file))
            click.echo(f"{file}: {count} records, {new} of them new")
    _tell(malformed)


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
def export(file: Path | None) -> None:
    """Write everything to FILE, or to standard output, as lines of JSON."""
    malformed: list[RecordError] = []
    with _existing_store() as store:
        lines = store.lines(malformed.append)
        if file is None:
            sys.stdout.writelines(f"{line}\n" for line in lines)
        else:
            try:
                with file.open("w", encoding="utf-8") as out:
                    out.writelines(f"{line}\n" for line in lines)
            except OSError as error:
                raise RecordError(f"cannot write `{file}`: {error.strerror}") from None
    _tell(malformed)


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
def import_(files: tuple[Path, ...]) -> None:
    """Take in what `export` wrote, here or elsewhere; records that are there already are not doubled.

    A file with a line that is no record is refused whole.
    """
    with RecordStore(record_path()) as store:
        for file in files:
            try:
                with file.open(encoding="utf-8") as lines:
                    count, new = store.add_lines(lines, str(file))
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise RecordError(f"cannot read `{file}`: {reason}; nothing of it was imported") from None
            click.echo(f"{file}: {count} records, {new} of them new")


@command.command("verify")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, dir_okay=False))
def verify(files: tuple[Path, ...]) -> None:
    """Check every page and every row of the database, or of FILES, which are not changed; fail where one is wrong.

    A row is wrong whose text is not what was written, or whose columns or keys are not those of its text. Records whose
    schedules this version of the compiler does not read are counted, and are no fault.
    """
    faults: list[RecordError] = []
    for file in files or (record_path(),):
        with _copy(file) as store:
            before = len(faults)
            faults += store.faults()
            found = store.find(malformed=faults.append)
        foreign = sum(not _is_read(record) for record in found)
        failures = sum(bool(record.error) for record in found)
        click.echo(
            f"{file}: {len(found)} records, {failures} of them failures, {foreign} with schedules of other versions; "
            f"faults: {len(faults) - before}"
        )
    _tell(faults)


def _existing_store() -> RecordStore:
    """The store; raises RecordError where there is none, and makes none."""
    path = record_path()
    if not path.exists():
        raise RecordError(
            f"there are no records in `{path}` yet; compile a model with --opt O1, or import some"
        )
    return RecordStore(path)


def _tell(malformed: Iterable[RecordError]) -> None:
    """Says which rows are no records; the command has failed when there are any."""
    errors = [str(error) for error in malformed]
    for error in errors:
        click.echo(f"Error: {error}", err=True)
    if errors:
        raise click.exceptions.Exit(1)


@contextmanager
def _copy(path: Path) -> Iterator[RecordStore]:
    """A database as it is now, in a copy: opening one of an older version would convert it."""
    if not path.exists():
        raise RecordError(f"there is no database `{path}`; name a file records.sqlite of a cache folder")
    with tempfile.TemporaryDirectory(prefix="tilewright-db-") as folder:
        copied = Path(folder) / path.name
        try:
            with (
                closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copied)) as target,
            ):
                source.backup(target)
                known = target.execute(
                    "SELECT count(*) FROM sqlite_master WHERE name = 'records'"
                ).fetchone()[0]
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # a message with damaged text in it
            raise RecordError(f"cannot read the database `{path}`: {error}") from None
        if not known:
            raise RecordError(f"`{path}` is no database of records: it has no table `records`")
        with RecordStore(copied, shown=path) as store:
            yield store


def _is_read(record: Record) -> bool:
    try:
        record.read_schedule()
    except RecordError:
        return False
    return True
