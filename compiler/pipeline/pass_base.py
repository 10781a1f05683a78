"""A pass is a frozen dataclass whose fields are its command-line options."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from tilewright.compiler.errors import PassError, PipelineSyntaxError, TilewrightError
from tilewright.compiler.ir import ir
from tilewright.compiler.pipeline.syntax import quoted, split_list
from tilewright.compiler.targets.file import described
from tilewright.compiler.targets.target import Target


@dataclass(frozen=True)
class Pass:
    """Base of our passes: `run` rewrites one operation of the kind named by `anchor`, in place.

    The command-line name is the class name in kebab-case. Options are the dataclass fields, written
    `name{field=value}` with `-` for `_`; their types are bool, int, float, str, Literal of strings,
    tuples `tuple[T, ...]` of these (`[1,2]`), and any of them `| None` (`none`). An `anchor` of `any`
    accepts every operation.
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

    def target_named(self, op: ir.Operation, text: str) -> Target:
        """The target that an option of the pass says: a preset, a .json file or JSON text; raises PassError for others."""
        try:
            return described(text)
        except (TilewrightError, ValueError) as error:
            raise self.refusal(op, str(error)) from None

    @classmethod
    def from_options(cls, options: dict[str, str]) -> Pass:
        """Builds the pass from option texts; raises PipelineSyntaxError for unknown names or bad values."""
        types = get_type_hints(cls)
        known = {f.name: f for f in fields(cls)}
        values = {}
        for key, text in options.items():
            field = key.replace("-", "_")
            if field not in known:
                listing = ", ".join(sorted(k.replace("_", "-") for k in known)) or "none"
                raise PipelineSyntaxError(f"`{cls.name()}` has no option `{key}`; its options are: {listing}")
            if field in values:
                raise PipelineSyntaxError(f"`{cls.name()}`: option `{key}` is given twice; give it once")
            values[field] = _convert(text, types[field], f"{cls.name()}{{{key}}}")
        for name, field in known.items():
            if name not in values and field.default is MISSING and field.default_factory is MISSING:
                option = name.replace("_", "-")
                raise PipelineSyntaxError(f"`{cls.name()}` needs option `{option}`; write {option}=...")
        return cls(**values)

    @classmethod
    def options(cls) -> list[tuple[str, str, str | None]]:
        """Every option's name, type and default as a command line shows them; None for no default."""
        types = get_type_hints(cls)
        defaults = {f.name: default_of(f) for f in fields(cls)}
        return [
            (name.replace("_", "-"), type_text(types[name]), None if value is MISSING else _text(value))
            for name, value in defaults.items()
        ]

    def spec(self) -> str:
        """The pass as pipeline text, options that differ from their defaults included."""
        changed = [
            f"{f.name.replace('_', '-')}={_text(getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) != default_of(f)
        ]
        return f"{self.name()}{{{' '.join(changed)}}}" if changed else self.name()


def default_of(field: Any) -> object:
    """A dataclass field's default value; MISSING when it must be given."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def type_text(type_: Any) -> str:
    """A field's type as `--list-passes` and errors show it: `int`, `[int,...]`, `fast|safe`, `int|none`."""
    origin, inner = get_origin(type_), get_args(type_)
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin is tuple:
        return f"[{type_text(inner[0])},...]"
    if origin in (Union, UnionType):
        return "|".join("none" if part is NoneType else type_text(part) for part in inner)
    return "true|false" if type_ is bool else type_.__name__


def _convert(text: str, type_: Any, place: str) -> Any:
    """The value that `text` spells for a field of type `type_`; raises PipelineSyntaxError naming `place`."""
    origin, inner = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        if text == "none":
            return None
        return _convert(text, next(part for part in inner if part is not NoneType), place)
    if origin is tuple:
        return tuple(_convert(part, inner[0], place) for part in split_list(text))
    if type_ is bool and text in ("true", "1", ""):
        return True
    if type_ is bool and text in ("false", "0"):
        return False
    if type_ is str or (origin is Literal and text in inner):
        return text
    problem = PipelineSyntaxError(f"`{place}`: expected {type_text(type_)}, found `{text}`")
    if type_ not in (int, float):
        raise problem
    try:
        return type_(text)
    except ValueError:
        raise problem from None


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    return quoted(value) if isinstance(value, str) else str(value)
