"""Sets of choices: values by knob, as `explain --space` names them, kept as JSON and applied to a graph by name.

{"conv2d_3.algorithm": "winograd4", "matmul_2.block": 32, "add_4.joins": 0}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.compiler.errors import ScheduleError

Value = int | str


@dataclass(frozen=True)
class Choices:
    """Values by `operation.field`; a flag is 0 or 1. What is not named is chosen by the compiler."""

    values: Mapping[str, Value]

    @classmethod
    def of(cls, given: Any) -> Choices:
        """From a mapping, or from the path of a JSON file; raises ScheduleError for anything else."""
        if isinstance(given, Choices):
            return given
        if isinstance(given, (str, Path)):
            return cls.parse(_text_of(Path(given)), str(given))
        return cls._checked(given, "choices")

    @classmethod
    def parse(cls, text: str, source: str = "choices") -> Choices:
        """From JSON text; raises ScheduleError, naming `source`, where it is none or not flat."""
        try:
            return cls._checked(json.loads(text), source)
        except json.JSONDecodeError as error:
            raise ScheduleError(f"{source}: expected JSON, found {error}") from None

    @classmethod
    def _checked(cls, given: Any, source: str) -> Choices:
        if not isinstance(given, Mapping):
            raise ScheduleError(
                f"{source}: expected an object of values by operation.field, found {type(given).__name__}"
            )
        values: dict[str, Value] = {}
        for name, value in given.items():
            if not isinstance(name, str) or not all(name.rpartition(".")):
                raise ScheduleError(f"{source}: `{name}`: expected operation.field, as in `matmul_2.block`")
            if not isinstance(value, (int, str)):
                raise ScheduleError(f"{source}: {name}: expected a number or a word, found {value!r}")
            values[name] = int(value) if isinstance(value, bool) else value
        return cls(dict(sorted(values.items())))

    def text(self) -> str:
        """As JSON, one choice per line, which `parse` reads."""
        return json.dumps(dict(self.values), indent=1) + "\n"


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScheduleError(f"choices: `{path}` cannot be read: {error.strerror}") from None
