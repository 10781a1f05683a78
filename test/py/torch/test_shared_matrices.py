"""Products of a batch with one matrix, which PyTorch copies for each of the batch: it is read where it lies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import tilewright

BATCH, ROWS, DEPTH, COLUMNS = 3, 7, 10, 16


def products(compiled: tilewright.CompiledModel) -> list[str]:
    """The extents of all products, as their kernels are named."""
    names = [kernel.name for kernel in compiled.executable.package.kernels]
    return [name.split("_")[1] for name in names if name.startswith("matmul")]


def some(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, of which sums are exact in all types."""
    return torch.randint(-4, 5, shape).to(dtype)


FORMS: dict[str, tuple[Callable, tuple[int, ...], tuple[int, ...], str]] = {
    "transposed rows": (lambda w, x: x.mT @ w, (DEPTH, COLUMNS), (BATCH, DEPTH, ROWS), "21x16x10"),
    "two batches": (
        lambda w, x: x.permute(0, 2, 3, 1) @ w, (DEPTH, COLUMNS), (2, DEPTH, BATCH, ROWS), "42x16x10",
    ),
    "expanded": (
        lambda w, x: torch.bmm(x, w.expand(BATCH, -1, -1)), (DEPTH, COLUMNS), (BATCH, ROWS, DEPTH), "21x16x10",
    ),
    "a batch of one": (
        lambda w, x: torch.bmm(x, w.expand(BATCH, -1, -1)), (1, DEPTH, COLUMNS), (BATCH, ROWS, DEPTH), "21x16x10",
    ),
    "heads of one": (lambda w, x: x @ w.mT, (2, 1, COLUMNS, DEPTH), (2, BATCH, ROWS, DEPTH), "2x21x16x10"),
    "left": (lambda w, x: w @ x, (ROWS, DEPTH), (BATCH, DEPTH, COLUMNS), "3x7x16x10"),
}  # fmt: skip


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64]
)
@pytest.mark.parametrize("form", FORMS)
def test_the_matrix_is_not_copied(form: str, dtype: torch.dtype) -> None:
    product, shape, batched, extents = FORMS[form]
    w, x = some(shape, dtype), some(batched, dtype)
    compiled = tilewright.compile(product, (w, x))
    assert products(compiled) == [extents]
    assert torch.equal(compiled(w, x), product(w, x))


@pytest.mark.parametrize("target", ["cpu", "emulate:sm_70", "emulate:sm_80", "emulate:sm_90a"])
def test_a_layer_over_channels_is_one_product_of_all_pixels(target: str) -> None:
    """`nn.Linear` on a permuted image, forward; its weight is packed once."""

    class Channels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(24, 40)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.permute(0, 2, 3, 1)).relu()

    model, x = Channels().eval(), torch.randn(2, 24, 5, 6)
    compiled = tilewright.compile(model, (x,), target=target)
    assert products(compiled) == ["60x40x24"]
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))


def test_gradients_of_a_layer_over_channels() -> None:
    layer, x = torch.nn.Linear(6, 8), torch.randn(3, 6, 5, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return layer(x.mT).sin().sum()

    leaves = (x, *layer.parameters())
    wanted = torch.autograd.grad(loss(x), leaves)
    found = torch.autograd.grad(torch.compile(loss, backend="tilewright")(x), leaves)
    torch.testing.assert_close(found, wanted)


def test_a_batch_times_a_weight_of_onnx() -> None:
    weight = np.random.default_rng(0).standard_normal((DEPTH, COLUMNS)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, ROWS, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, ROWS, COLUMNS])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.random.default_rng(1).standard_normal((BATCH, ROWS, DEPTH)).astype(np.float32)
    compiled = tilewright.compile(model, (x,))
    assert products(compiled) == ["21x16x10"]
    np.testing.assert_allclose(compiled(x)[0], x @ weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "emulate:sm_80", "emulate:sm_90a"])
def test_keys_that_heads_share_are_not_copied_for_one_query(target: str) -> None:
    """One token of a language model with grouped heads: a product of the four queries of each key head."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    q, k, v = torch.randn(2, 8, 1, 32), torch.randn(2, 2, 50, 32), torch.randn(2, 2, 50, 32)
    compiled = tilewright.compile(attention, (q, k, v), target=target)
    names = [kernel.name for kernel in compiled.executable.package.kernels]
    assert not any(name.startswith("elementwise") and "50x32" in name for name in names)
    torch.testing.assert_close(compiled(q, k, v), attention(q, k, v))


@pytest.mark.parametrize(
    "left, right", [((3, 4, 6, 5), (4, 5, 8)), ((3, 1, 7, 5), (3, 4, 5, 6)), ((6, 7, 5), (6, 5, 1))]
)
def test_what_others_share_is_right_too(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = torch.randn(left), torch.randn(right)
    compiled = tilewright.compile(torch.matmul, (x, y))
    torch.testing.assert_close(compiled(x, y), x @ y)
