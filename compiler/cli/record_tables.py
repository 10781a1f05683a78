"""Records as tables: workloads with what was measured of each, all records of one, and the best of every one."""

from __future__ import annotations

import json

from rich.table import Table

from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.record import Record
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.tuning.record_store import RecordStore

SHOWN = 12
"""Digits of a key in tables; any beginning that only one key has will do to name it."""


def summary(store: RecordStore, found: list[Record]) -> dict:
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


def workload_of_text(text: str | None) -> Workload | None:
    """The workload with a text; None where there is none, or it is of another version."""
    try:
        return None if text is None else Workload.from_text(text)
    except ValueError:
        return None


def _described(text: str | None) -> tuple[str, str]:
    """Operator and shapes, `1x10x10x8xf32, 1x3x3x8x64xf32 -> 1x64x8x8xf32`."""
    workload = workload_of_text(text)
    if workload is None:
        return "?", ""
    sides = [", ".join(o.text() for o in side) for side in (workload.inputs, [workload.output])]
    return workload.op, " -> ".join(sides)


def _machine(text: str | None) -> str:
    """What a target is called in the list: its architecture, CPU and cores."""
    facts = json.loads(text) if text else {}
    cpu = facts.get("llvm_cpu") or facts.get("arch", "?")
    return f"{cpu}, {facts.get('num_cores', '?')} cores"


def workloads_table(rows: list[dict]) -> Table:
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
            *(row["operator"], row["shapes"], row["workload"][:SHOWN], machine, str(row["threads"])),
            *(row["weights"], str(row["kernels"]), str(row["failed"]), best, row["schedule"]),
        )
    return table


def records_table(key: str, found: list[Record]) -> Table:
    table = Table(title=f"workload {key[:SHOWN]}, records: {len(found)}")
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
                record.object[:SHOWN],
                record.device,
                str(record.threads),
            ),
            *(record.compiler, record.at[:19].replace("T", " "), record.error),
        )
    return table


def best_table(rows: list[dict]) -> Table:
    table = Table(title=f"best records: {len(rows)}")
    for column in ("operator", "shapes", "workload", "machine", "threads", "weights from"):
        table.add_column(column)
    table.add_column("best us", justify="right")
    table.add_column("schedule")
    for row in rows:
        machine = ", ".join(filter(None, (row["device"], row["machine"])))
        table.add_row(
            *(row["operator"], row["shapes"], row["workload"][:SHOWN], machine, str(row["threads"])),
            *(row["weights"], f"{row['best_us']:,.1f}", row["schedule"]),
        )
    return table
