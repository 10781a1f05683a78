"""Images resized, with elements that are not finite, and the gradients of resizing, against eager PyTorch."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tilewright
from tilewright.compiler.errors import ModelImportError
from tilewright.compiler.importers.torch.resizing import _around, _beside

RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
SIZES: list[dict[str, Any]] = [{"size": size} for size in ((3, 6, 3), (5, 1, 2), (1, 4, 7), (5, 4, 3))]
SIZES += [{"scale_factor": factor} for factor in (2, 0.6)]
SIZES += [{"scale_factor": 1.7, "recompute_scale_factor": True}]


def _forms(mode):
    rank = RANKS[mode]
    for options, corners in itertools.product(SIZES, (False, True)):
        options = {"size": options["size"][:rank]} if "size" in options else options
        yield lambda x, o=options, c=corners: F.interpolate(x, **o, mode=mode, align_corners=c)
    yield lambda x: F.upsample(x, scale_factor=2, mode=mode)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mode", RANKS)
def test_what_is_not_finite_is_where_eager_has_it(mode, dtype):
    forms = list(_forms(mode))
    forms = forms if dtype == torch.float32 else forms[2::4]
    x = torch.randn(2, 2, *(5, 4, 3)[: RANKS[mode]]).to(dtype)
    x[0, 0].flatten()[1], x[0, 1].flatten()[-1], x[1, 0].flatten()[2] = math.inf, -math.inf, math.nan
    found = tilewright.compile(lambda x: [form(x) for form in forms], (x,))(x)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 1e-2}[dtype]
    for ours, form in zip(found, forms, strict=True):
        torch.testing.assert_close(ours, form(x), rtol=tolerance, atol=tolerance, equal_nan=True)


SHRUNK = [{"size": size} for size in ((4, 9), (20, 3), (9, 5), (4, 11), (9, 11))]
SHRUNK += [{"scale_factor": factors} for factors in ((0.3, 1.7), (1.05, 2.0))]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiasing_reads_what_eager_reads(mode, dtype, corners):
    x = torch.randn(2, 2, 9, 11, dtype=dtype)
    x[0, 0, 3, 4], x[0, 1, 8, 10], x[1, 0, 0, 0] = math.inf, -math.inf, math.nan

    def resized(x):
        return [F.interpolate(x, **o, mode=mode, align_corners=corners, antialias=True) for o in SHRUNK]

    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    for ours, wanted in zip(tilewright.compile(resized, (x,))(x), resized(x), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_antialiasing_to_one_column_keeps_the_rows_apart():
    """Eager PyTorch writes the first row everywhere there; it is right about the transposed image."""
    x, options = torch.randn(1, 2, 9, 3), {"mode": "bilinear", "antialias": True}
    found = tilewright.compile(lambda x: F.interpolate(x, (4, 1), **options), (x,))(x)
    torch.testing.assert_close(found, F.interpolate(x.mT, (1, 4), **options).mT)


def test_gradients_of_antialiasing():
    x, grad = torch.randn(1, 2, 9, 11), torch.randn(1, 2, 4, 15)

    def gradient(x, grad):
        form = lambda x: F.interpolate(x, (4, 15), mode="bicubic", antialias=True)  # noqa: E731
        return torch.func.vjp(form, x)[1](grad)[0]

    torch.testing.assert_close(tilewright.compile(gradient, (x, grad))(x, grad), gradient(x, grad))


@pytest.mark.parametrize("mode", ["linear", "bicubic"])
def test_gradients_of_resizing(mode):
    forms = list(_forms(mode))[:6:3]
    x = torch.randn(2, 2, *(5, 4, 3)[: RANKS[mode]])
    grads = [torch.randn_like(form(x)) for form in forms]

    def gradients(x, grads):
        return [torch.func.vjp(form, x)[1](grad)[0] for form, grad in zip(forms, grads, strict=True)]

    found = tilewright.compile(gradients, (x, grads))(x, grads)
    for ours, wanted in zip(found, gradients(x, grads), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_resizing_under_torch_compile():
    x = torch.randn(1, 2, 5, 4)
    x[0, 0, 1, 1] = math.inf
    before = tilewright.fallback_count()

    def resized(x):
        return F.interpolate(x, scale_factor=(1.5, 2), mode="bilinear")

    found = torch.compile(resized, backend="tilewright")(x)
    torch.testing.assert_close(found, resized(x), equal_nan=True)
    by_size = torch.compile(
        lambda x: F.interpolate(x, (x.shape[2] * 2, 5), mode="bicubic"), backend="tilewright", dynamic=True
    )
    for rows in (3, 4):
        x = torch.randn(1, 2, rows, 4)
        torch.testing.assert_close(by_size(x), F.interpolate(x, (rows * 2, 5), mode="bicubic"))
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 3), Fraction(7, 8)])
def test_weights_are_one_in_all_and_reproduce_straight_lines(share):
    for taps in (_beside(4, share), _around(4, share)):
        assert sum(weight for _, weight in taps) == 1
    assert sum(number * weight for number, weight in _beside(4, share)) == 4 + share


@pytest.mark.parametrize("options", [{}, {"size": 3, "scale_factor": 2}, {"size": (3,)}, {"size": 0}])
def test_what_eager_refuses_is_refused(options: dict[str, Any]):
    x = torch.randn(1, 2, 5, 4)
    with pytest.raises(ModelImportError):
        tilewright.compile(lambda x: F.interpolate(x, mode="bilinear", **options), (x,))
