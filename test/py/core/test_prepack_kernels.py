"""What runs once, when weights are bound, is compiled quickly; what calls run is unrolled as ever."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.compiler import driver, phases
from tilewright.compiler.codegen.lower_cpu import ONCE
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.binding import bind


class Blocks(torch.nn.Module):
    """A product whose weight is packed, and a transpose of the same kind that calls need when `shared`."""

    def __init__(self, shared: bool):
        super().__init__()
        self.linear = torch.nn.Linear(64, 96, bias=False)
        self.shared = shared

    def forward(self, x, y):
        product = self.linear(x)
        return (product, y.permute(1, 0, 2).contiguous()) if self.shared else (product, y + 1)


def marked(module: ir.Module) -> dict[str, bool]:
    return {
        ir.StringAttr(f.attributes["sym_name"]).value: ONCE in f.attributes
        for f in functions(module)
        if "tilewright.operator" in f.attributes
    }


@pytest.mark.parametrize("shared", [False, True])
def test_only_what_no_call_runs_is_left_rolled_up(shared):
    torch.manual_seed(0)
    model, inputs = Blocks(shared), (torch.randn(40, 64), torch.randn(6, 5, 32))
    imported = driver.import_model(model, inputs)
    package = phases.compile_module(imported.module, resolve("cpu"), phases.Report())
    once = marked(imported.module)
    called = {note["name"] for note in package.notes["dispatches"]}
    assert {name for name, is_once in once.items() if is_once} == set(once) - called != set()
    executable = bind(package, list(imported.weights))
    found = [np.empty(spec.shape, np.float32) for spec in package.outputs]
    executable.run([x.data_ptr() for x in inputs], [result.ctypes.data for result in found])
    for result, expected in zip(found, model(*inputs)):
        np.testing.assert_allclose(result, expected.detach(), rtol=1e-4, atol=1e-5)
