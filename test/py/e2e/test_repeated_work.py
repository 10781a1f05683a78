"""Cheap element-wise work that several dispatches repeat computes what it does where it is written once."""

from __future__ import annotations

import pytest
import torch

import tilewright
from tilewright.compiler import driver, phases
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.package.residence import calls_of_main, name_of
from tilewright.compiler.targets.target import resolve


class Sums(torch.nn.Module):
    """Sums of rows and of columns of the centred rows of x, and what is returned of these themselves."""

    def __init__(self, returned: bool):
        super().__init__()
        self.returned = returned

    def forward(self, x: torch.Tensor, means: torch.Tensor):
        centred = x - means
        sums = (centred * centred).sum(1), (centred * x).sum(0)
        return (centred, *sums) if self.returned else sums


def dispatches(model: torch.nn.Module, inputs: tuple) -> int:
    module = driver.import_model(model, inputs).module
    phases.run_phases(module, resolve("cpu"), "graph", "dispatch")
    with module.context, ir.Location.unknown(module.context):
        return len(set(calls_of_main(module)) & {name_of(f) for f in functions(module)})


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (64, 96), (333, 257)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("returned", [False, True])
def test_sums_of_centred_rows(shape, dtype, returned):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    inputs = x, x.mean(1, keepdim=True)
    model = Sums(returned)
    wanted = model(*(value.double() for value in inputs))
    found = tilewright.compile(model, inputs)(*inputs)
    eager = model(*inputs)
    for own, other, exact in zip(found, eager, wanted, strict=True):
        bound = 4 * (other.double() - exact).abs().max() + 32 * torch.finfo(dtype).eps * max(
            1.0, exact.abs().max()
        )
        assert (own.double() - exact).abs().max() <= bound


def test_centred_rows_are_repeated_unless_somebody_else_wants_them():
    x = torch.randn(512, 192)
    inputs = x, x.mean(1, keepdim=True)
    assert dispatches(Sums(False), inputs) == 2
    assert dispatches(Sums(True), inputs) == 3
