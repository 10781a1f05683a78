"""Compares a compiled case with eager PyTorch: values, dtypes, shapes, structure, and what happened to the inputs."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable

import torch
import torch._dynamo
from torch.utils import _pytree as pytree
from torch_cases import Case

import tilewright


def check(case: Case, compiled: Callable) -> None:
    """`compiled(function, args)` gives a callable; it must do to copies of the arguments what eager does."""
    torch.manual_seed(zlib.crc32(case.name.encode()))
    function, args = case.make()
    eager_args, own_args = copy.deepcopy(args), copy.deepcopy(args)
    with torch.no_grad():
        expected = copy.deepcopy(function)(*eager_args)
        found = compiled(function, args)(*own_args)
    wanted, wanted_spec = pytree.tree_flatten((expected, eager_args))
    got, got_spec = pytree.tree_flatten((found, own_args))
    assert got_spec == wanted_spec
    for ours, theirs in zip(got, wanted):
        if isinstance(theirs, torch.Tensor):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            torch.testing.assert_close(
                ours.detach(), theirs.detach(), rtol=case.tolerance, atol=case.tolerance, equal_nan=True
            )
        else:
            assert ours == theirs


def check_gradient(function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]) -> None:
    """Compares a function of random numbers of `shape`, and its gradient, through torch.compile; nothing may run in eager PyTorch."""
    torch._dynamo.reset()
    x = torch.randn(shape, requires_grad=True)
    before = tilewright.fallback_count()
    results = function(x), torch.compile(function, backend="tilewright")(x)
    torch.testing.assert_close(results[1], results[0])
    cotangent = torch.randn_like(results[0])
    expected, found = (torch.autograd.grad(result, x, cotangent)[0] for result in results)
    torch.testing.assert_close(found, expected)
    assert tilewright.fallback_count() == before
