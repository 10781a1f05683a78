"""Whole models and published operators on GPU targets: everything compiles, and reduced models run by emulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.bench import models, operators, suites
from tilewright.bench.models.reduced import REDUCED
from tilewright.compiler import driver
from tilewright.compiler.gpu import ptxas
from tilewright.compiler.gpu.kernel_report import kernel_reports
from tilewright.compiler.target import resolve

ARCH = "sm_90a"
GROUP = 8
OPERATORS = suites.suite("roller119", batch=128)


def compile_for(target: str, module: torch.nn.Module, inputs: tuple):
    """The package of a module, and the reports of its kernels."""
    described = resolve(target)
    package = driver.compile_package(
        driver.import_model(module, inputs).module, described, driver.check_options({})
    )
    return package, kernel_reports(package, described)


def check(package, reports) -> None:
    """Every kernel is machine code without spills; the fallback computes no product of matrices."""
    assert ptxas.find(ARCH) is not None, "the development extra brings an assembler"
    assert [kernel.launch.image for kernel in package.kernels] == ["cubin"] * len(package.kernels)
    assert not [report for report in reports if report.spill_bytes]
    families = {note["name"]: (note["operator"], note["family"]) for note in package.notes["dispatches"]}
    slow = [
        name for name, (operator, family) in families.items() if (operator, family) == ("matmul", "fallback")
    ]
    assert not slow


@pytest.mark.parametrize("name", models.DEFAULT)
def test_every_model_of_the_zoo_compiles_for_hopper(name: str) -> None:
    check(*compile_for(f"cuda:{ARCH}", *models.build(name)))


@pytest.mark.parametrize("start", range(0, len(OPERATORS), GROUP))
def test_every_published_operator_compiles_for_hopper(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        operators, "normal", lambda *shape: torch.empty(shape)
    )  # nobody reads what is in them
    for case in OPERATORS[start : start + GROUP]:
        check(*compile_for(f"cuda:{ARCH}", *case.build()))


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
