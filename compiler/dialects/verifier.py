"""The verifier of `tilewright.*` attributes: what MLIR itself cannot check, since no C++ dialect defines them.

| attribute | on | holds |
| --- | --- | --- |
| `tilewright.role`, `.name` | arguments | "weight", "input" or "packed"; the name that a caller uses |
| `tilewright.parameter` | inputs | nothing: it is a parameter of the model that is given at every call |
| `tilewright.updated_by` | inputs | the number of the result that a call leaves in its place |
| `tilewright.index`, `.offset` | packed arguments | which result of @prepack, and where it lies in bytes |
| `tilewright.operator`, `.unfused` | dispatches | what it computes; why neighbours stayed out |
| `tilewright.overwrites` | dispatches, and calls of them | the argument in whose memory the result is written |
| `tilewright.replaces` | dispatches | nothing: every element of the result is written over the one that it is computed from |
| `tilewright.schedule` | dispatches | the decision, see `Schedule` |
| `tilewright.predicted`, `.proposer`, `.unscheduled` | dispatches | what the decision should take, and what bounds it; who proposed it; why there is none |
| `tilewright.choice` | operations of a graph | what is chosen of them before dispatches, see `choice_attribute`, which checks it |
| `tilewright.choices` | modules | what is asked for of operations by name |
| `tilewright.tasks`, `.scratch_bytes`, `.asserts` | kernels | rTasks, bytes of scratch, messages of run-time checks |
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import lru_cache

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import functions, ir

PREFIX = "tilewright."
_ROLES = ("weight", "input", "packed")


def _is_text(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.StringAttr)


def _is_texts(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.ArrayAttr) and all(map(_is_text, attribute))


def _is_count(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.IntegerAttr) and ir.IntegerAttr(attribute).value >= 0


def _is_role(attribute: ir.Attribute) -> bool:
    return _is_text(attribute) and ir.StringAttr(attribute).value in _ROLES


def _is_prediction(attribute: ir.Attribute) -> bool:
    found = {named.name: named.attr for named in attribute} if isinstance(attribute, ir.DictAttr) else {}
    right = isinstance(found.get("us"), ir.FloatAttr) and isinstance(found.get("bound"), ir.StringAttr)
    return right and len(found) == 2


_Check = tuple[Callable[[ir.Attribute], bool], str]
_TEXT: _Check = (_is_text, "a string")
_TEXTS: _Check = (_is_texts, "an array of strings")
_COUNT: _Check = (_is_count, "an integer of at least 0")
_UNIT: _Check = (lambda attribute: isinstance(attribute, ir.UnitAttr), "a unit attribute")
_FUNCTION: dict[str, _Check] = {
    "operator": _TEXT,
    "unfused": _TEXTS,
    "unscheduled": _TEXT,
    "proposer": _TEXT,
    "predicted": (_is_prediction, "a dictionary of `us`, a float, and `bound`, a string"),
    "asserts": _TEXTS,
    "tasks": _COUNT,
    "scratch_bytes": _COUNT,
    "overwrites": _COUNT,
    "replaces": _UNIT,
}
_ARGUMENT: dict[str, _Check] = {
    "role": (_is_role, f"one of {', '.join(_ROLES)}"),
    "name": _TEXT,
    "parameter": _UNIT,
    "updated_by": _COUNT,
    "index": _COUNT,
    "offset": _COUNT,
}


def verify(op: ir.Operation) -> None:
    """Checks the functions of a module, or one function; raises PassError or ScheduleError with the place."""
    if op.name == "func.func":
        _function(op)
    elif op.name == "builtin.module":
        for function in functions(op.opview):
            _function(function)


def _function(function: ir.Operation) -> None:
    for name in function.attributes:
        if not name.startswith(PREFIX):
            continue
        attribute = function.attributes[name]
        if (name, attribute) in _right:
            continue
        if name == schedule_attribute.ATTRIBUTE:
            schedule_attribute.read(function)
        else:
            _check(function, "", name, attribute, _FUNCTION, (schedule_attribute.ATTRIBUTE,))
        _remember(name, attribute)
    if "arg_attrs" in function.attributes:
        attribute = function.attributes["arg_attrs"]
        if ("arg_attrs", attribute) not in _right:
            for number, attributes in enumerate(attribute):
                for named in ir.DictAttr(attributes):
                    if named.name.startswith(PREFIX):
                        _check(function, f"argument {number}: ", named.name, named.attr, _ARGUMENT)
            _remember("arg_attrs", attribute)


_right: set[tuple[str, ir.Attribute]] = set()
"""Attributes of functions that were right before: they stay while passes rewrite what they stand on."""
_MOST_RIGHT = 16384


def _remember(name: str, attribute: ir.Attribute) -> None:
    if len(_right) >= _MOST_RIGHT:
        _right.clear()
    _right.add((name, attribute))


@lru_cache(maxsize=1024)
def _slip_of(name: str, names: tuple[str, ...]) -> str | None:
    """The one of `names` that an unknown one looks like a slip of."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.92)
    return close[0] if close else None


def _check(
    function: ir.Operation,
    where: str,
    name: str,
    attribute: ir.Attribute,
    known: dict[str, _Check],
    others: tuple[str, ...] = (),
) -> None:
    check = known.get(name.removeprefix(PREFIX))
    if check is None:
        # Other names are somebody's own, unless they look like a slip.
        meant = _slip_of(name, (*(f"{PREFIX}{key}" for key in known), *others))
        if meant:
            raise PassError(f"{where}unknown attribute `{name}`; did you mean `{meant}`?", function.location)
        return
    holds, expected = check
    if not holds(attribute):
        raise PassError(f"{where}`{name}`: expected {expected}, found {attribute}", function.location)
