"""Importers bring models in as linalg-on-tensors with weights as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.compiler.ir import ir
    from tilewright.runtime.signature import Signature


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
