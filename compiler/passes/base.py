"""A pass is a frozen dataclass whose fields are its command-line options."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import ClassVar, get_args, get_type_hints

from tilewright.compiler.errors import PassError, PipelineSyntaxError
from tilewright.compiler.ir import ir


@dataclass(frozen=True)
class Pass:
    """Base of our passes: `run` rewrites one operation of the kind named by `anchor`, in place.

    The command-line name is the class name in kebab-case. Options are the dataclass fields, written
    `name{field=value}` with `-` for `_`; their types are bool, int, float, str or tuple[int, ...].
    """

    anchor: ClassVar[str] = "builtin.module"

    @classmethod
    def name(cls) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def run(self, op: ir.Operation) -> None:
        """Rewrites `op` in place; raises TilewrightError with the place when it must refuse."""
        raise NotImplementedError

    def refusal(self, op: ir.Operation, message: str) -> PassError:
        """The error to raise when `op` cannot be handled: rule, found, remedy; carries the location of `op`.

        raise self.refusal(op, f"tile {tile} does not divide extent {extent}; use a divisor")
        """
        return PassError(f"`{self.name()}`: {message}", op.location)

    @classmethod
    def from_options(cls, options: dict[str, str]) -> Pass:
        """Builds the pass from option texts; raises PipelineSyntaxError for unknown names or bad values."""
        types = get_type_hints(cls)
        known = {f.name for f in fields(cls)}
        values = {}
        for key, text in options.items():
            field = key.replace("-", "_")
            if field not in known:
                listing = ", ".join(sorted(k.replace("_", "-") for k in known)) or "none"
                raise PipelineSyntaxError(f"`{cls.name()}` has no option `{key}`; its options are: {listing}")
            values[field] = _convert(text, types[field], f"{cls.name()}{{{key}}}")
        return cls(**values)

    def spec(self) -> str:
        """The pass as pipeline text, options that differ from their defaults included."""
        changed = [
            f"{f.name.replace('_', '-')}={_text(getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        ]
        return f"{self.name()}{{{' '.join(changed)}}}" if changed else self.name()


def _convert(text: str, type_: type, place: str):
    if type_ is bool:
        if text in ("true", "1", ""):
            return True
        if text in ("false", "0"):
            return False
        raise PipelineSyntaxError(f"`{place}`: expected true or false, found `{text}`")
    try:
        if get_args(type_) and get_args(type_)[0] is int:
            return tuple(int(part) for part in text.strip("[]").split(",") if part)
        return type_(text)
    except ValueError:
        raise PipelineSyntaxError(f"`{place}`: expected {type_}, found `{text}`") from None


def _text(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)
