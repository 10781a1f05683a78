"""Compiled models meet the runtime: kernels take the parameters they are given, and the mock driver objects to nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import tilewright
from tilewright.compiler import driver
from tilewright.compiler.options import check_options
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.binding import bind
from tilewright.runtime.cuda import CudaExecutable


class Tokens(torch.nn.Module):
    """A look-up with a check, a normalisation, products of which one fills tensor cores, and a softmax."""

    def __init__(self):
        super().__init__()
        self.look_up = torch.nn.Embedding(30, 64)
        self.normalise = torch.nn.LayerNorm(64)
        self.up, self.down = torch.nn.Linear(64, 512), torch.nn.Linear(512, 136)

    def forward(self, tokens):
        hidden = torch.relu(self.up(self.normalise(self.look_up(tokens))))
        return torch.softmax(self.down(hidden), -1), hidden


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("arch", ["sm_70", "sm_90a"])
def test_a_model_binds_and_runs(mock, monkeypatch, tmp_path, cache, arch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(cache))
    mock.device(major=int(arch[3]), minor=int(arch[4]))
    model, tokens = Tokens().half().eval(), torch.randint(0, 30, (4, 250))
    imported = driver.import_model(model, (tokens,))
    with torch.no_grad():
        package = driver.compile_package(imported.module, resolve(f"cuda:{arch}"), check_options({}))
    for step in (*package.prepack.steps, *package.main.steps):
        kernel = package.kernels[step.kernel]
        launch = kernel.launch
        assert launch is not None
        text = (launch.ptx or kernel.object).decode()
        expected = (
            len(step.buffers) + (launch.workspace_bytes > 0) + bool(kernel.asserts) + len(launch.tensor_maps)
        )
        assert len(re.findall(r"\.param .*_param_\d+", text[: text.index("{")])) == expected, kernel.name
    executable = bind(package, list(imported.weights))
    assert isinstance(executable, CudaExecutable)
    for graph in (False, True):
        executable.cuda_graph = graph
        first, second = executable(tokens.numpy())
        assert (first.shape, second.shape) == ((4, 250, 136), (4, 250, 512))
    assert len(executable.profile(repeats=1)) == len(package.main.steps)
    compiled = driver.CompiledModel(executable, imported.signature, imported.state, imported.weights)
    compiled.save(tmp_path / "model.twm")
    loaded = tilewright.load(tmp_path / "model.twm")
    assert loaded.executable.package.kernels == package.kernels
    assert loaded.executable.package.main == package.main
    assert np.shape(loaded(tokens.numpy())[0]) == (4, 250, 136)
