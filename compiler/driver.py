"""From a model to something callable: picks the importer, compiles, binds the weights."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright.compiler import phases
from tilewright.compiler.cache import packages as package_cache
from tilewright.compiler.dialects.choice_attribute import ask_choices
from tilewright.compiler.dialects.precision import PRECISIONS
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.importers import Imported
from tilewright.compiler.nouns.choices import Choices
from tilewright.compiler.passes.graph.choose_winograd import keep_direct
from tilewright.compiler.passes.graph.lower_precision import ask_precision
from tilewright.compiler.profiler.candidate_bench import MEASURING_ON_GPU
from tilewright.compiler.profiler.gpu_here import measuring_gpu
from tilewright.compiler.profiler.selection import ProfilerOptions
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.host import processor
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.workers.pool import prepare
from tilewright.runtime.binding import bind
from tilewright.runtime.errors import DeviceError
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.program import DENORMALS, Package
from tilewright.runtime.settings import num_threads

OPT_LEVELS = ("O0", "O1", "O2", "O3")


def compile(
    model: Any, example_inputs: Any = None, target: str = "cpu", opt: str = "O0", **options: Any
) -> CompiledModel:
    """Compiles a model for fixed input shapes.

    `model` is an `nn.Module`, `torch.export.ExportedProgram`, `onnx.ModelProto`, or the path of an `.onnx` or
    `.mlir` file; `example_inputs` a tuple of positional arguments or a dict of keyword arguments. With
    `precision="bf16"` contractions with weights of an f32 model compute from bf16 operands, with "tf32" all of them
    may use a GPU's matrix units. `cuda_graph` (True, False or "auto") says whether calls on an NVIDIA GPU go through
    a CUDA graph. With `denormals="flush"` calls on a CPU take denormal numbers for zeros. `choices` is a mapping of what is
    to be chosen to values, or the path of a JSON file (see docs/choices.md). Raises UnsupportedError listing every operator that cannot be compiled, ModelImportError for a malformed model.
    """
    checked = check_options({"opt": opt, **options})
    prepare()
    return compile_imported(import_model(model, example_inputs), target, checked)


def import_model(model: Any, example_inputs: Any = None) -> Imported:
    """Brings any supported kind of model in as a module of linalg on tensors."""
    if isinstance(model, (str, Path)):
        suffix = Path(model).suffix
        if suffix == ".onnx":
            return _importer("onnx.model", "onnx").import_onnx(model, example_inputs)
        if suffix == ".mlir" or (isinstance(model, str) and "func.func" in model):
            from tilewright.compiler.importers.mlir_text import import_mlir

            return import_mlir(model)
        raise TilewrightError(f"`{model}`: expected a path ending in .onnx or .mlir, found `{suffix}`")
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
    options = check_options(options)
    cuda_graph = options.pop("cuda_graph", None)  # how the code is run, not what it is
    described = generated_for(target)
    package = compile_package(imported.module, described, options)
    executable = bind(
        package, list(imported.weights), device=None if described.emulated else device, cuda_graph=cuda_graph
    )
    return CompiledModel(executable, imported.signature, imported.state, imported.weights)


def generated_for(target: Target | str) -> Target:
    """The target of that name; raises TilewrightError for one that no code is generated for."""
    described = resolve(target) if isinstance(target, str) else target
    if not described.has_code:
        raise TilewrightError(
            f"target `{described.name}` is a {described.kind} ({described.arch}): code is generated for x86-64 CPUs and for "
            "NVIDIA GPUs from sm_70 on; name one of those, or `cpu` for this machine"
        )
    return described


def compile_package(module: Any, target: Target, options: dict[str, Any]) -> Package:
    """All phases, or the cache; dumps and overrides of phases ask for the phases to run."""
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
    profiling = profiler_options(target) if options.get("opt", "O0") != "O0" else None
    if profiling is None:
        options = {**options, "opt": "O0"}
    key = None if asked.dump or asked.override else package_cache.package_key(module, target, options)
    package = package_cache.find(key) if key else None
    if package is not None:
        package.notes["phases_s"] = {"cache": time.perf_counter() - start}
        return package
    ask_precision(module, options.get("precision", "f32"))
    if options.get("choices") is not None:
        ask_choices(module, options["choices"])
    if not options.get("winograd", True):
        keep_direct(module)
    package = phases.compile_module(module, target, phases.Report(), profiling=profiling)
    package = replace(package, denormals=options.get("denormals", "keep"))
    if key:
        package_cache.store(key, package)
    return package


def profiler_options(target: Target) -> ProfilerOptions | None:
    """How candidates for a target are measured here; None, with a warning, when nothing here runs them."""
    compiled = ProfilerOptions(threads=num_threads(), device=processor())
    if not target.is_cuda:
        return compiled
    try:
        device, index = measuring_gpu(target)
    except DeviceError as reason:
        warnings.warn(f"opt O1: {reason}; the constructed schedules are kept unmeasured", stacklevel=4)
        return None
    return replace(compiled, measuring=MEASURING_ON_GPU, device=device, device_index=index)


def check_options(options: dict[str, Any] | None) -> dict[str, Any]:
    """The options with their defaults; raises TilewrightError for an unknown one or a bad value."""
    given = {"opt": "O0", "precision": "f32", "winograd": True, "denormals": "keep", **(options or {})}
    unknown = sorted(set(given) - {"choices", "cuda_graph", "denormals", "opt", "precision", "winograd"})
    if unknown:
        raise TilewrightError(
            f"unknown option `{unknown[0]}`; the options are: choices, cuda_graph, denormals, opt, precision, target, "
            "winograd, and strict under torch.compile"
        )
    if given.get("choices") is not None:
        given["choices"] = dict(Choices.of(given["choices"]).values)
    if given.get("cuda_graph") not in (None, True, False, "auto"):
        raise TilewrightError(f"cuda_graph: expected True, False or auto, found `{given['cuda_graph']}`")
    if not isinstance(given["winograd"], bool):
        raise TilewrightError(f"winograd: expected True or False, found `{given['winograd']}`")
    if given["denormals"] not in DENORMALS:
        raise TilewrightError(
            f"denormals: expected one of {', '.join(DENORMALS)}, found `{given['denormals']}`"
        )
    if given["precision"] not in PRECISIONS:
        raise TilewrightError(
            f"precision: expected one of {', '.join(PRECISIONS)}, found `{given['precision']}`"
        )
    if given["opt"] not in OPT_LEVELS:
        raise TilewrightError(f"opt: expected one of {', '.join(OPT_LEVELS)}, found `{given['opt']}`")
    if given["opt"] in ("O2", "O3"):
        warnings.warn(f"opt {given['opt']}: schedules are not searched yet, compiled as O1", stacklevel=3)
        given["opt"] = "O1"
    return given
