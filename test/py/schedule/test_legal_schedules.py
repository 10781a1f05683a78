"""A schedule decides how fast a dispatch is, never what it computes: random legal ones give eager's results."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from tilewright.compiler import driver, phases
from tilewright.compiler.analysis.line_operations import lines_of
from tilewright.compiler.analysis.sink import Loops, sink_of
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.register_tiles import divisors
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel


class Function(nn.Module):
    """A plain function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


CONVOLUTION = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
MODELS = {
    "mlp": (nn.Sequential(nn.Linear(24, 50), nn.ReLU(), nn.Linear(50, 7)), (13, 24)),
    "softmax": (Function(lambda x: torch.softmax(x * 2, -1) + 1), (9, 30)),
    "convolution": (CONVOLUTION, (2, 3, 10, 14)),
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4, stride=2), (1, 4, 9, 9)),
    "transposed": (nn.ConvTranspose2d(3, 5, 3, stride=2), (1, 3, 5, 6)),
    "layer-norm": (nn.LayerNorm(20), (5, 7, 20)),
    "group-norm": (nn.GroupNorm(2, 6), (2, 6, 5, 5)),
    "reductions": (Function(lambda x: (x.amax(0), (x * x).sum(1))), (17, 33)),
    "scan": (Function(lambda x: torch.cumsum(x, 1) * 2), (6, 19)),
    "sort": (Function(lambda x: x.sort(0, descending=True)[0] + 1), (21, 14)),
    "first": (Function(lambda x: x.topk(2, 1)[0] + 1), (15, 40)),
    "scatter": (Function(lambda x: x.index_add(1, torch.tensor([3, 0, 3]), x[:, :3]) * 2), (5, 6, 18)),
    "elements": (Function(lambda x: x.scatter_add(1, torch.tensor([[3, 0, 3]] * 7), x[:, :3]) * 2), (7, 6)),
    "spectra": (Function(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=20)), (21, 20)),
    "spectra of columns": (Function(lambda x: torch.fft.rfft(x, dim=1).real), (2, 15, 19)),
    "gather": (Function(lambda x: x[:, torch.arange(4, -1, -1)] + x[:, :5]), (11, 8)),
    "batched": (Function(lambda x: torch.relu(x @ x.transpose(1, 2) + 1)), (3, 10, 12)),
    "pooling": (nn.AvgPool2d(3, 2, 1), (1, 4, 9, 9)),
}


def randomise(module: ir.Module, rng: random.Random) -> dict[str, list[int]]:
    """Gives every dispatch a random schedule that its loops allow; returns the tiles by name."""
    tiles = {}
    with module.context:
        for function in functions(module):
            sink = sink_of(function) if "tilewright.operator" in function.attributes else None
            lines = lines_of(function)
            if sink is None and lines is None:
                continue
            loops = Loops.of(sink) if sink is not None else Loops(lines.extents, lines.kinds, False)
            tile = []
            for extent, kind in zip(loops.extents, loops.kinds):
                if kind != "parallel" or rng.random() < 0.3:
                    tile.append(0)
                else:
                    tile.append(rng.choice(divisors(extent)) if loops.accumulates else rng.randint(1, extent))
            schedule_attribute.write(function, Schedule(tuple(tile)))
            tiles[ir.StringAttr(function.attributes["sym_name"]).value] = tile
    return tiles


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
@pytest.mark.parametrize("name", MODELS)
def test_results_do_not_depend_on_the_schedule(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    model, shape = MODELS[name]
    model = model.eval()
    example = torch.randn(*shape)
    with torch.no_grad():
        expected = model(example)
    imported = driver.import_model(model, (example,))
    target = resolve("cpu")
    phases.run_phases(imported.module, target, "graph", "schedule")
    rng = random.Random(f"{name} {seed}")
    tiles, package = {}, None
    for _ in range(50):
        tiles = randomise(imported.module, rng)
        try:
            package = phases.package_module(imported.module, target, phases.Report())
            break
        except ScheduleError:
            continue  # tiles that cross the blocks of packed weights are no legal schedule
    assert package is not None
    executable = Executable(package, list(imported.weights))
    found = CompiledModel(executable, imported.signature, imported.state, imported.weights)(example)
    try:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    except AssertionError as error:
        raise AssertionError(f"{error}\nwith tiles {tiles}") from None
