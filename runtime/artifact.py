"""A compiled model as one file: a safetensors file whose metadata is the manifest.

The file holds weights, kernels' objects, constants and step tables as tensors, so any safetensors reader
lists them. Loading maps the file, parses, checks, and runs `prepack`; nothing in it is ever executed or
unpickled before its checksum matched.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

import tilewright
from tilewright.runtime import arrays, container, cpu_features, native
from tilewright.runtime.binding import bind
from tilewright.runtime.container import Entry
from tilewright.runtime.errors import ArtifactError, DeviceError, PackageError
from tilewright.runtime.manifest import Reader, package_from_json, package_to_json
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.program import Package, TensorSpec
from tilewright.runtime.signature import Signature
from tilewright.runtime.signature_rules import broken_rule

FORMAT = "tilewright artifact"
PACKAGE_FORMAT = "tilewright package"
FORMAT_VERSION = 5
"""Raised by changes that older readers would misread."""


def save(model: CompiledModel, path: str | os.PathLike[str]) -> None:
    """Writes a compiled model, its weights included; an existing file is replaced only by a whole new one."""
    container.write(path, *_contents(model, path))


def dumps(model: CompiledModel) -> bytes:
    """What `save` writes, as bytes."""
    return b"".join(container.pieces(*_contents(model, "a pickled model")))


def _contents(model: CompiledModel, path: str | os.PathLike[str]) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors and the metadata of a model's file."""
    executable, package = model.executable, model.executable.package
    tensors: dict[str, Entry] = {}
    manifest = {
        "format_version": FORMAT_VERSION,
        "tilewright": tilewright.__version__,
        **package_to_json(package, tensors),
        "signature": json.loads(model.signature.to_json()),
    }
    manifest["weight_tensors"] = _add_tensors(
        tensors, "weights", zip(package.weights, executable.weight_storages)
    )
    state = model.signature.state
    if len(model.state) != len(state):
        raise ArtifactError(
            f"{path}: the signature has {len(state)} state tensors, the model {len(model.state)}"
        )
    on_host = [array.cpu() if getattr(array, "is_cuda", False) else array for array in model.state]
    states = [(spec, arrays.weight_storage(array, spec)) for spec, array in zip(state, on_host)]
    manifest["state_tensors"] = _add_tensors(tensors, "state", states)
    return tensors, _metadata(tensors, FORMAT, manifest)


def save_package(package: Package, path: str | os.PathLike[str]) -> None:
    """Writes a package alone, without weights or signature, as the compile cache keeps it."""
    tensors: dict[str, Entry] = {}
    manifest = {"format_version": FORMAT_VERSION, "tilewright": tilewright.__version__}
    manifest.update(package_to_json(package, tensors))
    container.write(path, tensors, _metadata(tensors, PACKAGE_FORMAT, manifest))


def load_package(path: str | os.PathLike[str]) -> Package:
    """Reads what `save_package` wrote; raises ArtifactError when it is foreign, damaged or of another format."""
    file = container.read(path)
    try:
        manifest = _manifest(file, PACKAGE_FORMAT)
        _verify(manifest, file.tensors, True)
        return package_from_json(manifest, file.tensors)
    except (ArtifactError, PackageError) as error:
        raise ArtifactError(f"{os.fspath(path)}: {error}") from None


def _metadata(tensors: dict[str, Entry], format_name: str, manifest: dict[str, Any]) -> dict[str, str]:
    """The manifest with the checksums of all tensors and its own."""
    manifest["crc32c"] = {key: native.crc32c(entry.data) for key, entry in tensors.items()}
    text = json.dumps(manifest, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    checksum = f"{native.crc32c(text.encode()):08x}"
    return {"format": format_name, "manifest": text, "manifest_crc32c": checksum}


def _add_tensors(
    tensors: dict[str, Entry], folder: str, storages: Iterable[tuple[TensorSpec, arrays.Storage]]
) -> list[str]:
    """Adds each storage once, under its first name; returns the key of each."""
    keys: dict[tuple[int, int, str], str] = {}
    found = []
    for number, (spec, storage) in enumerate(storages):
        place = (storage.address, storage.nbytes, spec.dtype) if storage.nbytes else (number, 0, "")
        if place not in keys:
            key = f"{folder}/{spec.name}"
            key = key if key not in tensors else f"{folder}/{number:04}/{spec.name}"
            keys[place] = key
            tensors[key] = Entry(spec.dtype, spec.shape, storage.view())
        found.append(keys[place])
    return found


def load(
    path: str | os.PathLike[str],
    num_threads: int | None = None,
    verify: bool = True,
    device: Any = None,
    cuda_graph: bool | str | None = None,
) -> CompiledModel:
    """Reads a model that `save` wrote, without compiler, MLIR or torch; weights stay in the mapped file.

    A model compiled for GPUs is bound to `device` (a number, `cuda:1`, or a torch device; default the first), and
    runs through a CUDA graph as `cuda_graph` says (True, False, or "auto").

    Raises ArtifactError when the file is missing, foreign, damaged, truncated, of a later format, or compiled for
    CPU features or a GPU that this machine lacks. `verify=False` skips the checksums of the weights, and with
    them reading weights that no `prepack` step needs; everything else is always verified.
    """
    return _bound(container.read(path), path, num_threads, verify, device, cuda_graph)


def loads(data: bytes, device: Any = None) -> CompiledModel:
    """The model that `dumps` wrote, checked and bound as `load` does."""
    held = mmap.mmap(-1, max(len(data), 1))  # aligned as a mapped file is
    held[: len(data)] = data
    name = "a pickled model"
    return _bound(container.parse(memoryview(held)[: len(data)], name), name, device=device)


def _bound(
    file: container.Container,
    path: str | os.PathLike[str],
    num_threads: int | None = None,
    verify: bool = True,
    device: Any = None,
    cuda_graph: bool | str | None = None,
) -> CompiledModel:
    try:
        manifest = _manifest(file)
        _check_machine(manifest)
        _verify(manifest, file.tensors, verify)
        package = package_from_json(manifest, file.tensors)
        signature = _signature(manifest, package)
        weights = _arrays(manifest["weight_tensors"], package.weights, file)
        state = [array.copy() for array in _arrays(manifest["state_tensors"], signature.state, file)]
        executable = bind(package, weights, num_threads, device, cuda_graph, needs_device=True)
    except (ArtifactError, DeviceError, PackageError, MemoryError) as error:
        raise ArtifactError(f"{os.fspath(path)}: {error}") from None
    return CompiledModel(executable, signature, state)


def _manifest(file: container.Container, format_name: str = FORMAT) -> Reader:
    if file.metadata.get("format") != format_name:
        raise ArtifactError("not an artifact: a safetensors file, but not one that tilewright wrote")
    text, checksum = file.metadata.get("manifest"), file.metadata.get("manifest_crc32c")
    if not isinstance(text, str) or f"{native.crc32c(text.encode(errors='replace')):08x}" != checksum:
        raise ArtifactError("damaged: the manifest does not match its checksum")
    try:
        manifest = Reader(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"damaged: the manifest is no JSON ({error})") from None
    version = manifest["format_version"].size()
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"format version {version}, written by tilewright {manifest['tilewright'].text()}; tilewright "
            f"{tilewright.__version__} reads version {FORMAT_VERSION}: load it with the tilewright that wrote it"
        )
    return manifest


def _check_machine(manifest: Reader) -> None:
    features = [
        name for name in manifest["features"].texts() if not name.startswith("sm_")
    ]  # a GPU's: see `bind`
    lacking = cpu_features.missing(features)
    if lacking:
        raise ArtifactError(
            f"compiled for target `{manifest['target'].text()}`, and this machine lacks the CPU features "
            f"{', '.join(lacking)}; compile the model for a target without them"
        )


def _verify(manifest: Reader, tensors: dict[str, memoryview], with_weights: bool) -> None:
    sums = manifest["crc32c"]
    for key, data in tensors.items():
        expected = sums[key].size()
        if (with_weights or not key.startswith("weights/")) and native.crc32c(data) != expected:
            raise ArtifactError(f"damaged: `{key}` does not match its checksum")


def _signature(manifest: Reader, package: Package) -> Signature:
    data = manifest["signature"].object()
    try:
        signature = Signature.from_json(json.dumps(data))
        broken = broken_rule(signature, package)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise ArtifactError(f"damaged: manifest.signature: {error!r}") from None
    if broken:
        raise ArtifactError(f"damaged: manifest.signature: {broken}")
    return signature


def _arrays(
    keys: Reader, specs: tuple[TensorSpec, ...], file: container.Container
) -> list[np.ndarray[Any, Any]]:
    """Read-only arrays over the mapped file, one per spec."""
    entries = keys.items()
    if len(entries) != len(specs):
        raise keys.fail(f"{len(specs)} names")
    found = []
    for entry, spec in zip(entries, specs):
        data = entry.tensor(file.tensors)
        if len(data) != spec.nbytes:
            raise entry.fail(f"a tensor of {spec.nbytes} B, not {len(data)} B")
        found.append(np.frombuffer(data, arrays.numpy_dtype(spec.dtype)).reshape(spec.shape))
    return found
