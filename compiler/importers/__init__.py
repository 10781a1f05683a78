"""Importers bring models in as linalg-on-tensors with weights as arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.compiler.ir import ir
    from tilewright.runtime.signature import Signature

ONNX_START = b"\x08"
"""The first byte of an ONNX file: the tag of `ir_version`, field 1, which is written first."""


def is_onnx_file(path: Path) -> bool:
    """Whether the name says so, in any case of letters, or the file's first byte under any other name."""
    if path.suffix.lower() == ".onnx":
        return True
    if not os.path.isfile(path):  # False for what no path can be, of which Path.is_file raises
        return False
    with path.open("rb") as file:
        return file.read(1) == ONNX_START


@dataclass
class Imported:
    """A model in linalg-on-tensors, with all that is needed to call it.

    `module` holds one public `func.func @main` whose arguments carry `tilewright.role` ("weight" or "input")
    and `tilewright.name`. `weights` are the arrays of the weight arguments in order (torch tensors or numpy,
    not copied). `state` are the tensors behind `signature.state`: kept between calls, updated by them, passed
    as the last inputs.
    """

    module: ir.Module
    signature: Signature
    weights: Sequence[Any] = ()
    state: Sequence[Any] = ()
