"""The registry of operators and patterns that programs are grown from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from fuzz.generator import Growth

FAMILIES = (
    "elementwise",
    "casts",
    "reductions",
    "movement",
    "joins",
    "indexing",
    "products",
    "mutation",
    "patterns",
    "numbers",
    "rearranged",
    "statistics",
    "layers",
    "special",
    "apart",
    "sampled",
)


@dataclass(frozen=True)
class Operator:
    """Adds statements to a growing program; `plain` ones may stand where gradients are taken."""

    name: str
    grow: Callable[[Growth], object]
    weight: float
    plain: bool


_registered: list[Operator] = []


def operator(weight: float = 1.0, plain: bool = True) -> Callable:
    """Registers a function that adds statements, to be drawn by its weight."""

    def register(grow: Callable[[Growth], object]) -> Callable[[Growth], object]:
        _registered.append(Operator(grow.__name__, grow, weight, plain))
        return grow

    return register


def operators() -> list[Operator]:
    """All operators of all families, in the families' order, whichever were imported first: draws depend on it."""
    order = {
        import_module(f"fuzz.operators_{family}").__name__: number for number, family in enumerate(FAMILIES)
    }
    return sorted(_registered, key=lambda known: order[known.grow.__module__])
