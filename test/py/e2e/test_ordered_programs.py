"""Programs whose dispatches were put in another order compute the same to the bit, on CPUs and emulated GPUs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import tilewright
from tilewright.bench.models.lstm import UnrolledLstm
from tilewright.compiler.driver import import_model
from tilewright.compiler.ir import functions, walk
from tilewright.compiler.passes.dispatch.batch_products import BatchProducts
from tilewright.compiler.passes.dispatch.order_dispatches import OrderDispatches
from tilewright.compiler.phases import Report, package_module, run_phases
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.binding import bind
from tilewright.runtime.errors import KernelAssertError
from tilewright.runtime.model import CompiledModel

ORDERED = OrderDispatches(capacities=(1 << 40, 24_000), gbps=(1.0, 100.0))
"""A machine whose only cache holds one weight of these models, and not two."""


class DeepRecurrence(nn.Module):
    """Layers over time, step by step: each joins what comes from below and its own state."""

    def __init__(self, layers: int, width: int):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = [torch.zeros_like(x[0]) for _ in self.layers]
        for y in x:
            for number, layer in enumerate(self.layers):
                y = states[number] = torch.tanh(layer(torch.cat([y, states[number]], 1)))
        return torch.cat(states)


class PaddedSteps(nn.Module):
    """Convolutions of equal weights over several images: padded tensors of one shape share a border."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for image in x:
            y = image[None]
            for layer in self.layers:
                y = torch.relu(layer(y)) * y
            found.append(y)
        return torch.cat(found)


class CheckedSteps(nn.Module):
    """Looks rows of several tables up, again and again; every look-up can fail."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, 160) for n in (30, 20, 25)])

    def forward(self, *rows: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(1, 160)
        for number in rows:
            for table in self.tables:
                y = torch.tanh(y) + table(number) @ table.weight.T @ table.weight
        return y


def recurrence() -> tuple[nn.Module, tuple]:
    return DeepRecurrence(3, 48), (torch.randn(5, 1, 48),)


def padded() -> tuple[nn.Module, tuple]:
    return PaddedSteps(), (torch.randn(4, 16, 4, 4),)


def checked() -> tuple[nn.Module, tuple]:
    return CheckedSteps(), tuple(torch.tensor([n]) for n in (3, 7, 11))


def compiled(model: nn.Module, inputs: tuple, target: str, ordering: OrderDispatches, monkeypatch):
    monkeypatch.setattr(OrderDispatches, "for_target", classmethod(lambda *_: ordering))
    monkeypatch.setattr(BatchProducts, "for_target", classmethod(lambda *_: BatchProducts(most_rows=0)))
    imported = import_model(model, inputs)
    described = resolve(target)
    run_phases(imported.module, described)
    package = package_module(imported.module, described, Report())
    executable = bind(package, list(imported.weights))
    return CompiledModel(executable, imported.signature, imported.state, imported.weights), package


def sequence(package) -> list[str]:
    return [step.dispatch for step in package.main.steps]


@pytest.mark.parametrize("target", ["cpu", "emulate:sm_80", "emulate:sm_90a"])
@pytest.mark.parametrize("make", [recurrence, padded], ids=["recurrence", "padded"])
def test_another_order_gives_the_same_bits(make, target, monkeypatch):
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    given, plain = compiled(model, inputs, target, OrderDispatches(), monkeypatch)
    ordered, moved = compiled(model, inputs, target, ORDERED, monkeypatch)
    assert sequence(moved) != sequence(plain)
    assert sorted(sequence(moved)) == sorted(sequence(plain))
    expected = given(*inputs)
    torch.testing.assert_close(expected, model(*inputs).detach(), rtol=1e-4, atol=1e-5)
    for _ in range(2):  # again: borders and workspaces are what the first call left
        assert torch.equal(ordered(*inputs), expected)


@pytest.mark.parametrize("target", ["cpu", "emulate:sm_90a"])
def test_an_lstm_that_is_written_out_has_one_product_of_inputs_per_layer(target):
    torch.manual_seed(0)
    model, x = UnrolledLstm(3, 32).eval(), torch.randn(5, 1, 32)
    compiled = tilewright.compile(model, (x,), target=target)
    torch.testing.assert_close(compiled(x), model(x).detach(), rtol=1e-4, atol=1e-5)
    names = sequence(compiled.executable.package)
    # All five steps of the first layer, and four of the others: there the first one needs nothing of their own.
    assert [name.split("_")[1] for name in names if name.startswith("matmul_")].count("5x128x32") == 1
    assert [name.split("_")[1] for name in names if name.startswith("matmul_")].count("4x128x32") == 2


def test_the_same_check_fails_first(monkeypatch):
    torch.manual_seed(0)
    model, inputs = checked()
    # Row 22 is missing in the second table only, row 27 in the second and the third, which are looked up later.
    bad = (torch.tensor([3]), torch.tensor([22]), torch.tensor([27]))
    failed = []
    for ordering in (OrderDispatches(), ORDERED):
        run, package = compiled(model.eval(), inputs, "cpu", ordering, monkeypatch)
        torch.testing.assert_close(run(*inputs), model(*inputs).detach(), rtol=1e-4, atol=1e-4)
        with pytest.raises(KernelAssertError) as raised:
            run(*bad)
        (step,) = re.findall(r"main step (\d+)", str(raised.value))
        failed.append((sequence(package), package.notes["dispatches"][int(step)]["inputs"]))
    (given, first), (ordered, second) = failed
    assert given != ordered
    assert first == second
    assert {"rows[1]", "tables.1.weight"} <= set(map(str, first))


def test_a_target_with_room_keeps_the_order_that_was_written():
    """Nothing but the target decides: where all weights stay near, nothing moves."""
    model, inputs = recurrence()
    cpu = resolve("x86-64-v3")
    tiny = {"L3": 24_000, "L2": 1_500, "L1": 1_000}
    orders = []
    for sizes in ({}, {"L3": 1 << 30, "L2": 1 << 28, "L1": 1 << 26}, tiny):
        levels = [replace(m, capacity_bytes=sizes.get(m.name, m.capacity_bytes)) for m in cpu.memory]
        imported = import_model(model.eval(), inputs)
        run_phases(imported.module, replace(cpu, memory=tuple(levels)), last="dispatch")
        (main,) = (f for f in functions(imported.module) if f.attributes["sym_name"].value == "main")
        orders.append([call.attributes["callee"].value for call in walk(main, "func.call")])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[1]) == sorted(orders[2])
