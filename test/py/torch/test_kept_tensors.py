"""Models that keep tensors for their next call: tracing leaves nothing behind in what they hold."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tilewright


class Keeping(nn.Module):
    """Adds rows of a table that it looks up once, and keeps where `keep` says."""

    def __init__(self, kept: Any, keep: Callable[[Any, torch.Tensor], None]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 4))
        self.kept, self.keep = kept, keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.kept:
            self.keep(self.kept, self.table[torch.tensor([3, 0, 1])])
        (rows,) = self.kept.values() if isinstance(self.kept, dict) else self.kept
        return x + rows


class Nested(Keeping):
    """Keeps them in a container of a container."""

    def __init__(self) -> None:
        super().__init__(None, lambda kept, rows: kept.update(rows=rows))
        self.caches = ({}, [{}])
        self.kept = self.caches[1][0]


HOLDERS: dict[str, Callable[[], Keeping]] = {
    "dict": lambda: Keeping({}, lambda kept, rows: kept.update(rows=rows)),
    "ordered": lambda: Keeping(OrderedDict(), lambda kept, rows: kept.update(rows=rows)),
    "default": lambda: Keeping(defaultdict(list), lambda kept, rows: kept.update(rows=rows)),
    "list": lambda: Keeping([], lambda kept, rows: kept.append(rows)),
    "deque": lambda: Keeping(deque(maxlen=2), lambda kept, rows: kept.append(rows)),
    "set": lambda: Keeping(set(), lambda kept, rows: kept.add(rows)),
    "nested": Nested,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_a_model_keeps_is_as_before(holder: str) -> None:
    model, x = HOLDERS[holder]().eval(), torch.randn(3, 4)
    compiled = tilewright.compile(model, (x,))
    assert not model.kept
    with torch.no_grad():
        wanted = model(x)
        assert torch.equal(compiled(x), wanted)
        # Now with rows that eager PyTorch kept.
        assert torch.equal(tilewright.compile(model, (x,))(x), wanted)
        assert torch.equal(model(x), wanted)
    assert len(model.kept) == 1


def test_a_trace_that_fails_leaves_nothing_behind() -> None:
    """The next one that is tried meets no tensors of the first."""

    class Failing(Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y.nonzero() if self.training else y

    model, x = Failing({}, lambda kept, rows: kept.update(rows=rows)), torch.randn(3, 4)
    with pytest.raises(tilewright.UnsupportedError, match="depends on values"):
        tilewright.compile(model, (x,))
    assert not model.kept
    with torch.no_grad():
        assert torch.equal(tilewright.compile(model.eval(), (x,))(x), model(x))
