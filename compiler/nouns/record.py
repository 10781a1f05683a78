"""A `Record` is one measurement of one kernel: what was run, on what, and how long each round took, or why it failed.

Records are kept for good, so that a search, a cost model or a second compilation can stand on them. They are looked
up by four things: the workload, the target, the device that measured, and the threads. The compiler's version is in a
record to filter by, and is no key: what another version compiles to the same bytes is the same kernel.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from tilewright.compiler.errors import RecordError
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target

VERSION = 1
"""Of the form in JSON: others are refused."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SPEEDS = {
    *("bandwidth_gbps", "core_gbps", "copy_gbps", "latency_ns"),
    *("peak_gflops", "sustained_gflops", "clock_ghz", "start_us", "mma_share", "measured"),
}


def key_of(text: str) -> str:
    """The key of a workload or a target with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def schedule_text(schedule: Schedule) -> str:
    """A schedule as records hold it."""
    return _canonical(schedule.as_dict())


def target_text(target: Target) -> str:
    """All that a target is, as JSON, but its name and how fast it is said to be.

    Machines with other features, caches or cores have other texts, whatever they are called; a machine has the same one
    before and after `tilewright targets --measure`.
    """

    def kept(values: Any) -> Any:
        if isinstance(values, Mapping):
            return {name: kept(value) for name, value in values.items() if name not in _SPEEDS}
        return [kept(value) for value in values] if isinstance(values, (list, tuple)) else values

    facts = kept(target.to_json())
    del facts["name"]
    return _canonical(facts)


@dataclass(frozen=True)
class Record:
    """One sitting of one kernel: microseconds of every round, or the error that there are none for.

    `workload` and `target` are keys, of the texts that the store keeps beside its records. `device` is what measured: a
    processor's name, or a GPU's with its driver. `residence` names, for every argument, the level of memory that it is
    read from when it is a weight, "" when it is what another kernel has just written. `schedule` is JSON as the version
    that measured writes it: later ones need not know its fields to know the object. `object` is the digest of the
    machine code and of what the runtime needs to start it, "" where none was made. Kernels that took turns, round by
    round, share `host` and `at` (UTC): their times compare best.
    """

    workload: str
    target: str
    device: str
    threads: int
    residence: tuple[str, ...]
    schedule: str
    object: str
    rounds_us: tuple[float, ...]
    error: str
    compiler: str
    host: str
    at: str

    def __post_init__(self) -> None:
        for name in ("workload", "target"):
            _expect(name, getattr(self, name), "64 hexadecimal digits", is_digest)
        _expect("object", self.object, '64 hexadecimal digits or ""', lambda v: v == "" or is_digest(v))
        _expect("threads", self.threads, "an integer from 1 on", lambda v: type(v) is int and 0 < v < 1 << 31)
        _expect("residence", self.residence, "strings", lambda v: all(map(_is_string, v)))
        _expect("rounds_us", self.rounds_us, "numbers > 0", lambda v: all(map(_is_duration, v)))
        for name in ("device", "error", "compiler", "host"):
            _expect(name, getattr(self, name), "a string", _is_string)
        _expect("at", self.at, "a time in UTC like 2026-01-31T23:59:59.000000+00:00", _is_moment)
        object.__setattr__(self, "rounds_us", tuple(map(float, self.rounds_us)))
        _expect("schedule", self.schedule, "a JSON object with sorted keys", _is_canonical)
        if bool(self.rounds_us) == bool(self.error):
            raise RecordError(
                f"expected rounds or an error, found {len(self.rounds_us)} rounds and the error `{self.error}`"
            )
        if self.rounds_us and not self.object:
            raise RecordError("expected the digest of the object that was measured, found none")

    @property
    def us(self) -> float:
        """The best round; infinite for a failure."""
        return min(self.rounds_us, default=math.inf)

    def read_schedule(self) -> Schedule:
        """The schedule; raises RecordError where this version of the compiler does not know its fields."""
        try:
            return Schedule.from_dict(parse_object(self.schedule))
        except ValueError as error:
            raise RecordError(f"schedule: {error}") from None

    def to_text(self) -> str:
        """One line of JSON, the same for equal records."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return _canonical({"version": VERSION, **values, "schedule": parse_object(self.schedule)})

    @classmethod
    def from_text(cls, text: str) -> Record:
        """The inverse of `to_text`; raises RecordError that names the field for anything else."""
        values = parse_object(text)
        if values.pop("version", None) != VERSION:
            raise RecordError(f"expected a record of version {VERSION}, found another or none")
        known = {field.name for field in fields(cls)}
        if set(values) != known:
            odd = sorted(set(values) ^ known)
            raise RecordError(
                f"{odd[0]}: {'no field' if odd[0] in values else 'a field that is missing'} of a record"
            )
        for name in ("residence", "rounds_us"):
            _expect(name, values[name], "a list", lambda v: type(v) is list)
            values[name] = tuple(values[name])
        _expect("schedule", values["schedule"], "a dictionary", lambda v: type(v) is dict)
        values["schedule"] = _canonical(values["schedule"])
        return cls(**values)


def _canonical(values: dict[str, Any]) -> str:
    """One line, the same for equal values."""
    return json.dumps(values, sort_keys=True, allow_nan=False)


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object without NaN, infinities or fields given twice; raises RecordError."""
    try:
        values = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"expected JSON, found `{text[:40]}`: {error}") from None
    if type(values) is not dict:
        raise RecordError(f"expected a JSON object, found `{text[:40]}`")
    return values


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a field is given twice")
    return values


def _expect(name: str, value: Any, what: str, holds: Any) -> None:
    if not holds(value):
        raise RecordError(f"{name}: expected {what}, found `{value!r:.80}`")


def is_digest(value: Any) -> bool:
    """Whether a value is the key of a text, or the digest of an object."""
    return type(value) is str and _DIGEST.fullmatch(value) is not None


def _is_string(value: Any) -> bool:
    return type(value) is str and value == value.encode(errors="replace").decode()


def _is_canonical(value: Any) -> bool:
    try:
        return type(value) is str and value == _canonical(parse_object(value))
    except RecordError:
        return False


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= sys.float_info.max


def _is_moment(value: Any) -> bool:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return moment.utcoffset() == timedelta(0) and moment.isoformat(timespec="microseconds") == value
