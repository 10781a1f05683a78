"""What `tilewright explain --space` says of a graph before its dispatches: what could be chosen of each operation, by name."""

from __future__ import annotations

from rich.table import Table

from tilewright.compiler.explain.spaces import SpaceReport, domain_text
from tilewright.compiler.nouns.choices import Choices
from tilewright.compiler.nouns.space import Space

_DRAWN = 256
"""Points that rules are tried on: each groups the operations of a graph anew."""


def choices_table(title: str, space: Space[Choices]) -> Table:
    """One section for every operation: its fields, their domains and defaults, and what their rules remove."""
    report = SpaceReport.of(
        tuple({knob.name.rpartition(".")[0] for knob in space.knobs}), space, drawn=_DRAWN
    )
    shown = f"operations: {len(report.dispatches)}, knobs: {len(space.knobs)}; {report.legal}"
    table = Table(title=title, caption=shown)
    for column in ("operation", "knob", "domain", "default", "removed by its rules"):
        table.add_column(column, overflow="fold", no_wrap=column in ("operation", "knob", "domain"))
    last = ""
    for knob in sorted(space.knobs, key=lambda knob: _order(knob.name)):
        name, _, field = knob.name.rpartition(".")
        if name != last:
            table.add_section()
        removed = [
            f"{count / report.examined:.1%} {text}"
            for (of, text), count in report.removed.items()
            if of == knob.name
        ]
        label = field if knob.when is None else f"  {field}"
        default = str(report.default.get(knob.name, ""))
        table.add_row(
            name if name != last else "", label, domain_text(knob.domain), default, "; ".join(removed)
        )
        last = name
    return table


def _order(knob: str) -> tuple[str, int]:
    """By kind of operation and number."""
    kind, _, number = knob.rpartition(".")[0].rpartition("_")
    return kind, int(number)
