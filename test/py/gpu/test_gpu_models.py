"""Whole models on GPU targets: all compile, and reduced ones run by emulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpu_compilation import ARCH, check, compile_for
from torch import nn

from tilewright.bench import models
from tilewright.bench.models.reduced import REDUCED
from tilewright.compiler import driver

_LONG = ("lstm", "resnet50", "resnext29", "resnext50")
"""Long ones: what their kernels are, shorter models have too."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in _LONG else ()) for n in models.DEFAULT]
)
def test_every_model_of_the_zoo_compiles_for_hopper(name: str) -> None:
    check(*compile_for(f"cuda:{ARCH}", *models.build(name)))


@pytest.mark.parametrize("name", REDUCED)
def test_reduced_models_run_by_emulation(name: str) -> None:
    """Results are PyTorch's, with three orders of threads, and no rule of the memory model is broken."""
    module, inputs = REDUCED[name]()
    expected = module.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    module.float()
    compiled = driver.compile(module, inputs, target=f"emulate:{ARCH}")
    for seed in (0, 1, 2):
        compiled.executable.seed = seed
        outputs = compiled(*inputs)
        pairs = zip(outputs, expected) if isinstance(expected, tuple) else [(outputs, expected)]
        for output, other in pairs:
            np.testing.assert_allclose(output.numpy(), other.detach().numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("arch", ["sm_70", "sm_80"])
@pytest.mark.parametrize("name", ["resnet18", "bert_tiny", "lstm"])
def test_reduced_models_compile_for_older_gpus(arch: str, name: str) -> None:
    package, reports = compile_for(f"cuda:{arch}", *REDUCED[name]())
    check(package, reports)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_stems_of_three_channels_do_not_spill_in_16_bits(arch: str) -> None:
    """Elements of 6-byte pixels are copied one by one, through registers that tiles have to leave."""
    stem = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.ReLU()).half().eval()
    check(*compile_for(f"cuda:{arch}", stem, (torch.empty(32, 3, 224, 224, dtype=torch.float16),)))
