"""The options of `tilewright.compile`, with what each may be: checked before anything is compiled."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.compiler.dialects.precision import PRECISIONS
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.nouns.choices import Choices
from tilewright.compiler.plugins import load_installed
from tilewright.compiler.tuning.cost_models.registry import make_cost_model
from tilewright.compiler.tuning.lockfile import Lock
from tilewright.compiler.tuning.search.strategies import strategy_named
from tilewright.runtime.program import DENORMALS

OPT_LEVELS = ("O0", "O1", "O2", "O3")
USUAL_BUDGET_S = 60.0
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class _Option:
    """What is expected of a value, which `read` gives as the compiler has it; ValueError for another one."""

    expected: str
    read: Callable[[Any], Any]


def _one_of(*values: Any) -> _Option:
    def read(value: Any) -> Any:
        if not any(value is known or (isinstance(value, str) and value == known) for known in values):
            raise ValueError
        return value

    listed = [str(value) for value in values]
    text = f"{', '.join(listed[:-1])} or {listed[-1]}" if len(listed) < 4 else f"one of {', '.join(listed)}"
    return _Option(text, read)


def seconds_of(budget: Any) -> float:
    """The seconds of `90`, `90s`, `10m` or `1h`; raises ValueError for anything else, and for no time."""
    if isinstance(budget, bool) or not isinstance(budget, (int, float, str)):
        raise ValueError
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\d+)?)\s*([a-z]*)\s*", str(budget))
    if found is None or found.group(2) not in _UNITS_S:
        raise ValueError
    seconds = float(found.group(1)) * _UNITS_S[found.group(2)]
    if not 0 < seconds < math.inf:
        raise ValueError
    return seconds


def _integer(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or value < least:
            raise ValueError
        return value

    return read


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _cost_model(value: Any) -> str:
    make_cost_model(_name(value))
    return value


def _choices(value: Any) -> dict | None:
    return None if value is None else dict(Choices.of(value).values)


def _lock(value: Any) -> str:
    """A lock as its text, so that packages are kept under what it says."""
    if isinstance(value, Lock):
        return value.to_text()
    if isinstance(value, str) and value.startswith("{"):
        return Lock.from_text(value).to_text()
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError
    return Lock.read(Path(value)).to_text()


_ANY_LEVEL = {
    "choices": _Option("a mapping or the path of a JSON file", _choices),
    "cuda_graph": _one_of(True, False, "auto", None),
    "denormals": _one_of(*DENORMALS),
    "lock": _Option("the path of a lockfile, or a Lock", _lock),
    "opt": _one_of(*OPT_LEVELS),
    "precision": _one_of(*PRECISIONS),
    "winograd": _one_of(True, False),
}
_SEARCHING = {
    "bitwise": _one_of(True, False),
    "budget": _Option("seconds > 0, or a time like 90s, 10m or 1h", seconds_of),
    "cost_model": _Option("the name of a cost model", _cost_model),
    "patience": _Option("an integer >= 1", _integer(1)),
    "resume": _one_of(True, False),
    "seed": _Option("an integer >= 0", _integer(0)),
    "strategy": _Option("the name of a strategy", lambda value: strategy_named(_name(value)).name),
    "trials": _Option("an integer >= 1", _integer(1)),
}
_USUAL = {"opt": "O0", "precision": "f32", "winograd": True, "denormals": "keep"}


def check_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options with their defaults; raises TilewrightError for an unknown one or a bad value."""
    given = {**_USUAL, **(options or {})}
    if given.keys() & {"cost_model", "strategy"}:
        load_installed()  # the name may be that of a plugin's
    known = {**_ANY_LEVEL, **_SEARCHING}
    for name in sorted(given):
        if name not in known:
            raise TilewrightError(
                f"unknown option `{name}`; the options are: {', '.join(sorted([*known, 'target']))}, and strict under "
                "torch.compile"
            )
        try:
            given[name] = known[name].read(given[name])
        except ValueError:
            raise TilewrightError(f"{name}: expected {known[name].expected}, found `{given[name]}`") from None
    if given["opt"] == "O3":
        warnings.warn("opt O3: layouts are not searched yet, compiled as O2", stacklevel=3)
        given["opt"] = "O2"
    if given["opt"] != "O2":
        for name in sorted(given.keys() & _SEARCHING):
            raise TilewrightError(
                f"{name}: opt {given['opt']} searches nothing; leave the option out, or ask for opt O2"
            )
    elif "budget" not in given and "trials" not in given:
        given["budget"] = USUAL_BUDGET_S
    if "lock" in given and given.get("choices") is not None:
        raise TilewrightError("choices: the lock says what is chosen; leave one of them out")
    if "lock" in given and given["opt"] != "O0":
        raise TilewrightError(
            f"lock: it says which schedules are used, and opt {given['opt']} would measure others; leave one of them out"
        )
    return given
