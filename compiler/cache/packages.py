"""Whole compiled models on disk, by the hash of everything they depend on: a second process compiles nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tilewright.compiler import debug
from tilewright.compiler.codegen.lower_cpu import compiler_digest
from tilewright.compiler.ir import ir
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.target import Target
from tilewright.runtime import artifact
from tilewright.runtime.errors import ArtifactError
from tilewright.runtime.program import Package


@dataclass(frozen=True)
class PackageKey:
    """Hashes of what a package depends on: the imported module with its source lines, the target, the options and
    the compiler itself."""

    model: str
    target: str
    options: str
    compiler: str

    @property
    def path(self) -> Path:
        """Where the package is kept; entries of one model stand side by side."""
        name = "-".join(text[:16] for text in (self.target, self.options, self.compiler))
        return settings().cache_dir / "packages" / self.model[:40] / f"{name}.safetensors"


def package_key(module: ir.Module, target: Target, options: dict) -> PackageKey:
    """The key of a module that is to be compiled for `target` with `options`."""
    return PackageKey(
        _hash(module.operation.get_asm(enable_debug_info=True)),
        _hash(json.dumps(target.to_json(), sort_keys=True)),
        _hash(json.dumps(options, sort_keys=True)),
        compiler_digest(),
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _why_missed(key: PackageKey) -> str:
    wanted = key.path.stem.split("-")
    entries = [path.stem.split("-") for path in key.path.parent.glob("*.safetensors")]
    if not entries:
        return "this model was never compiled before, or its code, shapes or source lines have changed"
    nearest = max(entries, key=lambda parts: sum(a == b for a, b in zip(parts, wanted)))
    changed = [name for name, a, b in zip(("target", "options", "compiler"), nearest, wanted) if a != b]
    return f"this model was compiled before, with another {' and '.join(changed)}"


def find(key: PackageKey) -> Package | None:
    """The package stored under `key`; None, with the reason in the debug log, when there is none or it is damaged."""
    if not key.path.exists():
        debug.log(1, f"package cache: missed: {_why_missed(key)}")
        return None
    try:
        package = artifact.load_package(key.path)
    except ArtifactError as error:
        debug.log(1, f"package cache: {error}; compiled anew")
        return None
    debug.log(1, f"package cache: found {key.path}")
    return package


def store(key: PackageKey, package: Package) -> None:
    """Writes the package; a folder that cannot be written only costs the next process a compilation."""
    try:
        key.path.parent.mkdir(parents=True, exist_ok=True)
        artifact.save_package(package, key.path)
    except OSError as error:
        debug.log(1, f"package cache: not stored: {error}")
