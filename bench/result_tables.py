"""Turns results into the documents' tables: `python -m tilewright.bench.result_tables [RESULT.json ...] [--write DOCUMENT ...]`.

Without files, the newest record of every suite, precision and number of threads in bench/results is taken, of a selection of
cases only where none of more is older. A table goes
between the lines `<!-- bench NAME -->` and `<!-- end bench NAME -->` of the document, where NAME is the suite, with the
precision behind it unless f32 (`gemm-bf16`) and the threads unless 2 (`gemm-1t`). The same records give the same text;
`--check` fails when a document holds another.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright.bench.models import REGISTRY
from tilewright.bench.suites import SUITES

RESULTS = Path(__file__).parent / "results"
OURS = "tilewright"
_TITLES = {"tilewright-O0": "at O0", "tilewright-O1": "at O1", "eager": "eager PyTorch", "inductor": "Inductor", "inductor-frozen": "Inductor, frozen",
           "inductor-autotuned": "Inductor, frozen and autotuned", "onnxruntime": "ONNX Runtime",
           "openvino": "OpenVINO", "iree": "IREE", "tvm": "TVM"}  # fmt: skip


def name_of(record: dict) -> str:
    """What a record's table is called: `gemm`, `gemm-bf16`, `models-1t`, `models-O1`."""
    settings = record["settings"]
    parts = [record["suite"]]
    if settings.get("precision", "f32") != "f32":
        parts.append(settings["precision"])
    if settings["threads"] != 2:
        parts.append(f"{settings['threads']}t")
    if settings.get("opt", "O0") != "O0":
        parts.append(settings["opt"])
    return "-".join(parts)


def newest(folder: Path) -> dict[str, tuple[Path, dict]]:
    """Table name -> (file, record) of the latest of each that has all cases of those before; later names win among equal dates."""
    records: list[tuple[Path, dict]] = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        # Other records lie there too: conformance, constructed schedules, single studies.
        if not isinstance(record, dict) or not {"schema", "suite", "settings", "contenders"} <= set(record):
            continue
        if record["suite"] not in SUITES or record["settings"].get("quick"):
            continue
        records.append((path, record))
    found: dict[str, tuple[Path, dict]] = {}
    for path, record in sorted(records, key=lambda entry: entry[1]["date"]):
        name = name_of(record)
        if name not in found or _cases(record) >= _cases(found[name][1]):
            found[name] = (path, record)
    return found


def _cases(record: dict) -> set[str]:
    return {case["name"] for case in record["cases"]}


def table(record: dict, path: str) -> str:
    """One record as Markdown: what was timed and where, the limits, a row per case, geometric means."""
    shown = [c for c in record["contenders"] if c != OURS and _any_time(record, c)]
    limits = bool(record.get("limits"))
    head = ["case", OURS, *(_TITLES.get(c, c) for c in shown), "best other", *(["of limit"] if limits else []),
            "compile, s", "error"]  # fmt: skip
    rows = [_row(case, shown, limits) for case in record["cases"]]
    means = record["geometric_mean_times_ours"]
    best = record.get("geometric_mean_best_times_ours")
    rows.append(
        ["geometric mean, times ours", "1", *(_times(means.get(c)) for c in shown), _times(best),
         *([""] if limits else []), "", ""]
    )  # fmt: skip
    lines = [head, ["---"] * len(head), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{_preface(record, path)}\n\n{text}\n"


def _any_time(record: dict, contender: str) -> bool:
    return any(case["outcomes"][contender]["median_us"] for case in record["cases"])


def _preface(record: dict, path: str) -> str:
    machine, settings, limits = record["machine"], record["settings"], record.get("limits")
    sentences = [
        f"Milliseconds per call on {settings['threads']} thread(s) of {machine['processor']} ({machine['cpus']} CPUs), "
        f"batch {settings['batch']}, all in one process and in turn, medians of {settings['rounds']} rounds; "
        f"`{record['command']}` ([record]({path}))."
    ]
    if limits:
        peaks = ", ".join(f"{gflops:g} GFLOP/s {dtype}" for dtype, gflops in limits["peak_gflops"].items())
        levels = ", ".join(f"{level['copy_gbps']:g} GB/s in {level['name']}" for level in limits["levels"])
        sentences.append(
            f"Limits as measured there: {peaks}; copies {levels} (bytes read and written). "
            "Operations are the plain algorithms': Winograd convolutions do fewer, and may beat the limit."
        )
    return "\n".join(sentences)


def _row(case: dict, shown: Sequence[str], limits: bool) -> list[str]:
    ours = case["outcomes"].get(OURS, {})
    cells = [_case_name(case["name"]), _ms(ours)]
    cells += [_ms(case["outcomes"][contender]) for contender in shown]
    right = {c: case["outcomes"][c] for c in shown if case["outcomes"][c]["status"] == "ok"}
    timed = {c: outcome for c, outcome in right.items() if outcome["median_us"] and outcome["speed"]}
    others = [c for c in timed if not c.startswith(OURS)]
    best = min(others, key=lambda c: (timed[c]["median_us"], c)) if others else None
    cells.append(_times(timed[best]["speed"]) if best and ours.get("status") == "ok" else "-")
    if limits:
        us, least = ours.get("median_us"), case.get("limit_us")
        cells.append(f"{least / us:.0%} ({case['bound']})" if us and least else "-")
    cells.append(f"{ours['compile_s']:.1f}" if ours.get("compile_s") is not None else "-")
    cells.append(f"{ours['error']:.0e}" if ours.get("error") is not None else "-")
    return cells


def _case_name(name: str) -> str:
    return REGISTRY[name].about if name in REGISTRY else name


def _ms(outcome: dict) -> str:
    us = outcome.get("median_us")
    if not us or outcome["status"] not in ("ok", "wrong"):
        return "-"
    ms = us / 1e3
    text = f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"
    return f"{text} wrong" if outcome["status"] == "wrong" else text


def _times(ratio: float | None) -> str:
    return f"{ratio:.2f}x" if ratio else "-"


def insert(document: str, tables: dict[str, str]) -> str:
    """`document` with each table between the marks of its name; raises ValueError where marks do not pair up."""
    for name in re.findall(r"<!-- bench (\S+) -->", document):
        start, end = f"<!-- bench {name} -->\n", f"<!-- end bench {name} -->"
        before, _, rest = document.partition(start)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"`{start.strip()}` has no line `{end}` after it")
        if name in tables:
            document = f"{before}{start}{tables[name]}{end}{after}"
    return document


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument(
        "--write",
        type=Path,
        nargs="+",
        default=[],
        metavar="DOCUMENT",
        help="put the tables between their marks",
    )
    parser.add_argument(
        "--check",
        type=Path,
        nargs="+",
        default=[],
        metavar="DOCUMENT",
        help="fail unless the tables stand there",
    )
    options = parser.parse_args(arguments)
    if options.records:
        found = {}
        for path in options.records:
            record = json.loads(path.read_text())
            found[name_of(record)] = (path, record)
    else:
        found = newest(RESULTS)
    documents = [*options.write, *options.check]
    if not documents:
        for name, (path, record) in sorted(found.items()):
            text = table(record, _relative(path, Path.cwd()))
            print(f"<!-- bench {name} -->\n{text}<!-- end bench {name} -->\n")
        return 0
    marked: set[str] = set()
    outdated = False
    for document in documents:
        old = document.read_text()
        marked |= set(re.findall(r"<!-- bench (\S+) -->", old))
        base = document.resolve().parent
        new = insert(old, {n: table(record, _relative(path, base)) for n, (path, record) in found.items()})
        if document in options.write:
            document.write_text(new)
        elif old != new:
            outdated = True
            print(
                f"{document}: the tables are not those of the records; run --write {document}",
                file=sys.stderr,
            )
    shown = ", ".join(map(str, documents))
    for name in sorted(set(found) - marked):
        print(
            f"{shown}: no marks `<!-- bench {name} -->`, `<!-- end bench {name} -->`: left out",
            file=sys.stderr,
        )
    for name in sorted(marked - set(found)):
        print(f"{shown}: no record for the marks of `{name}`: left as it was", file=sys.stderr)
    return int(outdated)


def _relative(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path.resolve(), base)).as_posix()


if __name__ == "__main__":
    sys.exit(main())
