"""What `tilewright explain --space` says: of every dispatch its knobs, how many schedules they make, and what rules remove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from tilewright.compiler.codegen.lower_cpu import bare_text
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.dispatch_space import dispatch_space
from tilewright.compiler.families.gpu.dispatch_space import kernel_spaces
from tilewright.compiler.ir import functions, ir, walk
from tilewright.compiler.nouns.space import ENUMERATED, KEPT, Space, Value
from tilewright.compiler.targets.target import Target

_DRAWN = 4096
"""Points of a space too large to list that rules are tried on: shares are right to within two hundredths."""
_SHOWN = 8
"""Values of a domain that are printed."""


@dataclass(frozen=True)
class SpaceReport:
    """The space of the dispatches of one kind of work: their names, what was seen of the space, and its default.

    On a GPU there is one for every kernel that computes them, which `kernel` names. Of `examined` points `kept` break no rule; `removed` are the others, by the first rule each breaks, as
    (knob, what is wrong).
    """

    dispatches: tuple[str, ...]
    space: Space
    examined: int
    kept: int
    removed: Mapping[tuple[str, str], int]
    default: Mapping[str, Value]
    remark: str = ""
    kernel: str = ""

    @classmethod
    def of(
        cls, dispatches: Sequence[str], space: Space, kernel: str = "", drawn: int = _DRAWN
    ) -> SpaceReport:
        """Looks at all points of a small space, and at some drawn from a large one."""
        few = space.size <= ENUMERATED
        points = space.every() if few else space.draw(drawn, np.random.default_rng(0))
        rules, counts = np.unique(space.legal(points), return_counts=True)
        removed = {
            (space.rules[rule].field, space.rules[rule].text): int(count)
            for rule, count in zip(rules, counts)
            if rule != KEPT
        }
        default, remark = {}, ""
        try:
            point = space.point(space.default())
            default = {k.name: k.domain[p] for k, p in zip(space.knobs, point) if p >= 0}
        except ScheduleError as outside:
            remark = f"its own schedule is not one of them: {outside}"
        kept = len(points) - sum(removed.values())
        return cls(tuple(dispatches), space, len(points), kept, removed, default, remark, kernel)

    @property
    def is_exact(self) -> bool:
        """Whether all points were examined."""
        return self.examined == self.space.size

    @property
    def legal(self) -> str:
        """`all 86 legal`, `3414 of 15072 legal`, or `about 12% of 196882 legal`."""
        if self.kept == self.examined:
            return f"all {self.space.size} legal"
        if self.is_exact:
            return f"{self.kept} of {self.space.size} legal"
        size = str(self.space.size) if self.space.size < 10**12 else f"{float(self.space.size):.1e}"
        return f"about {self.kept / self.examined:.1%} of {size} legal"


def spaces(module: ir.Module, target: Target) -> list[SpaceReport]:
    """The spaces of all dispatches that @main calls, in program order; those of equal work are one."""
    named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(module)}
    work: dict[str, list[str]] = {}
    for call in walk(named["main"], "func.call"):
        name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        work.setdefault(bare_text(named[name], schedule=False), []).append(name)
    found = []
    for names in work.values():
        function = named[names[0]]
        schedule = schedule_attribute.read(function)
        if schedule is None:
            raise ScheduleError(f"dispatch @{names[0]} has no schedule; run the `schedule` phase first")
        if target.is_cuda:
            own = kernel_spaces(function, target, schedule)
            found += [SpaceReport.of(names, space, kernel) for kernel, space in own.items()]
        else:
            found.append(SpaceReport.of(names, dispatch_space(function, target, schedule)))
    return found


def spaces_table(title: str, reports: Sequence[SpaceReport]) -> Table:
    """One section for every space: its knobs, their domains and defaults, and what their rules remove."""
    table = Table(title=title)
    for column in ("dispatch", "knob", "domain", "default", "removed by its rules"):
        table.add_column(column, overflow="fold", no_wrap=column in ("knob", "domain"))
    for report in reports:
        times = len(report.dispatches)
        labels = [report.dispatches[0] + (f" and {times - 1} more" if times > 1 else "")]
        labels += [f"by {report.kernel}: {report.legal}" if report.kernel else report.legal]
        labels += [report.remark] if report.remark else []
        rows = list(_rows(report))
        for number in range(max(len(labels), len(rows))):
            label = labels[number] if number < len(labels) else ""
            table.add_row(label, *(rows[number] if number < len(rows) else ()))
        table.add_section()
    return table


def _rows(report: SpaceReport) -> Iterator[tuple[str, str, str, str]]:
    for knob in report.space.knobs:
        if knob.is_ordered and len(knob.domain) < 2:
            continue
        removed = [
            f"{count / report.examined:.1%} {text}"
            for (field, text), count in report.removed.items()
            if field == knob.name
        ]
        default = str(report.default.get(knob.name, ""))
        name = knob.name
        if knob.when is not None:
            name = f"  {name.removeprefix(f'{knob.when[0]}.')}"
        yield name, domain_text(knob.domain), default, "; ".join(removed)


def domain_text(values: Sequence[Value]) -> str:
    """`1 .. 31`, `along, scalar`, or `1, 2, 3, 4, .. 100, 200 (27)`."""
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} .. {numbers[-1]}"
    words = [str(value) or "none" for value in values]
    if len(words) <= _SHOWN:
        return ", ".join(words)
    return f"{', '.join(words[: _SHOWN // 2])}, .. {', '.join(words[-_SHOWN // 2 :])} ({len(words)})"
