"""A lockfile: the choices and schedules that tuning found for one model, from which the same code is compiled anywhere.

    {"kind": "tilewright-lock", "version": 3, "compiler": "…", "target": {…},
     "choices": {"conv2d_3.algorithm": "direct"},
     "program": {"used": "searched", "gain": 1.042, "why": ""},
     "dispatches": {KEY: {"name": "matmul_512x512x512", "schedule": {…}, "us": 812.5, "constructed_us": 901.0}, …}}

It holds the whole target, since what was measured of a machine decides layouts and fusion as well: compiled from the lock, a
model becomes the same bytes on every machine that has the compiler's version. Schedules stand under the keys of workloads.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilewright.compiler.errors import LockError, RecordError, ScheduleError
from tilewright.compiler.nouns.choices import Choices, Value
from tilewright.compiler.nouns.record import is_digest, parse_object
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target, TargetDataError

KIND, VERSION = "tilewright-lock", 3
_FIELDS = {"kind", "version", "compiler", "target", "choices", "program", "dispatches"}
_OF_A_DISPATCH = {"name", "schedule", "us", "constructed_us"}
_OF_A_PROGRAM = {"used", "gain", "why"}


@dataclass(frozen=True)
class Locked:
    """What is used for one workload; microseconds of it and of what was constructed, None where nothing was measured.

    Times are for people: nothing is decided by them.
    """

    name: str
    schedule: Schedule
    us: float | None = None
    constructed_us: float | None = None


@dataclass(frozen=True)
class LockedProgram:
    """Which program a race of whole programs left, how many times as fast as the constructed one it was, and why none raced.

    `gain` is None where none raced. All of it is for people: what is used is said by choices and schedules.
    """

    used: str = ""
    gain: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Lock:
    """What one model was tuned to: choices by name, schedules by the keys of workloads.

    Everything raises LockError for a file that is none.
    """

    target: Target
    compiler: str
    dispatches: Mapping[str, Locked]
    choices: Mapping[str, Value] = field(default_factory=dict)
    program: LockedProgram = LockedProgram()

    def to_text(self) -> str:
        """JSON with sorted keys: the same text for equal locks."""
        dispatches = {
            key: {
                "name": entry.name,
                "schedule": entry.schedule.as_dict(),
                "us": entry.us,
                "constructed_us": entry.constructed_us,
            }
            for key, entry in self.dispatches.items()
        }
        values = {
            "kind": KIND,
            "version": VERSION,
            "compiler": self.compiler,
            "target": self.target.to_json(),
            "choices": dict(self.choices),
            "program": asdict(self.program),
            "dispatches": dispatches,
        }
        return json.dumps(values, sort_keys=True, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, text: str, where: str = "the lock") -> Lock:
        """The inverse of `to_text`; `where` names the source in errors."""
        try:
            return _parse(parse_object(text))
        except (RecordError, TargetDataError, LockError) as error:
            raise LockError(f"{where}: {error}") from None

    @classmethod
    def read(cls, path: Path) -> Lock:
        """The lock in a file."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LockError(f"cannot read the lockfile `{path}`: {error}") from None
        return cls.from_text(text, str(path))

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_text(self.to_text(), encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise LockError(f"cannot write the lockfile `{path}`: {error.strerror}") from None


def _parse(values: dict[str, Any]) -> Lock:
    if values.get("kind") != KIND or values.get("version") != VERSION:
        raise LockError(f"expected a {KIND} of version {VERSION}; `tilewright tune` writes one")
    _expect_fields(values, _FIELDS, "a lock")
    if not isinstance(values["compiler"], str):
        raise LockError(f"compiler: expected a string, found `{values['compiler']}`")
    if not isinstance(values["dispatches"], dict):
        raise LockError(f"dispatches: expected a dictionary, found `{values['dispatches']!r:.40}`")
    dispatches = {key: _dispatch(key, entry) for key, entry in values["dispatches"].items()}
    if not isinstance(values["choices"], dict):
        raise LockError(f"choices: expected a dictionary, found `{values['choices']!r:.40}`")
    try:
        choices = Choices.of(values["choices"]).values
    except ScheduleError as error:
        raise LockError(str(error)) from None
    program = _program(values["program"])
    return Lock(Target.from_json(values["target"]), values["compiler"], dispatches, choices, program)


def _program(entry: Any) -> LockedProgram:
    if not isinstance(entry, dict):
        raise LockError(f"program: expected a dictionary, found `{entry!r:.40}`")
    _expect_fields(entry, _OF_A_PROGRAM, "program")
    for name in ("used", "why"):
        if not isinstance(entry[name], str):
            raise LockError(f"program.{name}: expected a string, found `{entry[name]!r:.40}`")
    gain = entry["gain"]
    if gain is not None and (type(gain) not in (int, float) or not 0 < gain < math.inf):
        raise LockError(f"program.gain: expected a number > 0 or null, found `{gain!r:.40}`")
    return LockedProgram(entry["used"], gain, entry["why"])


def _dispatch(key: str, entry: Any) -> Locked:
    where = f"dispatches[{key:.12}]"
    if not is_digest(key):
        raise LockError(f"{where}: expected the key of a workload, 64 hexadecimal digits")
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise LockError(f"{where}: expected a dictionary with a name, found `{entry!r:.40}`")
    _expect_fields(entry, _OF_A_DISPATCH, where)
    for name in ("us", "constructed_us"):
        us = entry[name]
        if us is not None and (type(us) not in (int, float) or us <= 0):
            raise LockError(f"{where}.{name}: expected microseconds > 0 or null, found `{us!r:.40}`")
    if not isinstance(entry["schedule"], dict):
        raise LockError(f"{where}.schedule: expected a dictionary, found `{entry['schedule']!r:.40}`")
    try:
        schedule = Schedule.from_dict(entry["schedule"])
    except ValueError as error:
        raise LockError(f"{where}.schedule: {error}") from None
    return Locked(entry["name"], schedule, entry["us"], entry["constructed_us"])


def _expect_fields(values: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in sorted(set(values) ^ known):
        raise LockError(f"{where}: `{name}` {'is no field of it' if name in values else 'is missing'}")
