"""A CPU schedule's register tile is what the kernel has, or it is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from tilewright.compiler import lower, phases
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.schedule import Schedule
from tilewright.compiler.target import resolve

TILES = ((1, 16), (2, 16), (4, 32), (6, 32), (8, 16))


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
        return self.function(*arguments)


def dispatch(function: Callable, *arguments: torch.Tensor, target: str) -> tuple[ir.Module, ir.Operation]:
    """The last dispatch of a function, and the module that it is in."""
    module = import_model(Function(function), arguments).module
    phases.run_phases(module, resolve(target))
    *_, last = [f for f in functions(module) if "tilewright.operator" in f.attributes]
    return module, last


def code(function: ir.Operation, unroll: int, vector: int, target: str) -> str:
    schedule = schedule_attribute.read(function)
    assert schedule is not None
    schedule_attribute.write(function, Schedule(schedule.tile, unroll, vector))
    return lower.lower(function, resolve(target))[0]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_every_register_tile_of_a_product_is_another_kernel(target: str) -> None:
    _module, function = dispatch(torch.matmul, torch.zeros(48, 64), torch.zeros(64, 96), target=target)
    assert len({code(function, *tile, target) for tile in TILES}) == len(TILES)


@pytest.mark.parametrize("field", ["unroll", "vector"])
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x, w: F.conv2d(x, w, groups=16), (torch.zeros(1, 16, 24, 24), torch.zeros(16, 1, 3, 3))),
        (lambda x: F.max_pool2d(x, 2), (torch.zeros(1, 8, 24, 24),)),
        (lambda x: torch.softmax(x, -1), (torch.zeros(64, 100),)),
        (lambda x: x.t().contiguous() + 1, (torch.zeros(64, 100),)),
        (torch.relu, (torch.zeros(64, 100),)),
    ],
    ids=["depthwise", "pooling", "softmax", "transpose", "relu"],
)
def test_a_register_tile_that_no_loop_has_is_refused(function, arguments, field: str) -> None:
    _module, last = dispatch(function, *arguments, target="x86-64-v4")
    asked = {"unroll": 0, "vector": 0, field: 8}
    with pytest.raises(ScheduleError, match=f"{field} is 8, but nothing in it has a register tile"):
        code(last, asked["unroll"], asked["vector"], "x86-64-v4")
    code(last, 0, 0, "x86-64-v4")
