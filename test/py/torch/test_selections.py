"""What a mask selects: computed in place where its number does not matter, refused where it does.

PYTEST_DONT_REWRITE: one of the models has an `assert` statement of its own.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.torch.selections import _are_same


def put_elsewhere(x, y, m):
    x = x.clone()
    x[m] = y[m]
    return x


def computed_anew(x, y, m):
    x = x.clone()
    x[y > 0] = torch.relu(x[y > 0]) * 2 + 1
    return x


def in_place(x, y, m):
    x = x.clone()
    x[m] *= 2
    x[~m] -= y[~m]
    return x


def sums(x, y, m):
    return (x[m] - y[m]).abs().mean(), (x[m] ** 2).sum(), 1 - x[m].sum(dtype=torch.float64), x[m[:, 1]].mean()


def mean_of_16_bits(x, y, m):
    """Whose sum is beyond their type."""
    return (x * 0 + 30000.0).half()[m].mean(), x.bfloat16()[m].mean(dtype=torch.float64)


def losses(x, y, m):
    target = torch.sigmoid(y)
    plain = F.mse_loss(x[m], y[m]), F.smooth_l1_loss(x[m], y[m], reduction="sum")
    return *plain, F.binary_cross_entropy_with_logits(x[m], target[m])


def rows(x, y, m):
    row, x = m[:, 0], x.clone()
    x[row] = F.layer_norm(F.linear(x[row], y.mT @ y), (5,)).softmax(-1) + y[0]
    x[row] = (2 / (x[row] @ (y.mT @ y) + 9)).to(torch.float64).float()
    return x


def kept_before_a_write(x, y, m):
    x = x.clone()
    selected = x[m]
    x.mul_(3)
    x[m] = selected
    return x


def parts(x, y, m):
    x = x.clone()
    x[m] = x[m].clamp(-0.5, 0.5)
    x[0][m[0]] = y[0][m[0]]
    return x


def divided(x, y, m):
    """By what is zero where it is not selected."""
    divisor = torch.where(m, (y * 9).int() | 1, 0)
    quotient, rest = torch.zeros_like(divisor), torch.zeros_like(divisor)
    quotient[m] = torch.div((x * 99).int()[m], divisor[m], rounding_mode="floor").int()
    rest[m] = 7 % divisor[m] + (x * 99).int()[m] // divisor[m]
    return quotient, rest


def asserted(x, y, m):
    assert (x[m].abs() < 99).all() and not (x[m].abs() > 99).any()
    return x * 2


def masks_of_many_steps(x, y, m):
    """Each of which has two ways to the one before: 2 ** 20 of them in all."""
    masks = []
    for _ in range(2):
        steps = x
        for _ in range(20):
            steps = (steps - steps * 0.5).tanh()
        masks.append(steps > 0)
    x = x.clone()
    x[masks[0]] = y[masks[1]]
    return x


def beside_others(x, y, m):
    x, z, row = x.clone(), torch.stack([x, y, x * y], 2), m[:, 0]
    x[row, :] = y[row] * 2
    x[row, 1:3] += y[row, 2:4]
    z[m, 0] = torch.relu(z[m, -1])
    z[m, ...] -= 1
    return x, z, y[row, 2].sum()


COMPUTED = [put_elsewhere, computed_anew, in_place, sums, losses, rows, kept_before_a_write, parts]
COMPUTED += [divided, asserted, mean_of_16_bits, masks_of_many_steps, beside_others]


def _drawn(mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(4, 5, generator=generator), torch.randn(4, 5, generator=generator), mask


@pytest.mark.parametrize("function", COMPUTED, ids=lambda f: f.__name__)
def test_selections_are_computed_where_they_lie(function):
    args = _drawn(torch.rand(4, 5, generator=torch.Generator().manual_seed(1)) > 0.5)
    compiled = tilewright.compile(function, args)
    for mask in (args[2], torch.zeros(4, 5, dtype=torch.bool), torch.ones(4, 5, dtype=torch.bool)):
        args = _drawn(mask)
        torch.testing.assert_close(compiled(*args), function(*args), equal_nan=True)


def another_mask(x, y, m):
    x = x.clone()
    x[m] = y[~m]
    return x


def mask_written_in_between(x, y, m):
    x, m = x.clone(), m.clone()
    selected = y[m]
    m[0] = True
    x[m] = selected
    return x


WANTING = {
    "a result": lambda x, y, m: x[m],
    "a maximum": lambda x, y, m: x[m].max(),
    "another mask": another_mask,
    "a mask written in between": mask_written_in_between,
    "a sum of two masks": lambda x, y, m: (x[m] + y[~m]).sum(),
    "joined": lambda x, y, m: torch.cat([x[m], y[m]]),
    "a size": lambda x, y, m: x * x[m].shape[0],
    "a length": lambda x, y, m: x * len(x[m]),
    "along the rows": lambda x, y, m: x[m[:, 0]].sum(0),
    "softmax over the rows": lambda x, y, m: x[m].softmax(0).sum(),
    "a mean of integers": lambda x, y, m: x.int()[m].mean(),
    "an element": lambda x, y, m: x * x[m][0],
    "beside a tensor of the same number": lambda x, y, m: (x[m] + torch.ones(9)).sum(),
}


@pytest.mark.parametrize("name", WANTING)
def test_what_needs_their_number_is_refused(name):
    with pytest.raises(UnsupportedError, match=r"nonzero.*depends on values"):
        tilewright.compile(WANTING[name], _drawn(torch.rand(4, 5) > 0.5))


def test_operands_in_other_places_make_another_mask():
    graph = torch.fx.Graph()
    x, bound = graph.placeholder("x"), graph.placeholder("bound")
    clamp = torch.ops.aten.clamp.Tensor
    below, again, above = (
        graph.call_function(clamp, (x, *bounds)) for bounds in ((bound, None), (bound, None), (None, bound))
    )
    assert _are_same(below, again)
    assert not _are_same(below, above)
