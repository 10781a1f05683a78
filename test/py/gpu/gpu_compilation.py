"""Compiles a module for a GPU, and checks what every kernel of it must keep to."""

from __future__ import annotations

import torch

from tilewright.compiler import driver
from tilewright.compiler.codegen import ptxas
from tilewright.compiler.codegen.kernel_report import kernel_reports
from tilewright.compiler.options import check_options
from tilewright.compiler.targets.target import resolve

ARCH = "sm_90a"


def compile_for(target: str, module: torch.nn.Module, inputs: tuple):
    """The package of a module, and the reports of its kernels."""
    described = resolve(target)
    package = driver.compile_package(driver.import_model(module, inputs).module, described, check_options({}))
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
