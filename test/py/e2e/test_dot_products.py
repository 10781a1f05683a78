"""Dot products of bf16 pairs on random shapes: against sums in f64 of what bf16 holds, within the bound of f32 sums."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import tilewright
from tilewright.compiler.errors import TilewrightError

extents = st.integers(1, 70)
LENIENT = settings(
    max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)

F32_EPSILON = 2.0**-24
BF16_EPSILON = 2.0**-8
"""Half the distance between neighbours near 1: the largest relative error of one rounding."""


def assert_sums(result: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor, terms: int) -> None:
    """|error| <= (terms + 2) eps_f32 sum |a_i b_i|, and half a step of the result's own dtype.

    Source: N. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., §3.1.
    """
    rounding = BF16_EPSILON if result.dtype == torch.bfloat16 else F32_EPSILON
    bound = (terms + 2) * F32_EPSILON * magnitude + 1.01 * rounding * exact.abs() + 1e-30
    excess = ((result.double() - exact).abs() - bound).max().item()
    assert excess <= 0, f"{excess} beyond the bound"


class Product(nn.Module):
    """Two operands, of which `weight` is one of the module's own where it is given."""

    def __init__(self, weight: torch.Tensor | None = None):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x, w=None):
        return x @ (self.weight if w is None else w)


def bf16(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


@LENIENT
@given(extents, extents, extents, st.booleans(), st.integers(0, 3))
def test_matmul(m: int, n: int, k: int, weight: bool, seed: int) -> None:
    a, b = bf16(m, k, seed=seed), bf16(k, n, seed=seed + 9)
    if weight:
        result = tilewright.compile(Product(b), (a,))(a)
    else:
        result = tilewright.compile(Product(), (a, b))(a, b)
    assert_sums(result, a.double() @ b.double(), a.double().abs() @ b.double().abs(), k)


@pytest.mark.parametrize("shape", [(40, 258, 300), (17, 1, 512), (33, 1000, 65), (300, 64, 1030)])
def test_large_inputs_are_packed_at_every_call(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = bf16(m, k, seed=1), bf16(k, n, seed=2)
    result = tilewright.compile(Product(), (a, b))(a, b)
    assert_sums(result, a.double() @ b.double(), a.double().abs() @ b.double().abs(), k)


@LENIENT
@given(st.integers(1, 3), extents, extents, extents)
def test_batches_of_transposed_columns(batch: int, m: int, n: int, k: int) -> None:
    a, b = bf16(batch, m, k, seed=3), bf16(batch, n, k, seed=4)
    function = tilewright.compile(Transposed(), (a, b))
    exact = a.double() @ b.double().transpose(1, 2)
    magnitude = a.double().abs() @ b.double().abs().transpose(1, 2)
    assert_sums(function(a, b), exact, magnitude, k)


class Transposed(nn.Module):
    """Queries by keys."""

    def forward(self, a, b):
        return a @ b.transpose(1, 2)


@LENIENT
@given(
    st.integers(1, 2),
    st.integers(1, 19),
    st.integers(1, 40),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2]),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(5, 12),
)
def test_convolution(batch, inputs, outputs, kernel, stride, padding, dilation, size) -> None:
    if size + 2 * padding < dilation * (kernel - 1) + 1:
        size += dilation * kernel
    torch.manual_seed(5)
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False).bfloat16().eval()
    x = bf16(batch, inputs, size, size, seed=6)
    result = tilewright.compile(conv, (x,))(x)
    weight = conv.weight.detach().double()
    how = {"stride": stride, "padding": padding, "dilation": dilation}
    exact = nn.functional.conv2d(x.double(), weight, **how)
    magnitude = nn.functional.conv2d(x.double().abs(), weight.abs(), **how)
    assert_sums(result.detach(), exact, magnitude, inputs * kernel * kernel)


@pytest.mark.parametrize("inputs", [3, 5])
def test_odd_depths_are_cut_into_rtasks(inputs: int) -> None:
    torch.manual_seed(11)
    conv = nn.Conv2d(inputs, 64, 7, 2, 3, bias=False).bfloat16().eval()
    x = bf16(1, inputs, 112, 112, seed=12)
    compiled = tilewright.compile(conv, (x,))
    (note,) = [n for n in compiled.executable.package.notes["dispatches"] if n["operator"] == "conv"]
    assert note["tasks"] > 1
    weight = conv.weight.detach().double()
    exact = nn.functional.conv2d(x.double(), weight, stride=2, padding=3)
    magnitude = nn.functional.conv2d(x.double().abs(), weight.abs(), stride=2, padding=3)
    assert_sums(compiled(x).detach(), exact, magnitude, inputs * 49)


class TestPrecision:
    """`precision="bf16"` on models of f32."""

    def test_one_layer_rounds_its_operands_and_nothing_else(self) -> None:
        torch.manual_seed(7)
        layer = nn.Linear(37, 50).eval()
        x = torch.randn(21, 37)
        result = tilewright.compile(layer, (x,), precision="bf16")(x).detach()
        assert result.dtype == torch.float32
        a, w = x.bfloat16().double(), layer.weight.detach().bfloat16().double()
        bias = layer.bias.detach().double()
        exact = a @ w.T + bias
        assert_sums(result, exact, a.abs() @ w.T.abs() + bias.abs(), 38)

    def test_a_network_is_as_near_as_autocast(self) -> None:
        torch.manual_seed(8)
        network = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 40, 3, 2), nn.ReLU(),
            nn.Flatten(), nn.Linear(40 * 25, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10),
        ).eval()  # fmt: skip
        x = torch.randn(4, 3, 11, 11)
        exact = network.double()(x.double())
        network = network.float()
        result = tilewright.compile(network, (x,), precision="bf16")(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            autocast = network(x)
        assert error(result, exact) < 1.2 * error(autocast, exact)
        assert error(result, exact) > 1e-5, "nothing was rounded"

    def test_f32_is_the_default(self) -> None:
        torch.manual_seed(9)
        layer, x = nn.Linear(64, 32).eval(), torch.randn(8, 64)
        assert error(tilewright.compile(layer, (x,))(x), layer.double()(x.double())) < 1e-6

    def test_another_precision_is_refused(self) -> None:
        with pytest.raises(TilewrightError, match="precision: expected f32, bf16 or tf32, found `f8`"):
            tilewright.compile(nn.Linear(4, 4), (torch.randn(2, 4),), precision="f8")

    def test_torch_compile_takes_it(self) -> None:
        torch.manual_seed(10)
        layer, x = nn.Linear(64, 32).eval(), torch.randn(8, 64)
        compiled = torch.compile(layer, backend="tilewright", options={"precision": "bf16", "strict": True})
        with torch.no_grad():
            assert 1e-5 < error(compiled(x), layer(x).double()) < 1e-2


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return ((result.detach().double() - exact).norm() / exact.norm()).item()
