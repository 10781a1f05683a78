"""The compiler: one table of phases, run in order, any of which can be the first or the last.

import -> graph -> layout -> packing -> dispatch -> schedule -> lower -> package
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tilewright.compiler import debug
from tilewright.compiler.analysis.placement import OVERWRITES, overwritten
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.winograd_form import share_of_direct
from tilewright.compiler.codegen.lower_cpu import LoweredKernel, shape_free
from tilewright.compiler.collector import rarely_collected
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.attention import ATTENTION, Attention
from tilewright.compiler.errors import PassError, TilewrightError
from tilewright.compiler.ir import functions, ir, walk
from tilewright.compiler.nouns.schedule import PROPOSER, UNSCHEDULED
from tilewright.compiler.package import plan
from tilewright.compiler.passes.dispatch.batch_products import BatchProducts
from tilewright.compiler.passes.dispatch.choose_fusion import ChooseFusion
from tilewright.compiler.passes.dispatch.order_dispatches import OrderDispatches
from tilewright.compiler.passes.dispatch.outline_dispatches import OPERATOR, OutlineDispatches
from tilewright.compiler.passes.graph.choose_winograd import ChooseWinograd
from tilewright.compiler.passes.graph.fuse_attention import FuseAttention
from tilewright.compiler.passes.graph.join_in_place import JoinInPlace
from tilewright.compiler.passes.graph.narrow_integers import NarrowIntegers
from tilewright.compiler.passes.graph.orient_contractions import OrientContractions
from tilewright.compiler.passes.graph.read_narrow_weights import ReadNarrowWeights
from tilewright.compiler.passes.layout.choose_packing import ChoosePacking
from tilewright.compiler.passes.layout.pack_contractions import PackContractions
from tilewright.compiler.passes.layout.pack_dots import PackDots
from tilewright.compiler.passes.layout.pad_channels import PadChannels
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.passes.schedule.schedule_winograd import ScheduleWinograd, winograd_candidates
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.profiler.decisions import Decision
from tilewright.compiler.profiler.progress import reporting
from tilewright.compiler.profiler.selection import ProfilerOptions, profile
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.workers.compile_kernels import compile_kernels
from tilewright.compiler.workers.modules import run_phase, run_phase_apart
from tilewright.runtime.program import BufferRef, Kernel, Launch, Package, Program, TensorSpec

Decide = Callable[[ir.Module, Target], Mapping[str, Decision]]
"""Puts other schedules on the dispatches of a module, and tells what it decided of each, by name."""


@dataclass(frozen=True)
class Phase:
    """A named stretch of the pipeline; `passes(target)` is what it runs on the module."""

    name: str
    summary: str
    passes: Callable[[Target], list[str]]
    apart: bool = False
    """Whether its passes look at one dispatch at a time, so that several workers can have some each."""

    def pipeline(self, target: Target) -> str:
        """The passes as one pipeline on a module."""
        return f"builtin.module({','.join(self.passes(target))})"


_TIDY = "canonicalize,cse"


def _graph(target: Target) -> list[str]:
    return [
        *(() if target.kind == "cpu" else ("expand-fourier",)),
        "fold-shape-casts",
        "check-indices",
        "check-divisions",
        _TIDY,
        "simplify-bodies",
        "separate-bias",
        "merge-reductions",
        _TIDY,
        "fold-batch-norm",
        _TIDY,
        BatchProducts.for_target(target).spec(),
        _TIDY,
        FuseAttention.for_target(target).spec(),
        "merge-batches",
        _TIDY,
        "lower-precision",
        _TIDY,
    ]


def _layout(target: Target) -> list[str]:
    orienting = [
        PackDots.for_target(target).spec(),
        OrientContractions(target.vector_bits, target.registers_per_thread).spec(),
        "orient-narrow-weights",
    ]
    choices = [
        ChoosePacking.for_target(target).spec(),
        ChooseWinograd.for_target(target).spec(),
    ]
    return [
        "assign-layouts",
        "propagate-layouts",
        "generalize-named",
        NarrowIntegers.for_target(target).spec(),
        *([PadChannels.for_target(target).spec()] if target.kind == "gpu" else []),
        JoinInPlace(under_windows=target.kind == "cpu").spec(),
        "generalize-pads",
        _TIDY,
        "fold-transposes",
        _TIDY,
        "drop-unit-results",
        _TIDY,
        "sink-reshapes",
        _TIDY,
        ReadNarrowWeights.for_target(target).spec(),
        # GPUs stage operands in shared memory as they need them; blocks as wide as a CPU's vectors would only hinder.
        *(orienting if target.kind == "cpu" else ()),
        "name-operations",
        *(choices if target.kind == "cpu" else ()),
    ]


def _packing(target: Target) -> list[str]:
    packing = [PackContractions(target.vector_bits, target.registers_per_thread).spec(), "transform-filters"]
    return [
        *(packing if target.kind == "cpu" else ()),
        "limit-sorts",
        *(("number-sorts",) if target.kind == "cpu" else ()),
        *(("tabulate-indices",) if target.kind == "cpu" else ()),
        "fold-unit-copies",
        "canonicalize",
        "hoist-weights",
        _TIDY,
        "materialize-returns",
        *(("plain-taps",) if target.kind == "cpu" else ()),
        ChooseFusion.for_target(target).spec(),
    ]


def _dispatch(target: Target) -> list[str]:
    return [
        OutlineDispatches.for_target(target).spec(),
        "place-inserts",
        *(("update-in-place",) if target.kind == "cpu" else ()),
        OrderDispatches.for_target(target).spec(),
        "share-borders",
        # Inside of dispatches only: before, it would pull element-wise producers into contractions.
        "fuse-elementwise",
        "erase-unread-generics",
        _TIDY,
        # What CSE merged in bodies may fold, as `x xor x` does; schedules are made for what is left.
        "canonicalize",
        "restore-copies",
        "collapse-loops",
        "mark-alignment" if target.kind == "gpu" else "mark-once",
    ]


def _schedule(target: Target) -> list[str]:
    winograd = [ScheduleWinograd.for_target(target).spec()] if target.kind == "cpu" else []
    return [*winograd, ConstructSchedules.for_target(target).spec()]


PHASES = (
    Phase("graph", "clean-ups and batch-norm folding on what was imported", _graph),
    Phase("layout", "layouts chosen and propagated; algorithms and blocks chosen", _layout),
    Phase("packing", "weights packed and transformed; what they decide goes to @prepack", _packing),
    Phase("dispatch", "fusion groups outlined, one sink each", _dispatch),
    Phase("schedule", "a schedule on every dispatch", _schedule, apart=True),
)
"""The phases on MLIR; `lower` and `package` follow in `package_module`."""


@dataclass
class Report:
    """What compiling took: seconds per phase, how kernels came about, and what the profiler decided by dispatch."""

    phases_s: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0
    kernels_cached: int = 0
    decisions: dict[str, Decision] = field(default_factory=dict)

    def add(self, phase: str, seconds: float) -> None:
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + seconds


def run_phases(
    module: ir.Module,
    target: Target,
    first: str = "graph",
    last: str = "schedule",
    report: Report | None = None,
) -> None:
    """Runs the phases from `first` to `last` on the module in place; raises TilewrightError for unknown names."""
    _keep_dispatches(module, first)
    for phase in _between(first, last):
        start = time.perf_counter()
        run_pipeline(module.operation, phase.pipeline(target), late=True)
        seconds = time.perf_counter() - start
        if report:
            report.add(phase.name, seconds)
        debug.log(1, f"phase {phase.name}: {seconds:.3f} s")
        name = f"{PHASES.index(phase)}-{phase.name}"
        debug.dump_module(name, module)
        debug.override_module(name, module)


def _keep_dispatches(module: ir.Module, first: str) -> None:
    """Raises ScheduleError where dispatches have schedules that phases from `first` on would not obey, PassError where there
    are dispatches before the phase that makes them."""
    if first == "schedule":
        return
    schedule_attribute.refuse_scheduled(module, first)
    for function in functions(module):
        if OPERATOR in function.attributes:
            name = ir.StringAttr(function.attributes["sym_name"]).value
            raise PassError(
                f"@{name} is a dispatch already, and phase `{first}` comes before there are any: continue by `tilewright compile "
                "FILE.mlir --from schedule`",
                function.location,
            )


def _between(first: str, last: str) -> tuple[Phase, ...]:
    names = [phase.name for phase in PHASES]
    for name in (first, last):
        if name not in names:
            raise TilewrightError(f"there is no phase `{name}`; the phases are {', '.join(names)}")
    return PHASES[names.index(first) : names.index(last) + 1]


def compile_module(
    module: ir.Module,
    target: Target,
    report: Report | None = None,
    first: str = "graph",
    decide: Decide | None = None,
) -> Package:
    """All phases: a module with @main on linalg-on-tensors to a package; `decide` may replace the constructed schedules.

    Workers run them: `run_phases` here would end this process where MLIR crashes.
    """
    report = report or Report()
    schedule_module(module, target, report, first)
    if decide is not None:
        start = time.perf_counter()
        with module.context, ir.Location.unknown(module.context):
            report.decisions.update(decide(module, target))
        report.add("decide", time.perf_counter() - start)
        debug.log(1, f"phase decide: {report.phases_s['decide']:.3f} s, {len(report.decisions)} dispatches")
        debug.dump_module("5-decide", module)
    return package_module(module, target, report)


def schedule_module(module: ir.Module, target: Target, report: Report, first: str = "graph") -> None:
    """The phases up to a constructed schedule on every dispatch, in workers, on the module in place."""
    _keep_dispatches(module, first)
    for phase in _between(first, "schedule"):
        start = time.perf_counter()
        run = run_phase_apart if phase.apart else run_phase
        run(module, target, phase.name, phase.pipeline(target))
        report.add(phase.name, time.perf_counter() - start)


def profiled(options: ProfilerOptions) -> Decide:
    """Decides for the measured best of every dispatch's constructed candidates."""

    def decide(module: ir.Module, target: Target) -> Mapping[str, Decision]:
        with reporting() as say:
            return profile(module, target, partial(candidates, target=target), options, say)

    return decide


def candidates(function: ir.Operation, target: Target) -> list[Candidate]:
    """The constructed schedules of a dispatch, the one to use without a measurement first."""
    constructed = ConstructSchedules.for_target(target).candidates_or_none(function)
    first = list(winograd_candidates(function, target)) if target.kind == "cpu" else []
    return [*first, *(c for c in constructed if c.schedule.tile not in [f.schedule.tile for f in first])]


@rarely_collected()
def package_module(module: ir.Module, target: Target, report: Report) -> Package:
    """Lowers every dispatch, places every tensor, and puts the tables together."""
    with module.context, ir.Location.unknown(module.context):
        return _package(module, target, report)


def _package(module: ir.Module, target: Target, report: Report) -> Package:
    dispatches = {
        ir.StringAttr(f.attributes["sym_name"]).value: f
        for f in functions(module)
        if "tilewright.operator" in f.attributes
    }
    public = {
        ir.StringAttr(f.attributes["sym_name"]).value: f
        for f in functions(module)
        if "tilewright.operator" not in f.attributes
    }
    if "main" not in public:
        raise PassError(f"expected a public function @main, found {', '.join(public) or 'none'}")
    start = time.perf_counter()
    lowered, report.kernels_compiled = compile_kernels(dispatches, target)
    report.kernels_cached = len(lowered) - report.kernels_compiled
    report.add("lower", time.perf_counter() - start)
    debug.log(
        1,
        f"phase lower: {report.phases_s['lower']:.3f} s, {report.kernels_compiled} kernels compiled, "
        f"{report.kernels_cached} from the cache",
    )

    start = time.perf_counter()
    constants = plan.Constants()
    numbers: dict[tuple[bytes, Launch | None], int] = {}
    kernels: list[Kernel] = []
    table: dict[str, tuple[int, int]] = {}
    for name, entry in lowered.items():
        code = (entry.kernel.object, entry.kernel.launch)
        if code not in numbers:
            numbers[code] = len(kernels)
            kernels.append(entry.kernel)
        table[name] = (numbers[code], entry.tasks)
    packed_bytes, prepack = 0, Program()
    if "prepack" in public:
        packed_bytes, prepack = _prepack(public["prepack"], public["main"], constants, table, dispatches)
    steps, arena_bytes = plan.plan_function(public["main"], constants)
    _check_overwritten(steps, dispatches)
    main = plan.program(_told(steps, dispatches, constants), arena_bytes, table)
    inputs, weights = _arguments(public["main"])
    if "prepack" in public and _arguments(public["prepack"])[1] != weights:
        raise PassError("@prepack and @main must take the same weights in the same order")
    updates = plan.updates(public["main"])
    results = public["main"].attributes["function_type"].value.results
    report.add("package", time.perf_counter() - start)
    notes = [
        {
            **_note(step, dispatches[step.dispatch], lowered[step.dispatch], table),
            **_schedule_note(dispatches[step.dispatch], report.decisions.get(step.dispatch)),
        }
        for step in steps
    ]
    for number, note in enumerate(notes):
        place = f"{note['operator']}, {note['tasks']} rTasks, {note['schedule']}, {note['location']}"
        debug.log(2, f"#{number} {note['name']}: {place}")
    return Package(
        target=target.name,
        features=(target.arch,) if target.is_cuda else target.cpu_features,
        inputs=inputs,
        outputs=tuple(plan.tensor_spec(t, f"output{i}") for i, t in enumerate(results)),
        weights=weights,
        constants=tuple(constants.entries),
        kernels=tuple(kernels),
        main=main,
        prepack=prepack,
        packed_bytes=packed_bytes,
        updates=updates,
        notes={
            "dispatches": notes,
            "phases_s": dict(report.phases_s),
            "arena_bytes": arena_bytes,
        },
    )


def _prepack(
    prepack: ir.Operation,
    main: ir.Operation,
    constants: plan.Constants,
    table: Mapping[str, tuple[int, int]],
    dispatches: Mapping[str, ir.Operation],
) -> tuple[int, Program]:
    """Places the results of @prepack one after the other in the packed block, and tells @main's arguments where."""
    offsets, total = [], 0
    for type_ in prepack.attributes["function_type"].value.results:
        offsets.append(total)
        total += plan.aligned(plan.tensor_spec(type_, "packed").nbytes)
    i64 = ir.IntegerType.get_signless(64)
    attributes, number = [], 0
    for entry in main.attributes["arg_attrs"]:
        fields = {named.name: named.attr for named in entry}
        if ir.StringAttr(fields["tilewright.role"]).value == "packed":
            fields["tilewright.offset"] = ir.IntegerAttr.get(i64, offsets[number])
            number += 1
        attributes.append(ir.DictAttr.get(fields))
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    outputs = {i: BufferRef("packed", 0, offset) for i, offset in enumerate(offsets)}
    steps, arena_bytes = plan.plan_function(prepack, constants, outputs)
    return total, plan.program(_told(steps, dispatches, constants), arena_bytes, table)


def _check_overwritten(steps: list[plan.CallStep], dispatches: Mapping[str, ir.Operation]) -> None:
    """Raises PassError where a dispatch that writes over an argument is called with its result elsewhere."""
    for step in steps:
        dispatch = dispatches[step.dispatch]
        if OVERWRITES in dispatch.attributes and step.buffers[overwritten(dispatch)] != step.buffers[-1]:
            raise PassError(
                f"{step.location}: @{step.dispatch} writes over argument {overwritten(dispatch)}, and its result lies elsewhere; "
                f"mark the call `{OVERWRITES}` too"
            )


def _told(
    steps: list[plan.CallStep], dispatches: Mapping[str, ir.Operation], constants: plan.Constants
) -> list[plan.CallStep]:
    """The steps with the tables of extents and strides that kernels of some read, in front of their results."""
    forms = [shape_free(dispatches[step.dispatch]) for step in steps]
    return [
        step
        if form is None
        else replace(
            step, buffers=(*step.buffers[:-1], constants.place_numbers(form.table()), step.buffers[-1])
        )
        for step, form in zip(steps, forms)
    ]


def _arguments(function: ir.Operation) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    inputs, weights = [], []
    types = function.attributes["function_type"].value.inputs
    for type_, attributes in zip(
        types, function.attributes["arg_attrs"] if "arg_attrs" in function.attributes else ()
    ):
        name = ir.StringAttr(attributes["tilewright.name"]).value
        role = ir.StringAttr(attributes["tilewright.role"]).value
        if role in ("input", "weight"):
            (inputs if role == "input" else weights).append(plan.tensor_spec(type_, name))
    return tuple(inputs), tuple(weights)


def _note(step: plan.CallStep, function: ir.Operation, lowered: LoweredKernel, table) -> dict:
    """What `explain` shows of one step."""
    group = [
        s for v in function.regions[0].blocks[0].operations if (s := Structured.read(v.operation)) is not None
    ]
    attentions = [Attention.read(op) for op in walk(function, ATTENTION)]
    types = function.attributes["function_type"].value
    nbytes = sum(plan.tensor_spec(t, "").nbytes for t in (*types.inputs, *types.results))
    unfused = function.attributes["tilewright.unfused"] if "tilewright.unfused" in function.attributes else ()
    return {
        "name": step.dispatch,
        "operator": ir.StringAttr(function.attributes["tilewright.operator"]).value,
        "location": step.location,
        "unfused": [ir.StringAttr(reason).value for reason in unfused],
        "flops": int(sum(s.points * max(1, s.body_ops) * share_of_direct(s.op) for s in group))
        + sum(attention.flops for attention in attentions),
        "bytes": nbytes,
        "tasks": lowered.tasks,
        "gang": lowered.kernel.launch.gang if lowered.kernel.launch else "alone",
        "inputs": list(step.inputs),
        "kernel": table[step.dispatch][0],
        "family": lowered.family,
    }


def _schedule_note(function: ir.Operation, decision: Decision | None) -> dict:
    """What `explain` shows of a dispatch's schedule: tiles, what was predicted, and what was measured."""
    schedule = schedule_attribute.read(function)
    predicted = schedule_attribute.read_prediction(function)
    texts = {
        name: ir.StringAttr(function.attributes[name]).value if name in function.attributes else ""
        for name in (PROPOSER, UNSCHEDULED)
    }
    return {
        "schedule": "" if schedule is None else schedule.text(),
        "levels": {} if schedule is None else {name: list(tile) for name, tile in schedule.levels},
        "predicted_us": predicted[0] if predicted else None,
        "bound": predicted[1] if predicted else "",
        "proposer": texts[PROPOSER],
        "unscheduled": texts[UNSCHEDULED],
        "candidates": [] if decision is None else decision.rows(),
    }
