"""Solutions, inverses and factors of small matrices against eager PyTorch: pivots, sides, gradients, what fails."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils._pytree import tree_map

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.runtime.errors import KernelAssertError

SHAPES = ((1, 1), (3, 3), (2, 5, 5), (9, 9))


def compiled_in_both_ways(function, *args):
    torch._dynamo.reset()
    before = tilewright.fallback_count()
    with torch.no_grad():
        yield tilewright.compile(function, args)
        yield torch.compile(function, backend="tilewright")
    assert tilewright.fallback_count() == before


def steps(x):
    """Strides of dimensions in which there are any."""
    return [step for step, size in zip(x.stride(), x.shape) if size > 1]


def check(function, *args, tolerance: float):
    expected = function(*args)
    for compiled in compiled_in_both_ways(function, *args):
        found = compiled(*args)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        assert tree_map(steps, found) == tree_map(steps, expected)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_solutions(is_transposed):
    matrices = [torch.randn(shape, dtype=torch.float64) for shape in SHAPES]
    for x in matrices[1:]:
        x[..., 0, 0] = 0
    matrices = [x.mT for x in matrices] if is_transposed else matrices

    def solutions(*matrices):
        found = []
        for x in matrices:
            b = x[..., :1] + 1
            found += [torch.linalg.solve(x, b), torch.linalg.solve(x, b.mT, left=False)]
            found += [torch.linalg.solve_ex(x, b)[0], torch.linalg.inv(x), x.inverse()]
        return [*found, torch.linalg.solve(matrices[1], matrices[1][0])]

    check(solutions, *matrices, tolerance=1e-8)


def test_single_precision_and_what_is_repeated():
    x, b = torch.randn(2, 4, 4) + 4 * torch.eye(4), torch.randn(2, 4)
    check(lambda x, b: (torch.linalg.solve(x, b), torch.linalg.solve(x[0], b.mT)), x, b, tolerance=1e-5)
    check(lambda x, b: torch.linalg.solve(x[0], b.unsqueeze(-1).expand(3, 2, 4, 1)), x, b, tolerance=1e-5)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangles(upper, left, unit):
    x, b = torch.randn(2, 4, 4, dtype=torch.float64), torch.randn(2, 4, 4, dtype=torch.float64)

    def solved(x, b):
        old = torch.triangular_solve(b, x[0], upper, transpose=left, unitriangular=unit)
        return torch.linalg.solve_triangular(x, b, upper=upper, left=left, unitriangular=unit), *old

    check(solved, x, b, tolerance=1e-8)


def test_what_is_beside_a_triangle_is_not_read():
    x, b = torch.full((3, 3), torch.nan).tril(-1) + torch.randn(3, 3).triu(), torch.randn(3, 2)
    x[2, 2] = 0
    expected = torch.linalg.solve_triangular(x, b, upper=True)
    for compiled in compiled_in_both_ways(lambda x, b: torch.linalg.solve_triangular(x, b, upper=True), x, b):
        torch.testing.assert_close(compiled(x, b), expected, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors(shape):
    x = torch.randn(shape, dtype=torch.float64)

    def factors(x):
        positive = x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)
        packed, pivots, info = torch.linalg.lu_factor_ex(x)
        solved = [
            torch.linalg.lu_solve(packed, pivots, x if left else x.mT, left=left, adjoint=adjoint)
            for left in (False, True)
            for adjoint in (False, True)
        ]
        lower, upper = torch.linalg.cholesky(positive), torch.linalg.cholesky(positive, upper=True)
        return packed, pivots, info, *solved, *torch.lu_unpack(packed, pivots), lower, upper

    check(factors, x, tolerance=1e-7)


def test_steps_that_fail_are_numbered():
    x = torch.ones(4, 4, dtype=torch.float64) + torch.diag(torch.tensor([0.0, 1.0, 0.0, -9.0]))

    def numbers(x):
        infos = torch.linalg.inv_ex(x)[1], torch.linalg.lu_factor_ex(x)[2]
        return *infos, torch.linalg.solve_ex(x, x[0])[1], torch.linalg.cholesky_ex(x)[1]

    check(numbers, x, tolerance=0)
    check(numbers, torch.eye(4, dtype=torch.float64), tolerance=0)


FAILING = {
    "linalg.solve: The solver failed": lambda x: torch.linalg.solve(x, x[0]),
    "linalg.inv: The diagonal": torch.linalg.inv,
    "linalg.cholesky: The factorization": torch.linalg.cholesky,
}


@pytest.mark.parametrize("words", FAILING)
def test_calls_with_singular_matrices_fail(words):
    function, fine = FAILING[words], torch.eye(3)
    for compiled in compiled_in_both_ways(function, fine):
        torch.testing.assert_close(compiled(fine), function(fine))
        with pytest.raises(KernelAssertError, match=words):
            compiled(torch.zeros(3, 3))


GRADIENTS = {
    "solve": torch.linalg.solve,
    "solve from the right": lambda x, b: torch.linalg.solve(x, b.mT, left=False),
    "inv": lambda x, b: torch.linalg.inv(x) @ b,
    "cholesky": lambda x, b: torch.linalg.cholesky(x @ x.mT + torch.eye(4, dtype=x.dtype)) @ b,
    "triangle": lambda x, b: torch.linalg.solve_triangular(x, b, upper=True),
}


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, is_transposed):
    function = GRADIENTS[name]
    x, b = torch.randn(2, 4, 4, dtype=torch.float64), torch.randn(2, 4, 3, dtype=torch.float64)
    x = x.mT if is_transposed else x
    before = tilewright.fallback_count()
    torch._dynamo.reset()
    gradients = []
    for called in (function, torch.compile(function, backend="tilewright")):
        given = [arg.detach().requires_grad_() for arg in (x, b)]
        gradients.append(torch.autograd.grad(called(*given).square().sum(), given))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-7, atol=1e-7)
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize(
    "example", [torch.eye(17), torch.eye(2, dtype=torch.complex64)], ids=["large", "complex"]
)
def test_others_are_refused_or_run_eagerly(example):
    for function in (torch.linalg.inv, torch.linalg.cholesky, lambda x: torch.linalg.solve(x, x)):
        with pytest.raises(UnsupportedError, match="real square ones of up to 16 rows"):
            tilewright.compile(function, (example,))
        torch._dynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.compile(function, backend="tilewright")(example)
        torch.testing.assert_close(found, function(example))


def test_factors_of_matrices_with_more_columns_are_refused():
    with pytest.raises(UnsupportedError, match="real square ones of up to 16 rows"):
        tilewright.compile(lambda x: torch.linalg.lu_factor_ex(x)[0], (torch.randn(3, 5),))
