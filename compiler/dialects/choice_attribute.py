"""Choices in the IR: what is decided of an operation before dispatches exist, as `tilewright.choice` on it.

    linalg.generic {tilewright.choice = {algorithm = "winograd4", block = 32 : i64}} ins(%x, %w) ...

| field | on | holds |
| --- | --- | --- |
| `name` | any operation | what a set of choices calls it; equal operations in equal places share one |
| `algorithm` | convolutions | "direct", "winograd2" or "winograd4" |
| `block` | contractions | elements per block that one operand is stored in, 0 for no blocks |
| `copy` | contractions of no weight | whether that operand is copied into blocks at every call |
| `joins` | whatever others read | whether it is computed in the dispatch of those that read its result |

The pass that chooses a field writes it where it is missing; the pass that carries it out takes it away again, or refuses
it with the operation, the field and the rule.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from tilewright.compiler.errors import PassError
from tilewright.compiler.ir import ir

ATTRIBUTE = "tilewright.choice"
ASKED = "tilewright.choices"
"""On a module: values by `name.field` that are to be written on its operations."""
DIRECT, WINOGRAD = "direct", "winograd"

Value = str | int | bool


def _is_flag(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.BoolAttr)


def _is_block(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.IntegerAttr) and ir.IntegerAttr(attribute).value >= 0


def _is_algorithm(attribute: ir.Attribute) -> bool:
    if not isinstance(attribute, ir.StringAttr):
        return False
    text = ir.StringAttr(attribute).value
    return text == DIRECT or (text.startswith(WINOGRAD) and text.removeprefix(WINOGRAD).isdecimal())


_FIELDS: dict[str, tuple[Callable[[ir.Attribute], bool], str]] = {
    "algorithm": (_is_algorithm, f'"{DIRECT}", or "{WINOGRAD}" with the outputs of a tile'),
    "block": (_is_block, "an integer of at least 0"),
    "copy": (_is_flag, "true or false"),
    "joins": (_is_flag, "true or false"),
    "name": (lambda attribute: isinstance(attribute, ir.StringAttr), "a string"),
}

CHOSEN = tuple(name for name in _FIELDS if name != "name")
"""The fields that are chosen."""


def read(op: ir.Operation) -> dict[str, Value]:
    """The fields of an operation's choice, none where it has no such attribute; raises PassError for malformed ones."""
    if ATTRIBUTE not in op.attributes:
        return {}
    attribute = op.attributes[ATTRIBUTE]
    if not isinstance(attribute, ir.DictAttr):
        raise PassError(f"`{ATTRIBUTE}`: expected a dictionary, found {attribute}", op.location)
    found: dict[str, Value] = {}
    for named in ir.DictAttr(attribute):
        if named.name not in _FIELDS:
            close = difflib.get_close_matches(named.name, _FIELDS, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"its fields are {', '.join(_FIELDS)}"
            raise PassError(f"`{ATTRIBUTE}`: unknown field `{named.name}`; {hint}", op.location)
        holds, expected = _FIELDS[named.name]
        if not holds(named.attr):
            raise PassError(
                f"`{ATTRIBUTE}`: {named.name}: expected {expected}, found {named.attr}", op.location
            )
        found[named.name] = named.attr.value
    return found


def write(op: ir.Operation, **fields: Value) -> None:
    """Adds fields to an operation's choice, in place of those of the same names."""
    _replace(op, {**read(op), **fields})


def drop(op: ir.Operation, *names: str) -> None:
    """Takes fields away from an operation's choice: they are carried out."""
    _replace(op, {name: value for name, value in read(op).items() if name not in names})


def refused(op: ir.Operation, field: str, rule: str) -> str:
    """What is wrong with a field: `matmul_2.block = 20: a rule`, or with the operation's kind where it has no name."""
    found = read(op)
    value = str(found[field]).lower() if isinstance(found[field], bool) else found[field]
    return f"{found.get('name', op.name)}.{field} = {value}: {rule}"


def ask_choices(module: ir.Module, values: Mapping[str, int | str]) -> None:
    """Writes down what is asked for by name; with no values, that operations are named."""
    with module.context:
        module.operation.attributes[ASKED] = ir.DictAttr.get({n: _attribute(v) for n, v in values.items()})


def asked(module: ir.Operation) -> dict[str, int | str]:
    """What a module asks for; raises PassError where the attribute is malformed."""
    if ASKED not in module.attributes:
        return {}
    attribute = module.attributes[ASKED]
    named = list(attribute) if isinstance(attribute, ir.DictAttr) else None
    if named is None or not all(
        isinstance(n.attr, (ir.IntegerAttr, ir.BoolAttr, ir.StringAttr)) for n in named
    ):
        raise PassError(
            f"`{ASKED}`: expected a dictionary of numbers and words, found {attribute}", module.location
        )
    return {n.name: n.attr.value for n in named}


def ask(op: ir.Operation, field: str, value: int | str) -> None:
    """Writes one field that was asked for by name; raises PassError where it holds no such value."""
    is_flag = _FIELDS[field][0] is _is_flag
    with op.context:
        attribute = _attribute(bool(value) if is_flag and value in (0, 1) else value)
        name = read(op)["name"]
    holds, expected = _FIELDS[field]
    if not holds(attribute):
        wanted = "0 or 1" if is_flag else expected
        raise PassError(f"{name}.{field} = {value}: expected {wanted}", op.location)
    write(op, **{field: value if not is_flag else bool(value)})


def _replace(op: ir.Operation, fields: dict[str, Value]) -> None:
    if fields:
        with op.context:
            op.attributes[ATTRIBUTE] = ir.DictAttr.get({n: _attribute(v) for n, v in fields.items()})
    elif ATTRIBUTE in op.attributes:
        del op.attributes[ATTRIBUTE]


def _attribute(value: Value) -> ir.Attribute:
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
