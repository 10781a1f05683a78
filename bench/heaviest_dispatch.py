"""The dispatch of a case that does its work, and what other schedules of it take: checked and timed in interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.compiler.ir import ir
    from tilewright.compiler.nouns.schedule import Schedule
    from tilewright.compiler.profiler.decisions import Measured
    from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate


@dataclass(frozen=True)
class HeaviestDispatch:
    """A dispatch by name and operator: what each of several constructions lists for it, and what was measured of that."""

    name: str
    operator: str
    lists: tuple[tuple[Candidate, ...], ...]
    measured: dict[Schedule, Measured] = field(hash=False)


def measure(
    case,
    constructions: Sequence[Callable[[ir.Operation], Sequence[Candidate]]],
    threads: int,
    seconds: float = 1.0,
) -> HeaviestDispatch:
    """Compiles, checks and times all that `constructions` list for the heaviest dispatch of a case that all have some for.

    Raises TilewrightError for a model that does not compile, ValueError where there is no such dispatch.
    """
    from tilewright.compiler import driver, phases
    from tilewright.compiler.dialects import schedule_attribute
    from tilewright.compiler.ir import functions, ir
    from tilewright.compiler.profiler.selection import ProfilerOptions, profile
    from tilewright.compiler.targets.target import resolve
    from tilewright.compiler.tuning.record_store import RecordStore

    target = resolve("cpu")
    module = driver.import_model(*case.build()).module
    phases.run_phases(module, target, "graph", "dispatch")
    with module.context, ir.Location.unknown(module.context):
        candidates, operators = {}, {}
        for function in functions(module):
            if "tilewright.operator" in function.attributes:
                name = ir.StringAttr(function.attributes["sym_name"]).value
                operators[name] = ir.StringAttr(function.attributes["tilewright.operator"]).value
                candidates[name] = tuple(tuple(listed(function)) for listed in constructions)
        candidates = {name: lists for name, lists in candidates.items() if all(lists)}
        called = _called(module, candidates)
        if not called:
            raise ValueError(f"{case.name}: no dispatch that has schedules to choose of")
        # Beside the operator itself there may be transposes into its layout.
        name = max(called, key=lambda n: (operators[n] != "elementwise", candidates[n][0][0].us))
        every = list({c.schedule: c for lists in candidates[name] for c in lists}.values())
        for function in functions(module):
            if ir.StringAttr(function.attributes["sym_name"]).value == name:
                schedule_attribute.write(function, every[0].schedule)
        options = ProfilerOptions(threads=threads, seconds=seconds)
        # Times are compared with each other, so all are measured now: earlier records are not read.
        with RecordStore(None) as store:
            decisions = profile(
                module,
                target,
                lambda f: every if ir.StringAttr(f.attributes["sym_name"]).value == name else [],
                options,
                store=store,
            )
    found = decisions[name].candidates if name in decisions else ()
    return HeaviestDispatch(name, operators[name], candidates[name], {c.schedule: c for c in found})


def _called(module, candidates: dict) -> list[str]:
    """Dispatches with candidates that @main calls."""
    from tilewright.compiler.ir import functions, ir, walk

    found: dict[str, None] = {}
    for function in functions(module):
        if ir.StringAttr(function.attributes["sym_name"]).value == "main":
            for call in walk(function, "func.call"):
                found[ir.FlatSymbolRefAttr(call.attributes["callee"]).value] = None
    return [name for name in found if name in candidates]
