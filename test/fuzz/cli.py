"""`python test/fuzz`: runs random programs for a while, says what became of them, and makes failures small."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fuzz.draw import PATHS, draw
from fuzz.graph import PATH, Graph
from fuzz.minimise import minimise
from fuzz.outcome import FAILURES, KINDS, Outcome
from fuzz.pool import Worker, outcomes
from fuzz.program import Program


def main(arguments: list[str] | None = None) -> int:
    """Returns the number of failures, at most 1."""
    options = _parser().parse_args(arguments)
    if options.tables:
        return _tables(options.tables)
    paths = _paths(options.paths)
    if options.show is not None:
        program = draw(options.show, paths)
        print(program.script())
        print(Worker().run(program))
        return 0
    summary = Summary(options.output)
    deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
    count = options.programs if options.programs else (None if options.seconds else 1000)

    def programs() -> Iterator[Program | Graph]:
        seed = options.seed
        while (count is None or seed < options.seed + count) and time.monotonic() < deadline:
            yield draw(seed, paths)
            seed += 1

    checker = Worker() if not options.keep else None
    for program, outcome in outcomes(programs(), options.processes):
        summary.add(program, outcome)
        if outcome.kind in FAILURES:
            if checker is not None and summary.wants(outcome, options.examples):
                program = minimise(program, outcome, checker.run, options.minimise_seconds)
                outcome = checker.run(program) if outcome.kind != "hang" else outcome
            summary.store(program, outcome)
    print(summary.table())
    return int(summary.failed())


def _tables(which: str) -> int:
    """Walks the import tables and keeps what is not right; the number of entries that are wrong, at most 1."""
    from fuzz import table_walk

    wanted = table_walk.quick() if which == "quick" else table_walk.entries()
    known = frozenset(table_walk.known()) if table_walk.KNOWN.exists() else frozenset()
    found = dict(table_walk.walk(wanted, known))
    table_walk.keep(found)
    counts = Counter(outcome.kind for outcome in found.values())
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    failed = {entry: outcome for entry, outcome in found.items() if outcome.kind in FAILURES}
    for entry, outcome in failed.items():
        print(f"{outcome.kind}: {entry.operator} {entry.dtype}: {outcome.detail}")
    return int(bool(failed))


class Summary:
    """Counts by outcome and path, refusals by reason, and a folder with one small script per failure."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.kinds: Counter[tuple[str, str]] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.compared = self.elements = 0
        self.seconds = 0.0
        self.seen: set[tuple[str, ...]] = set()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, program: Program | Graph, outcome: Outcome) -> None:
        """Counts a program."""
        self.kinds[program.path, outcome.kind] += 1
        self.compared += outcome.compared
        self.elements += outcome.elements
        self.seconds += outcome.seconds
        if outcome.kind not in ("ok", "invalid"):
            reasons = {outcome.mechanism} if outcome.kind != "refused" else set(_refusals(outcome.detail))
            for reason in reasons:
                self.reasons[outcome.kind, reason] += 1
        if self.folder is not None:
            record = {"seed": program.seed, "path": program.path, **vars(outcome)}
            with open(self.folder / "programs.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def wants(self, outcome: Outcome, examples: int) -> bool:
        """Whether more examples are wanted of what failed in this way; wrong elements have many causes."""
        often = examples if "elements of" not in outcome.mechanism else 20 * examples
        return self.reasons[outcome.kind, outcome.mechanism] <= often

    def store(self, program: Program | Graph, outcome: Outcome) -> None:
        """Keeps a failing program as a script, and prints the first of a kind."""
        text = f"# {outcome.kind}: {outcome.detail}\n# seed {program.seed}\n{program.script()}"
        kind = (outcome.mechanism, *(re.sub(r"\w*\d\w*", "_", s.source) for s in program.statements))
        if kind not in self.seen:
            print(text, flush=True)
        self.seen.add(kind)
        if self.folder is not None:
            name = f"{outcome.kind}-{program.seed}-{program.path.replace('.', '-')}.py"
            (self.folder / name).write_text(text, encoding="utf-8")

    def failed(self) -> int:
        return sum(n for (_, kind), n in self.kinds.items() if kind in FAILURES)

    def table(self) -> str:
        """Programs by path and outcome, then what was refused or failed and how often."""
        rows = [["path", *KINDS]]
        for path in [*dict.fromkeys(path for path, _ in self.kinds)]:
            rows.append([path, *(str(self.kinds[path, kind]) for kind in KINDS)])
        rows.append(
            ["all", *(str(sum(n for (_, k), n in self.kinds.items() if k == kind)) for kind in KINDS)]
        )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths)) for row in rows]
        share = 100 * self.compared / max(self.elements, 1)
        lines.append(
            f"{self.compared} of {self.elements} elements compared ({share:.1f}%), {self.seconds:.0f} s in programs"
        )
        lines += [f"{n:5} {kind}: {reason}" for (kind, reason), n in self.reasons.most_common()]
        return "\n".join(lines)


def _refusals(detail: str) -> Iterator[str]:
    """One reason per operator, without places."""
    text = re.sub(r" at (<program \d+>|\S+):\d+( in \w+)?", "", detail.partition("call: ")[2] or detail)
    for part in text.split("; "):
        if ": " in part:
            yield part[:140]


def _paths(text: str) -> dict[str, int]:
    """`compile=3,onnx=1`, or names alone for equal shares."""
    if not text:
        return PATHS
    pairs = [entry.partition("=") for entry in text.split(",")]
    known = (*PATHS, PATH)
    unknown = [name for name, _, _ in pairs if name not in known]
    if unknown:
        sys.exit(f"--paths: expected some of {', '.join(known)}, found `{unknown[0]}`")
    return {name: int(weight or 1) for name, _, weight in pairs}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python test/fuzz", description=__doc__)
    parser.add_argument(
        "--programs", type=int, default=0, help="how many; default 1000 unless --seconds is given"
    )
    parser.add_argument("--seconds", type=float, default=0, help="for how long")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed; the others follow")
    parser.add_argument(
        "--paths", default="", help=f"shares of paths, as `compile=3,onnx=1`; default {PATHS}"
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "-o", "--output", type=Path, help="a folder for programs.jsonl and scripts of failures"
    )
    parser.add_argument("--examples", type=int, default=2, help="failures of one kind that are made small")
    parser.add_argument("--minimise-seconds", type=float, default=90)
    parser.add_argument("--keep", action="store_true", help="do not make failing programs small")
    parser.add_argument(
        "--tables", choices=("quick", "all"), help="walk the operators of the import tables instead"
    )
    parser.add_argument(
        "--show", type=int, metavar="SEED", help="print one program, run it and say what became of it"
    )
    return parser
