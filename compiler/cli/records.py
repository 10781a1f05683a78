"""`tilewright records`: what was measured of which kernels, one of them in full, and stores that merge."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click
from rich.table import Table

from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.record import Record
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.profiler.recording import record_path
from tilewright.compiler.terminal import console as new_console
from tilewright.compiler.tuning.record_store import RecordStore

_SHOWN = 12
"""Digits of a key in tables; any beginning that only one key has will do to name it."""


@click.group("records", short_help="Look at what was measured; merge stores.")
def command() -> None:
    """Look at the records of measured kernels, and carry them to other machines.

    They lie in records.sqlite in the cache folder, are written by opt O1, and are never changed or removed.
    """


@command.command("list")
@click.option("--operator", help="Only workloads of this operator (conv, matmul, ...).")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per workload, target, device and threads."
)
def list_records(operator: str | None, as_json: bool) -> None:
    """List workloads, each with how many kernels were measured, how many failed, and the best."""
    malformed: list[RecordError] = []
    with _existing() as store:
        groups: dict[tuple, list[Record]] = {}
        for record in store.find(malformed=malformed.append):
            place = (record.workload, record.target, record.device, record.threads, record.residence)
            groups.setdefault(place, []).append(record)
        rows = [_summary(store, found) for found in groups.values()]
    rows = [row for row in rows if operator is None or row["operator"] == operator]
    rows.sort(
        key=lambda row: (row["operator"], row["shapes"], row["workload"], row["device"], row["threads"])
    )
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        new_console().print(_listing(rows))
    _tell(malformed)


@command.command("show")
@click.argument("workload")
@click.option("--json", "as_json", is_flag=True, help="The records as they are stored, one per line.")
def show(workload: str, as_json: bool) -> None:
    """Show one workload, named by the beginning of its key, and all its records, best first."""
    malformed: list[RecordError] = []
    with _existing() as store:
        found = [r for r in store.find(malformed=malformed.append) if r.workload.startswith(workload)]
        keys = sorted({record.workload for record in found})
        if len(keys) != 1:
            several = (
                f"several do: {', '.join(key[: len(workload) + 4] for key in keys)}" if keys else "none does"
            )
            raise RecordError(
                f"expected the beginning of one workload's key, found `{workload}`; {several}; "
                "`tilewright records list` lists them"
            )
        text = store.text(keys[0])
    found.sort(key=lambda record: (record.us, record.at))
    if as_json:
        for record in found:
            click.echo(record.to_text())
    else:
        read = _workload(text)
        click.echo(read.text() if read else text or "what it computes is not in this store")
        new_console().print(_records(keys[0], found))
    _tell(malformed)


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
def export(file: Path | None) -> None:
    """Write everything to FILE, or to standard output, as lines of JSON."""
    malformed: list[RecordError] = []
    with _existing() as store:
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


def _existing() -> RecordStore:
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


def _summary(store: RecordStore, found: list[Record]) -> dict:
    """One row of the list: records of one workload on one target, device, number of threads and place of weights."""
    one = found[0]
    best = min(found, key=lambda record: (record.us, record.at))
    failed = {(record.object, record.schedule) for record in found if record.error}
    operator, shapes = _described(store.text(one.workload))
    return {
        "operator": operator,
        "shapes": shapes,
        "workload": one.workload,
        "target": one.target,
        "machine": _machine(store.text(one.target)),
        "device": one.device,
        "threads": one.threads,
        "weights": next(filter(None, one.residence), ""),
        "kernels": len({record.object for record in found if record.rounds_us}),
        "failed": len(failed),
        "best_us": best.us if best.rounds_us else None,
        "schedule": _schedule(best) if best.rounds_us else "",
        "last": max(record.at for record in found),
    }


def _schedule(record: Record) -> str:
    """The schedule in one line; as it is stored where this version of the compiler does not know its fields."""
    try:
        return record.read_schedule().text()
    except RecordError:
        return record.schedule


def _workload(text: str | None) -> Workload | None:
    """The workload with a text; None where there is none, or it is of another version."""
    try:
        return None if text is None else Workload.from_text(text)
    except ValueError:
        return None


def _described(text: str | None) -> tuple[str, str]:
    """Operator and shapes, `1x10x10x8xf32, 1x3x3x8x64xf32 -> 1x64x8x8xf32`."""
    workload = _workload(text)
    if workload is None:
        return "?", ""
    sides = [", ".join(o.text() for o in side) for side in (workload.inputs, [workload.output])]
    return workload.op, " -> ".join(sides)


def _machine(text: str | None) -> str:
    """What a target is called in the list: its architecture, CPU and cores."""
    facts = json.loads(text) if text else {}
    cpu = facts.get("llvm_cpu") or facts.get("arch", "?")
    return f"{cpu}, {facts.get('num_cores', '?')} cores"


def _listing(rows: list[dict]) -> Table:
    table = Table(title=f"workloads measured: {len(rows)}")
    for column in ("operator", "shapes", "workload", "machine", "threads", "weights from"):
        table.add_column(column)
    for column in ("kernels", "failed", "best us"):
        table.add_column(column, justify="right")
    table.add_column("schedule")
    for row in rows:
        best = "-" if row["best_us"] is None else f"{row['best_us']:,.1f}"
        machine = ", ".join(filter(None, (row["device"], row["machine"])))
        table.add_row(
            *(row["operator"], row["shapes"], row["workload"][:_SHOWN], machine, str(row["threads"])),
            *(row["weights"], str(row["kernels"]), str(row["failed"]), best, row["schedule"]),
        )
    return table


def _records(key: str, found: list[Record]) -> Table:
    table = Table(title=f"workload {key[:_SHOWN]}, records: {len(found)}")
    for column in ("best us", "rounds"):
        table.add_column(column, justify="right")
    for column in ("schedule", "object", "device", "threads", "compiler", "when", "error"):
        table.add_column(column)
    for record in found:
        best, rounds = (f"{record.us:,.1f}", str(len(record.rounds_us))) if record.rounds_us else ("-", "")
        table.add_row(
            *(
                best,
                rounds,
                _schedule(record),
                record.object[:_SHOWN],
                record.device,
                str(record.threads),
            ),
            *(record.compiler, record.at[:19].replace("T", " "), record.error),
        )
    return table
