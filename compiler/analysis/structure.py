"""Reading the structure of linalg operations: kinds of loops, extents, and how loops of a group line up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.compiler.analysis.affine_access import dims, is_dim, loop_extents, map_dims
from tilewright.compiler.ir import ir, linalg


@dataclass(frozen=True)
class Structured:
    """A `linalg.generic` on static tensors, read once: maps, loop kinds and extents."""

    op: ir.Operation
    maps: tuple[ir.AffineMap, ...]
    kinds: tuple[str, ...]
    extents: tuple[int, ...]

    @classmethod
    def read(cls, op: ir.Operation) -> Structured | None:
        """The structure of `op`; None unless it is a generic whose operands, of which there are some, are static."""
        if op.name != "linalg.generic" or not len(op.operands):
            return None
        shapes = []
        for operand in op.operands:
            if isinstance(operand.type, ir.ShapedType):
                shaped = ir.ShapedType(operand.type)
                if not shaped.has_static_shape:
                    return None
                shapes.append(tuple(shaped.shape))
            else:
                shapes.append(())
        maps, kinds = _maps(op.attributes["indexing_maps"]), _kinds(op.attributes["iterator_types"])
        return cls(op, maps, kinds, _extents(maps, tuple(shapes)))

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def num_inputs(self) -> int:
        return len(self.maps) - len(self.op.results)

    @property
    def result_map(self) -> ir.AffineMap:
        return self.maps[self.num_inputs]

    @property
    def is_elementwise(self) -> bool:
        return "reduction" not in self.kinds

    @property
    def is_contraction(self) -> bool:
        """Whether it multiplies two operands that each move along loops that the other does not, and sums."""
        if self.is_elementwise or self.num_inputs != 2 or len(self.op.results) != 1:
            return False
        left, right = (map_dims(m) for m in self.maps[:2])
        output = map_dims(self.maps[2])
        names = {op.operation.name.split(".")[1] for op in self.body.operations}
        return (
            bool(output & left - right or output & right - left)
            and bool((left & right) - output)
            and not names.isdisjoint({"mulf", "muli", "andi"})
        )

    @property
    def is_windowed(self) -> bool:
        """Whether it is a depthwise convolution or a pooling: its windows slide over what has all loops of its result."""
        slid = (m for m in self.maps[: self.num_inputs] if any(len(dims(expr)) > 1 for expr in m.results))
        return not self.is_elementwise and any(map_dims(self.result_map) <= map_dims(m) for m in slid)

    @property
    def accumulates(self) -> bool:
        """Whether the body reads what the result held before."""
        arguments = list(self.body.arguments)[self.num_inputs :]
        return not self.is_elementwise or any(len(list(argument.uses)) for argument in arguments)

    @property
    def has_index(self) -> bool:
        return any(op.operation.name == "linalg.index" for op in self.body.operations)

    @property
    def checks(self) -> bool:
        """Whether the body makes run-time checks."""
        return any(op.operation.name == "cf.assert" for op in self.body.operations)

    @property
    def body_ops(self) -> int:
        """Arithmetic operations per point of the iteration space."""
        return sum(
            op.operation.name.startswith(("arith.", "math.")) and op.operation.name != "arith.constant"
            for op in self.body.operations
        )

    @property
    def points(self) -> int:
        return math.prod(self.extents)


def starts_from_zero(reduction: ir.Operation) -> bool:
    """Whether the only result of an operation, generic or named, is added to a fill with zeros."""
    start = producer(reduction.operands[len(reduction.operands) - 1])
    filled = producer(start.operands[0]) if start is not None and start.name == "linalg.fill" else None
    if filled is None or filled.name != "arith.constant":
        return False
    value = filled.attributes["value"]
    return isinstance(value, (ir.FloatAttr, ir.IntegerAttr)) and value.value == 0


Line = dict[int, int | None]
"""The loop of an operation's own that every parallel loop of its group's sink becomes, None where it is no single plain one."""


def sink_line(sink: Structured) -> Line:
    """That of the sink itself."""
    return {i: i for i, kind in enumerate(sink.kinds) if kind == "parallel"}


def line_through(line: Line, map_: ir.AffineMap, producer: Structured, known: Line | None) -> Line:
    """That of `producer`, which an operation of `line` reads by `map_`, and others, if any, so that it is `known`."""
    through = {loop: _carry(own, map_, producer) for loop, own in line.items()}
    return {i: own if (known or through)[i] == own else None for i, own in through.items()}


def loop_lines(sink: Structured, group: Sequence[Structured]) -> list[Line | None]:
    """For each operation of `group`, the loop of its own that every parallel loop of `sink` becomes, if one.

    `group` holds the operations in program order, the sink last. None for an operation that the sink does not
    read; a loop maps to None where it becomes no single plain parallel loop, or different ones.
    """
    producers = {result: number for number, s in enumerate(group) for result in s.op.results}
    last = len(group) - 1
    lines: list[Line | None] = [None] * len(group)
    lines[last] = sink_line(sink)
    for number in range(last, -1, -1):
        line, consumer = lines[number], group[number]
        if line is None:
            continue
        for operand, map_ in zip(consumer.op.operands, consumer.maps):
            producer = producers.get(operand)
            if producer is not None:
                lines[producer] = line_through(line, map_, group[producer], lines[producer])
    return lines


def tileable_loops(sink: Structured, group: Sequence[Structured]) -> tuple[int, ...]:
    """Parallel loops of `sink` along which every operation of `group` can be cut without recomputing anything.

    Each is a plain parallel loop of every producer, carried by plain dimensions of the tensors in between.
    """
    lines = [line for line in loop_lines(sink, group) if line is not None]
    return tuple(i for i in sorted(lines[-1]) if all(line[i] is not None for line in lines))


# A large model repeats few maps many times: reading each once keeps compiling thousands of operations linear
# with a small constant.
@lru_cache(maxsize=4096)
def _maps(attribute: ir.ArrayAttr) -> tuple[ir.AffineMap, ...]:
    return tuple(ir.AffineMapAttr(a).value for a in attribute)


@lru_cache(maxsize=1024)
def _kinds(attribute: ir.ArrayAttr) -> tuple[str, ...]:
    return tuple("reduction" if "reduction" in str(kind) else "parallel" for kind in attribute)


@lru_cache(maxsize=4096)
def _extents(maps: tuple[ir.AffineMap, ...], shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    return loop_extents(list(maps), list(shapes)) if maps[0].n_dims else ()


def _carry(loop: int | None, map_: ir.AffineMap, producer: Structured) -> int | None:
    """The producer's parallel loop that `loop` of a consumer becomes through one operand; None if there is none."""
    own = None if loop is None else _through(loop, map_, producer.result_map)
    return own if own is not None and producer.kinds[own] == "parallel" else None


@lru_cache(maxsize=16384)
def _through(loop: int, map_: ir.AffineMap, result: ir.AffineMap) -> int | None:
    places = [i for i, expr in enumerate(map_.results) if loop in dims(expr)]
    if len(places) != 1 or not is_dim(map_.results[places[0]], loop):
        return None
    expr = result.results[places[0]]
    return expr.position if is_dim(expr) else None


def volume(extents: Sequence[int], loops: Iterable[int]) -> int:
    """The number of points of the given loops."""
    return math.prod(extents[i] for i in loops)


def producer(value: ir.Value) -> ir.Operation | None:
    """The operation that computes `value`; None for a block argument."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def maps_of(op: ir.Operation) -> list[ir.AffineMap]:
    """The indexing maps of a structured operation, one per operand."""
    return [ir.AffineMapAttr(attribute).value for attribute in linalg.get_indexing_maps(op)]
