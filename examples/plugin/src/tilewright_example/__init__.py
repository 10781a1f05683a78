"""A plugin of tilewright: the cost model `nearest`, the strategy `nearest-first`, and the pass `count-dispatches`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.compiler.tuning.search.annealing import Annealing
from tilewright.compiler.tuning.search.strategies import Strategy
from tilewright_example.count_dispatches import CountDispatches
from tilewright_example.nearest import Nearest

if TYPE_CHECKING:
    from tilewright.compiler.plugins import Registration


def register(plugin: Registration) -> None:
    """What tilewright calls with a place to put things."""
    plugin.cost_model("nearest", lambda seed: Nearest())
    plugin.strategy(Strategy("nearest-first", Annealing, "nearest"))
    plugin.compiler_pass(CountDispatches)
