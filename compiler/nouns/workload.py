"""A `Workload` is one dispatch as schedulers see it: axes with extents, operands with index maps, no IR.

Matrix multiplication, `C[i, j] += A[i, k] * B[k, j]`, has the axes i, j (parallel) and k (reduction), and the operands
A, B and C. It is what Roller calls a tensor expression (OSDI'22, §3.1). Everything that asks how much data a tile
touches is a function of a workload and an array of many tiles at once.

A workload is all that records, models and searches know of a dispatch: `to_text` writes it as JSON, `from_text` reads it
back, and its key, the digest of that text, is equal for equal work in any program.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term

Kind = Literal["parallel", "reduction", "sequential"]
"""Steps of a sequential axis depend on each other, as in scans and sorts, or on data: it is never cut."""

BITS = {
    "f64": 64, "i64": 64, "f32": 32, "i32": 32, "tf32": 32, "f16": 16, "bf16": 16, "i16": 16, "i8": 8, "f8": 8, "i1": 8,
    "c64": 64, "c128": 128,
}  # fmt: skip
"""Bits that an element takes in memory; booleans are bytes."""


@dataclass(frozen=True)
class Axis:
    """One loop of the iteration space."""

    name: str
    extent: int
    kind: Kind = "parallel"


@dataclass(frozen=True)
class Operand:
    """A tensor that the workload reads, or the one that it writes; `index_map` has a quasi-affine index of axes per dimension.

    `strides` are those of its dimensions in elements where it lies inside of a larger tensor, () where it is dense.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    index_map: tuple[QuasiAffine[int], ...]
    output: bool = False
    strides: tuple[int, ...] = ()

    def text(self) -> str:
        """`128x64xf32`."""
        return "x".join((*map(str, self.shape), self.dtype))

    @property
    def element_bytes(self) -> int:
        return BITS[self.dtype] // 8

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.element_bytes

    @cached_property
    def axes(self) -> frozenset[int]:
        """The axes that the operand moves along."""
        return frozenset(term.variable for index in self.index_map for term in index.terms)

    @property
    def is_packed(self) -> bool:
        """Whether the operand is stored in blocks."""
        return any(term.modulus for index in self.index_map for term in index.terms)

    def tile_shape(self, tiles: np.ndarray) -> np.ndarray:
        """The data tiles that computing `tiles` [n, axes] touches: [n, rank] elements."""
        if not self.index_map:
            return np.ones((len(tiles), 0), dtype=np.int64)
        spans = np.stack([index.spans(tiles) for index in self.index_map], axis=1)
        return np.minimum(spans, np.asarray(self.shape, dtype=np.int64))

    def tile_bytes(self, tiles: np.ndarray) -> np.ndarray:
        """Bytes of the data tile of each of `tiles` [n, axes]: [n]."""
        return self.tile_shape(tiles).prod(axis=1) * self.element_bytes


@dataclass(frozen=True)
class Workload:
    """What one dispatch computes; parallel axes are those of the result, in its order.

    `flops_per_point` counts the arithmetic of one point of the whole iteration space, a multiply-add as two;
    `epilogue_flops` that of one element of the result, once all reductions are done. Operands of a fused epilogue
    index with parallel axes only. `body` says what is computed, as canonical text: without it, a relu and a sine of
    one shape would be equal.
    """

    op: str
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    flops_per_point: float = 2.0
    epilogue_flops: float = 0.0
    body: str = ""

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        if len(set(names)) != len(names):
            raise ValueError(f"workload `{self.op}`: axes share a name: {', '.join(names)}")
        if sum(operand.output for operand in self.operands) != 1:
            raise ValueError(f"workload `{self.op}`: expected one output, found {self.operands}")
        for operand in self.operands:
            if len(operand.index_map) != len(operand.shape):
                raise ValueError(
                    f"workload `{self.op}`, operand `{operand.name}`: {len(operand.index_map)} indices for a shape of "
                    f"rank {len(operand.shape)}"
                )
            if operand.axes and max(operand.axes) >= len(self.axes):
                raise ValueError(
                    f"workload `{self.op}`, operand `{operand.name}`: indexes an axis that is not there"
                )

    @cached_property
    def extents(self) -> tuple[int, ...]:
        return tuple(axis.extent for axis in self.axes)

    @cached_property
    def parallel(self) -> tuple[int, ...]:
        return tuple(i for i, axis in enumerate(self.axes) if axis.kind == "parallel")

    @cached_property
    def reduction(self) -> tuple[int, ...]:
        return tuple(i for i, axis in enumerate(self.axes) if axis.kind == "reduction")

    @cached_property
    def sequential(self) -> tuple[int, ...]:
        return tuple(i for i, axis in enumerate(self.axes) if axis.kind == "sequential")

    @property
    def inputs(self) -> tuple[Operand, ...]:
        return tuple(operand for operand in self.operands if not operand.output)

    @property
    def output(self) -> Operand:
        return next(operand for operand in self.operands if operand.output)

    @property
    def flops(self) -> float:
        return (
            math.prod(self.extents) * self.flops_per_point
            + math.prod(self.extents[i] for i in self.parallel) * self.epilogue_flops
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all operands: the least that can move."""
        return sum(operand.nbytes for operand in self.operands)

    @cached_property
    def key(self) -> str:
        """The digest of `to_text`: equal for equal work, whatever operands and axes are called."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def to_text(self) -> str:
        """One line of JSON, the same for equal workloads; names are left out."""
        values = {
            "op": self.op,
            "axes": [[axis.extent, axis.kind] for axis in self.axes],
            "operands": [
                {
                    "shape": o.shape,
                    "dtype": o.dtype,
                    "index": [
                        [[[t.variable, t.scale, t.divisor, t.modulus] for t in index.terms], index.offset]
                        for index in o.index_map
                    ],
                    "output": o.output,
                    "strides": o.strides,
                }
                for o in self.operands
            ],
            "flops": [self.flops_per_point, self.epilogue_flops],
            "body": self.body,
        }
        return json.dumps(values, sort_keys=True, allow_nan=False)

    def text(self) -> str:
        """The workload as people read it: axes, operands with their index maps, and what is computed."""
        axes = ", ".join(f"a{n}: {axis.extent} {axis.kind}" for n, axis in enumerate(self.axes))
        lines = [f"{self.op} of {axes}" if axes else self.op]
        for number, o in enumerate(self.operands):
            lies = f" strides {list(o.strides)}" if o.strides else ""
            index = ", ".join(index.text() for index in o.index_map)
            lines.append(f"{'out' if o.output else 'in'}{number} {o.text()}{lies} [{index}]")
        return "\n".join([*lines, *self.body.splitlines()])

    @classmethod
    def from_text(cls, text: str) -> Workload:
        """The inverse of `to_text`, axes called a0, a1, ..., operands in0, in1, ...; raises ValueError naming the field."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"a workload is JSON: {error}") from None
        known = {"op", "axes", "operands", "flops", "body"}
        if not isinstance(values, dict) or set(values) != known:
            raise ValueError(f"a workload has the fields {', '.join(sorted(known))}")
        axes = tuple(_axis(number, entry) for number, entry in enumerate(_list("axes", values["axes"])))
        operands = tuple(
            _parse_operand(n, entry) for n, entry in enumerate(_list("operands", values["operands"]))
        )
        flops = _list("flops", values["flops"])
        if len(flops) != 2 or not all(_is_number(count) for count in flops):
            raise ValueError("flops: two numbers >= 0")
        for name in ("op", "body"):
            if not isinstance(values[name], str):
                raise ValueError(f"{name}: a string")
        return cls(values["op"], axes, operands, float(flops[0]), float(flops[1]), values["body"])


def _list(name: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name}: a list")
    return value


def _is_size(value: object, least: int = 0) -> bool:
    return type(value) is int and least <= value < 1 << 63


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


def _axis(number: int, entry: object) -> Axis:
    match entry:
        case [int() as extent, str() as kind] if _is_size(extent) and kind in get_args(Kind):
            return Axis(f"a{number}", extent, kind)  # type: ignore[arg-type]
    raise ValueError(f"axes: an extent and one of {', '.join(get_args(Kind))}, found {entry}")


def _parse_operand(number: int, entry: object) -> Operand:
    if not isinstance(entry, dict) or set(entry) != {"shape", "dtype", "index", "output", "strides"}:
        raise ValueError("operands: each has the fields dtype, index, output, shape and strides")
    sizes = {name: tuple(_list(f"operands.{name}", entry[name])) for name in ("shape", "strides")}
    if not all(_is_size(size) for found in sizes.values() for size in found):
        raise ValueError("operands.shape and operands.strides: integers >= 0")
    if entry["dtype"] not in BITS or not isinstance(entry["output"], bool):
        raise ValueError(f"operands.dtype: one of {', '.join(BITS)}; operands.output: true or false")
    index_map = tuple(_parse_index(index) for index in _list("operands.index", entry["index"]))
    name = f"{'out' if entry['output'] else 'in'}{number}"
    return Operand(name, sizes["shape"], entry["dtype"], index_map, entry["output"], sizes["strides"])


def _parse_index(entry: object) -> QuasiAffine[int]:
    match entry:
        case [list() as terms, int() as offset] if all(_is_term(term) for term in terms):
            return QuasiAffine(tuple(Term(*term) for term in terms), offset)
    raise ValueError(f"operands.index: terms [axis, scale, divisor, modulus] and an offset, found {entry}")


def _is_term(term: object) -> bool:
    if not isinstance(term, list) or len(term) != 4 or not all(type(value) is int for value in term):
        return False
    axis, _scale, divisor, modulus = term
    return axis >= 0 and divisor >= 1 and modulus >= 0
