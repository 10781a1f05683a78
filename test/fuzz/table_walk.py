"""Every operator of the import tables on every dtype, many in one program, compared with eager PyTorch."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from fuzz.bounds import difference
from fuzz.execution import raised
from fuzz.operator_samples import Sample, claimed, database, samples
from fuzz.oracle import expected
from fuzz.outcome import Outcome
from fuzz.program import Program, Statement
from fuzz.tensors import DTYPES, Tensor

BATCH = 24
"""Calls in one compiled function."""


KNOWN = Path(__file__).parent / "import_tables.json"
"""What is not `ok`: by operator and dtype, the kind of outcome and the reason."""


@dataclass(frozen=True)
class Entry:
    """One operator on one dtype."""

    operator: str
    dtype: str


def entries() -> list[Entry]:
    """All that is claimed and that eager PyTorch has on a CPU."""
    return [
        Entry(name, dtype)
        for name in claimed()
        for dtype in DTYPES
        if any(info.supports_dtype(getattr(torch, dtype), "cpu") for info in database()[name])
    ]


def quick() -> list[Entry]:
    """Every operator on one of its dtypes, another one for the next operator."""
    found: dict[str, list[Entry]] = {}
    for entry in entries():
        found.setdefault(entry.operator, []).append(entry)
    return [every[2 * number % len(every)] for number, every in enumerate(found.values())]


def calls(entry: Entry, special: bool = True) -> list[Sample]:
    """A sample call of an entry, and one on special values if asked for, or if there is no other."""
    found = samples(entry.operator, entry.dtype, seed=0, most=1)
    if special or not found:
        found += samples(entry.operator, entry.dtype, seed=1, most=1, special=True)
    return found


def known() -> dict[Entry, tuple[str, str]]:
    """The entries that are refused, or that the database has no usable sample of, and why."""
    listed = json.loads(KNOWN.read_text(encoding="utf-8"))
    return {
        Entry(operator, dtype): (kind, reason)
        for operator, dtypes in listed.items()
        for dtype, (kind, reason) in dtypes.items()
    }


def keep(found: dict[Entry, Outcome]) -> None:
    """Writes the table anew for the entries that were walked; the others stay."""
    entries = {e: value for e, value in known().items() if e not in found} if KNOWN.exists() else {}
    entries |= {e: (o.kind, reason_of(o)) for e, o in found.items() if o.kind != "ok"}
    listed: dict[str, dict[str, tuple[str, str]]] = {}
    for entry in sorted(entries, key=lambda e: (e.operator, DTYPES.index(e.dtype))):
        listed.setdefault(entry.operator, {})[entry.dtype] = entries[entry]
    KNOWN.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


def reason_of(outcome: Outcome) -> str:
    """The detail without the call that it is about and the numbers in it."""
    return outcome.detail.partition("): ")[2][:140] if outcome.kind != "invalid" else outcome.detail[:60]


def walk(
    wanted: list[Entry], known: frozenset[Entry] = frozenset(), special: bool = True
) -> Iterator[tuple[Entry, Outcome]]:
    """What becomes of every entry; those of `known` are run alone, for they are refused, and on special values always."""
    batch: list[tuple[Entry, Sample]] = []
    for entry in wanted:
        listed = calls(entry, special or entry in known)
        if not listed:
            yield entry, Outcome("invalid", "no sample")
            continue
        if entry in known:
            yield entry, _alone(listed)
            continue
        batch += [(entry, sample) for sample in listed]
        if len(batch) >= BATCH:
            yield from _together(batch)
            batch = []
    if batch:
        yield from _together(batch)


def _together(batch: list[tuple[Entry, Sample]]) -> Iterator[tuple[Entry, Outcome]]:
    """One function for all calls; when it does not compile, or is wrong, each entry on its own."""
    outcome = check([sample for _, sample in batch])
    for entry in dict.fromkeys(entry for entry, _ in batch):
        yield entry, outcome if outcome.kind == "ok" else _alone([s for e, s in batch if e == entry])


def _alone(listed: list[Sample]) -> Outcome:
    """The first failure among single calls, or `ok`."""
    for sample in listed:
        outcome = check([sample])
        if outcome.kind != "ok":
            return Outcome(outcome.kind, f"{sample.source}: {outcome.detail}")
    return Outcome("ok")


def check(listed: list[Sample]) -> Outcome:
    """Compiles calls as one function of all their tensors, runs it and compares every result."""
    import tilewright

    program, tensors = joined(listed)

    def build() -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in tensors.items()}

    try:
        wanted = expected(program, build)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return Outcome("invalid", str(error))
    arguments = build()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = tilewright.compile(program.function(), tuple(arguments.values()))(*arguments.values())
        except Exception as error:
            return raised(program, error)
    for found, want in zip([*results, *arguments.values()], wanted):
        wrong = difference(found, want)
        if wrong:
            return Outcome("wrong", wrong)
    return Outcome("ok")


def joined(listed: list[Sample]) -> tuple[Program, dict[str, torch.Tensor]]:
    """A program that makes all calls and returns all their results, and its inputs."""
    tensors: dict[str, torch.Tensor] = {}
    statements, outputs = [], []
    for sample in listed:
        names = {key: f"x{len(tensors) + i}" for i, key in enumerate(sample.tensors)}
        tensors.update({names[key]: tensor for key, tensor in sample.tensors.items()})
        targets = tuple(f"v{len(outputs) + i}" for i in range(sample.results))
        statements.append(Statement(targets, sample.source.format(**names), sample.rounding))
        outputs += targets
    inputs = tuple(Tensor(name, tuple(t.shape), str(t.dtype)[6:]) for name, t in tensors.items())
    return Program(0, inputs, (), tuple(statements), tuple(outputs)), tensors
