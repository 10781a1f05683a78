"""Whole compiled models on disk, by the hash of everything they depend on: a second process compiles nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tilewright.compiler import debug
from tilewright.compiler.ir import ir
from tilewright.compiler.lower import compiler_digest
from tilewright.compiler.settings import settings
from tilewright.compiler.target import Target
from tilewright.runtime import artifact
from tilewright.runtime.errors import ArtifactError
from tilewright.runtime.program import Package


def package_key(module: ir.Module, target: Target, options: dict) -> str:
    """A hash of the imported module with its source lines, the target, the options and the compiler itself."""
    digest = hashlib.sha256(module.operation.get_asm(enable_debug_info=True).encode())
    for fact in (
        json.dumps(target.to_json(), sort_keys=True),
        json.dumps(options, sort_keys=True),
        compiler_digest(),
    ):
        digest.update(fact.encode())
    return digest.hexdigest()


def _path(key: str) -> Path:
    return settings().cache_dir / "packages" / key[:2] / f"{key}.safetensors"


def find(key: str) -> Package | None:
    """The package stored under `key`; None, with the reason in the debug log, when there is none or it is damaged."""
    path = _path(key)
    try:
        if not path.exists():
            debug.log(1, f"package cache: no entry {key[:12]}: model, target, options or compiler are new")
            return None
        package = artifact.load_package(path)
    except (ArtifactError, OSError) as error:
        debug.log(1, f"package cache: {error}; compiled anew")
        return None
    debug.log(1, f"package cache: found {key[:12]}")
    return package


def store(key: str, package: Package) -> None:
    """Writes the package; a folder that cannot be written only costs the next process a compilation."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        artifact.save_package(package, path)
    except OSError as error:
        debug.log(1, f"package cache: not stored: {error}")
