"""The verifier of `tilewright.*` attributes: what MLIR itself cannot check, since no C++ dialect defines them.

| attribute | on | holds |
| --- | --- | --- |
| `tilewright.role`, `.name` | arguments | "weight", "input" or "packed"; the name that a caller uses |
| `tilewright.parameter` | inputs | nothing: it is a parameter of the model that is given at every call |
| `tilewright.index`, `.offset` | packed arguments | which result of @prepack, and where it lies in bytes |
| `tilewright.operator`, `.unfused` | dispatches | what it computes; why neighbours stayed out |
| `tilewright.schedule` | dispatches | the decision, see `Schedule` |
| `tilewright.predicted`, `.proposer`, `.unscheduled` | dispatches | what the decision should take, and what bounds it; who proposed it; why there is none |
| `tilewright.choice` | operations of a graph | what is chosen of them before dispatches, see `choice_attribute`, which checks it |
| `tilewright.choices` | modules | what is asked for of operations by name |
| `tilewright.tasks`, `.scratch_bytes`, `.asserts` | kernels | rTasks, bytes of scratch, messages of run-time checks |
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

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
_FUNCTION: dict[str, _Check] = {
    "operator": _TEXT,
    "unfused": _TEXTS,
    "unscheduled": _TEXT,
    "proposer": _TEXT,
    "predicted": (_is_prediction, "a dictionary of `us`, a float, and `bound`, a string"),
    "asserts": _TEXTS,
    "tasks": _COUNT,
    "scratch_bytes": _COUNT,
}
_ARGUMENT: dict[str, _Check] = {
    "role": (_is_role, f"one of {', '.join(_ROLES)}"),
    "name": _TEXT,
    "parameter": (lambda attribute: isinstance(attribute, ir.UnitAttr), "a unit attribute"),
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
        if name == schedule_attribute.ATTRIBUTE:
            _check_schedule(function)
        elif name.startswith(PREFIX):
            _check(function, "", name, function.attributes[name], _FUNCTION, (schedule_attribute.ATTRIBUTE,))
    if "arg_attrs" in function.attributes:
        for number, attributes in enumerate(function.attributes["arg_attrs"]):
            for named in ir.DictAttr(attributes):
                if named.name.startswith(PREFIX):
                    _check(function, f"argument {number}: ", named.name, named.attr, _ARGUMENT)


_read: set[ir.Attribute] = set()
"""Schedules that were read before: the attributes stay while passes rewrite what they stand on."""
_MOST_READ = 4096


def _check_schedule(function: ir.Operation) -> None:
    attribute = function.attributes[schedule_attribute.ATTRIBUTE]
    if attribute in _read:
        return
    schedule_attribute.read(function)
    if len(_read) >= _MOST_READ:
        _read.clear()
    _read.add(attribute)


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
        names = [*(f"{PREFIX}{key}" for key in known), *others]
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.92)
        if close:
            raise PassError(
                f"{where}unknown attribute `{name}`; did you mean `{close[0]}`?", function.location
            )
        return
    holds, expected = check
    if not holds(attribute):
        raise PassError(f"{where}`{name}`: expected {expected}, found {attribute}", function.location)
