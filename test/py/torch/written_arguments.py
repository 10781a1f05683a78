"""Programs that write their arguments: what they leave there, compared with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright.runtime.program import Update

HEADS, LENGTH, WIDTH = 2, 9, 8

Inputs = list[torch.Tensor]


def copied(given: Inputs) -> Inputs:
    return [tensor.clone() for tensor in given]


def updates(compiled: Any) -> list[Update]:
    return list(compiled.executable.package.updates)


def check(called: Callable[..., Any], model: Callable[..., Any], given: Inputs) -> None:
    """Compares results, and what the arguments are afterwards."""
    wanted = copied(given)
    with torch.no_grad():
        found, expected = called(*given), model(*wanted)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(given, wanted)
