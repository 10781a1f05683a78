"""Determinants against eager PyTorch: pivots of 0, singular matrices, batches, gradients, and what is refused."""

from __future__ import annotations

import pytest
import torch

import tilewright
from tilewright.compiler.errors import UnsupportedError

SHAPES = ((0, 0), (1, 1), (3, 3), (2, 3, 5, 5), (0, 3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_pivots_are_found(dtype):
    examples = [torch.randn(shape, dtype=dtype) for shape in SHAPES]

    def determinants(*matrices):
        return [torch.det(x) for x in matrices] + [torch.det(x.mT) for x in matrices]

    compiled = tilewright.compile(determinants, tuple(examples))
    torch.testing.assert_close(compiled(*examples), determinants(*examples))
    for matrix in examples:
        matrix.diagonal(dim1=-2, dim2=-1).zero_()
    torch.testing.assert_close(compiled(*examples), determinants(*examples))
    for matrix in examples[2:]:
        matrix[..., 1, :] = matrix[..., 0, :]
    torch.testing.assert_close(compiled(*examples), determinants(*examples), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logarithms_and_signs(dtype):
    examples = [torch.randn(shape, dtype=dtype) for shape in SHAPES]

    def logarithms(*matrices):
        return [torch.linalg.slogdet(x) for x in matrices] + [torch.logdet(x.mT @ x) for x in matrices]

    compiled = tilewright.compile(logarithms, tuple(examples))
    torch.testing.assert_close(compiled(*examples), logarithms(*examples), rtol=1e-4, atol=1e-4)
    singular = torch.zeros(4, 4, dtype=dtype)
    found = tilewright.compile(torch.linalg.slogdet, (singular,))(singular)
    assert (found.sign.item(), found.logabsdet.item()) == (0, -torch.inf)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_gradients_read_the_factors(is_transposed):
    matrix = torch.randn(2, 4, 4, requires_grad=True)

    def total(x):
        return torch.det(x.mT if is_transposed else x).sum()

    total(matrix).backward()
    expected, matrix.grad = matrix.grad, None
    before = tilewright.fallback_count()
    torch.compile(total, backend="tilewright")(matrix).backward()
    assert tilewright.fallback_count() == before
    torch.testing.assert_close(matrix.grad, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "example", [torch.eye(17), torch.eye(2, dtype=torch.complex64)], ids=["large", "complex"]
)
def test_others_are_refused(example):
    for function in (torch.det, torch.linalg.slogdet):
        with pytest.raises(UnsupportedError, match="real square ones of up to 16 rows"):
            tilewright.compile(function, (example,))
