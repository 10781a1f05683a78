"""Stacks of tensors, as caches of all layers are, of which a program writes parts: nothing else is copied."""

from __future__ import annotations

import pytest
import torch
from written_arguments import HEADS, LENGTH, WIDTH, Inputs, check, updates

import tilewright
from tilewright.runtime.errors import KernelAssertError


def _element(x: torch.Tensor, at: torch.Tensor, c: torch.Tensor) -> None:
    c[1, 1, 3] = x[0, 0]


def _nested(x: torch.Tensor, at: torch.Tensor, c: torch.Tensor) -> None:
    c[2][1][at] = x[0, :1]
    c[-1][0].copy_(x[1])


def _two_steps(x: torch.Tensor, at: torch.Tensor, c: torch.Tensor) -> None:
    for layer in range(3):
        c[layer][:, at] = x[:, :1] * c[layer].sum()


STACKED = {
    "a part": lambda x, at, c: c[1].copy_(x),
    "rows of a part": lambda x, at, c: c[1].index_copy_(1, at, x[:, :1]),
    "rows of the last part": lambda x, at, c: c[-1].index_copy_(1, at, x[:, :1]),
    "added rows": lambda x, at, c: c[1].index_add_(1, at, x[:, :1]),
    "rows in front": lambda x, at, c: c[1].index_copy_(0, at % 2, x[:1]),
    "a slice of a part": lambda x, at, c: c[1, :, 3:5].copy_(x[:, 3:5]),
    "a strided slice of a part": lambda x, at, c: c[1, :, 1:6:2].copy_(x[:, 1:6:2]),
    "columns of a part": lambda x, at, c: c[1, ..., 3:5].copy_(x[..., 3:5]),
    "a row": lambda x, at, c: c.view(-1, WIDTH)[5].copy_(x[0, 0]),
    "an element": _element,
    "parts of parts": _nested,
    "parts that are read": _two_steps,
}
"""What is written into a stack of tensors, of which each step writes a part."""


class TestStacks:
    @pytest.mark.parametrize("form", STACKED)
    def test_are_written_where_they_lie(self, form: str) -> None:
        def write(x: torch.Tensor, at: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            STACKED[form](x, at, c)
            return c[1] + 1

        for compiled in (
            tilewright.compile(write, tuple(self.given(4))),
            torch.compile(write, backend="tilewright", options={"strict": True}),
        ):
            # PyTorch's own `index_copy_` and `index_add_` count from the front only.
            for at in (4, 0, 8 if "rows" in form else -1):
                check(compiled, write, self.given(at))
            if not hasattr(compiled, "executable"):
                continue
            assert [update.input for update in updates(compiled)] == [2]

    def given(self, at: int) -> Inputs:
        drawn = torch.Generator().manual_seed(at + 1)
        shapes = [(HEADS, LENGTH, WIDTH), (3, HEADS, LENGTH, WIDTH)]
        x, stack = (torch.randn(shape, generator=drawn) for shape in shapes)
        return [x, torch.tensor([at]), stack]

    def test_rows_of_other_parts_are_out_of_range(self) -> None:
        def write(x: torch.Tensor, at: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            c[1][:, at] = x[:, :1]
            return c.sum()

        compiled = tilewright.compile(write, tuple(self.given(4)))
        given = self.given(4)
        given[1][0] = LENGTH
        before = given[2].clone()
        with pytest.raises(KernelAssertError, match="out of range"):
            compiled(*given)
        assert torch.equal(given[2], before)

    def test_of_other_orders_of_memory(self) -> None:
        def write(x: torch.Tensor, at: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            c[1][:, at] = x[:, :1]
            return c.sum()

        given = self.given(4)
        given[2] = given[2].transpose(2, 3).contiguous().transpose(2, 3)
        check(tilewright.compile(write, tuple(given)), write, given)

    def test_bytes(self) -> None:
        def write(x: torch.Tensor, at: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            c[1][:, at] = x[:, :1]
            c[0] = 7
            return c + 1

        given = self.given(4)
        given[0], given[2] = (tensor.mul(9).to(torch.uint8) for tensor in (given[0], given[2]))
        check(tilewright.compile(write, tuple(given)), write, given)
