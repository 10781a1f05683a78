"""Functions that check values: they compute what eager PyTorch does, and fail the call where that raises."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tilewright
from tilewright.compiler.errors import ModelImportError
from tilewright.runtime.errors import KernelAssertError


def agree(function, *args):
    found = tilewright.compile(function, args)(*args)
    torch.testing.assert_close(found, function(*args), equal_nan=True)


@pytest.mark.parametrize("shape", [(3, 5), (3, 1), (3,)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gaussian_loss(shape, reduction):
    def losses(x, target, variance):
        plain = F.gaussian_nll_loss(x, target, variance, reduction=reduction)
        return plain, F.gaussian_nll_loss(x, target, variance, full=True, eps=0.3, reduction=reduction)

    agree(losses, torch.randn(3, 5), torch.randn(3, 5), torch.rand(shape))


@pytest.mark.filterwarnings("ignore:cov")
def test_covariance():
    x, counts, weights = torch.randn(3, 5), torch.tensor([1, 2, 0, 3, 1]), torch.rand(5)

    def covariances(x, counts, weights):
        plain = [torch.cov(x), x[0].cov(), torch.cov(x[0, 0]), torch.cov(x, correction=7), torch.cov(x.int())]
        plain += [torch.cov(x.to(torch.complex64) * 1j), torch.cov(x.half()[:, :2])]
        plain += [torch.cov(x, fweights=counts), torch.cov(x, aweights=weights, correction=0)]
        plain += [torch.cov(x, fweights=counts, aweights=weights), x.corrcoef(), torch.corrcoef(x[1])]
        return [*plain, torch.corrcoef(torch.complex(x, x.flip(1)))]

    agree(covariances, x, counts, weights)


FAILING = {
    "a negative variance": (lambda x, v: F.gaussian_nll_loss(x, 2 * x, v), [1, 2, -1e-3], "var has negative"),
    "a negative weight": (lambda x, v: torch.cov(x, aweights=v), [1, 2, -1.5], "cannot be negative"),
    "no weight": (lambda x, v: torch.cov(x, aweights=v), [0.0, 0, 0], "sum to zero"),
}


@pytest.mark.parametrize("name", FAILING)
def test_values_that_eager_refuses_fail_the_call(name):
    function, refused, message = FAILING[name]
    x, given = torch.randn(3), torch.tensor([1.0, 2, 3])
    compiled = tilewright.compile(function, (x, given))
    with pytest.raises((ValueError, RuntimeError)):
        function(x, torch.tensor(refused))
    with pytest.raises(KernelAssertError, match=message):
        compiled(x, torch.tensor(refused))
    torch.testing.assert_close(compiled(x, given), function(x, given))


def test_wrong_shapes_and_reductions_raise_while_compiling():
    for case in ({"var": torch.rand(2)}, {"var": torch.rand(3), "reduction": "some"}):
        with pytest.raises(ModelImportError, match=r"incorrect size|not valid"):
            tilewright.compile(lambda x, case=case: F.gaussian_nll_loss(x, x, **case), (torch.randn(3),))


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize(
    "compiler", [tilewright.compile, lambda f, _: torch.compile(f, backend="tilewright")]
)
def test_combinations(compiler, repeated):
    def combined(x):
        return [torch.combinations(x, r, repeated) for r in (1, 2, 3)]

    x, before = torch.randn(4), tilewright.fallback_count()
    torch.testing.assert_close(compiler(combined, (x,))(x), combined(x))
    assert tilewright.fallback_count() == before
