"""Branches on values that end in an error on one side: traced on the other, and a call fails where eager PyTorch raises.

PYTEST_DONT_REWRITE: the models' own `assert` statements are what is tested.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.distributions as D

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.runtime.errors import KernelAssertError


def raises(x):
    if not (x >= 0).all():
        raise ValueError("some are negative")
    return x.sqrt()


def raises_a_text_of_two_lines(x):
    smallest = x.min().item()
    if smallest < 0:
        reason = "some are negative" if x.dim() else "it is negative"
        raise ValueError(
            f"{reason}: {x.shape}",
        )
    return x.sqrt()


def asserts_once(x):
    assert (x >= 0).all(), "out of range"
    return x.sqrt(), x.sum()


def asserts_twice(x):
    assert (x >= 0).all() and (x < 9).all(), "out of range"
    return x.sqrt(), x.sum()


def one_of_two_tests(x):
    if (x < 0).any() or torch.isnan(x).any():
        raise ValueError("not a square")
    return x.sqrt()


def asserts_between(x):
    assert 0 <= x.min().item() <= 9
    return x.sqrt()


def asserts_by_function(x):
    torch._assert((x >= 0).all(), "negative")
    torch._assert_async((x < 9).all())
    return x.sqrt()


def asserts_in_a_loop(x):
    for row in x:
        if torch.any(row < 0):
            raise ValueError("a row")
    return x.sqrt()


def asserts_equality(x):
    assert torch.equal(x.abs(), x), "negative"
    assert torch.allclose(x.abs(), x), "negative"
    return x.sqrt()


def raises_in_blocks(x):
    with torch.no_grad(), contextlib.nullcontext():
        try:
            if (x < 0).any():
                raise ValueError("negative")
        finally:
            x = x + 1
    return x


def raises_another(x):
    try:
        return raises(x)
    except ValueError as error:
        raise RuntimeError("refused") from error


def checks_all(x):
    torch._check_tensor_all(x >= 0, lambda: f"{x.shape} below zero")
    return x.sqrt()


def checks_numbers(x):
    least = x.min().item()
    torch._check(least >= 0, lambda: f"found {least}")
    torch._check_value((x < 9).all().item())
    torch._check(x.dim() == 2)
    return x * least


ASSERTING = [raises, raises_a_text_of_two_lines, asserts_twice, one_of_two_tests, asserts_between]
ASSERTING += [asserts_by_function, asserts_in_a_loop, asserts_equality, raises_in_blocks, raises_another]
ASSERTING += [checks_all, checks_numbers]


@pytest.mark.parametrize("function", ASSERTING, ids=lambda f: f.__name__)
def test_what_raises_in_eager_fails_the_call(function):
    x, refused = torch.rand(3, 4), torch.rand(3, 4)
    refused[2, 1] = -1
    compiled = tilewright.compile(function, (x,))
    torch.testing.assert_close(compiled(x), function(x))
    with pytest.raises((ValueError, RuntimeError, AssertionError)):
        function(refused)
    with pytest.raises(KernelAssertError):
        compiled(refused)
    torch.testing.assert_close(compiled(x), function(x))


def test_an_error_says_what_the_source_says():
    compiled = tilewright.compile(raises_a_text_of_two_lines, (torch.rand(3),))
    said = r'test_assertions.py:\d+ in raises_a_text_of_two_lines: raise ValueError\( f"\{reason\}: \{x.shape\}", \)'
    with pytest.raises(KernelAssertError, match=said):
        compiled(-torch.rand(3))


def test_a_check_says_what_it_would_raise():
    x = torch.rand(2, 3)
    for function, said in (
        (checks_all, r"RuntimeError: torch.Size\(\[2, 3\]\) below zero"),
        (checks_numbers, "RuntimeError: found a number of the call"),
    ):
        with pytest.raises(KernelAssertError, match=said):
            tilewright.compile(function, (x,))(-x)


def test_the_truth_of_constants_is_known():
    def scaled(x):
        if torch.tensor([1.0, -1.0]).min() < 0:
            return x * 2
        raise ValueError("never")

    x = torch.randn(3)
    torch.testing.assert_close(tilewright.compile(scaled, (x,))(x), 2 * x)


def two_ways(x):
    if (x > 0).all():
        return x.sqrt()
    return -x


def caught(x):
    try:
        return raises(x)
    except ValueError:
        return -x


def raises_either_way(x):
    if (x > 0).all():
        raise ValueError("positive")
    raise KeyError("not positive")


def truth_itself(x):
    return x * (not (x > 0).all())


def both_conditions(x):
    if (x < 0).any() and (x > 0).any():
        raise ValueError("both signs")
    return x


OPEN = [two_ways, caught, raises_either_way, truth_itself, both_conditions]


@pytest.mark.parametrize("function", OPEN, ids=lambda f: f.__name__)
def test_open_branches_are_refused(function):
    with pytest.raises(UnsupportedError, match="depends on values"):
        tilewright.compile(function, (torch.rand(3),))


def test_a_model_without_a_result_to_fail_is_refused():
    def nothing(x):
        assert (x > 0).all()
        return x

    with pytest.raises(UnsupportedError, match="no result that could fail"):
        tilewright.compile(nothing, (torch.rand(3),))


class Asserting(torch.nn.Module):
    def forward(self, x):
        torch._assert_async((x >= 0).all(), "negative")
        return x[:2].sqrt(), x.sum()


WAYS = {
    "an exported program": lambda x: tilewright.compile(torch.export.export(Asserting(), (x,))),
    "torch.compile": lambda x: torch.compile(Asserting(), backend="tilewright"),
    "torch.compile of assert": lambda x: torch.compile(asserts_once, backend="tilewright"),
}


@pytest.mark.parametrize("way", WAYS)
def test_assertions_of_graphs(way):
    x = torch.rand(4, requires_grad="compile" in way)
    compiled = WAYS[way](x)
    eager = asserts_once if way.endswith("assert") else Asserting()
    torch.testing.assert_close(list(compiled(x)), list(eager(x)))
    with pytest.raises(KernelAssertError, match=r"negative|out of range"):
        compiled(x - 1)


P, R = torch.tensor([0.2, 0.5, 0.9]), torch.tensor([-1.0, 0.3, 2.0])
SPREAD = torch.eye(3) + 0.1
DISTRIBUTIONS = {
    "normal": (D.Normal, (R, P), R, -P),
    "categorical": (lambda p: D.Categorical(probs=p), (P,), torch.tensor(2), None),
    "beta": (D.Beta, (P, 2 * P), P, -P),
    "dirichlet": (D.Dirichlet, (P,), P / P.sum(), None),
    "bernoulli": (lambda p: D.Bernoulli(probs=p), (P,), torch.tensor([0.0, 1.0, 1.0]), R),
    "a covariance": (D.MultivariateNormal, (R, SPREAD), R, -SPREAD),
    "independent rows": (lambda m, s: D.Independent(D.Laplace(m, s), 1), (R, P), R, -P),
    "a mixture": (lambda m, s: D.MixtureSameFamily(D.Categorical(logits=m), D.Normal(m, s)), (R, P), R, -P),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_check_their_arguments(name, monkeypatch):
    # TorchDynamo turns these checks off for the whole process.
    monkeypatch.setattr(D.Distribution, "_validate_args", True)
    make, given, x, refused = DISTRIBUTIONS[name]

    def log_probability(x, *given):
        return make(*given).log_prob(x)

    compiled = tilewright.compile(log_probability, (x, *given))
    torch.testing.assert_close(compiled(x, *given), log_probability(x, *given))
    if refused is not None:
        with pytest.raises(ValueError):
            make(*given[:-1], refused)
        with pytest.raises(KernelAssertError, match=r"Expected parameter|not positive-definite"):
            compiled(x, *given[:-1], refused)
