"""The space of what is chosen of a graph before dispatches exist: algorithms, blocks, copies and fusion, by name.

    space = choice_space(module, target)     // of an imported module, which stays as it is
    space.schedule(point)                    // Choices: kept as JSON, given to `compile(..., choices=...)`

Knobs are `conv2d_3.algorithm`, `matmul_2.copy`, `matmul_2.block` and `add_4.joins`, as `name-operations` names operations:
equal ones in equal places share a knob. The default is what is chosen without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler import phases
from tilewright.compiler.analysis.fusion_groups import RULES, Grouping, IllegalChoiceError
from tilewright.compiler.analysis.fusion_places import fusion_places
from tilewright.compiler.analysis.packed_operand import PackedOperand
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.weight_flow import static_values
from tilewright.compiler.analysis.winograd_form import Convolution2d
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.dialects.choice_attribute import DIRECT, WINOGRAD
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.choices import Choices
from tilewright.compiler.nouns.space import KEPT, Columns, Constraint, Knob, Rule, Space, Value
from tilewright.compiler.passes.dispatch.outline_dispatches import OutlineDispatches
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.winograd_choice import OUTPUTS

_BLOCKED = "a filter that is not stored r, s, c, f has to be in blocks for its transforms"


@dataclass(frozen=True)
class _Knobs:
    """Knobs of one kind, with their values by default and what they have to keep to."""

    knobs: tuple[Knob, ...]
    default: Mapping[str, Value]
    constraints: tuple[Constraint, ...] = ()


def choice_space(module: ir.Module, target: Target) -> Space[Choices]:
    """The space of an imported module's choices on one target."""
    with module.context, ir.Location.unknown(module.context):
        own = ir.Module.parse(module.operation.get_asm(enable_debug_info=True))
        choice_attribute.ask_choices(own, {})
        phases.run_phases(own, target, "graph", "layout")
        parts = [_storage(op, static, target) for op, static in _named(own).values()]
        phases.run_phases(own, target, "packing", "packing")
        parts += _fusion(own, target)
    knobs = tuple(knob for part in parts for knob in part.knobs)
    default = {name: value for part in parts for name, value in part.default.items()}

    def read(choices: Choices) -> Mapping[str, Value]:
        unknown = sorted(set(choices.values) - {knob.name for knob in knobs})
        if unknown:
            raise ScheduleError(f"{unknown[0]}: there is no such knob")
        values: dict[str, Value] = {}
        for knob in knobs:
            if knob.when is None or values.get(knob.when[0]) == knob.when[1]:
                usual = default.get(knob.name, knob.domain[knob.usual])
                values[knob.name] = choices.values.get(knob.name, usual)
        return values

    constraints = tuple(constraint for part in parts for constraint in part.constraints)
    return Space(knobs, constraints, lambda values: Choices(dict(values)), read, Choices(default))


def _named(module: ir.Module) -> dict[str, tuple[ir.Operation, set[ir.Value]]]:
    """By name the first operation of @main that has it, with the values that depend on weights alone."""
    found: dict[str, tuple[ir.Operation, set[ir.Value]]] = {}
    main = _main(module)
    static = static_values(main)
    for view in main.regions[0].blocks[0].operations:
        name = choice_attribute.read(view.operation).get("name")
        if name is not None:
            found.setdefault(str(name), (view.operation, static))
    return found


def _main(module: ir.Module) -> ir.Operation:
    return next(f for f in functions(module) if ir.StringAttr(f.attributes["sym_name"]).value == "main")


def _storage(op: ir.Operation, static: set[ir.Value], target: Target) -> _Knobs:
    """The algorithm of an operation and the blocks of its operand, where `layout` has chosen them."""
    choice, structured = choice_attribute.read(op), Structured.read(op)
    name = str(choice["name"])
    knobs: list[Knob] = []
    default: dict[str, Value] = {}
    constraints: list[Constraint] = []
    packed = None
    if structured is not None and ("block" in choice or "copy" in choice):
        packed = PackedOperand.read(structured, static, target.vector_bits, target.registers_per_thread)
    if packed is not None and "copy" in choice:
        knobs.append(Knob(f"{name}.copy", (0, 1)))
        default[f"{name}.copy"] = int(choice["copy"])
        usual = packed.blocks.index(int(choice["block"])) if "block" in choice else len(packed.blocks) // 2
        knobs.append(Knob(f"{name}.block", packed.blocks, (f"{name}.copy", 1), usual))
        if choice["copy"]:
            default[f"{name}.block"] = int(choice["block"])
    elif packed is not None:
        knobs.append(Knob(f"{name}.block", (0, *packed.blocks)))
        default[f"{name}.block"] = int(choice["block"])
    if "algorithm" in choice:
        convolution = Convolution2d.read(op, int(choice.get("block", 0)))
        fit = [m for m in sorted(OUTPUTS) if convolution is not None and convolution.refuses(m) is None]
        knobs.append(Knob(f"{name}.algorithm", (DIRECT, *(f"{WINOGRAD}{m}" for m in fit))))
        default[f"{name}.algorithm"] = str(choice["algorithm"])
        if packed is not None and Convolution2d.read(op) is None:
            constraints.append(_in_blocks(name))
    return _Knobs(tuple(knobs), default, tuple(constraints))


def _in_blocks(name: str) -> Constraint:
    """Transforms are of filters that are stored r, s, c, f within a block, whatever the order without blocks is."""

    def broken(columns: Columns) -> np.ndarray:
        wrong = (columns[f"{name}.algorithm"] != DIRECT) & (columns[f"{name}.block"] == 0)
        return np.where(wrong, 0, KEPT)

    return Constraint((Rule(f"{name}.algorithm", _BLOCKED),), broken)


def _fusion(module: ir.Module, target: Target) -> list[_Knobs]:
    """Who joins those that read it, for every kind of place once."""
    grouping = Grouping(module, _main(module), OutlineDispatches.for_target(target))
    choices = {n: choice_attribute.read(op) for n, op in enumerate(grouping.ops)}
    found, seen = [], set()
    numbered = [(n, s) for n in range(len(grouping.ops)) if (s := grouping.read(n)) is not None]
    for place in fusion_places([s for _, s in numbered]).values():
        numbers = [numbered[at][0] for at in place]
        names = {n: str(choices[n]["name"]) for n in numbers if {"name", "joins"} <= choices[n].keys()}
        if names and not seen & set(names.values()):
            default: dict[str, Value] = {
                f"{name}.joins": int(choices[n]["joins"]) for n, name in names.items()
            }
            knobs = tuple(Knob(knob, (0, 1)) for knob in default)
            found.append(_Knobs(knobs, default, (_together(grouping, numbers, names),)))
        seen |= set(names.values())
    return found


def _together(grouping: Grouping, numbers: Sequence[int], names: Mapping[int, str]) -> Constraint:
    """Whether the operations of one place can join as they are asked to, told by grouping them so."""
    rules = tuple(Rule(f"{name}.joins", rule) for name in names.values() for rule in RULES)
    number_of = {(rule.field, rule.text): number for number, rule in enumerate(rules)}
    known: dict[tuple[int, ...], int] = {}

    def first_broken(joins: tuple[int, ...]) -> int:
        before = dict(grouping.joins)
        grouping.joins.update(dict(zip(names, map(bool, joins))))
        try:
            grouping.groups(numbers)
        except IllegalChoiceError as refused:
            name = choice_attribute.read(refused.op)["name"]
            return number_of[f"{name}.joins", refused.rule]
        finally:
            grouping.joins = before
        return KEPT

    def broken(columns: Columns) -> np.ndarray:
        asked = np.stack([columns[f"{name}.joins"] for name in names.values()], axis=1)
        found = np.full(len(asked), KEPT, dtype=np.int64)
        for point, row in enumerate(asked.tolist()):
            joins = tuple(row)
            if joins not in known:
                known[joins] = first_broken(joins)
            found[point] = known[joins]
        return found

    return Constraint(rules, broken)
