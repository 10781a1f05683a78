"""Matrix kernels of every kind for every CPU that code is generated for: all compile, and run where this machine can.

A compiler that dies in LLVM does so in a worker, and is an error here that names the dispatch.
"""

from __future__ import annotations

import kernel_contractions
import pytest
from kernel_checks import check, compiled, runs
from kernel_draws import Draw
from kernel_targets import CPUS, PRESET_CPUS, image_product, product

from tilewright.bench import models
from tilewright.bench.models.reduced import REDUCED
from tilewright.compiler.driver import import_model
from tilewright.compiler.passes.graph.lower_precision import ask_precision
from tilewright.compiler.targets.target import PRESETS, resolve

KINDS = {**kernel_contractions.KINDS, "product": product, "image": image_product}
WIDE = ("product", "image", "attention", "conv_grouped", "conv_depthwise")
REDUCED_MODELS = ("resnet18", "mobilenet_v2", "bert_tiny")


def sweep(cpu: str, kind: str, count: int, label: str = "") -> None:
    cases = [KINDS[kind](Draw.seeded(f"{label}{cpu} {kind} {number}")) for number in range(count)]
    check(cases, threads=(1,), target=CPUS[cpu])


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("cpu", CPUS)
def test_matrix_kernels(cpu: str, kind: str) -> None:
    sweep(cpu, kind, 6 if kind == "product" else 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cpu", CPUS)
def test_all_kinds_of_matrix_kernels(cpu: str, kind: str) -> None:
    for round_ in range(4):
        sweep(cpu, kind, 12, f"{round_} ")


def compile_model(made: tuple, cpu: str, precision: str) -> None:
    module, inputs = made
    imported = import_model(module, inputs)
    ask_precision(imported.module, precision)
    for model in compiled(imported, (1,), target=CPUS[cpu]):
        model(*inputs)


@pytest.mark.parametrize("name", REDUCED_MODELS)
@pytest.mark.parametrize("cpu", PRESET_CPUS)
def test_reduced_models_in_bf16(cpu: str, name: str) -> None:
    compile_model(REDUCED[name](), cpu, "bf16")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", models.DEFAULT)
@pytest.mark.parametrize("cpu", CPUS)
def test_whole_models(cpu: str, name: str, precision: str) -> None:
    compile_model(models.build(name), cpu, precision)


def test_the_sweep_leaves_no_cpu_out() -> None:
    """Every preset CPU is compiled for or says that it has no code, and every way to multiply is met."""
    left = {name for name in PRESETS if resolve(name).kind == "cpu" and name not in (*CPUS, "cpu")}
    assert all(not resolve(name).has_code for name in left)
    met = {
        (unit.name if target.matrix_units else "") for target in CPUS.values() for unit in target.matrix_units
    }
    assert met == {"vdpbf16ps", "vpdpbusd", "tdpbf16ps", "tdpbssd"}
    assert runs(resolve("cpu"))
