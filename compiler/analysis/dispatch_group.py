"""The operations of one dispatch, while it grows from its sink to what computes the sink's operands."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.compiler.analysis.structure import Line, Structured, line_through, sink_line


@dataclass
class Group:
    """Positions of the operations in one dispatch, the sink first.

    `loops` are the sink's along which all can be cut without recomputing anything. An operation joins once all that read it
    have, so that its line is known then; what is read in place follows any cut, and has none.
    """

    members: list[int]
    refused: dict[int, str] = field(default_factory=dict)
    """Why operations did not join when they were looked at."""
    passed_over: list[int] = field(default_factory=list)
    """Contractions that stayed out because another one was there first."""
    repeated: set[int] = field(default_factory=set)
    """Members that others compute as well."""
    loops: tuple[int, ...] = ()
    _lines: dict[int, tuple[Structured, Line]] = field(default_factory=dict)

    def begin(self, sink: Structured) -> None:
        """Cuts along all parallel loops of the group's only member."""
        line = sink_line(sink)
        self._lines[self.members[0]], self.loops = (sink, line), tuple(line)

    def line_of(self, producer: Structured, readers: list[int]) -> Line | None:
        """The line of what `readers` read, whose numbers these are; None where the sink does not read it."""
        found: Line | None = None
        for reader in readers:
            consumer, line = self._lines.get(reader, (None, None))
            if consumer is not None and line is not None:
                for operand, map_ in zip(consumer.op.operands, consumer.maps):
                    if operand == producer.op.results[0]:
                        found = line_through(line, map_, producer, found)
        return found

    def loops_with(self, producer: Structured, readers: list[int]) -> tuple[int, ...]:
        """The loops that are left with one more operation."""
        return self._cut(self.line_of(producer, readers))

    def join(self, number: int, producer: Structured | None, readers: list[int]) -> None:
        """Takes an operation in; without its structure where it is read in place."""
        self.members.append(number)
        line = None if producer is None else self.line_of(producer, readers)
        if producer is not None and line is not None:
            self.loops = self._cut(line)
            self._lines[number] = producer, line

    def _cut(self, line: Line | None) -> tuple[int, ...]:
        return self.loops if line is None else tuple(i for i in self.loops if line[i] is not None)
