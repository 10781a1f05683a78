"""From a model to something callable: picks the importer, compiles, binds the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.compiler import phases
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.importers import Imported
from tilewright.compiler.target import resolve
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel

OPT_LEVELS = ("O0", "O1", "O2", "O3")


def compile(
    model: Any, example_inputs: Any = None, target: str = "cpu", opt: str = "O0", **options: Any
) -> CompiledModel:
    """Compiles a model for fixed input shapes.

    `model` is an `nn.Module`, `torch.export.ExportedProgram`, `onnx.ModelProto`, or the path of an `.onnx` or
    `.mlir` file; `example_inputs` a tuple of positional arguments or a dict of keyword arguments. Raises
    UnsupportedError listing every operator that cannot be compiled, ModelImportError for a malformed model.
    """
    return compile_imported(import_model(model, example_inputs), target, {"opt": opt, **options})


def import_model(model: Any, example_inputs: Any = None) -> Imported:
    """Brings any supported kind of model in as a module of linalg on tensors."""
    if isinstance(model, (str, Path)):
        suffix = Path(model).suffix
        if suffix == ".onnx":
            from tilewright.compiler.importers.onnx_model import import_onnx

            return import_onnx(model, example_inputs)
        if suffix == ".mlir" or (isinstance(model, str) and "func.func" in model):
            from tilewright.compiler.importers.mlir_text import import_mlir

            return import_mlir(model)
        raise TilewrightError(f"`{model}`: expected a path ending in .onnx or .mlir, found `{suffix}`")
    if type(model).__name__ == "ModelProto":
        from tilewright.compiler.importers.onnx_model import import_onnx

        return import_onnx(model, example_inputs)
    from tilewright.compiler.importers.torch_model import import_torch

    return import_torch(model, example_inputs)


def compile_imported(
    imported: Imported, target: str = "cpu", options: dict[str, Any] | None = None
) -> CompiledModel:
    """Compiles an imported model and binds its weights."""
    options = dict(options or {})
    opt = options.pop("opt", "O0")
    if opt not in OPT_LEVELS:
        raise TilewrightError(f"opt: expected one of {', '.join(OPT_LEVELS)}, found `{opt}`")
    report = phases.Report()
    package = phases.compile_module(imported.module, resolve(target), report)
    executable = Executable(package, list(imported.weights))
    return CompiledModel(executable, imported.signature, imported.state, imported.weights)
