"""The choices of a graph, searched on the machine at hand: its space, the dispatches of each set of choices, and what measures them.

found = searched_choices(module, target, SearchOptions(seconds=600))     // of an imported module, which stays as it is
choice_attribute.ask_choices(module, found.values)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from tilewright.compiler.analysis.workload_of import NoWorkload, workload_of
from tilewright.compiler.choice_space import choice_space
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask, dispatch_tasks
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.choices import Choices, Value
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.package.residence import calls_of_main, name_of
from tilewright.compiler.phases import PHASES
from tilewright.compiler.profiler.candidate_bench import MeasureOptions
from tilewright.compiler.profiler.schedule_search import MakeDevice, SearchOptions, local_device
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.search.choice_search import ChoiceResult, Graph, OnMove, search_choices
from tilewright.compiler.workers.modules import run_phase
from tilewright.compiler.workers.pool import Job, pool
from tilewright.compiler.workers.tasks import from_bytes, to_bytes

SHARE = 1 / 3
"""The part of a budget that choices are searched for; schedules are searched for the rest."""
_FIRST = "layout"
"""The phase that choices are read from; what comes before it is the same for all of them."""
_MOMENT_S = 1e-6
"""The budget of a search whose time is spent: it decides by what is known."""


def find_choices(
    module: ir.Module, target: Target, options: dict[str, Any], on_move: OnMove
) -> tuple[ChoiceResult, dict[str, Any]]:
    """What is chosen before there are dispatches, and the checked options of the search that is left, with that chosen.

    Bits depend on the algorithms of convolutions and on what is computed together: a `bitwise` search moves nothing.
    """
    if options.get("bitwise"):
        return ChoiceResult({}, (), 0, 0.0), options
    given, held = options.get("choices") or {}, () if options.get("winograd", True) else ("algorithm",)
    found = searched_choices(module, target, SearchOptions.of(options), given, held, on_move)
    left = {**options, "choices": {**given, **found.values}}
    if "budget" in options:
        left["budget"] = max(_MOMENT_S, options["budget"] - found.seconds)
    if "trials" in options:
        left["trials"] = max(1, options["trials"] - found.trials)
    return found, left


def searched_choices(
    module: ir.Module,
    target: Target,
    options: SearchOptions,
    given: Mapping[str, Value] | None = None,
    held: Sequence[str] = (),
    on_move: OnMove = lambda move, done, total: None,
    make_device: MakeDevice = local_device,
) -> ChoiceResult:
    """What a graph is fastest with; choices that are `given` stay as they are, and so do fields that are `held`.

    It takes its share of the budget. Raises what the compiler says of the graph as it is chosen without a search.
    """
    own = from_bytes(to_bytes(module))
    for phase in PHASES[: [phase.name for phase in PHASES].index(_FIRST)]:
        run_phase(own, target, phase.name, phase.pipeline(target))
    graphs = _Graphs(to_bytes(own), target)
    (first,) = graphs([given or {}])
    if isinstance(first, TilewrightError):
        raise first
    # Workers have survived these passes by now; they are read here.
    space = _asked(choice_space(module, target), given or {}, held)
    seconds = None if options.seconds is None else SHARE * options.seconds
    trials = None if options.trials is None else int(SHARE * options.trials)
    with closing(make_device(target, MeasureOptions(threads=options.threads))) as device:
        return search_choices(space, graphs, device, trials=trials, seconds=seconds, on_move=on_move)


def _asked(space: Space[Choices], given: Mapping[str, Value], held: Sequence[str]) -> Space[Choices]:
    """The space about what was given, which no move changes."""
    start = Choices({**space.default().values, **given})
    fixed = {knob.name for knob in space.knobs if knob.name in given or knob.name.rpartition(".")[2] in held}
    return replace(space, constructed=start).held(fixed)


class _Graphs:
    """Graphs of sets of choices, made by workers, all cores at once; `module` is past all phases before `layout`."""

    def __init__(self, module: bytes, target: Target):
        self._module, self._target = module, target

    def __call__(self, asked: Sequence[Mapping[str, Value]]) -> list[Graph | TilewrightError]:
        jobs = [
            Job(
                "tilewright.compiler.workers.tasks:chosen_dispatches",
                (self._module, self._target, dict(values), _FIRST),
                "a graph with other choices",
            )
            for values in asked
        ]
        made: list[Any] = [None] * len(jobs)
        pool().run(jobs, made.__setitem__)
        return [found if isinstance(found, TilewrightError) else self._read(found) for found in made]

    def _read(self, made: bytes | BaseException) -> Graph:
        if isinstance(made, BaseException):
            raise made
        module = from_bytes(made)
        tasks = {task.key: task for task in dispatch_tasks(module, self._target)}
        calls: Counter[str] = Counter()
        with module.context, ir.Location.unknown(module.context):
            by_name = {name_of(function): function for function in functions(module)}
            for name, called in calls_of_main(module).items():
                calls[_key(by_name[name])] += called.count
        return Graph(tasks, calls, {key: _predicted_us(task) for key, task in tasks.items()})


def _key(function: ir.Operation) -> str:
    """The key of a dispatch's work; its text without its name where it is no work that schedules know."""
    try:
        return workload_of(function).key
    except NoWorkload:
        return str(function).replace(f"@{name_of(function)}", "@")


def _predicted_us(task: DispatchTask) -> float:
    """What a dispatch was predicted to take when its schedule was constructed, or what none is faster than."""
    predicted = schedule_attribute.read_prediction(task.function)
    return task.limit_us if predicted is None else max(predicted[0], task.limit_us)
