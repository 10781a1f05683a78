"""`python -m bench.device`: checks and times everything on the GPU of this machine, within ten minutes by default.

What was not reached in time is named; `--resume FILE` goes on where a run ended, `--rehearse` runs the small cases on
the CPU with the emulator in place of the GPU.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click

from tilewright.bench.device.cases import PARTS, cases
from tilewright.bench.device.device_limits import describe
from tilewright.bench.device.supervisor import Supervisor
from tilewright.bench.machine import machine, versions
from tilewright.bench.report import write_json
from tilewright.compiler.targets.target import UnknownTargetError, resolve
from tilewright.compiler.terminal import console as new_console

SCHEMA = 1
SHARE = {"check": 0.15, "gemm": 0.3, "memory": 0.12, "attention": 0.08, "models": 0.2, "operators": 0.15}
"""Part of the time that each may take; `compile` takes what is left."""


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="How long to run.")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only these parts.")
@click.option("--only", multiple=True, help="Only cases whose key contains this text.")
@click.option("--resume", type=click.Path(path_type=Path, exists=True), help="Continue this record.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where the record goes.")
@click.option(
    "--rehearse", is_flag=True, help="Small cases on the CPU, with the emulator; no times to be reported."
)
@click.option("--target", default="", help="Our target's name; by default the GPU present.")
def main(
    minutes: float,
    parts: tuple[str, ...],
    only: tuple[str, ...],
    resume: Path | None,
    output: Path | None,
    rehearse: bool,
    target: str,
) -> None:
    """Check and time on a device; the JSON record is complete after every case."""
    console = new_console()
    started = time.monotonic()
    setting = {
        "device": "cpu" if rehearse else "cuda",
        "target": target or ("emulate:sm_90a" if rehearse else "cuda"),
    }
    try:
        described = resolve(setting["target"])
    except UnknownTargetError as error:
        raise click.ClickException(str(error)) from None
    document = _document(resume, described, not rehearse)
    output = output or resume or Path("bench/results") / f"device-{_slug(document)}.json"
    records = document["cases"]
    chosen = parts or PARTS
    for number, part in enumerate(chosen):
        left_s = started + 60 * minutes - time.monotonic()
        shares = [SHARE.get(p, 0.1) for p in chosen[number:]]
        until = time.monotonic() + left_s * (SHARE.get(part, 0.1) / sum(shares))
        wanted = [
            case.key for case in cases(part, rehearse) if not only or any(text in case.key for text in only)
        ]
        keys = [key for key in wanted if key not in records]
        supervisor = Supervisor(setting)

        def done(record: dict) -> None:
            records[record["key"]] = record
            write_json(output, document)
            console.print(_line(record))

        missed = supervisor.run(keys, done, until)
        document["missed"] = sorted({*document["missed"], *missed} - set(records))
        write_json(output, document)
        ran = len(keys) - len(missed)
        console.print(f"[bold]{part}[/bold]: {ran} cases run, {len(missed)} not reached in time")
    bad = [key for key, record in records.items() if _is_bad(record)]
    console.print(f"{output}: {len(records)} cases, {len(bad)} with a wrong or failed result of ours")
    raise SystemExit(1 if bad else 0)


def _document(resume: Path | None, target, is_cuda: bool) -> dict:
    import json
    import shlex
    import sys

    if resume:
        document = json.loads(resume.read_text())
        if document.get("schema") != SCHEMA:
            raise click.ClickException(f"{resume}: expected a record of schema {SCHEMA}")
        return document
    return {
        "schema": SCHEMA,
        "suite": "device",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "bench.device", *sys.argv[1:]]),
        "rehearsal": not is_cuda,
        "machine": machine(),
        "device": describe(target, is_cuda),
        "versions": versions(),
        "missed": [],
        "cases": {},
    }


def _slug(document: dict) -> str:
    name = document["device"].get("name", document["device"]["target"])
    words = "".join(c.lower() if c.isalnum() else "-" for c in name)
    return f"{words}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _is_bad(record: dict) -> bool:
    """Whether our own result is missing or wrong; contenders that do not run are their own affair."""
    return "failed" in record or record["outcomes"]["ours"]["status"] != "ok"


def _line(record: dict) -> str:
    if "failed" in record:
        return f"[red]{record['key']}: {record['failed']}[/red]"
    cells = []
    for name, outcome in record["outcomes"].items():
        if outcome["status"] == "failed":
            cells.append(f"[red]{name} failed: {outcome['note'].splitlines()[0][:120]}[/red]")
        else:
            timed = f" {outcome['median_us']:.1f} us" if "median_us" in outcome else ""
            colour = "red" if outcome["status"] == "wrong" else "default"
            cells.append(f"[{colour}]{name}{timed} (error {outcome['error']:.1e})[/{colour}]")
    return f"{record['key']}: " + ", ".join(cells)


if __name__ == "__main__":
    main()
