"""Convolutions of few channels per group: one vector holds the results of several groups.

With 4 channels in and out of each group, 16 lanes are 4 groups, and the input is spread over them by shuffles:

    %x = vector.load X[oh + kh, column, g, 0]                    // 4 groups of 4 channels
    %x_c = vector.shuffle %x [c, c, c, c, 4 + c, ...]            // channel c of each group, for its 4 results
    %acc_t += %x_c * vector.load W[g / 4, kh, kw, c, 0, 0]       // for every t and kw with t * stride + kw = column

A column is loaded and spread once for all windows that it is part of. The weights are stored with the groups of a
vector side by side: (g floordiv 4, kh, kw, c, g mod 4, o).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, evaluate, is_dim, map_dims, terms
from tilewright.compiler.families.cpu.loop_nest import LoopNest, index
from tilewright.compiler.families.cpu.reduction import Structure, vectorize_body
from tilewright.compiler.ir import affine, ir, memref, vector

_LONGEST_WINDOW = 7


@dataclass(frozen=True)
class Grouped:
    """Loops of a grouped contraction: `group` in blocks of `block`, `inner` channels in, `result` channels out.

    Steps of the loop `row` are kept in registers; it slides with the loop `window`, of `taps`, where there is one.
    `data` and `weight` are the numbers of the two operands.
    """

    group: int
    result: int
    inner: int
    row: int
    window: int | None
    block: int
    steps: int
    taps: int
    data: int
    weight: int

    @classmethod
    def read(cls, structure: Structure, vector_bits: int) -> Grouped | None:
        """None unless it is a contraction whose weights are stored so, in blocks as wide as vectors were."""
        if len(structure.maps) != 3 or not structure.vectorizable or not all(structure.unit_stride):
            return None
        output = list(structure.maps[2].results)
        if len(output) < 3 or not all(is_dim(expr) for expr in output):
            return None
        group, result = output[-2].position, output[-1].position
        for weight in range(2):
            data = 1 - weight
            block = _block(structure.maps[weight], group, result)
            source = list(structure.maps[data].results)
            if block is None or len(source) < 2 or structure.extents[group] % block:
                continue
            if not (is_dim(source[-2], group) and is_dim(source[-1])):
                continue
            inner = source[-1].position
            if inner not in structure.reduction or result in map_dims(structure.maps[data]):
                continue
            rows = [d for d in structure.parallel if d not in map_dims(structure.maps[weight])]
            if not rows or not all(map(_is_joined, structure.shapes, structure.strides)):
                continue
            row = max(rows, key=lambda d: (min(structure.extents[d], 8), d))
            window = _window(structure, data, row, inner)
            taps = 1 if window is None else structure.extents[window]
            return cls(group, result, inner, row, window, block, structure.extents[row], taps, data, weight)
        return None

    def most(self) -> tuple[int]:
        """The largest sizes of a tile."""
        return (self.steps,)

    def accumulators(self, sizes: Sequence[int]) -> int:
        """Vector registers that the sums of a tile take."""
        return sizes[0]


def _block(weights: ir.AffineMap, group: int, result: int) -> int | None:
    """How many groups the weights hold side by side; None unless they end in (group mod block, result)."""
    last = list(weights.results)[-2:]
    if len(last) < 2 or not is_dim(last[1], result) or not isinstance(last[0], ir.AffineModExpr):
        return None
    return last[0].rhs.value if is_dim(last[0].lhs, group) else None


def _is_joined(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the last two dimensions of an operand lie in memory as one."""
    return strides[-2] == shape[-1]


def _window(structure: Structure, data: int, row: int, inner: int) -> int | None:
    """The reduction loop that shares a dimension of the data with `row`, if it is short enough to unroll."""
    for expr in structure.maps[data].results:
        if row in dims(expr) and isinstance(expr, ir.AffineAddExpr):
            others = [d for d in dims(expr) if d != row]
            linear = all(is_dim(t) or isinstance(t, ir.AffineMulExpr) for t in terms(expr))
            if len(others) == 1 and linear and others[0] in structure.reduction and others[0] != inner:
                return others[0] if structure.extents[others[0]] <= _LONGEST_WINDOW else None
    return None


class GroupedLoops(LoopNest):
    """Writes the loops of one grouped contraction at the current insertion point."""

    def __init__(self, structure: Structure, plan: Grouped, unroll: int, fill: ir.Value | None):
        super().__init__(structure.maps, structure.extents)
        self.s, self.plan, self.unroll, self.fill = structure, plan, unroll, fill
        self.joined = [_join(operand) for operand in structure.op.operands]
        elements = [ir.ShapedType(operand.type).element_type for operand in structure.op.operands]
        inputs, results = (plan.block * self.extents[d] for d in (plan.inner, plan.result))
        self.types = [
            ir.VectorType.get([inputs if i == plan.data else results], element)
            for i, element in enumerate(elements)
        ]

    def emit(self) -> None:
        plan = self.plan
        blocked = {plan.group, plan.result, plan.row}

        def rows() -> None:
            self.segments(plan.row, self.unroll, self._tile)

        self.ivs[plan.result] = self.ivs[plan.inner] = self.zero
        self.nest(
            [d for d in self.s.parallel if d not in blocked],
            lambda: self.loop(plan.group, 0, self.extents[plan.group], plan.block, rows),
        )

    def _tile(self, count: int) -> None:
        type_ = self.types[2]
        places = [self._place(2, {self.plan.row: t}) for t in range(count)]
        if self.fill is None:
            starts = [vector.load(type_, self.joined[2], place) for place in places]
        else:
            starts = [vector.broadcast(type_, self.fill) for _ in places]
        unrolled = {self.plan.inner, self.plan.window}
        results = self._reduce([d for d in self.s.reduction if d not in unrolled], starts)
        for place, value in zip(places, results):
            vector.store(value, self.joined[2], place)

    def _reduce(self, loops: list[int], accumulators: list[ir.Value]) -> list[ir.Value]:
        if not loops:
            return self._windows(accumulators)
        first, *rest = loops
        return self.reduce(
            first, 0, self.extents[first], 1, accumulators, lambda inner: self._reduce(rest, inner)
        )

    def _windows(self, accumulators: list[ir.Value]) -> list[ir.Value]:
        plan, body = self.plan, self.s.body
        taps = 1
        if plan.window is not None:
            taps, self.ivs[plan.window] = self.extents[plan.window], index(0)
        columns = defaultdict(list)
        for t in range(len(accumulators)):
            for tap in range(taps):
                columns[self._column(t, tap)].append((t, tap))
        inputs, results = (self.extents[d] for d in (plan.inner, plan.result))
        accumulators = list(accumulators)
        for channel in range(inputs):
            spread = [g * inputs + channel for g in range(plan.block) for _ in range(results)]
            weights = [self._load(plan.weight, {plan.inner: channel}, tap) for tap in range(taps)]
            for column in sorted(columns):
                t, tap = columns[column][0]
                loaded = self._load(plan.data, {plan.row: t}, tap)
                data = vector.shuffle(loaded, loaded, spread)
                for t, tap in columns[column]:
                    values = {
                        body.arguments[plan.data]: data,
                        body.arguments[plan.weight]: weights[tap],
                        body.arguments[2]: accumulators[t],
                    }
                    (accumulators[t],) = vectorize_body(body, values, plan.block * results)
        return accumulators

    def _column(self, t: int, tap: int) -> tuple[int, ...]:
        """Where the window that starts at step `t` has its `tap`, relative to the first."""
        at = [0] * len(self.extents)
        at[self.plan.row] = t
        if self.plan.window is not None:
            at[self.plan.window] = tap
        return tuple(evaluate(expr, at) for expr in self.maps[self.plan.data].results)

    def _load(self, operand: int, moved: dict[int, int], tap: int) -> ir.Value:
        if self.plan.window is not None:
            moved = {**moved, self.plan.window: tap}
        return vector.load(self.types[operand], self.joined[operand], self._place(operand, moved))

    def _place(self, operand: int, moved: dict[int, int]) -> list[ir.Value]:
        """An address in the joined operand, at the start of a block of groups."""
        used = map_dims(self.maps[operand])
        *outer, group, _ = self.address(operand, {d: step for d, step in moved.items() if d in used and step})
        if operand == self.plan.weight:
            return [*outer, self.zero]
        channels = self.extents[self.plan.inner if operand == self.plan.data else self.plan.result]
        return [*outer, affine.apply(ir.AffineMap.get(1, 0, [ir.AffineExpr.get_dim(0) * channels]), [group])]


def _join(value: ir.Value) -> ir.Value:
    """The memref with its last two dimensions as one."""
    type_ = ir.MemRefType(value.type)
    shape, rank = list(type_.shape), type_.rank
    strides, offset = type_.get_strides_and_offset()
    groups = [[d] for d in range(rank - 2)] + [[rank - 2, rank - 1]]
    layout = ir.StridedLayoutAttr.get(offset, [*strides[:-2], 1])
    plain = type_.layout == ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    joined = ir.MemRefType.get(
        [*shape[:-2], shape[-2] * shape[-1]], type_.element_type, None if plain else layout
    )
    return memref.collapse_shape(joined, value, groups)
