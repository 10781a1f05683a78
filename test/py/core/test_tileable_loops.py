"""Loops along which a group can be cut: no point of any producer is needed by two pieces."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.analysis.affine_access import evaluate
from tilewright.compiler.analysis.structure import Structured, tileable_loops, volume
from tilewright.compiler.ir import ir, parse, walk

EXTENT = 3
"""Of every loop, so that any loops can be lined up."""

_ALIVE: list[ir.Module] = []


def group(*operations: tuple[str, str, list[str]]) -> list[Structured]:
    """Generics in program order, each written as (loops, map of its result, maps of its inputs).

    `loops` is a letter per loop: r for reduction, p for parallel, w for parallel and as wide as a window. The first input of every operation but the
    first is the result before it; further inputs are arguments.
    """
    arguments: list[str] = []
    lines: list[str] = []
    shape_before = ""
    for number, (loops, result, inputs) in enumerate(operations):
        names = ", ".join(f"d{i}" for i in range(len(loops)))
        maps = ", ".join(f"affine_map<({names}) -> ({m})>" for m in (*inputs, result))
        kinds = ", ".join('"reduction"' if kind == "r" else '"parallel"' for kind in loops)
        operands, types = [], []
        for place, access in enumerate(inputs):
            type_ = tensor(access, loops)
            if number and not place:
                operands.append(f"%r{number - 1}")
                type_ = shape_before
            else:
                operands.append(f"%a{len(arguments)}")
                arguments.append(f"%a{len(arguments)}: {type_}")
            types.append(type_)
        out = tensor(result, loops)
        arguments.append(f"%o{number}: {out}")
        block = ", ".join(f"%x{i}: f32" for i in range(len(inputs)))
        lines.append(
            f"%r{number} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
            f"ins({', '.join(operands)} : {', '.join(types)}) outs(%o{number} : {out}) {{\n"
            f"^bb0({block}, %y: f32):\n  %s = arith.addf %x0, %y : f32\n  linalg.yield %s : f32\n}} -> {out}"
        )
        shape_before = out
    body = "\n".join(lines)
    last = len(operations) - 1
    module = parse(
        f"func.func @group({', '.join(arguments)}) -> {shape_before} {{\n{body}\nreturn %r{last} : {shape_before}\n}}"
    )
    _ALIVE.append(module)
    return [s for op in walk(module.operation, "linalg.generic") if (s := Structured.read(op))]


def tensor(access: str, loops: str) -> str:
    """The type of an operand that is accessed so; a sum of two loops reads a window, which is wider."""
    wide = [f"d{i}" for i, kind in enumerate(loops) if kind == "w"]
    results = [result for result in access.split(", ") if result]
    sizes = [2 * EXTENT - 1 if "+" in result or result in wide else EXTENT for result in results]
    return f"tensor<{''.join(f'{size}x' for size in sizes)}f32>"


def needed(operations: list[Structured], loop: int) -> list[dict[tuple[int, ...], set[int]]]:
    """Per operation and point of its loops, for which values of the sink's `loop` it has to be computed."""
    producers = {result: number for number, s in enumerate(operations) for result in s.op.results}
    wanted: list[dict[tuple[int, ...], set[int]]] = [defaultdict(set) for _ in operations]
    for point in itertools.product(*map(range, operations[-1].extents)):
        wanted[-1][point].add(point[loop])
    for number in range(len(operations) - 1, -1, -1):
        s = operations[number]
        for operand, map_ in zip(s.op.operands, s.maps):
            producer = producers.get(operand)
            if producer is None:
                continue
            source = operations[producer]
            writers = defaultdict(list)
            for point in itertools.product(*map(range, source.extents)):
                element = tuple(evaluate(e, list(point)) for e in source.result_map.results)
                writers[element].append(point)
            for point, values in wanted[number].items():
                element = tuple(evaluate(e, list(point)) for e in map_.results)
                for writer in writers[element]:
                    wanted[producer][writer] |= values
    return wanted


def cuts_cleanly(operations: list[Structured], loop: int) -> bool:
    return all(len(values) == 1 for wanted in needed(operations, loop) for values in wanted.values())


@st.composite
def chains(draw):
    """Two or three operations, each reading the one before it through some of its loops, in any order."""
    operations = []
    rank = draw(st.integers(1, 3))
    for number in range(draw(st.integers(2, 3))):
        loops = draw(st.text("ppr", min_size=max(rank, 1), max_size=3))
        parallel = [i for i, kind in enumerate(loops) if kind == "p"]
        result = draw(st.permutations(parallel))
        if number:
            accesses = [f"d{draw(st.integers(0, len(loops) - 1))}" for _ in range(rank)]
            inputs = [", ".join(accesses), ", ".join(f"d{i}" for i in range(len(loops)))]
        else:
            inputs = [", ".join(f"d{i}" for i in range(len(loops)))]
        operations.append((loops, ", ".join(f"d{i}" for i in result), inputs))
        rank = len(result)
    return operations


@settings(max_examples=60, deadline=None)
@given(chains())
def test_nothing_is_computed_twice(operations):
    structured = group(*operations)
    root = structured[-1]
    for loop in tileable_loops(root, structured):
        assert root.kinds[loop] == "parallel"
        assert cuts_cleanly(structured, loop)


IDENTITY = "d0, d1"


@pytest.mark.parametrize(
    "operations, expected",
    [
        # Element-wise, transposed on the way: every loop.
        ([("pp", IDENTITY, [IDENTITY]), ("pp", IDENTITY, ["d1, d0"])], (0, 1)),
        # A row sum, then the rows scaled by it: the rows.
        ([("pr", "d0", [IDENTITY]), ("pp", IDENTITY, ["d0", IDENTITY])], (0,)),
        # A matmul with an epilogue: all of its output.
        ([("ppr", IDENTITY, ["d0, d2", "d2, d1"]), ("pp", IDENTITY, [IDENTITY])], (0, 1)),
        # An element-wise producer of a matmul is read by every column.
        ([("pp", IDENTITY, [IDENTITY]), ("ppr", IDENTITY, ["d0, d2", "d2, d1"])], (0,)),
        # A column sum before something that keeps rows: only the columns.
        ([("rp", "d1", [IDENTITY]), ("pp", IDENTITY, ["d1", IDENTITY])], (1,)),
        # The sum of everything is needed by all.
        ([("rr", "", [IDENTITY]), ("pp", IDENTITY, ["", IDENTITY])], ()),
        # Neighbouring outputs of a pooling share what they read.
        ([("w", "d0", ["d0"]), ("pr", "d0", ["d0 + d1", "d0, d1"])], ()),
        # A diagonal of the producer leaves the rest of it without a user; cutting it is not worth a rule.
        ([("pp", IDENTITY, [IDENTITY]), ("p", "d0", ["d0, d0", "d0"])], ()),
    ],
)
def test_known_groups(operations, expected):
    structured = group(*operations)
    assert tileable_loops(structured[-1], structured) == expected
    for loop in expected:
        assert cuts_cleanly(structured, loop)


def test_volume_is_the_product_of_the_chosen_loops():
    assert volume((2, 3, 5), (0, 2)) == 10
    assert volume((2, 3, 5), ()) == 1
