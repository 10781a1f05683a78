"""Numbers read out of tensors: `x.item()` in arithmetic, in place of a start, or as a reason to refuse."""

from __future__ import annotations

import pytest
import torch

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.runtime.errors import KernelAssertError

ARITHMETIC = {
    "float32": lambda x, k, t: (x * k, k * x, x / t, t - x, x**k, (k // 2) * x, (-k) * x, abs(t) * x),
    "integers": lambda x, k, t: (x.int() * t, x.int() + k, (k % 2) + x.int(), k / 2 + x.long(), x.bool() + k),
    "others": lambda x, k, t: (x.double() * t, x.half() + t, x[0, 0].double() * t, x[0, 1].half() - k),
    "numbers": lambda x, k, t: (
        x + (k * 2 + t / 3 - 1),
        x * (3 - k) ** 2.0,
        1 / t * x,
        x.int() + (7 - k) // 2,
    ),
    "functions": lambda x, k, t: (x > t, x.masked_fill(x > 0, t), torch.where(x > 0, x, k), x.clamp(-t, t)),
    "of results": lambda x, k, t: (x / x.sum().item(), x * x.any().item(), x - x.amax().item() % 2),
    "in place": lambda x, k, t: x.clone().mul_(k).add_(t),
}


@pytest.mark.parametrize("real", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("whole", [torch.int64, torch.uint8], ids=str)
def test_numbers_in_arithmetic(whole, real):
    # One of the functions divides by the sum, which should not cancel.
    x = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) - 0.2

    def computed(x, k, t):
        return [function(x, k.item(), t.item()) for function in ARITHMETIC.values()]

    args = x, torch.tensor(1).to(whole), torch.tensor([[1.7]]).to(real)
    found = tilewright.compile(computed, args)
    for numbers in ((1, 1.7), (0, -0.3)):
        args = x, torch.tensor(numbers[0]).to(whole), torch.tensor([[numbers[1]]]).to(real)
        torch.testing.assert_close(found(*args), computed(*args), equal_nan=True)


WANTED = {
    "a branch": lambda x, n: x if n.item() > 1 else -x,
    "a size": lambda x, n: x[: n.item()],
    "a result": lambda x, n: (x, n.item()),
    "a conversion": lambda x, n: x * float(n.item()),
    "a power of integers": lambda x, n: x * 2 ** n.item(),
}


@pytest.mark.parametrize("name", WANTED)
def test_values_wanted_while_tracing_are_refused(name):
    with pytest.raises(UnsupportedError, match=r"_local_scalar_dense.*depends on values"):
        tilewright.compile(WANTED[name], (torch.randn(3), torch.tensor(2)))


def test_known_values_are_values():
    def branched(x):
        return x * torch.tensor(3.0).item() if torch.tensor(2).item() > 1 else x

    x = torch.randn(3)
    torch.testing.assert_close(tilewright.compile(branched, (x,))(x), branched(x))


def test_numbers_divided_by_zero_fail_the_call():
    compiled = tilewright.compile(lambda x, n: x * (1 / n.item()), (torch.randn(3), torch.tensor(2.0)))
    with pytest.raises(KernelAssertError, match="division of a number by zero"):
        compiled(torch.randn(3), torch.tensor(0.0))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_slices_from_a_start_that_is_a_tensor(dim):
    x = torch.randn(5, 6)

    def sliced(x, n):
        return torch.narrow(x, dim, n, 2) * 2, x.narrow(dim, n, 1)

    compiled = tilewright.compile(sliced, (x, torch.tensor(0)))
    for start in (0, 3, -2):
        n = torch.tensor(start)
        torch.testing.assert_close(compiled(x, n), sliced(x, n))
    with pytest.raises(KernelAssertError, match="out of range"):
        compiled(x, torch.tensor(5))


FILLERS = {
    "full": lambda x, n: (
        torch.full((2, 3), n),
        torch.full([2], n, dtype=torch.int32),
        torch.full(size=(), fill_value=n),
    ),
    "like": lambda x, n: (
        torch.full_like(x, n),
        x.new_full((3,), n),
        torch.full_like(x, n, dtype=torch.float64),
    ),
    "tensors": lambda x, n: (torch.tensor(n), torch.as_tensor(n), torch.scalar_tensor(n)),
    "lists": lambda x, n: (
        torch.tensor([n, 2.0]),
        torch.tensor([[n], [True]]),
        torch.tensor([n, n], dtype=torch.float16),
    ),
    "written": lambda x, n: torch.tensor(data=[1, 2]) + torch.tensor([n, n]).mul_(n),
}


@pytest.mark.parametrize("name", FILLERS)
@pytest.mark.parametrize("n", [3, 2.5, True])
def test_tensors_made_of_numbers_of_the_call(name, n):
    def made(x, n):
        return FILLERS[name](x, n.item())

    x = torch.randn(2, 3)
    compiled = tilewright.compile(made, (x, torch.tensor(n)))
    for number in (n, type(n)(0)):
        torch.testing.assert_close(compiled(x, torch.tensor(number)), made(x, torch.tensor(number)))


def test_numbers_in_exported_programs():
    class Scaled(torch.nn.Module):
        def forward(self, x, n):
            count = n.item()
            torch._check(count < 4)
            return x * (count / 2 + 1), torch.full((3,), count)

    args = torch.randn(3), torch.tensor(3)
    program = torch.export.export(Scaled(), args)
    for form in (program, program.run_decompositions()):
        compiled = tilewright.compile(form, args)
        torch.testing.assert_close(compiled(*args), Scaled()(*args))
        with pytest.raises(KernelAssertError, match="Runtime assertion failed"):
            compiled(args[0], torch.tensor(4))
