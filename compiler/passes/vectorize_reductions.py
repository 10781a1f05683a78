"""Turns reductions over tiles in memory into register-tiled vector loops.

    linalg.generic (m, n, k) C[m, n] += A[m, k] * B[k, n]        // memrefs, static extents

becomes, for register tile unroll = 12 and vector = 32,

    scf.for n0 step 32 { scf.for m0 step 12 {
      %acc:12 = scf.for k iter_args(12 x vector<32xf32>) {
        %b = vector.load B[k, n0]
        %acc_t += broadcast(A[m0 + t, k]) * %b                   // t = 0 .. 11
      }
      vector.store %acc_t, C[m0 + t, n0]
    } }

The vector dimension is the innermost loop of the output; every input must move along it with unit stride or
not at all, so one rule covers matmul, direct convolution on channels-last data with packed weights, depthwise
convolution, pooling and column sums. Any arith/math body vectorises. Remainders get their own static copies.

Upstream's linalg vectoriser accepts only projected permutations, which strided windows and packed weights
(`n floordiv 32, k, n mod 32`) are not, and its accumulators reach registers only after several rounds of
patterns (60 ms for one matmul against 2 ms here), hence this rewrite.

Reductions it refuses (the reduction itself is contiguous, booleans, index bodies, dynamic extents) are left to
scalar loops, marked so that LLVM may reassociate and vectorise them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.affine_access import (
    dims,
    is_contiguous_along,
    is_dim,
    loop_extents,
    map_dims,
    packing,
)
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import affine, arith, ir, memref, scf, vector, walk
from tilewright.compiler.passes.base import Pass
from tilewright.compiler.tuning.register_tile import choose_register_tile, packed_widths, register_pieces

_CONTRACT = "#arith.fastmath<contract>"
_REASSOCIATE = "#arith.fastmath<reassoc,contract>"
_FAST = {"arith.mulf", "arith.addf", "arith.subf"}


@dataclass(frozen=True)
class VectorizeReductions(Pass):
    """Register-tiles and vectorises reductions on memrefs.

    `unroll` and `vector` fix the register tile; 0 lets `choose_register_tile` take it from `vector_bits` and
    `registers`.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512
    registers: int = 32
    unroll: int = 0
    vector: int = 0

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            reduction = Reduction.read(generic)
            if reduction is None:
                continue
            plan = self.plan(reduction)
            if plan is None:
                _allow_reassociation(generic)
            else:
                with ir.InsertionPoint(generic), generic.location:
                    _Emitter(reduction, plan, _take_fill(generic)).emit()
                generic.erase()

    def plan(self, reduction: Reduction) -> RegisterPlan | None:
        """The register tile and the loops it spans, or None when the reduction cannot be vectorised so."""
        output = reduction.maps[-1]
        if not reduction.vectorizable or not output.results or not is_dim(output.results[-1]):
            return None
        vector_dim = output.results[-1].position
        if len([r for r in output.results if vector_dim in dims(r)]) != 1:
            return None
        lanes = max(1, self.vector_bits // reduction.accumulator_bits)
        inputs = reduction.maps[:-1]
        moving = [m for m in inputs if vector_dim in map_dims(m)]
        block = next((b for m in moving if (b := packing(m, vector_dim)) is not None), None)
        if not all(is_contiguous_along(m, vector_dim, block or 1) for m in moving):
            return None
        extent = reduction.extents[vector_dim]
        if not moving or extent < 4 or not all(reduction.unit_stride):
            return None
        # The loop to unroll re-uses the most vector operands; ties go to the inner loop.
        candidates = [
            (sum(d not in map_dims(m) for m in moving), min(reduction.extents[d], 8), d)
            for d in reduction.parallel
            if d != vector_dim
        ]
        unroll_dim = max(candidates)[2] if candidates else None
        unroll_extent = reduction.extents[unroll_dim] if unroll_dim is not None else 1
        if self.vector and block is not None and block % self.vector:
            raise ScheduleError(
                f"`{self.name()}`: vector {self.vector} crosses the blocks of {block} of a packed operand of "
                f"dispatch @{_function_name(reduction.op)}; use a divisor",
                reduction.op.location,
            )
        widths = None if block is None else packed_widths(block, lanes)
        tile = choose_register_tile(unroll_extent, extent, lanes, self.registers, widths)
        return RegisterPlan(
            unroll_dim, vector_dim, self.unroll or tile.unroll, self.vector or tile.vector, lanes
        )


@dataclass(frozen=True)
class RegisterPlan:
    """Which loops are kept in registers, and by how much."""

    unroll_dim: int | None
    vector_dim: int
    unroll: int
    vector: int
    lanes: int


Point = tuple[int, int, int]
"""One accumulator of a register tile: step of the unrolled loop, offset in the vector loop, lanes."""


@dataclass(frozen=True)
class Reduction:
    """What the decision needs to know of a `linalg.generic` with one output and reduction loops."""

    op: ir.Operation
    maps: list[ir.AffineMap]
    extents: tuple[int, ...]
    parallel: tuple[int, ...]
    reduction: tuple[int, ...]
    vectorizable: bool
    accumulator_bits: int
    unit_stride: tuple[bool, ...]

    @classmethod
    def read(cls, op: ir.Operation) -> Reduction | None:
        """Reads a reducing generic on static memrefs with one output; None for anything else."""
        kinds = [str(kind) for kind in op.attributes["iterator_types"]]
        operands = list(op.operands)
        types = [operand.type for operand in operands]
        if not any("reduction" in kind for kind in kinds) or op.results:
            return None
        if not all(isinstance(t, ir.MemRefType) and ir.ShapedType(t).has_static_shape for t in types):
            return None
        body = op.regions[0].blocks[0]
        if len(list(body.operations)[-1].operands) != 1:
            return None
        maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        extents = loop_extents(maps, [tuple(ir.ShapedType(t).shape) for t in types])
        elements = [ir.ShapedType(t).element_type for t in types]
        return cls(
            op=op,
            maps=maps,
            extents=extents,
            parallel=tuple(i for i, kind in enumerate(kinds) if "parallel" in kind),
            reduction=tuple(i for i, kind in enumerate(kinds) if "reduction" in kind),
            vectorizable=min(extents) > 0 and all(map(_is_number, elements)) and _is_plain(body),
            accumulator_bits=elements[-1].width if _is_number(elements[-1]) else 0,
            unit_stride=tuple(
                ir.ShapedType(t).rank == 0 or ir.MemRefType(t).get_strides_and_offset()[0][-1] == 1
                for t in types
            ),
        )


def _is_number(type_: ir.Type) -> bool:
    """Whether vectors of the type can be loaded from memory as they stand there (booleans are bytes)."""
    return isinstance(type_, ir.FloatType) or (
        isinstance(type_, ir.IntegerType) and ir.IntegerType(type_).width >= 8
    )


def _is_plain(body: ir.Block) -> bool:
    return all(
        op.operation.name.split(".")[0] in ("arith", "math") or op.operation.name == "linalg.yield"
        for op in body.operations
    ) and not any(
        isinstance(value.type, ir.IndexType) for op in body.operations for value in op.operation.results
    )


def _take_fill(generic: ir.Operation) -> ir.Value | None:
    """Erases a `linalg.fill` just before `generic` on its output and returns the scalar, so that it starts in registers."""
    block = list(generic.block.operations)
    position = next(i for i, op in enumerate(block) if op.operation == generic)
    output = generic.operands[len(generic.operands) - 1]
    for op in reversed(block[:position]):
        if op.operation.name == "linalg.fill" and op.operation.operands[1] == output:
            scalar = op.operation.operands[0]
            op.operation.erase()
            return scalar
        if any(operand == output for operand in op.operation.operands) or op.operation.regions:
            return None
    return None


def _allow_reassociation(generic: ir.Operation) -> None:
    body = generic.regions[0].blocks[0]
    for op in body.operations:
        if op.operation.name in _FAST:
            op.operation.attributes["fastmath"] = ir.Attribute.parse(_REASSOCIATE)


def _function_name(op: ir.Operation) -> str:
    while op.name != "func.func":
        op = op.parent.operation
    return ir.StringAttr(op.attributes["sym_name"]).value


class _Emitter:
    """Writes the loops of one reduction at the current insertion point."""

    def __init__(self, reduction: Reduction, plan: RegisterPlan, fill: ir.Value | None):
        self.r, self.plan, self.fill = reduction, plan, fill
        self.operands = list(reduction.op.operands)
        self.ivs: dict[int, ir.Value] = {}
        self.zero = _index(0)

    def emit(self) -> None:
        tiled = {self.plan.vector_dim, self.plan.unroll_dim}
        outer = [d for d in self.r.parallel if d not in tiled]
        self._nest(outer, self._vector_tiles)

    def _nest(self, loops: list[int], body: Callable[[], None]) -> None:
        if not loops:
            body()
            return
        self._loop(loops[0], 0, self.r.extents[loops[0]], 1, lambda: self._nest(loops[1:], body))

    def _loop(self, dim: int, start: int, end: int, step: int, body: Callable[[], None]) -> None:
        if end - start == step:
            self.ivs[dim] = _index(start)
            body()
            return
        loop = scf.ForOp(_index(start), _index(end), _index(step))
        with ir.InsertionPoint(loop.body):
            self.ivs[dim] = loop.induction_variable
            body()
            scf.YieldOp([])

    def _segments(self, dim: int, size: int, body: Callable[[int], None]) -> None:
        extent = self.r.extents[dim]
        full = extent - extent % size
        if full:
            self._loop(dim, 0, full, size, lambda: body(size))
        if extent > full:
            self._loop(dim, full, extent, extent - full, lambda: body(extent - full))

    def _vector_tiles(self) -> None:
        unroll = self.plan.unroll_dim

        def unrolled(width: int) -> None:
            if unroll is None:
                self._tile(1, width)
            else:
                self._segments(unroll, self.plan.unroll, lambda count: self._tile(count, width))

        self._segments(self.plan.vector_dim, self.plan.vector, unrolled)

    def _tile(self, count: int, width: int) -> None:
        element = ir.ShapedType(self.operands[-1].type).element_type
        points = [
            (t, offset, lanes)
            for t in range(count)
            for offset, lanes in register_pieces(width, self.plan.lanes)
        ]
        types = [ir.VectorType.get([lanes], element) for _, _, lanes in points]
        places = [self._address(-1, t, offset) for t, offset, _ in points]
        if self.fill is None:
            starts = [vector.load(type_, self.operands[-1], place) for type_, place in zip(types, places)]
        else:
            starts = [vector.broadcast(type_, self.fill) for type_ in types]
        results = self._reduce(list(self.r.reduction), starts, points)
        for place, value in zip(places, results):
            vector.store(value, self.operands[-1], place)

    def _reduce(self, loops: list[int], accumulators: list[ir.Value], points: list[Point]) -> list[ir.Value]:
        if not loops:
            return self._step(accumulators, points)
        extent = self.r.extents[loops[0]]
        if extent == 1:
            self.ivs[loops[0]] = self.zero
            return self._reduce(loops[1:], accumulators, points)
        loop = scf.ForOp(self.zero, _index(extent), _index(1), accumulators)
        with ir.InsertionPoint(loop.body):
            self.ivs[loops[0]] = loop.induction_variable
            scf.YieldOp(self._reduce(loops[1:], list(loop.inner_iter_args), points))
        return list(loop.results)

    def _step(self, accumulators: list[ir.Value], points: list[Point]) -> list[ir.Value]:
        """One step of the reduction; what does not change from one point of the tile to the next is loaded once."""
        body = self.r.op.regions[0].blocks[0]
        loaded: dict[tuple, ir.Value] = {}
        results = []
        for accumulator, (t, offset, lanes) in zip(accumulators, points):
            values = {}
            for i, map_ in enumerate(self.r.maps[:-1]):
                used = map_dims(map_)
                moves = self.plan.vector_dim in used
                key = (i, t if self.plan.unroll_dim in used else 0, offset if moves else 0, lanes)
                scalar = (*key[:2], "scalar")
                if key not in loaded:
                    type_ = ir.VectorType.get([lanes], ir.ShapedType(self.operands[i].type).element_type)
                    if moves:
                        loaded[key] = vector.load(type_, self.operands[i], self._address(i, t, offset))
                    else:
                        if scalar not in loaded:
                            loaded[scalar] = memref.load(self.operands[i], self._address(i, t, 0))
                        loaded[key] = vector.broadcast(type_, loaded[scalar])
                values[body.arguments[i]] = loaded[key]
            values[body.arguments[len(self.r.maps) - 1]] = accumulator
            results.append(vectorize_body(body, values, lanes)[0])
        return results

    def _address(self, operand: int, t: int, offset: int) -> list[ir.Value]:
        map_ = self.r.maps[operand]
        moved = {self.plan.unroll_dim: t, self.plan.vector_dim: offset}
        replaced = [ir.AffineExpr.get_dim(i) + moved.get(i, 0) for i in range(map_.n_dims)]
        place = []
        for expr in map_.results:
            used = sorted(dims(expr))
            if is_dim(expr) and not moved.get(used[0]):
                place.append(self.ivs[used[0]])
                continue
            composed = ir.AffineMap.get(
                map_.n_dims, 0, [expr.compose(ir.AffineMap.get(map_.n_dims, 0, replaced))]
            )
            place.append(
                affine.apply(composed, [self.ivs[d] if d in used else self.zero for d in range(map_.n_dims)])
            )
        return place


def vectorize_body(body: ir.Block, values: dict[ir.Value, ir.Value], width: int) -> list[ir.Value]:
    """Clones the scalar ops of a linalg body on vectors of `width`; returns what it yields.

    `values` maps block arguments to vectors; scalars defined outside the body are broadcast.
    """

    def value(scalar: ir.Value) -> ir.Value:
        if scalar not in values:
            values[scalar] = vector.broadcast(ir.VectorType.get([width], scalar.type), scalar)
        return values[scalar]

    for view in body.operations:
        op = view.operation
        if op.name == "linalg.yield":
            return [value(operand) for operand in op.operands]
        if op.name == "arith.constant":
            type_ = ir.VectorType.get([width], op.results[0].type)
            splat = ir.DenseElementsAttr.get_splat(type_, op.attributes["value"])
            values[op.results[0]] = arith.constant(type_, splat)
            continue
        attributes = {name: op.attributes[name] for name in op.attributes}
        if op.name in _FAST:
            attributes["fastmath"] = ir.Attribute.parse(_CONTRACT)
        clone = ir.Operation.create(
            op.name,
            results=[ir.VectorType.get([width], result.type) for result in op.results],
            operands=[value(operand) for operand in op.operands],
            attributes=attributes,
        )
        for old, new in zip(op.results, clone.results):
            values[old] = new
    raise AssertionError("a linalg body ends in linalg.yield")


def _index(value: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), value)
