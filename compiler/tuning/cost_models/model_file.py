"""Files of cost models: JSON with a kind and a version, checked before anything of it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.compiler.errors import CostModelError


def parsed(path: Path, kind: str, version: int, fields: Mapping[str, type]) -> dict[str, Any]:
    """The record in a file; raises CostModelError where it is damaged, of another kind or version, or lacks a field."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as e:
        raise CostModelError(f"{path}: no file of a cost model: {e}") from e
    return checked(path, record, kind, version, fields)


def checked(path: Path, record: Any, kind: str, version: int, fields: Mapping[str, type]) -> dict[str, Any]:
    """The same of a record that was read already."""
    if not isinstance(record, dict) or record.get("kind") != kind:
        found = record.get("kind") if isinstance(record, dict) else type(record).__name__
        raise CostModelError(f"{path}: expected a cost model of kind `{kind}`, found {found}")
    if record.get("version") != version:
        raise CostModelError(
            f"{path}: version {record.get('version')} of a `{kind}` model, this tilewright reads {version}"
        )
    for name, type_ in fields.items():
        if not isinstance(record.get(name), type_):
            raise CostModelError(f"{path}: `{name}` is to be of type {type_.__name__}")
    return record
