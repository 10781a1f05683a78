"""What MODEL and INPUTS mean to the tool: names, functions and files brought in, arrays read and written."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.compiler.errors import ModelImportError, TilewrightError
from tilewright.compiler.importers import is_onnx_file


@dataclass
class Loaded:
    """A model as `tilewright.compile` takes it, with example inputs where its kind brings some."""

    name: str
    model: Any
    inputs: tuple | None = None
    keywords: dict[str, Any] | None = None


def load_model(text: str) -> Loaded:
    """Brings MODEL in; raises ModelImportError that says what a MODEL may be."""
    path = Path(text)
    if path.suffix == ".mlir" or (path.suffix != ".pt2" and is_onnx_file(path)):
        _must_exist(path)
        return Loaded(path.stem, path)
    if path.suffix == ".twm":
        raise ModelImportError(f"`{text}` is compiled already: call it by `tilewright run`")
    if path.suffix == ".pt2":
        _must_exist(path)
        try:
            import torch
        except ModuleNotFoundError as missing:
            raise ModelImportError(_needs_torch(text, missing)) from None
        try:
            program = torch.export.load(path)
        except Exception as error:
            raise ModelImportError(f"`{text}` is no exported program: {error}") from None
        args, keywords = program.example_inputs or ((), {})
        return Loaded(path.stem, program, tuple(args), dict(keywords))
    from tilewright.bench import models

    try:
        module, inputs = models.build(text)
    except models.UnknownModelError as error:
        raise ModelImportError(f"{error}; or the path of an .onnx, .mlir or .pt2 file") from None
    except ModuleNotFoundError as missing:
        raise ModelImportError(_needs_torch(text, missing)) from None
    return Loaded(text, module, inputs)


def _needs_torch(text: str, missing: ModuleNotFoundError) -> str:
    return f"`{text}` needs `{missing.name}`, which is not installed: pip install 'tilewright[torch]'"


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise ModelImportError(f"`{path}`: there is no such file")


@dataclass(frozen=True)
class Arrays:
    """Inputs from an .npz file: `arr_0, arr_1, ...` by position, any other names as keywords."""

    positional: tuple[Any, ...]
    keywords: dict[str, Any]


def read_inputs(path: Path, as_torch: bool = False) -> Arrays:
    """Reads an .npz file; raises TilewrightError when it is none, or mixes positions and names with gaps."""
    try:
        with zipfile.ZipFile(path):  # which an .npy file is not, though NumPy loads that as well
            pass
        with np.load(path) as data:
            found = {name: data[name] for name in data.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise TilewrightError(f"`{path}`: expected an .npz file of arrays: {error}") from None
    numbers = sorted(int(name[4:]) for name in found if name.startswith("arr_") and name[4:].isdigit())
    if numbers != list(range(len(numbers))):
        raise TilewrightError(f"`{path}`: positions are arr_0, arr_1, ... without gaps, found {numbers}")
    if as_torch:
        import torch

        found = {name: torch.from_numpy(np.array(array)) for name, array in found.items()}
    positional = tuple(found.pop(f"arr_{number}") for number in numbers)
    return Arrays(positional, found)


def seeded_inputs(specs: Any, seed: int = 0) -> list[np.ndarray]:
    """Arrays for a package's input specs: normal numbers, and zeros for integers, which may be indices."""
    from tilewright.runtime.arrays import numpy_dtype

    generator = np.random.default_rng(seed)
    arrays = []
    for spec in specs:
        dtype = numpy_dtype(spec.dtype)
        if spec.dtype[0] in "iu":
            arrays.append(np.zeros(spec.shape, dtype))
        else:
            arrays.append(generator.standard_normal(spec.shape).astype(dtype))
    return arrays


def named_outputs(outputs: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of what a model returned, under the names that it has for the members of it, if any."""
    if not names:
        return named_arrays(outputs)
    named: dict[str, np.ndarray] = {}
    for name, value in zip(names, outputs, strict=True):
        named.update(named_arrays(value, name))
    return named


def write_arrays(path: Path, named: Mapping[str, np.ndarray]) -> None:
    """Writes an .npz file of arrays under any names: to `np.savez` some would be its own arguments."""
    with zipfile.ZipFile(path if path.suffix == ".npz" else f"{path}.npz", "w") as archive:
        for name, array in named.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def named_arrays(outputs: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Tensors of an output structure as arrays named by their place: `output`, `output.0`, `output.key`."""
    place = prefix or "output"
    if outputs is None or isinstance(outputs, (str, bytes)):
        return {}
    if hasattr(outputs, "detach"):
        tensor = outputs.detach()
        return {place: (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()}
    if isinstance(outputs, (np.ndarray, int, float, complex)):
        return {place: np.asarray(outputs)}
    if isinstance(outputs, dict):
        parts = list(outputs.items())
    elif isinstance(outputs, (list, tuple)):
        parts = list(enumerate(outputs))
    else:
        parts = [(name, value) for name, value in vars(outputs).items() if not name.startswith("_")]
    named: dict[str, np.ndarray] = {}
    for key, value in parts:
        named.update(named_arrays(value, f"{place}.{key}"))
    return named
