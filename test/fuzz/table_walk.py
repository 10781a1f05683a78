"""Every operator of the import tables on every dtype, many in one program, compared with eager PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fuzz.execution import raised
from fuzz.operator_samples import Sample, claimed, database, samples
from fuzz.oracle import difference, expected
from fuzz.outcome import Outcome
from fuzz.program import Program, Statement
from fuzz.tensors import DTYPES, Tensor

BATCH = 24
"""Calls in one compiled function."""


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
    """Every operator on two of its dtypes, another two for the next one."""
    found: dict[str, list[Entry]] = {}
    for entry in entries():
        found.setdefault(entry.operator, []).append(entry)
    return [
        every[(2 * number + k) % len(every)]
        for number, every in enumerate(found.values())
        for k in range(min(2, len(every)))
    ]


def calls(entry: Entry) -> list[Sample]:
    """A sample call of an entry, and one on special values."""
    found = samples(entry.operator, entry.dtype, seed=0, most=1)
    return found + samples(entry.operator, entry.dtype, seed=1, most=1, special=True)


def walk(wanted: list[Entry], known: frozenset[Entry] = frozenset()) -> Iterator[tuple[Entry, Outcome]]:
    """What becomes of every entry; those of `known` are run alone, for they are refused."""
    batch: list[tuple[Entry, Sample]] = []
    for entry in wanted:
        listed = calls(entry)
        if entry in known:
            yield entry, _alone(listed)
            continue
        if not listed:
            yield entry, Outcome("invalid", "no sample")
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
