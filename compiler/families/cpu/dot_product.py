"""Reading contractions as dot products of short groups: pairs of bf16 summed in f32, quads of bytes summed in i32.

x86 multiplies `group` neighbours of a 32-bit lane and adds all products to the lane's accumulator: two for bf16
(AVX512-BF16, AMX-BF16), four for bytes (VNNI, AMX-INT8). What the instructions want of a contraction

    C[.., n] += A[.., k] * B[k, n]

is that A moves along its last dimension with a reduction loop `k`, element by element, and that B moves along the
last loop `n` of C, which A does not.
B is then stored in groups, `(n floordiv p, .., k floordiv group, n mod p, k mod group)`: see `pack-dots`.

Source: Intel, Architecture Instruction Set Extensions and Future Features, 319433, VDPBF16PS and VPDPBUSD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, is_dim, map_dims, terms
from tilewright.compiler.ir import ir, memref, vector
from tilewright.compiler.targets.target import Target

_WIDEN = {"arith.extf": True, "arith.extsi": True, "arith.extui": False}
_SUMS = {"bf16": ("arith.mulf", "arith.addf", "f32", 2), "i8": ("arith.muli", "arith.addi", "i32", 4)}


@dataclass(frozen=True)
class DotProduct:
    """`accumulator += product of two operands of `element``; `signed[i]` tells how operand i is widened."""

    element: str
    accumulator: str
    group: int
    signed: tuple[bool, bool]

    @classmethod
    def read(cls, body: ir.Block) -> DotProduct | None:
        """The dot product that a linalg body of two inputs and one output computes; None for any other body."""
        if len(body.arguments) != 3:
            return None
        left, right, sum_ = body.arguments
        element = str(left.type)
        if element not in _SUMS or str(right.type) != element:
            return None
        multiply, add, accumulator, group = _SUMS[element]
        *ops, last = (view.operation for view in body.operations)
        if str(sum_.type) != accumulator or len(ops) != 4 or len(last.operands) != 1:
            return None
        widened, signed = {}, {}
        for op in ops[:2]:
            if op.name not in _WIDEN or str(op.results[0].type) != accumulator:
                return None
            widened[op.operands[0]], signed[op.operands[0]] = op.results[0], _WIDEN[op.name]
        if set(widened) != {left, right} or (ops[2].name, ops[3].name) != (multiply, add):
            return None
        product, total = ops[2], ops[3]
        if set(product.operands) != set(widened.values()) or last.operands[0] != total.results[0]:
            return None
        if set(total.operands) != {sum_, product.results[0]}:
            return None
        return cls(element, accumulator, group, (signed[left], signed[right]))


@dataclass(frozen=True)
class DotLoops:
    """The loops of a contraction by their parts: `vector` fills lanes, `depth` is summed in groups.

    `row` is the position of the operand that is broadcast, `column` that of the one that fills the lanes.
    """

    row: int
    column: int
    vector: int
    depth: int

    @classmethod
    def of(cls, maps: Sequence[ir.AffineMap]) -> DotLoops | None:
        """The parts of a contraction with these maps, the result's last; None where no loop can take a part."""
        output = maps[-1]
        if not output.results or not is_dim(output.results[-1]):
            return None
        vector = output.results[-1].position
        if sum(vector in dims(expr) for expr in output.results) != 1:
            return None
        columns = [i for i in range(2) if vector in map_dims(maps[i])]
        if len(columns) != 1:
            return None
        column, row = columns[0], 1 - columns[0]
        if not maps[row].results:
            return None
        reduced = map_dims(maps[column]) - map_dims(output)
        depths = [
            term.position
            for term in terms(maps[row].results[-1])
            if is_dim(term) and term.position in reduced
        ]
        if len(depths) != 1 or sum(depths[0] in dims(expr) for expr in maps[row].results) != 1:
            return None
        (depth,) = depths
        if sum(depth in dims(term) for term in terms(maps[row].results[-1])) != 1:
            return None
        return cls(row, column, vector, depth)


def tile_types(target: Target) -> tuple[bool, bool]:
    """Whether the target multiplies tiles of bf16, and of bytes, by AMX."""
    features = set(target.cpu_features)
    return {"amx-tile", "amx-bf16"} <= features, {"amx-tile", "amx-int8"} <= features


def dot_types(target: Target) -> tuple[bool, bool]:
    """Whether the target multiplies pairs of bf16, and quads of bytes."""
    features = set(target.cpu_features)
    return "avx512bf16" in features, not features.isdisjoint({"avx512vnni", "avxvnni"})


def grouped(map_: ir.AffineMap, loops: DotLoops, group: int) -> int | None:
    """The block `p` of a column operand stored as `(.., n floordiv p, .., k floordiv group, .., n mod p, k mod group)`."""
    if len(map_.results) < 4:
        return None
    *outer, inside, pair = map_.results
    if not (
        _divides(inside, ir.AffineModExpr, loops.vector) and _divides(pair, ir.AffineModExpr, loops.depth)
    ):
        return None
    block = inside.rhs.value
    numbers = [expr for expr in outer if loops.vector in dims(expr)]
    groups = [expr for expr in outer if loops.depth in dims(expr)]
    if len(numbers) != 1 or len(groups) != 1 or pair.rhs.value != group:
        return None
    if not _divides(numbers[0], ir.AffineFloorDivExpr, loops.vector) or numbers[0].rhs.value != block:
        return None
    if not _divides(groups[0], ir.AffineFloorDivExpr, loops.depth) or groups[0].rhs.value != group:
        return None
    return block


def is_row_major(map_: ir.AffineMap, loops: DotLoops) -> bool:
    """Whether a column operand is stored `(.., k, .., n)`: its rows are interleaved as they are read."""
    *outer, last = map_.results
    along = [expr for expr in outer if loops.depth in dims(expr)]
    return (
        is_dim(last, loops.vector)
        and len(along) == 1
        and is_dim(along[0])
        and not any(loops.vector in dims(expr) for expr in outer)
    )


def _divides(expr: ir.AffineExpr, kind: type, loop: int) -> bool:
    return isinstance(expr, kind) and is_dim(expr.lhs, loop) and isinstance(expr.rhs, ir.AffineConstantExpr)


def is_grouped_in_memory(shape: tuple[int, ...], strides: tuple[int, ...], group: int) -> bool:
    """Whether columns of a packed operand lie `group` elements apart, however many of a group its shape shows.

    A tile of an operand whose depth ends within a group is cut short by tiling, which evaluates `k mod group` at the
    last `k`; the zeros that fill the group are in memory all the same.
    """
    return strides[-2:] == (group, 1) and shape[-1] <= group


def flattened(packed: ir.Value, group: int) -> ir.Value:
    """A packed operand on memrefs with its columns and their groups, which lie together, as one dimension."""
    type_ = ir.MemRefType(packed.type)
    rank = type_.rank
    shape = [*type_.shape[:-2], type_.shape[-2] * group]
    layout = None
    strides, offset = type_.get_strides_and_offset()
    if not isinstance(type_.layout, ir.AffineMapAttr):
        layout = ir.StridedLayoutAttr.get(offset, [*strides[:-2], strides[-1]])
    flat = ir.MemRefType.get(shape, type_.element_type, layout=layout)
    if type_.shape[-1] == group:
        groups = [[i] for i in range(rank - 2)] + [[rank - 2, rank - 1]]
        return memref.collapse_shape(flat, packed, groups)
    moved = offset == ir.ShapedType.get_dynamic_stride_or_offset()
    offsets = [memref.extract_strided_metadata(packed)[1]] if moved else []
    return memref.reinterpret_cast(
        flat, packed, offsets, [], [], [offset], shape, [*strides[:-2], strides[-1]]
    )


def interleaved(rows: Sequence[ir.Value]) -> ir.Value:
    """Two or four vectors of one type as one, element by element in turn.

    As integers: LLVM 22 gives up on short vectors of bf16 that are shuffled.
    """
    type_ = ir.VectorType(rows[0].type)
    element = type_.element_type
    bits = ir.IntegerType.get_signless(element.width)
    vectors = list(rows)
    if not isinstance(element, ir.IntegerType):
        vectors = [vector.bitcast(ir.VectorType.get(type_.shape, bits), row) for row in rows]
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [vector.interleave(vectors[i], vectors[i + half]) for i in range(half)]
    if isinstance(element, ir.IntegerType):
        return vectors[0]
    return vector.bitcast(ir.VectorType.get([type_.shape[0] * len(rows)], element), vectors[0])
