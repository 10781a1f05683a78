"""Constructed schedules as kernels: all that are constructed compute the same, and assemble to what was estimated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gemm_dispatches import NUMPY, Case

import tilewright
from tilewright.bench.gemm_expected import dispatch_text, expect
from tilewright.bench.gemm_shapes import GemmShape
from tilewright.compiler.codegen import lower_gpu as lower
from tilewright.compiler.codegen import ptxas
from tilewright.compiler.codegen.emulation import run_kernel
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.precision import ATTRIBUTE
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.families.gpu import families
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
from tilewright.compiler.targets.occupancy import register_limit, resident_blocks
from tilewright.compiler.targets.target import resolve

RAGGED = Case({"m": 37, "n": 44, "k": 70}, ("m", "k"), ("k", "n"), ("m", "n"), epilogue="bias_relu")
HALF = Case(
    {"b": 2, "m": 72, "n": 40, "k": 96},
    ("b", "m", "k"),
    ("b", "n", "k"),
    ("b", "m", "n"),
    dtype="f16",
    result="f16",
)
IMAGE = Case(
    {"n": 2, "h": 5, "w": 7, "o": 24, "i": 3, "j": 3, "c": 8},
    ("n", "h + i", "w + j", "c"),
    ("i", "j", "c", "o"),
    ("n", "h", "w", "o"),
)
FEW_ROWS = Case({"m": 3, "n": 100, "k": 260}, ("m", "k"), ("k", "n"), ("m", "n"))
TOLERANCE = {"f32": 1e-5, "tf32": 2e-3, "f16": 2e-3}


def constructed(case: Case, target: str, precision: str, most: int) -> list[tuple[str, float]]:
    """(kernel, relative error) of the first candidates of a dispatch, run with its threads in different orders."""
    described = resolve(target)
    construct = ConstructSchedules.for_target(described)
    module = case.module()
    if precision != "f32":
        with module.context:
            module.operation.attributes[ATTRIBUTE] = ir.StringAttr.get(precision)
    function = next(functions(module))
    inputs = case.inputs()
    expected = case.expected(inputs)
    found = []
    candidates = construct.candidates_or_none(function)
    assert candidates
    for number, candidate in enumerate(candidates[:most]):
        written = families.emit(families.complete(function, candidate.schedule, described), described)
        result = np.zeros(expected.shape, NUMPY[case.result_dtype])
        arrays = [*inputs, result]
        run_kernel(written, arrays, seed=number)
        error = np.linalg.norm(arrays[-1].astype(np.float64) - expected) / np.linalg.norm(expected)
        assert candidate.schedule.gpu is not None
        found.append((candidate.schedule.gpu.kernel, float(error)))
    return found


@pytest.mark.parametrize("target", ["v100", "a100", "h100"])
@pytest.mark.parametrize("case", [RAGGED, HALF, IMAGE, FEW_ROWS], ids=["ragged", "half", "image", "few_rows"])
def test_every_offer_computes_the_product(case, target):
    for kernel, error in constructed(case, target, "f32", 4):
        assert error < TOLERANCE[case.dtype], kernel


def test_offers_are_of_the_kernels_that_the_machine_has():
    assert constructed(HALF, "h100", "f32", 1)[0][0] in ("wgmma", "mma")
    assert constructed(FEW_ROWS, "h100", "f32", 1)[0][0] == "skinny"
    assert constructed(RAGGED, "a100", "f32", 1)[0][0] == "simt"


def test_tf32_rounds_where_asked_and_only_there():
    ((kernel, rounded),) = constructed(RAGGED, "a100", "tf32", 1)
    assert kernel == "mma" and 1e-5 < rounded < TOLERANCE["tf32"]
    ((_, exact),) = constructed(RAGGED, "a100", "f32", 1)
    assert exact < 1e-6


class Product(torch.nn.Module):
    """relu(a b)."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(a @ b)


def test_the_option_reaches_the_kernels():
    torch.manual_seed(3)
    a, b = torch.randn(33, 40), torch.randn(40, 27)
    expected = torch.relu(a.double() @ b.double())
    errors = []
    for precision in ("f32", "tf32"):
        model = tilewright.compile(Product(), (a, b), target="emulate:sm_80", precision=precision)
        errors.append(float((model(a, b).double() - expected).norm() / expected.norm()))
    assert errors[0] < 1e-6 < 1e-5 < errors[1] < 2e-3


def test_cpus_have_no_tf32():
    with pytest.raises(TilewrightError, match="precision: tf32 is what matrix units of NVIDIA GPUs round to"):
        tilewright.compile(
            Product(), (torch.ones(3, 4), torch.ones(4, 5)), target="x86-64-v3", precision="tf32"
        )


ASSEMBLED = [
    ("v100", "f32", GemmShape("a", 300, 200, 96)),
    ("v100", "f16", GemmShape("b", 512, 512, 512)),
    ("a100", "f32", GemmShape("c", 2048, 2048, 2048)),
    ("a100", "tf32", GemmShape("d", 1000, 1000, 1000)),
    ("a100", "f16", GemmShape("e", 384, 768, 3072)),
    ("h100", "f32", GemmShape("f", 100, 31, 32)),
    ("h100", "bf16", GemmShape("g", 4096, 4096, 4096)),
    ("h100", "f16", GemmShape("h", 256, 256, 8192)),
]


@pytest.mark.parametrize("target, dtype, shape", ASSEMBLED, ids=lambda value: getattr(value, "name", value))
def test_kernels_take_what_was_estimated(target, dtype, shape):
    """The assembler's report: no spills, no more blocks' worth of memory than the schedule was checked with."""
    described = resolve(target)
    if ptxas.find(described.arch) is None:
        pytest.skip(f"no assembler that knows {described.arch} is installed")
    expected = expect(shape, dtype, described)
    module = parse(dispatch_text(shape, dtype))
    (function,) = functions(module)
    made = families.constructed(function, Schedule(gpu=expected.choice.tile), described)
    schedule_attribute.write(function, made)
    launch = lower.assemble(lower.lower(function, described, "0" * 16), described).kernel.launch
    assert launch is not None and launch.image == "cubin"
    assert launch.spill_bytes == 0
    assert launch.block == expected.choice.tile.threads
    assert abs(launch.shared_bytes - expected.choice.shared_bytes) <= 2048
    assert launch.registers <= register_limit(described, launch.block)
    held = resident_blocks(described, launch.block, launch.registers, launch.shared_bytes)
    assert int(held) >= max(1, expected.choice.resident - 1)
