"""The element-wise operation behind a kernel's main operation, computed on vectors while its input is in registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, is_contiguous_along, is_dim, map_dims
from tilewright.compiler.dialects.reduction_attribute import STREAM
from tilewright.compiler.families.cpu.reduction import vectorize_body
from tilewright.compiler.families.cpu.vector_memory import memory_of
from tilewright.compiler.ir import affine, ir, memref, vector

Store = Callable[[ir.Value, list[ir.Value]], None]
"""Takes a vector of results and its place in the output."""

IN_BETWEEN = ("arith.", "affine.", "memref.subview", "memref.alloc", "memref.cast")
"""Beginnings of the names of operations on memrefs that touch no memory."""

_SHORT_MATH = {
    "math.absf",
    "math.ceil",
    "math.floor",
    "math.fma",
    "math.roundeven",
    "math.sqrt",
    "math.trunc",
}
"""Elementary functions that are an instruction."""


@dataclass(frozen=True)
class Epilogue:
    """An element-wise generic on memrefs that alone reads what a reduction wrote, one element to one.

    `loops[i]` is its loop that dimension i of the read result follows, the last one the vector loop; `position` the
    operand that is the result.
    """

    op: ir.Operation
    position: int
    loops: tuple[int, ...]

    @classmethod
    def after(cls, producer: ir.Operation) -> Epilogue | None:
        """The epilogue of `producer`, None when what follows it is none: a transposing, gathering or reducing reader."""
        result = producer.operands[len(producer.operands) - 1]
        if isinstance(result.owner, ir.Block) or result.owner.operation.name != "memref.alloc":
            return None
        op = _next(producer)
        if op is None or op.name != "linalg.generic" or STREAM in op.attributes:
            return None
        readers = {use.owner.operation for use in result.uses} - {producer, op}
        if any(r.name not in ("linalg.fill", "memref.dealloc") for r in readers):
            return None
        maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        types = [operand.type for operand in op.operands]
        inputs = len(types) - 1
        positions = [i for i, operand in enumerate(op.operands) if operand == result]
        body = op.regions[0].blocks[0]
        # Results that are stored early must not lie where the main operation still reads.
        read_from = {memory_of(operand) for operand in list(producer.operands)[:-1] if _is_memory(operand)}
        if memory_of(op.operands[inputs]) in read_from:
            return None
        if len(positions) != 1 or positions[0] >= inputs or len(op.results) or len(maps) != inputs + 1:
            return None
        (position,) = positions
        read = maps[position]
        if not all(is_dim(e) for e in read.results) or len(map_dims(read)) != maps[0].n_dims:
            return None
        loops = tuple(e.position for e in read.results)
        if len(set(loops)) != len(loops) or any(
            "reduction" in str(k) for k in op.attributes["iterator_types"]
        ):
            return None
        if len(list(body.arguments[inputs].uses)) or not is_plain(body):
            return None
        if loops[-1] not in map_dims(maps[-1]) or not reads_along(maps, types, loops[-1]):
            return None
        return cls(op, position, loops)

    @property
    def is_short(self) -> bool:
        """Whether the body takes a few instructions: elementary functions are better a loop of their own, once."""
        names = [view.operation.name for view in self.op.regions[0].blocks[0].operations]
        return not any(name.startswith("math.") and name not in _SHORT_MATH for name in names)

    def store(self, value: ir.Value, place: list[ir.Value]) -> None:
        """Computes on `value`, a vector along the last dimension of the result at `place`, and stores what comes out."""
        (lanes,) = ir.VectorType(value.type).shape
        at = dict(zip(self.loops, place))
        maps = [ir.AffineMapAttr(a).value for a in self.op.attributes["indexing_maps"]]
        body = self.op.regions[0].blocks[0]
        values = values_at(self.op, at, self.loops[-1], lanes, {body.arguments[self.position]: value})
        (result,) = vectorize_body(body, values, lanes)
        vector.store(result, self.op.operands[len(maps) - 1], address_at(maps[-1], at))


def _is_memory(value: ir.Value) -> bool:
    return isinstance(value.type, ir.MemRefType)


def reads_along(maps: Sequence[ir.AffineMap], types: Sequence[ir.Type], loop: int) -> bool:
    """Whether all operands, in memory or tensors, are static floats that vectors along `loop` follow, or that stay the same along it."""
    if not all(isinstance(t, ir.ShapedType) and t.has_static_shape for t in types):
        return False
    if not all(isinstance(ir.ShapedType(t).element_type, ir.FloatType) for t in types):
        return False
    return all(
        (not isinstance(type_, ir.MemRefType) or type_.get_strides_and_offset()[0][-1] == 1)
        and is_contiguous_along(map_, loop)
        and loop in dims(map_.results[-1])
        for map_, type_ in zip(maps, types)
        if loop in map_dims(map_)
    )


def values_at(
    op: ir.Operation,
    at: dict[int, ir.Value],
    inner: int,
    lanes: int,
    known: Mapping[ir.Value, ir.Value] | None = None,
) -> dict[ir.Value, ir.Value]:
    """What the body of a generic reads for `lanes` steps of loop `inner` from loops at `at`, beside what is `known`."""
    body, values = op.regions[0].blocks[0], dict(known or {})
    maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
    for i, map_ in enumerate(maps[:-1]):
        if body.arguments[i] in values:
            continue
        operand = op.operands[i]
        type_ = ir.VectorType.get([lanes], ir.ShapedType(operand.type).element_type)
        where = address_at(map_, at)
        if inner in map_dims(map_):
            values[body.arguments[i]] = vector.load(type_, operand, where)
        else:
            values[body.arguments[i]] = vector.broadcast(type_, memref.load(operand, where))
    return values


def _next(producer: ir.Operation) -> ir.Operation | None:
    """The first operation behind `producer` that touches memory."""
    behind = False
    for view in producer.block.operations:
        op = view.operation
        if behind and not op.name.startswith(IN_BETWEEN):
            return op
        behind = behind or op == producer
    return None


def address_at(map_: ir.AffineMap, at: dict[int, ir.Value]) -> list[ir.Value]:
    """Where the operand of `map_` is for loops at `at`."""
    values = [at[d] for d in range(map_.n_dims)]
    return [
        at[expr.position] if is_dim(expr) else affine.apply(ir.AffineMap.get(map_.n_dims, 0, [expr]), values)
        for expr in map_.results
    ]


def is_plain(body: ir.Block) -> bool:
    """Whether the body only computes: no indices, loads or checks."""
    names = [view.operation.name for view in body.operations]
    return all(
        name.split(".")[0] in ("arith", "math") or name == "linalg.yield" for name in names
    ) and not any(
        isinstance(value.type, ir.IndexType) for view in body.operations for value in view.operation.results
    )
