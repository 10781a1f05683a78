"""The operations of a workload, read off its body: loops over its axes, tensors that they read and write, arithmetic.

%0[a0, +a1] = (in0, 0.0) addf                     // the sum over a1: reads in0[a0, a1], writes %0[a0]
%1[a0, a1] = (in0, %0[a0]) divf                   // element-wise: reads in0[a0, a1] and %0[a0], writes out0[a0, a1]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term
from tilewright.compiler.nouns.workload import BITS, Operand, Workload

_HEAD = re.compile(r"%(\d+)\[(.*)\]")
_TERM = re.compile(r"a(\d+)(?: floordiv (\d+))?(?: mod (\d+))?(?: \* (-?\d+))?")
_OF_ONE = "+0"
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([\w<>]+)>")
RESULT = "out"
"""What the tensor that the workload writes is called; those that it reads are `in0`, `in1`, ... by their numbers."""
_OPEN, _CLOSED = "([{<", ")]}>"


@dataclass(frozen=True)
class Operation:
    """One operation on scalars: its name without the dialect, what it reads, `x0` or `v3`, and what it gives."""

    dialect: str
    name: str
    reads: tuple[str, ...]
    gives: str = ""


@dataclass(frozen=True)
class Statement:
    """One operation: its `loops`, axes of the workload, results' first and then those that it reduces over.

    `reads` and `result` are tensors with their index maps: `in0` of the workload by number, `%1` of another statement.
    `gathers` are the reads of which every point takes an element from anywhere. `arithmetic` are the operations on
    one point, in order; `label` names an operation that is no loop nest over scalars. `is_part` is a statement that computes
    the part of a padded tensor which its reader's windows slide over: its index map is how that reads it. `is_of_one` is a
    reduction over loops of one step, which the workload has no axes of.
    """

    loops: tuple[int, ...]
    reduction: tuple[int, ...]
    reads: tuple[Operand, ...]
    result: Operand
    arithmetic: tuple[Operation, ...]
    label: str = ""
    gathers: frozenset[str] = frozenset()
    places: tuple[str, ...] = ()
    text: str = ""
    is_part: bool = False
    is_of_one: bool = False

    @cached_property
    def parallel(self) -> tuple[int, ...]:
        return tuple(axis for axis in self.loops if axis not in self.reduction)

    def varying(self, axis: int | None) -> tuple[Operation, ...]:
        """The operations whose values change along an axis: others are computed once for all of its steps."""
        if axis is None:
            return self.arithmetic
        moving = {f"x{place}" for place, name in enumerate(self.places) if self._moves(name, axis)}
        found = []
        for op in self.arithmetic:
            if op.name == "index" or moving & set(op.reads) or not op.reads:
                moving.add(op.gives)
                found.append(op)
        return tuple(op for op in found if op.name not in ("index", "constant"))

    def _moves(self, name: str, axis: int) -> bool:
        """Whether what a block's argument is read from moves along an axis; a sum that is carried moves along all."""
        reads = [o for o in self.reads if o.name == name]
        return not reads or any(axis in o.axes for o in reads)

    @property
    def reduces(self) -> bool:
        """Whether a schedule has an entry of `reductions` for it."""
        return bool(self.reduction) or self.is_of_one or self.label == "attention"


def axes_of(operand: Operand) -> tuple[int, ...]:
    """The axes that an operand moves along, those of its outer dimensions first."""
    return tuple(dict.fromkeys(term.variable for index in operand.index_map for term in index.terms))


@lru_cache(maxsize=256)
def read_statements(workload: Workload) -> tuple[Statement, ...]:
    """The statements in the order of the body, the sink last; none of a workload without a body that says them."""
    found: list[Statement] = []
    for line in workload.body.splitlines():
        found.append(_statement(line, workload, found))
    if not found:
        return (whole_statement(workload),)
    found[-1] = replace(found[-1], result=replace(workload.output, name=RESULT))
    for number, statement in enumerate(found[:-1]):
        result = statement.result
        read = [o for s in found[number + 1 :] for o in s.reads if o.name == result.name]
        if result.shape and not result.index_map and read:
            loops = tuple(a for a in axes_of(read[0]) if workload.axes[a].kind == "parallel")
            found[number] = replace(statement, result=read[0], loops=loops, gathers=frozenset(), is_part=True)
    return tuple(found)


def whole_statement(workload: Workload) -> Statement:
    """What moves data, or was written without a body: one statement over all axes."""
    loops = (*workload.parallel, *workload.reduction)
    pair = (Operation("arith", "mulf", ("x0", "x1"), "v3"), Operation("arith", "addf", ("x2", "v3"), "v4"))
    arithmetic = pair[: round(workload.flops_per_point)]
    reads = tuple(replace(o, name=f"in{n}") for n, o in enumerate(workload.operands) if not o.output)
    return Statement(loops, workload.reduction, reads, replace(workload.output, name=RESULT), arithmetic)


def _statement(line: str, workload: Workload, before: list[Statement]) -> Statement:
    head, _, rest = line.partition(" = ")
    where = _HEAD.fullmatch(head)
    if where is None:
        raise ValueError(f"a line of a body begins with %0[...] =, found `{line[:60]}`")
    first, *_ = where[2].split("; ")
    parts = [part for part in first.split(", ") if part]
    summed = [part for part in where[2].replace(";", ",").split(", ") if part.startswith("+")]
    index = tuple(read_index(part) for part in parts if not part.startswith("+"))
    label, operands, region, types = _pieces(rest)
    reads = [o for part in operands if (o := _read(part, workload, before)) is not None]
    gathers = frozenset(re.findall(r"tensor\.extract\((in\d+)", region))
    known = {operand.name for operand in reads}
    reads += [o for n, o in enumerate(workload.operands) if f"in{n}" in gathers - known and not o.output]
    shape, dtype = _tensor(types)
    result = Operand(f"%{where[1]}", shape, dtype, index if len(index) == len(shape) else ())
    reduction = tuple(int(part[2:]) for part in summed if part != _OF_ONE)
    named = [*axes_of(result), *(a for o in reads for a in axes_of(o))]
    own = [axis for axis in named if axis not in reduction and workload.axes[axis].kind == "parallel"]
    loops = (*dict.fromkeys(own), *reduction)
    places = tuple(part.partition("[")[0] for part in operands)
    arithmetic = tuple(_operations(region))
    is_of_one = _OF_ONE in summed
    return Statement(
        loops, reduction, tuple(reads), result, arithmetic, label, gathers, places, line, is_of_one=is_of_one
    )


def operand_shapes(statement: Statement, workload: Workload) -> list[tuple[str, tuple[int, ...]]]:
    """(name, shape) of what a statement that is no loop nest reads, in order; constants have no name, but a type beside them."""
    _, operands, _, _ = _pieces(statement.text.partition(" = ")[2])
    known = {operand.name: operand.shape for operand in statement.reads}
    found = []
    for text in operands:
        name = text.partition("[")[0]
        if name in known:
            found.append((name, known[name]))
        else:
            found.append(("", _tensor(text.rpartition(" : ")[2])[0]))
    return found


def _pieces(rest: str) -> tuple[str, list[str], str, str]:
    """The label, the operands, the region and the types of a line behind its equals sign."""
    depth, start, operands, at = 0, 0, [], 0
    opening = None
    for at, letter in enumerate(rest):
        if letter in _OPEN:
            depth += 1
            if letter == "(" and depth == 1:
                opening, start = at, at + 1
        elif letter in _CLOSED and rest[at - 1 : at + 1] != "->":
            depth -= 1
            if letter == ")" and depth == 0:
                break
        elif letter == "," and depth == 1 and opening is not None:
            operands.append(rest[start:at].strip())
            start = at + 1
    if opening is None:
        raise ValueError(f"a line of a body has operands in brackets, found `{rest[:60]}`")
    operands.append(rest[start:at].strip())
    region, _, types = rest[at + 1 :].rpartition(" : ")
    return rest[:opening].split(" ")[0], operands, region, types


def _operations(region: str) -> Iterator[Operation]:
    for part in region.split("; "):
        name = re.match(r"[\s{]*([a-z_]+)\.(\w+)", part)
        if name is None or name[2] == "yield":
            continue
        before, _, gives = part.partition(" -> ")
        reads = tuple(re.findall(r"\b[xv]\d+\b", before[name.end() :]))
        yield Operation(name[1], name[2], reads, gives.partition(" ")[0])


def _read(part: str, workload: Workload, before: list[Statement]) -> Operand | None:
    """A tensor that a statement reads; None for constants, what is undefined, and what has no index map."""
    if re.fullmatch(r"in\d+", part):
        return replace(workload.operands[int(part[2:])], name=part)
    found = re.fullmatch(r"(%\d+)(?:#\d+)?\[(.*)\]", part)
    if found is None:
        return None
    producer = next(s.result for s in before if s.result.name == found[1])
    index = tuple(read_index(text) for text in found[2].split(", ") if text)
    if len(index) != len(producer.shape):
        return None
    return replace(producer, index_map=index)


def read_index(text: str) -> QuasiAffine[int]:
    """The inverse of `QuasiAffine.text`."""
    terms, offset = [], 0
    for part in text.split(" + "):
        term = _TERM.fullmatch(part)
        if term is None:
            offset += int(part)
            continue
        axis, divisor, modulus, scale = term.groups()
        terms.append(Term(int(axis), int(scale or 1), int(divisor or 1), int(modulus or 0)))
    return QuasiAffine(tuple(terms), offset)


def _tensor(types: str) -> tuple[tuple[int, ...], str]:
    """Shape and element type of the first of `tensor<4x8xf32>, ...`; a scalar's are () and its type."""
    found = _TENSOR.match(types.strip())
    shape = tuple(int(size) for size in found[1].split("x") if size) if found else ()
    element = (found[2] if found else types.strip()).removeprefix("u").removeprefix("s")
    element = {"complex<f32>": "c64", "complex<f64>": "c128", "index": "i64"}.get(element, element)
    element = "f8" if element.startswith("f8") else element
    return shape, element if element in BITS else "i64"
