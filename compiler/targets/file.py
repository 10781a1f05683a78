"""Targets read from JSON: every field is checked by name, type and range before a schedule relies on it.

A file is what `tilewright targets NAME --json` shows of one target, or differences from a preset:

    {"base": "x86-64-v3", "name": "eight-cores", "num_cores": 8, "peak_gflops": {"f32": 768.0}}

`base` names the preset (or another file, relative to this one) that gives all other fields. Units are in the fields'
names; `memory` runs from the slowest level to the registers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from tilewright.compiler.targets.target import (
    MatrixUnit,
    MemoryLevel,
    Target,
    TargetDataError,
    UnknownTargetError,
    resolve,
)

KINDS = ("cpu", "gpu", "ipu")
DTYPES = ("f64", "f32", "tf32", "f16", "bf16", "f8", "i32", "i16", "i8")
_MAX_BYTES = 1 << 20
_MAY_BE_ZERO = (
    "lanes_per_core", "clock_ghz", "start_us", "core_gbps", "copy_gbps", "latency_ns", "tile_registers",
    "tile_shared_bytes", "schedulers", "block_threads", "core_threads", "core_blocks", "sustained_gflops", "issue_lanes",
    "core_shared_bytes", "block_reserved_bytes",
)  # fmt: skip


def read(path: str | Path) -> Target:
    """The target that the JSON file at `path` describes; raises TargetDataError."""
    return _read(Path(path), ())


def parse(data: Any, where: str = "target") -> Target:
    """The target that `data` (plain JSON values) describes; `where` names its source in errors."""
    return _parse(data, where, Path(), ())


def written(target: Target) -> str:
    """A target as an option of a pass: by name where that is enough to find it again, else as JSON."""
    try:
        known = resolve(target.name) == target
    except UnknownTargetError:
        known = False
    return target.name if known else json.dumps(target.to_json(), sort_keys=True)


def described(text: str) -> Target:
    """What `written` wrote: a preset, a .json file or a target as JSON; raises UnknownTargetError or TargetDataError."""
    return Target.from_json(json.loads(text)) if text.startswith("{") else resolve(text)


def _read(path: Path, seen: tuple[Path, ...]) -> Target:
    resolved = path.resolve()
    if resolved in seen:
        chain = " -> ".join(p.name for p in (*seen, resolved))
        raise TargetDataError(f"{path}: `base` leads back to the file itself: {chain}")
    try:
        with resolved.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise TargetDataError(f"{path}: cannot be read: {error.strerror}") from None
    if len(text) > _MAX_BYTES:
        raise TargetDataError(f"{path}: a target's description of more than {_MAX_BYTES >> 20} MiB is none")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TargetDataError(f"{path}: not JSON: {error}") from None
    return _parse(data, str(path), resolved.parent, (*seen, resolved))


def _parse(data: Any, where: str, folder: Path, seen: tuple[Path, ...]) -> Target:
    given = dict(_mapping(data, where))
    if "base" in given:
        base = _string(given.pop("base"), f"{where}: base")
        found = _read(folder / base, seen) if base.endswith(".json") else resolve(base)
        given = {**found.to_json(), "measured": "", **given}
    _check_names(given, Target, where)
    values = {key: _value(key, value, f"{where}: {key}") for key, value in given.items()}
    target = Target(**values)
    _check_whole(target, where)
    return target


def _check_names(given: Mapping[str, Any], noun: type, where: str) -> None:
    known = {field.name: field for field in fields(noun)}
    if unknown := [name for name in given if name not in known]:
        raise TargetDataError(f"{where}: unknown field `{unknown[0]}`; the fields are: {', '.join(known)}")
    needed = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in needed if name not in given]:
        raise TargetDataError(
            f"{where}: the field{'s' if len(missing) > 1 else ''} {', '.join(f'`{n}`' for n in missing)} must be given"
        )


def _value(key: str, value: Any, where: str) -> Any:
    """One field of a Target, MemoryLevel or MatrixUnit, by its name; the names of all three differ in type never."""
    if key == "memory":
        return tuple(_nested(MemoryLevel, row, f"{where}[{n}]") for n, row in enumerate(_list(value, where)))
    if key == "matrix_units":
        return tuple(_nested(MatrixUnit, row, f"{where}[{n}]") for n, row in enumerate(_list(value, where)))
    if key == "peak_gflops":
        rates = {_one_of(dtype, DTYPES, where): _number(rate, f"{where}.{dtype}", 0.0)
                 for dtype, rate in _mapping(value, where).items()}  # fmt: skip
        if "f32" not in rates:
            raise TargetDataError(f"{where}: a rate for `f32` must be given")
        return rates
    if key == "cpu_features":
        return tuple(_string(feature, where) for feature in _list(value, where))
    if key == "shape":
        return tuple(_integer(extent, where) for extent in _list(value, where, 3))
    if key == "kind":
        return _one_of(value, KINDS, where)
    if key in ("dtype", "accumulator"):
        return _one_of(value, DTYPES, where)
    if key in ("name", "arch"):
        return _string(value, where)
    if key in ("llvm_cpu", "measured"):
        return _string(value, where, empty=True)
    if key == "emulated":
        return _boolean(value, where)
    if key.endswith(("_share", "_gbps", "_ghz", "_us", "_ns", "_gflops")):
        return _number(value, where, -math.inf if key in _MAY_BE_ZERO else 0.0)
    return _integer(value, where, 0 if key in _MAY_BE_ZERO else 1)


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise TargetDataError(f"{where}: expected true or false, found {value!r}")
    return value


def _nested(noun: type, data: Any, where: str) -> Any:
    given = _mapping(data, where)
    _check_names(given, noun, where)
    return noun(**{key: _value(key, value, f"{where}.{key}") for key, value in given.items()})


def _check_whole(target: Target, where: str) -> None:
    """What no single field can tell: the order of memory, and that names mean one thing."""
    names = [level.name for level in target.memory]
    if len(names) < 2 or names[-1] != "registers":
        raise TargetDataError(
            f"{where}: memory: expected at least one level and then `registers`, found {', '.join(names) or 'nothing'}"
        )
    if len(set(names)) != len(names):
        raise TargetDataError(f"{where}: memory: each level's name may occur once, found {', '.join(names)}")
    for slow, fast in zip(target.memory, target.memory[1:]):
        if slow.bandwidth_gbps > fast.bandwidth_gbps:
            raise TargetDataError(
                f"{where}: memory runs from slow to fast, but {slow.name} has {slow.bandwidth_gbps:g} GB/s and "
                f"{fast.name} after it {fast.bandwidth_gbps:g}"
            )
    if target.kind == "cpu" and target.vector_bits % 64:
        raise TargetDataError(f"{where}: vector_bits: expected a multiple of 64, found {target.vector_bits}")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TargetDataError(f"{where}: expected an object, found {_kind(value)}")
    return value


def _list(value: Any, where: str, length: int | None = None) -> list:
    if not isinstance(value, (list, tuple)) or (length is not None and len(value) != length):
        wanted = "a list" if length is None else f"a list of {length}"
        raise TargetDataError(f"{where}: expected {wanted}, found {_kind(value)}")
    return list(value)


def _string(value: Any, where: str, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty) or not value.isprintable():
        raise TargetDataError(f"{where}: expected a text, found {_kind(value)}")
    return value


def _one_of(value: Any, names: tuple[str, ...], where: str) -> str:
    if value not in names:
        raise TargetDataError(f"{where}: expected one of {', '.join(names)}, found {_kind(value)}")
    return value


def _integer(value: Any, where: str, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 63:
        raise TargetDataError(f"{where}: expected an integer of at least {least}, found {_kind(value)}")
    return value


def _number(value: Any, where: str, above: float) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value <= above or value < 0:
        bound = "above 0" if above == 0 else "of at least 0"
        raise TargetDataError(f"{where}: expected a number {bound}, found {_kind(value)}")
    return float(value)


def _kind(value: Any) -> str:
    """A JSON value in a few words."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return f"`{json.dumps(value)}`"[:60]
