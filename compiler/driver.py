"""From a model to something callable: picks the importer, compiles, binds the weights."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.compiler import debug, phases
from tilewright.compiler.cache import packages as package_cache
from tilewright.compiler.collector import rarely_collected
from tilewright.compiler.dialects.choice_attribute import ask_choices
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.importers import Imported, is_onnx_file
from tilewright.compiler.options import check_options
from tilewright.compiler.passes.graph.choose_winograd import keep_direct
from tilewright.compiler.passes.graph.lower_precision import ask_precision
from tilewright.compiler.plugins import load_installed
from tilewright.compiler.profiler.candidate_bench import MEASURING_ON_GPU
from tilewright.compiler.profiler.gpu_here import measuring_gpu
from tilewright.compiler.profiler.progress import reporting
from tilewright.compiler.profiler.selection import ProfilerOptions
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.host import processor
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.tuning.lockfile import Lock
from tilewright.compiler.tuning.search.tune_result import TuneResult
from tilewright.compiler.workers.pool import prepare
from tilewright.runtime.binding import bind
from tilewright.runtime.errors import DeviceError
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.program import Package
from tilewright.runtime.settings import num_threads

if TYPE_CHECKING:  # what searches is many modules: one that constructs does not wait for them
    from tilewright.compiler.searched_programs import FoundProgram, Reports
    from tilewright.compiler.tuning.search.choice_search import ChoiceResult
    from tilewright.compiler.tuning.search.program_race import RaceResult


def compile(
    model: Any, example_inputs: Any = None, target: str = "cpu", opt: str = "O0", **options: Any
) -> CompiledModel:
    """Compiles a model for fixed input shapes.

    `model` is an `nn.Module`, `torch.export.ExportedProgram`, `onnx.ModelProto`, or the path of an `.onnx` or
    `.mlir` file; `example_inputs` a tuple of positional arguments or a dict of keyword arguments, by default those
    that a program was exported with. With `precision="bf16"` contractions with weights of an f32 model compute from bf16
    operands, with "tf32" all of them may use a GPU's matrix units. `cuda_graph` (True, False or "auto") says whether calls on an NVIDIA GPU go through
    a CUDA graph. With `denormals="flush"` calls on a CPU take denormal numbers for zeros. `choices` is a mapping of what is
    to be chosen to values, or the path of a JSON file (see docs/choices.md).

    `opt` is "O0" (schedules are constructed), "O1" (the best of a few, measured) or "O2" (searched on this machine for `budget`
    seconds, or until `trials` candidates were tried; `strategy`, `cost_model`, `seed` and `bitwise` say how, see
    docs/tuning.md). `lock` is the file of an earlier search, whose schedules are used again. Raises UnsupportedError
    listing every operator that cannot be compiled, ModelImportError for a malformed model.
    """
    checked = check_options({"opt": opt, **options})
    prepare()
    return compile_imported(import_model(model, example_inputs), target, checked)


@rarely_collected()
def import_model(model: Any, example_inputs: Any = None) -> Imported:
    """Brings any supported kind of model in as a module of linalg on tensors."""
    if isinstance(model, CompiledModel):
        raise TilewrightError("the model is compiled already: call it, or compile what it was made of")
    if isinstance(model, (str, Path)):
        suffix = Path(model).suffix
        if suffix == ".twm":
            raise TilewrightError(f"`{model}` is compiled already: take it by `tilewright.load`")
        if suffix == ".mlir" or (isinstance(model, str) and "func.func" in model):
            from tilewright.compiler.importers.mlir_text import import_mlir

            return import_mlir(model)
        if is_onnx_file(Path(model)):
            return _importer("onnx.model", "onnx").import_onnx(model, example_inputs)
        raise TilewrightError(
            f"`{model}`: expected a path of an ONNX model or one ending in .mlir, found `{suffix}`"
        )
    if type(model).__name__ == "ModelProto":
        return _importer("onnx.model", "onnx").import_onnx(model, example_inputs)
    return _importer("torch.model", "torch").import_torch(model, example_inputs)


def _importer(name: str, extra: str) -> Any:
    """The module that imports one kind of model; raises TilewrightError naming the extra when it cannot be loaded."""
    try:
        return import_module(f"tilewright.compiler.importers.{name}")
    except ModuleNotFoundError as missing:
        raise TilewrightError(
            f"this kind of model needs `{missing.name}`, which is not installed: pip install 'tilewright[{extra}]'"
        ) from missing


def compile_imported(
    imported: Imported,
    target: Target | str = "cpu",
    options: dict[str, Any] | None = None,
    device: Any = None,
) -> CompiledModel:
    """Compiles an imported model, or takes it from the cache, and binds its weights; `device` is the GPU to bind to."""
    checked = check_options(options)
    cuda_graph = checked.pop("cuda_graph", None)  # how the code is run, not what it is
    described = lock_target(checked) if "lock" in checked and target == "cpu" else generated_for(target)
    package = compile_package(imported.module, described, checked, imported.weights)
    executable = bind(
        package, list(imported.weights), device=None if described.emulated else device, cuda_graph=cuda_graph
    )
    return CompiledModel(executable, imported.signature, imported.state, imported.weights)


def lock_target(options: dict[str, Any]) -> Target:
    """The target that the lock of checked options is for, as it was when that was tuned."""
    return generated_for(Lock.from_text(options["lock"]).target)


def generated_for(target: Target | str) -> Target:
    """The target of that name; raises TilewrightError for what names none, and for one that no code is generated for."""
    if not isinstance(target, (str, Target)):
        raise TilewrightError(
            f"target: expected a name, as `cpu` or `cuda:sm_90a`, or a Target, found `{target}`; inputs by name are given as "
            "example_inputs, a dict"
        )
    if isinstance(target, str) and target != "cpu":
        load_installed()  # the name may be that of a plugin's
    described = resolve(target) if isinstance(target, str) else target
    if not described.has_code:
        raise TilewrightError(
            f"target `{described.name}` is a {described.kind} ({described.arch}): code is generated for x86-64 CPUs and for "
            "NVIDIA GPUs from sm_70 on; name one of those, or `cpu` for this machine"
        )
    return described


def compile_package(
    module: Any, target: Target, options: dict[str, Any], weights: Sequence[Any] = ()
) -> Package:
    """All phases, or the cache; dumps and overrides of phases ask for the phases to run.

    With `weights` programs that a search found are raced.
    """
    if options.get("precision") == "tf32" and not target.is_cuda:
        raise TilewrightError(
            f"precision: tf32 is what matrix units of NVIDIA GPUs round to, found target `{target.name}`; use f32 or bf16"
        )
    if options.get("denormals") == "flush" and target.kind != "cpu":
        raise TilewrightError(
            f"denormals: flush is a mode of CPUs, found target `{target.name}`; GPUs keep denormals, leave the option out"
        )
    asked = settings()
    start = time.perf_counter()
    decide = decision(target, options)
    is_searched = options.get("opt") == "O2" and profiler_options(target, "O2") is not None
    if decide is None and not is_searched:
        options = {**options, "opt": "O0"}
    key = None if asked.dump or asked.override else package_cache.package_key(module, target, options)
    package = package_cache.find(key) if key else None
    if package is not None:
        package.notes["phases_s"] = {"cache": time.perf_counter() - start}
        return package
    if is_searched:
        package = _packaged(_search(module, target, options, weights), target, options)
    else:
        package = _compiled(module, target, options, decide)
    if key:
        package_cache.store(key, package)
    return package


def _compiled(module: Any, target: Target, options: dict[str, Any], decide: phases.Decide | None) -> Package:
    _ask(module, options)
    choices = Lock.from_text(options["lock"]).choices if "lock" in options else options.get("choices")
    if choices:
        ask_choices(module, choices)
    package = phases.compile_module(module, target, phases.Report(), decide=decide)
    return replace(package, denormals=options.get("denormals", "keep"))


def _ask(module: Any, options: dict[str, Any]) -> None:
    """Writes down on a module what options say of all of it."""
    ask_precision(module, options.get("precision", "f32"))
    if not options.get("winograd", True):
        keep_direct(module)


def _search(module: Any, target: Target, options: dict[str, Any], weights: Sequence[Any]) -> FoundProgram:
    """The program that a search finds, with a line of progress on a terminal; Ctrl-C ends the compilation as well."""
    from tilewright.compiler.profiler.schedule_search import SearchOptions, progress
    from tilewright.compiler.searched_programs import Reports, search_program

    _ask(module, options)
    with reporting() as say:
        reports = Reports(
            on_move=lambda move, done, total: say(done, total, move.text()),
            on_event=progress(SearchOptions.of(options), say),
            on_race=lambda changes: say(0, changes, "whole programs race"),
            on_test=lambda test: say(len(test.changes), len(test.changes), f"whole programs: {test.text()}"),
        )
        return search_program(module, target, options, weights, reports, keeps=False)


def _packaged(found: FoundProgram, target: Target, options: dict[str, Any]) -> Package:
    """The package of what a search found."""
    report = phases.Report(decisions=dict(found.decisions))
    debug.dump_module("5-decide", found.module)
    package = phases.package_module(found.module, target, report)
    return replace(package, denormals=options.get("denormals", "keep"))


@dataclass(frozen=True)
class Tuned:
    """A model compiled with what a search found, the lock that compiles it so again, and what was found of what."""

    model: CompiledModel
    lock: Lock
    result: TuneResult
    choices: ChoiceResult
    raced: RaceResult


def tune_imported(
    imported: Imported,
    target: Target | str = "cpu",
    options: dict[str, Any] | None = None,
    reports: Reports | None = None,
) -> Tuned:
    """Compiles an imported model at O2, whatever is in the cache, telling `reports` of every step.

    Ctrl-C ends the search and not the compilation, which a second one ends. Raises DeviceError where nothing here runs the
    target's code.
    """
    from tilewright.compiler.profiler.schedule_search import locked_decisions
    from tilewright.compiler.searched_programs import search_program
    from tilewright.compiler.tuning.search.interruptible import holding_interrupts

    checked = check_options({"opt": "O2", **(options or {})})
    cuda_graph = checked.pop("cuda_graph", None)
    described = generated_for(target)
    if described.is_cuda:
        measuring_gpu(described)
    _ask(imported.module, checked)
    with holding_interrupts() as interrupts:
        found = search_program(imported.module, described, checked, imported.weights, reports)
        # The package says what it says when it is compiled from the lock: it is the same to the last byte.
        as_locked = replace(found, decisions=locked_decisions(found.tasks, found.lock))
        package = _packaged(as_locked, described, checked)
        executable = bind(package, list(imported.weights), cuda_graph=cuda_graph)
    model = CompiledModel(executable, imported.signature, imported.state, imported.weights)
    result = replace(found.result, is_interrupted=interrupts.is_interrupted)
    return Tuned(model, found.lock, result, found.choices, found.raced)


def decision(target: Target, options: dict[str, Any]) -> phases.Decide | None:
    """What replaces the constructed schedules at O1 or from a lock; None at O0, and, with a warning, where nothing here measures."""
    if "lock" in options:
        from tilewright.compiler.profiler.schedule_search import apply_lock

        return partial(apply_lock, lock=Lock.from_text(options["lock"]))
    if options.get("opt", "O0") != "O1":
        return None
    profiling = profiler_options(target)
    return None if profiling is None else phases.profiled(profiling)


def profiler_options(target: Target, level: str = "O1") -> ProfilerOptions | None:
    """How candidates for a target are measured here; None, with a warning, when nothing here runs them."""
    compiled = ProfilerOptions(threads=num_threads(), device=processor())
    if not target.is_cuda:
        return compiled
    try:
        device, index = measuring_gpu(target)
    except DeviceError as reason:
        warnings.warn(f"opt {level}: {reason}; the constructed schedules are kept unmeasured", stacklevel=4)
        return None
    return replace(compiled, measuring=MEASURING_ON_GPU, device=device, device_index=index)
