"""Plugins: cost models, explorers, strategies, targets and passes that come from outside of the package.

    def register(plugin):                         # in a module that --load-plugin names, or that an entry point does
        plugin.cost_model("my-model", make)       # make(seed) -> CostModel
        plugin.compiler_pass(MyPass)

What a plugin adds is checked whole before any of it is there: one that fails adds nothing. Everything that goes wrong is a
PluginError that names it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any

from tilewright.compiler import debug
from tilewright.compiler.errors import PluginError
from tilewright.compiler.pipeline import registry
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.target import PRESETS, Target
from tilewright.compiler.tuning.cost_models.registry import COST_MODELS, MakeCostModel
from tilewright.compiler.tuning.search.explorer import MakeExplorer
from tilewright.compiler.tuning.search.strategies import EXPLORERS, STRATEGIES, Strategy

GROUP = "tilewright.plugins"
"""The entry points that name installed plugins: each is a function that takes a `Registration`."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Registration:
    """What one plugin adds, by kind and name. Names are in kebab-case, and no one else's."""

    def __init__(self, plugin: str):
        self.plugin = plugin
        self._added: list[tuple[str, str, dict[str, Any], Any]] = []

    def cost_model(self, name: str, make: MakeCostModel) -> None:
        """A cost model: `make(seed)` gives one that knows nothing yet (docs/cost-models.md)."""
        self._add("cost model", name, COST_MODELS, make)

    def explorer(self, name: str, make: MakeExplorer) -> None:
        """A way through a space: `make()` gives one that has proposed nothing yet (docs/search.md)."""
        self._add("explorer", name, EXPLORERS, make)

    def strategy(self, strategy: Strategy) -> None:
        """An explorer with a cost model and a batch, for `--strategy`."""
        if not isinstance(strategy, Strategy):
            raise PluginError(f"plugin `{self.plugin}`: expected a Strategy, found `{strategy!r:.60}`")
        self._add("strategy", strategy.name, STRATEGIES, strategy)

    def target(self, name: str, make: Callable[[], Target]) -> None:
        """A machine: `make()` describes it (docs/adding-a-target.md)."""
        self._add("target", name, PRESETS, make)

    def compiler_pass(self, made: type[Pass]) -> None:
        """A pass, for pipelines of tilewright-opt (docs/adding-a-pass.md)."""
        if not (isinstance(made, type) and issubclass(made, Pass)):
            raise PluginError(f"plugin `{self.plugin}`: expected a class of Pass, found `{made!r:.60}`")
        taken = dict.fromkeys(registry.names())
        self._add("pass", made.name(), registry.ADDED, made, taken)

    def _add(
        self, kind: str, name: str, table: dict[str, Any], made: Any, taken: Iterable[str] | None = None
    ) -> None:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise PluginError(f"plugin `{self.plugin}`: {kind} `{name}`: expected a name in kebab-case")
        if not callable(made) and not isinstance(made, Strategy):
            raise PluginError(
                f"plugin `{self.plugin}`: {kind} `{name}`: expected a function, found `{made!r:.60}`"
            )
        if name in (table if taken is None else taken) or any(
            n == name and t is table for _, n, t, _ in self._added
        ):
            raise PluginError(
                f"plugin `{self.plugin}`: {kind} `{name}`: there is one of that name; choose another name"
            )
        self._added.append((kind, name, table, made))

    def _commit(self) -> None:
        for kind, name, table, made in self._added:
            table[name] = made
            debug.log(1, f"plugin {self.plugin}: {kind} `{name}`")


def load(named: str) -> None:
    """Loads a plugin, `FILE.py` or the name of a module that can be imported; one that is loaded already is not again."""
    _load(str(Path(named).resolve()) if named.endswith(".py") else named)


@cache
def _load(named: str) -> None:
    name = Path(named).name if named.endswith(".py") else named
    module = _module(name, named)
    if not callable(getattr(module, "register", None)):
        raise PluginError(f"plugin `{name}`: it has no function `register(plugin)`")
    _register(name, module.register)


@cache
def load_installed() -> None:
    """Loads what the installed packages name as entry points of `tilewright.plugins`, in the order of their names."""
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            register = point.load()
        except Exception as error:
            raise PluginError(f"plugin `{point.name}` (`{point.value}`): {_told(error)}") from error
        _register(point.name, register)


def _module(name: str, named: str) -> Any:
    try:
        if not named.endswith(".py"):
            return import_module(named)
        if not Path(named).is_file():
            raise PluginError(f"plugin `{name}`: there is no file `{named}`")
        # What a class is pickled or documented by is found under the module's name.
        spec = util.spec_from_file_location(f"tilewright_plugin_{Path(named).stem}", named)
        assert spec is not None and spec.loader is not None
        module = util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(f"plugin `{name}`: {_told(error)}") from error


def _register(name: str, register: Callable[[Registration], None]) -> None:
    registration = Registration(name)
    try:
        register(registration)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(f"plugin `{name}`: {_told(error)}") from error
    registration._commit()


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
