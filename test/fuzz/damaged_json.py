"""Values of JSON with something replaced, removed, added or repeated: manifests and locks that parse and mean nothing."""

from __future__ import annotations

import copy
import random
from typing import Any

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 255, 0.5, 1e30, 2**31, 2**40, 2**63, -(2**63), 2**70),
    *("", "x", "é" * 50, "f32[4]", "../x", [], {}, [0], ["a"], {"a": 1}),
]


def damaged(value: Any, choose: random.Random) -> Any:
    """A copy of a dictionary with one to three places changed."""
    made = copy.deepcopy(value)
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        _change(made, choose)
    return made


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    keys = sorted(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


def _change(value: Any, choose: random.Random) -> None:
    places = _places(value)
    if not places:
        return
    box, key = choose.choice(places)
    draw = choose.random()
    if draw < 0.15:
        del box[key]
    elif draw < 0.25 and isinstance(box, dict):
        box["new"] = choose.choice(VALUES)
    elif draw < 0.35 and isinstance(box, list):
        box.append(copy.deepcopy(choose.choice(box)))
    elif draw < 0.5:
        other, at = choose.choice(places)
        box[key] = copy.deepcopy(other[at])
    elif draw < 0.65 and type(box[key]) in (int, float):
        box[key] += choose.choice((1, -1, 64, -64))
    else:
        box[key] = copy.deepcopy(choose.choice(VALUES))
