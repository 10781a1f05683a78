"""Draws random ONNX graphs: a seed is a graph, in every process and on every machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from fuzz.generator import NoFit
from fuzz.graph import Graph
from fuzz.graph_growth import Growth

FAMILIES = ("elementwise", "movement", "reductions", "windows", "products", "norms", "control", "quantised")


@dataclass(frozen=True)
class GraphOperator:
    """Adds nodes to a growing graph."""

    name: str
    grow: Callable[[Growth], object]
    weight: float


_registered: list[GraphOperator] = []


def node(weight: float = 1.0) -> Callable:
    """Registers a function that adds nodes, to be drawn by its weight."""

    def register(grow: Callable[[Growth], object]) -> Callable[[Growth], object]:
        _registered.append(GraphOperator(grow.__name__, grow, weight))
        return grow

    return register


def graph_operators() -> list[GraphOperator]:
    """All operators of all families."""
    for family in FAMILIES:
        import_module(f"fuzz.graph_{family}")
    return _registered


def draw_graph(seed: int) -> Graph:
    """The graph of a seed."""
    found = graph_operators()
    weights = [operator.weight for operator in found]
    growth = Growth(seed)
    wanted, tries = growth.choose.choice((1, 1, 2, 2, 3, 4, 6)), 0
    made = 0
    while (made < wanted or not growth.unused) and tries < 80:
        tries += 1
        with contextlib.suppress(NoFit):
            growth.choose.choices(found, weights)[0].grow(growth)
            made += 1
    return growth.graph()
