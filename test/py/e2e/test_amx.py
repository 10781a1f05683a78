"""AMX tiles: the same IR run on any CPU by emulation, and machine code for Sapphire Rapids looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from amx_emulation import emulated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_dot_products import Product, assert_sums, bf16
from torch import nn

from tilewright.compiler import phases
from tilewright.compiler.codegen import assembly, emit_object
from tilewright.compiler.driver import import_model
from tilewright.compiler.ir import functions
from tilewright.compiler.lower import cpu_code, lower
from tilewright.compiler.target import Target, resolve
from tilewright.runtime.executable import Executable
from tilewright.runtime.model import CompiledModel

AMX = ("amx-tile", "amx-int8", "amx-bf16")
NEEDED = {"avx512bf16", "avx512vnni"}
pytestmark = pytest.mark.skipif(
    not set(resolve("cpu").cpu_features) >= NEEDED,
    reason="what does not fit tiles becomes dot products, which this CPU lacks",
)
LENIENT = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def with_tiles() -> Target:
    """This machine, as if it had AMX."""
    machine = resolve("cpu")
    return replace(
        machine, cpu_features=tuple(f for f in machine.cpu_features if not f.startswith("amx")) + AMX
    )


@pytest.fixture
def emulating(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., CompiledModel]:
    """Compiles a model for tiles, and emulates them where it runs."""
    seen: list[str] = []

    def emit(text: str, code) -> tuple[bytes, str]:
        seen.append(text)
        return emit_object(emulated(text), cpu_code(resolve("cpu")))

    monkeypatch.setattr(phases, "emit_object", emit)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))

    def compiled(model, inputs: tuple, tiles: bool = True) -> CompiledModel:
        seen.clear()
        imported = import_model(model, inputs)
        package = phases.compile_module(imported.module, with_tiles(), phases.Report())
        package = replace(package, features=resolve("cpu").cpu_features)
        if seen:
            assert any("tileloadd64" in text for text in seen) == tiles
        executable = Executable(package, list(imported.weights))
        return CompiledModel(executable, imported.signature, imported.state, imported.weights)

    return compiled


@LENIENT
@given(st.integers(4, 70), st.sampled_from([16, 32, 48, 80, 128]), st.integers(1, 50), st.integers(0, 3))
def test_matmul(emulating, m: int, n: int, half: int, seed: int) -> None:
    a, b = bf16(m, 2 * half, seed=seed), bf16(2 * half, n, seed=seed + 9)
    result = emulating(Product(b), (a,))(a)
    assert_sums(result, a.double() @ b.double(), a.double().abs() @ b.double().abs(), 2 * half)


@pytest.mark.parametrize(("m", "n", "k"), [(2, 32, 64), (33, 32, 7)])
def test_what_does_not_fit_tiles_becomes_dot_products(emulating, m: int, n: int, k: int) -> None:
    a, b = bf16(m, k, seed=1), bf16(k, n, seed=2)
    result = emulating(Product(b), (a,), tiles=False)(a)
    assert_sums(result, a.double() @ b.double(), a.double().abs() @ b.double().abs(), k)


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "stride", "padding", "size"),
    [(16, 32, 3, 1, 1, 9), (64, 16, 1, 1, 0, 7), (34, 64, 3, 2, 1, 20), (8, 48, 5, 3, 2, 40)],
)
def test_convolution(emulating, inputs, outputs, kernel, stride, padding, size) -> None:
    torch.manual_seed(5)
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False).bfloat16().eval()
    x = bf16(2, inputs, size, size, seed=6)
    result = emulating(conv, (x,))(x)
    weight = conv.weight.detach().double()
    exact = nn.functional.conv2d(x.double(), weight, stride=stride, padding=padding)
    magnitude = nn.functional.conv2d(x.double().abs(), weight.abs(), stride=stride, padding=padding)
    assert_sums(result.detach(), exact, magnitude, inputs * kernel * kernel)


class Bytes(nn.Module):
    """Signed bytes by signed bytes, which are moved to be unsigned by signed."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        return x.to(torch.int32) @ self.weight.to(torch.int32)


@pytest.mark.parametrize(("m", "n", "k"), [(37, 64, 200), (16, 16, 64), (50, 48, 68)])
def test_bytes_are_exact(emulating, m: int, n: int, k: int) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8, generator=generator)
    w = torch.randint(-128, 128, (k, n), dtype=torch.int8, generator=generator)
    result = emulating(Bytes(w), (x,))(x)
    assert torch.equal(result.long(), x.long() @ w.long())


def test_the_inner_loop_loads_one_tile_per_product_and_spills_none() -> None:
    target = replace(resolve("sapphire-rapids"), num_cores=1)
    layer = nn.Linear(1024, 512, bias=False).bfloat16().eval()
    imported = import_model(layer, (bf16(256, 1024, seed=1),))
    phases.run_phases(imported.module, target, "graph", "schedule")
    with imported.module.context:
        (matmul,) = [
            f
            for f in functions(imported.module)
            if '"matmul"' in str(f.attributes.get("tilewright.operator"))
        ]
    text, _ = lower(matmul, target)
    _, optimised = emit_object(text, cpu_code(target))
    code = assembly(optimised, cpu_code(target))
    loops = re.findall(r"^(\.LBB\d+_\d+):\n((?:\t.*\n|.*#.*\n)*?\tj\w+\t\1\n)", code, re.MULTILINE)
    (inner,) = [body for _, body in loops if "tdpbf16ps" in body]
    products = inner.count("tdpbf16ps")  # LLVM may have unrolled the loop.
    assert products % 4 == 0
    assert inner.count("tileloadd") == products
    assert "tilestored" not in inner
    assert code.count("ldtilecfg") >= 1
