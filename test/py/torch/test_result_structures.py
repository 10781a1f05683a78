"""Results in containers and objects: built anew at every call, or refused by their type."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import tilewright
from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.signature import Tree


class Layer:
    """What a cache of one layer holds; made by `forward` alone."""

    def __init__(self, keys: torch.Tensor, name: str) -> None:
        self.keys, self.name = keys, name


class Cache:
    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.made = "by a model"

    def doubled(self) -> torch.Tensor:
        return self.layers[0].keys * 2


def _cache(x: torch.Tensor) -> tuple[torch.Tensor, Cache]:
    return x + 1, Cache([Layer(x * 3, "first")])


def test_objects_that_hold_tensors_are_made_at_every_call(tmp_path: Path) -> None:
    x = torch.randn(3)
    compiled = tilewright.compile(_cache, (x,))
    compiled.save(tmp_path / "cache.twm")
    for called in (compiled, tilewright.load(tmp_path / "cache.twm")):
        (_, first), (_, second) = called(x), called(x + 1)
        assert type(first) is Cache and type(first.layers[0]) is Layer
        assert (first.made, first.layers[0].name) == ("by a model", "first")
        torch.testing.assert_close(first.doubled(), x * 6)
        torch.testing.assert_close(second.doubled(), (x + 1) * 6)


def test_other_containers() -> None:
    x = torch.randn(3)
    assert torch.equal(tilewright.compile(lambda a: SimpleNamespace(b=a + 1), (x,))(x).b, x + 1)
    assert torch.equal(tilewright.compile(lambda a: defaultdict(list, b=a + 1), (x,))(x)["b"], x + 1)


class Finalised:
    def __del__(self) -> None:
        self.ran = True


@pytest.mark.parametrize(
    "type_name",
    (
        f"{__name__}:Finalised",
        "tempfile:_TemporaryFileCloser",
        "antigravity:Absent",
        "builtins:str",
        "os:system",
    ),
)
def test_a_file_makes_no_objects_that_run_code(type_name: str) -> None:
    tree = Tree.from_json(
        {
            "kind": "object",
            "keys": ["name"],
            "type": type_name,
            "children": [{"kind": "constant", "value": "x"}],
        }
    )
    assert tree.build([]) == SimpleNamespace(name="x")
    assert "antigravity" not in sys.modules


class Itself:
    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.me = x, self


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "deque": lambda x: deque([x + 1]),
    "set": lambda x: {x + 1},
    "function": lambda x: lambda: x + 1,
    "list_iterator": lambda x: iter([x + 1]),
    "Itself": lambda x: Itself(x + 1),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_results_that_cannot_be_made_again_are_refused_by_type(kind: str) -> None:
    with pytest.raises(tilewright.UnsupportedError, match=rf"a result of <class '.*{kind}'>"):
        tilewright.compile(REFUSED[kind], (torch.randn(3),))


def test_sparse_arguments_are_refused_at_the_call() -> None:
    compiled = tilewright.compile(lambda a: a * 2, (torch.eye(3),))
    with pytest.raises(ArgumentError, match=r"`a`: expected a dense tensor, .*sparse_coo"):
        compiled(torch.eye(3).to_sparse())


def test_what_a_hook_keeps_says_what_it_is() -> None:
    kept: dict[str, Any] = {}
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda module, given, result: kept.update(result=result))
    tilewright.compile(layer, (torch.randn(2, 3),))
    with pytest.raises(Exception, match="without data, which stood for one of a model's"):
        kept["result"].mean()


def test_gradients_without_grad_mode_say_what_to_do() -> None:
    def force(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return -torch.autograd.grad((x**2).sum(), x)[0]

    with pytest.raises(tilewright.UnsupportedError, match=r"torch\.enable_grad"):
        tilewright.compile(force, (torch.ones(3),))
    with torch.enable_grad():
        wanted = force(torch.ones(3))

    def enabled(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return force(x)

    torch.testing.assert_close(tilewright.compile(enabled, (torch.ones(3),))(torch.ones(3)), wanted)
