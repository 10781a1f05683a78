"""Diagnostics as mlir-opt prints them, and the `expected-error` comments that tests check them with."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.compiler.ir import ir

_CURRENT_OP = "see current operation: "
_SEVERITIES = {"ERROR": "error", "WARNING": "warning", "REMARK": "remark", "NOTE": "note"}
_EXPECTED = re.compile(
    r"expected-(?P<severity>error|note|remark|warning)(?P<regex>-re)? *"
    r"(?:@(?P<where>[+-][0-9]+|above|below|unknown))? *\{\{(?P<text>.*)\}\}\s*$"
)


@dataclass(frozen=True)
class Diagnostic:
    """One message: severity (`error`, `warning`, `remark`, `note`), file or None, 1-based line and column."""

    severity: str
    message: str
    file: str | None = None
    line: int = 0
    column: int = 0
    notes: tuple[Diagnostic, ...] = ()

    def flat(self) -> Iterable[Diagnostic]:
        """The diagnostic itself, then its notes."""
        yield self
        for note in self.notes:
            yield from note.flat()


def file_location(location: object) -> ir.FileLineColLoc | None:
    """The first file position inside a location: through call sites, names, fusions; None without one."""
    if type(location) is ir.Location:
        # Locations inside exceptions come as the base class.
        location = ir.Location.from_attr(location.attr, location.context)
    if isinstance(location, ir.FileLineColLoc):
        return location
    if isinstance(location, ir.CallSiteLoc):
        return file_location(location.callee) or file_location(location.caller)
    if isinstance(location, ir.NameLoc):
        return file_location(location.child_loc)
    if isinstance(location, ir.FusedLoc):
        return next((found for found in map(file_location, location.locations) if found), None)
    return None


def place(location: object) -> str:
    """`file:line:col` of a location, or its own text, or `` when it is unknown."""
    found = file_location(location)
    if found:
        return f"{found.filename}:{found.start_line}:{found.start_col}"
    return "" if location is None or isinstance(location, ir.UnknownLoc) else str(location)


def from_mlir(diagnostic: ir.Diagnostic, show_operation: bool = True) -> Diagnostic:
    """Copies a diagnostic out of MLIR, whose own object dies with the handler; call sites become notes."""
    location = diagnostic.location
    found = file_location(location)
    severity = _SEVERITIES[str(diagnostic.severity).rpartition(".")[2]]
    unplaced = not found and not isinstance(location, ir.UnknownLoc)
    message = f"{location}: {diagnostic.message}" if unplaced else diagnostic.message
    notes = [from_mlir(note, show_operation) for note in diagnostic.notes]
    if not show_operation:
        notes = [note for note in notes if not note.message.startswith(_CURRENT_OP)]
    position = (found.filename, found.start_line, found.start_col) if found else (None, 0, 0)
    return Diagnostic(severity, message, *position, (*_callers(location), *notes))


def _callers(location: object) -> list[Diagnostic]:
    if not isinstance(location, ir.CallSiteLoc):
        return []
    found = file_location(location.caller)
    if not found or not file_location(location.callee):
        return []
    called = Diagnostic("note", "called from", found.filename, found.start_line, found.start_col)
    return [called, *_callers(location.caller)]


@dataclass
class SourceText:
    """The buffer that is being processed, under the name its locations carry."""

    name: str
    text: str

    def line(self, file: str, number: int) -> str | None:
        """Line `number` (from 1) of this buffer, or of another file that exists; None when unknown."""
        if file != self.name:
            return linecache.getline(file, number).rstrip("\n") or None
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else None


def render(diagnostic: Diagnostic, source: SourceText) -> str:
    """`file:line:col: error: message`, the source line and a caret under the column, then the notes."""
    out = []
    for part in diagnostic.flat():
        if part.file is None:
            out.append(f"<unknown>:0: {part.severity}: {part.message}")
            continue
        out.append(f"{part.file}:{part.line}:{part.column}: {part.severity}: {part.message}")
        text = source.line(part.file, part.line)
        if text is not None:
            margin = "".join("\t" if char == "\t" else " " for char in text[: max(part.column - 1, 0)])
            out += [text, f"{margin}^"]
    return "\n".join(out) + "\n"


@dataclass
class Expectation:
    """One `expected-…` comment: severity and text, on which line (None: none), and where written."""

    severity: str
    text: str
    line: int | None
    written_at: tuple[int, int]
    is_regex: bool = False
    met: bool = False

    def matches(self, diagnostic: Diagnostic) -> bool:
        if self.severity != diagnostic.severity:
            return False
        if not self.is_regex:
            return self.text in diagnostic.message
        return re.search(self.pattern(), diagnostic.message) is not None

    def pattern(self) -> str:
        """`a {{b+}} c` -> a regular expression: literal outside the double braces."""
        parts = re.split(r"\{\{(.*?)\}\}", self.text)
        return "".join(f"({part})" if i % 2 else re.escape(part) for i, part in enumerate(parts))


@dataclass
class Verifier:
    """Checks diagnostics against the `expected-…` comments of one buffer; as mlir-opt, notes count too."""

    source: SourceText
    only_expected: bool = False
    expectations: list[Expectation] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.expectations = expectations(self.source.text)

    def take(self, diagnostic: Diagnostic) -> None:
        """Accepts a diagnostic that was produced, and remembers a problem when nobody expected it."""
        for part in diagnostic.flat():
            line = part.line if part.file == self.source.name else None
            for expected in self.expectations:
                if not expected.met and expected.line == line and expected.matches(part):
                    expected.met = True
                    break
            else:
                if not self.only_expected:
                    message = f"unexpected {part.severity}: {part.message}"
                    self.problems.append(Diagnostic("error", message, part.file, part.line, part.column))

    def finish(self) -> list[Diagnostic]:
        """All problems: what was produced unexpectedly, then what was expected and never came."""
        missing = []
        for expected in self.expectations:
            if not expected.met:
                message = f'expected {expected.severity} "{expected.text}" was not produced'
                missing.append(Diagnostic("error", message, self.source.name, *expected.written_at))
        return self.problems + missing


def expectations(text: str) -> list[Expectation]:
    """The `expected-…` comments of a buffer in order; `@below` and `@above` skip other such comments."""
    lines = text.split("\n")
    found: list[Expectation] = []
    waiting: list[Expectation] = []
    last_plain: int | None = None
    for number, line in enumerate(lines, start=1):
        match = _EXPECTED.search(line)
        if not match:
            for expected in waiting:
                expected.line = number
            waiting, last_plain = [], number
            continue
        where = match["where"]
        at: int | None = number
        if where == "above":
            at = last_plain
        elif where == "unknown":
            at = None
        elif where and where != "below":
            at = number + int(where)
        written_at = (number, match.start() + 1)
        expected = Expectation(match["severity"], match["text"], at, written_at, match["regex"] is not None)
        found.append(expected)
        if where == "below":
            waiting.append(expected)
    return found
