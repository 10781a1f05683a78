"""Models that keep tensors for their next call: tracing leaves nothing behind in what they hold."""

from __future__ import annotations

import copy
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


class Averages(nn.Module):
    """Assigns a buffer anew at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x
        return self.mean * 2


class Counting(nn.Module):
    """Assigns a number, and a tensor that is there for others to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.last = 0, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last = x.sin()
        return self.last + 1


class Distances(nn.Module):
    """Keeps a table of its longest input, and cuts it for others."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.randn(()))
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        if self.table is not None and self.table.shape[0] >= n:
            return x + self.table[-n:]
        self.table = torch.arange(n) * self.slope
        return x + self.table


class Scaled(nn.Module):
    """Makes a weight of a parameter at every call, as spectral norm does, and begins with a view of that."""

    def __init__(self) -> None:
        super().__init__()
        self.original = nn.Parameter(torch.randn(3))
        self.weight = self.original.data

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight = self.original / self.original.norm()
        return x * self.weight


@pytest.mark.parametrize("model", (Averages, Counting, Distances, Scaled))
def test_what_a_model_assigns_is_state_or_matters_to_no_other_call(model: type[nn.Module]) -> None:
    ours, eager, x = model(), model(), torch.randn(3)
    ours.load_state_dict(eager.state_dict())
    compiled = tilewright.compile(ours, (x,))
    for _ in range(3):
        torch.testing.assert_close(compiled(x), eager(x))
    torch.testing.assert_close(ours.state_dict(), eager.state_dict())


def test_spectral_norm_updates_its_vectors() -> None:
    net = nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(4, 5)), nn.ReLU(), nn.utils.spectral_norm(nn.Linear(5, 2))
    )
    eager, x = copy.deepcopy(net), torch.randn(3, 4)
    compiled = tilewright.compile(net, (x,))
    for _ in range(3):
        torch.testing.assert_close(compiled(x), eager(x))
    torch.testing.assert_close(net.state_dict(), eager.state_dict())


class Cache:
    """An object that a model keeps tensors in."""

    def __init__(self) -> None:
        self.keys = torch.zeros(3)


class Remembering(nn.Module):
    """Computes with what `step` kept in the call before."""

    def __init__(self, step: Callable[[Remembering, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.step, self.kept, self.cache, self.count = step, None, Cache(), 0
        self.register_buffer("delayed", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def _first_or_sum(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.kept = x if model.kept is None else model.kept + x
    return model.kept * 2


def _grown(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.kept = x if model.kept is None else torch.cat([model.kept, x])
    return model.kept.sum()


def _in_an_object(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.cache.keys = model.cache.keys + x
    return model.cache.keys * 2


def _counted(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.count += 1
    return x * model.count


def _returned(model: Any, x: torch.Tensor) -> torch.Tensor:
    before, model.delayed = model.delayed, x * 2
    return before


REMEMBERED = {"kept": _first_or_sum, "kept ": _grown, "cache.keys": _in_an_object, "count": _counted}


@pytest.mark.parametrize("name", REMEMBERED)
def test_what_the_next_call_computes_with_is_refused_by_name(name: str) -> None:
    model, x = Remembering(REMEMBERED[name]), torch.randn(3)
    with pytest.raises(
        tilewright.UnsupportedError, match=rf"`{name.strip()}` at .* its next call computes with"
    ):
        tilewright.compile(model, (x,))
    assert model.kept is None and model.count == 0 and not model.cache.keys.any()
    torch.testing.assert_close(model(x), Remembering(REMEMBERED[name])(x))


def test_a_buffer_that_is_returned_and_assigned_anew_is_refused() -> None:
    with pytest.raises(tilewright.UnsupportedError, match=r"`delayed` .* return a clone of it"):
        tilewright.compile(Remembering(_returned), (torch.randn(3),))


def test_functions_that_remember_are_refused() -> None:
    kept = [torch.zeros(3)]

    def summed(x: torch.Tensor) -> torch.Tensor:
        kept[0] = kept[0] + x
        return kept[0] * 1

    with pytest.raises(tilewright.UnsupportedError, match=r"`kept\.0` at .* its next call computes with"):
        tilewright.compile(summed, (torch.randn(3),))


def _written(x: torch.Tensor, cache: dict[str, torch.Tensor]) -> torch.Tensor:
    cache["sum"] = cache["sum"] + x
    return cache["sum"] * 1


def _appended(x: torch.Tensor, found: list[torch.Tensor]) -> torch.Tensor:
    found.append(x * 2)
    return x + 1


@pytest.mark.parametrize(("function", "given"), ((_written, {"sum": torch.zeros(3)}), (_appended, [])))
def test_tensors_put_into_arguments_are_refused(function: Callable[..., Any], given: Any) -> None:
    with pytest.raises(tilewright.UnsupportedError, match="its caller would not see"):
        tilewright.compile(function, (torch.randn(3), given))
