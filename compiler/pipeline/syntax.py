"""The pipeline language: text -> a tree of named elements with options, each knowing its column.

pipeline := element
element  := name [ "{" options "}" ] [ "(" element ("," element)* ")" ]
options  := (key [ "=" value ])*          value := word | "quoted" | 'quoted' | [..] | {..}
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from tilewright.compiler.errors import PipelineSyntaxError

_NAME = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*", re.ASCII)
_SPACE = re.compile(r"\s*")
_CLOSING = {"{": "}", "[": "]"}


@dataclass(frozen=True)
class Node:
    """One element of a pipeline: a pass with options, or an anchor with nested elements; columns from 0."""

    name: str
    options: str = ""
    children: tuple[Node, ...] | None = None
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        options = f"{{{self.options}}}" if self.options else ""
        nested = f"({','.join(map(str, self.children))})" if self.children is not None else ""
        return f"{self.name}{options}{nested}"


def syntax_error(text: str, column: int, message: str) -> PipelineSyntaxError:
    """An error whose message shows `text` with a caret under the 0-based `column`."""
    return PipelineSyntaxError(f"pipeline column {column + 1}: {message}\n  {text}\n  {' ' * column}^")


def parse_pipeline(text: str) -> Node:
    """Parses `anchor(...)`; raises PipelineSyntaxError that points at the offending column."""
    parser = _Parser(text)
    node = parser.element()
    if parser.at != len(text):
        parser.fail("expected the end of the pipeline")
    if node.children is None:
        raise syntax_error(
            text,
            node.column,
            "expected a pass pipeline wrapped with the operation type that it is anchored on, "
            f"e.g. 'builtin.module({text.strip()})'",
        )
    return node


def parse_options(text: str) -> dict[str, str]:
    """`a=1 b=[1,2] c d="x y"` -> {"a": "1", "b": "[1,2]", "c": "", "d": "x y"}."""
    options: dict[str, str] = {}
    at = _skip(text, 0)
    while at < len(text):
        match = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII).match(text, at)
        if not match:
            raise syntax_error(text, at, f"expected an option's name, found `{text[at : at + 12]}`")
        key, at = match[0], match.end()
        if key in options:
            raise syntax_error(text, match.start(), f"option `{key}` is given twice; give it once")
        value = ""
        if text[at : at + 1] == "=":
            value, at = _value(text, at + 1)
        options[key] = value
        if at < len(text) and not text[at].isspace():
            raise syntax_error(text, at, f"expected a space after option `{key}`, found `{text[at]}`")
        at = _skip(text, at)
    return options


def split_list(text: str) -> list[str]:
    """`[1,2]` or `1,2` -> ["1", "2"]; parts may be quoted, and are given back without their quotes."""
    listed = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    parts, at = [], 0
    while at < len(listed):
        if listed[at] in "\"'":
            part, at = _value(listed, at)
        else:
            end = listed.find(",", at)
            end = len(listed) if end < 0 else end
            part, at = listed[at:end].strip(), end
        parts.append(part)
        at += 1
    return parts


def quoted(value: str) -> str:
    """`value` as it must be written for parse_options to give it back: in quotes where it needs them."""
    if value and not re.search(r"[\s\"'\\{}\[\](),=]", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass
class _Parser:
    text: str
    at: int = 0

    def fail(self, message: str) -> NoReturn:
        found = (
            f"found `{self.text[self.at : self.at + 12]}`" if self.at < len(self.text) else "found the end"
        )
        raise syntax_error(self.text, self.at, f"{message}, {found}")

    def here(self) -> str:
        return self.text[self.at : self.at + 1]

    def elements(self) -> tuple[Node, ...]:
        found = [self.element()]
        while self.here() == ",":
            self.at += 1
            found.append(self.element())
        return tuple(found)

    def element(self) -> Node:
        match = _NAME.match(self.text, self.at)
        if not match:
            self.at = _skip(self.text, self.at)
            self.fail("expected the name of a pass or of an operation")
        name, column, self.at = match[1], match.start(1), match.end()
        options = ""
        if self.here() == "{":
            start, self.at = self.at, _closing(self.text, self.at)
            options = self.text[start + 1 : self.at - 1]
            self.at = _skip(self.text, self.at)
        children = None
        if self.here() == "(":
            children = self.nested()
        return Node(name, options, children, column)

    def nested(self) -> tuple[Node, ...]:
        self.at = _skip(self.text, self.at + 1)
        children = () if self.here() == ")" else self.elements()
        if self.here() != ")":
            self.fail("expected `,` or `)`")
        self.at = _skip(self.text, self.at + 1)
        return children


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int) -> tuple[str, int]:
    """The option value that begins at `at`, without its quotes, and the offset behind it."""
    if text[at : at + 1] in ("'", '"'):
        end = _end_of_quote(text, at)
        return re.sub(r"\\(.)", r"\1", text[at + 1 : end - 1], flags=re.DOTALL), end
    start = at
    while at < len(text) and not text[at].isspace():
        at = _closing(text, at) if text[at] in _CLOSING else at + 1
    return text[start:at], at


def _closing(text: str, start: int) -> int:
    """The offset behind the bracket that closes the one at `start`; brackets in quotes do not count."""
    expected: list[str] = []
    at = start
    while at < len(text):
        char = text[at]
        if char in "\"'":
            at = _end_of_quote(text, at)
            continue
        if char in _CLOSING:
            expected.append(_CLOSING[char])
        elif char in _CLOSING.values():
            if char != expected.pop():
                raise syntax_error(text, at, f"`{char}` closes nothing")
            if not expected:
                return at + 1
        at += 1
    raise syntax_error(
        text, start, f"`{text[start]}` is not closed; expected a closing `{_CLOSING[text[start]]}`"
    )


def _end_of_quote(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] != text[start]:
        at += 2 if text[at] == "\\" else 1
    if at >= len(text):
        raise syntax_error(text, start, f"the quote {text[start]} is not closed")
    return at + 1
